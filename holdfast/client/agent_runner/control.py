"""Steering tasks. Every command is durable once sent, also while no worker process is up."""

from __future__ import annotations

from typing import Literal

from holdfast.client.agent_runner.base import RunnerBase, TaskLike, id_of, step_id_of
from holdfast.errors import InvalidArgumentError
from holdfast.reading.artifacts import KeptArtifact, artifacts_in, newest, read_artifact
from holdfast.reading.streams.hub import local_turns
from holdfast.task.data.commands import Receipt
from holdfast.task.data.head import RunChange
from holdfast.values.base import Json
from holdfast.values.checks.gate import check_arguments
from holdfast.values.checks.ids import check_known_id
from holdfast.values.runs.approval_rules import Until, seconds_of
from holdfast.values.steps import TaskStep


class TaskControl(RunnerBase):
    """The part of AgentRunner that steers tasks. `by` names who acts; it is recorded."""

    async def pause(
        self,
        task: TaskLike,
        reason: str = "",
        by: str = "",
        *,
        until: Until | None = None,
        after: int | None = None,
    ) -> Receipt:
        """Let no further step begin; those in progress are finished.

        Args:
            task: The task.
            reason: Why.
            by: Who pauses it.
            until: When it ends; a datetime with a time zone, or seconds since the
                epoch.
            after: Offset of an event that a stream has yielded: a step in progress that began after
                it is not finished either. Its model call goes on and its answer is kept, but no
                tool of it begins before the task is resumed. A task that is paused already keeps
                its pause and the name in it. 0 if no event was read yet.

        Raises:
            CommandRefusedError: The task is closing, or the time is over.
        """
        check_arguments(TaskControl.pause, reason=reason, until=until, after=after)
        body: dict[str, Json] = {"reason": reason, **({} if after is None else {"after": after})}
        body |= {} if until is None else {"until": seconds_of(until)}
        return await self._tasks.command(id_of(task), "pause", by=by, body=body)

    async def resume(self, task: TaskLike, by: str = "", *, reason: str = "") -> Receipt:
        """Let steps begin again.

        Args:
            task: The task.
            by: Who resumes it.
            reason: Why.

        Raises:
            CommandRefusedError: The task is not paused.
        """
        check_arguments(TaskControl.resume, reason=reason)
        local_turns.resume(id_of(task))
        return await self._tasks.command(id_of(task), "resume", by=by, body=_why(reason))

    async def abandon(
        self, task: TaskLike, reason: str, by: str = "", *, force: bool = False
    ) -> Receipt:
        """End a task without an answer: running calls are cancelled, its session gets nothing.

        Args:
            task: The task.
            reason: Why.
            by: Who ends it.
            force: For a task in which workflow code fails, which obeys no command: Temporal ends
                it, and its record is made from its history. What it had begun counts as unknown.
                So is the record made of a task that Temporal's own tools have terminated.

        Raises:
            CommandRefusedError: The task is closing; or it obeys commands, and needs no force.
            TaskClosedError: The task is closed.
            QueryFailedError: It has ended by force, and its history cannot be read by this code.
        """
        check_arguments(TaskControl.abandon, reason=reason)
        if force:
            from holdfast.client.agent_runner.task_client.forced import end_by_force

            return await end_by_force(self._read, id_of(task), reason, by)
        return await self._tasks.command(id_of(task), "abandon", by=by, body={"reason": reason})

    async def give_feedback(
        self,
        task: TaskLike,
        text: str,
        when: Literal["next_model_call", "queued"] = "next_model_call",
        by: str = "",
        *,
        request_id: str | None = None,
    ) -> Receipt:
        """Send a message to the model.

        Args:
            task: The task.
            text: The message, at most 16,384 characters.
            when: "next_model_call": seen by the next step that begins; nothing is interrupted.
                "queued": becomes the next input once the task has its answer.
            by: Who sends it.
            request_id: Names this request: sent again with the same id, it has one effect.

        Raises:
            CommandRefusedError: The text is empty or too long.
        """
        check_arguments(TaskControl.give_feedback, text=text, when=when)
        body: dict[str, Json] = {"text": text, "when": when}
        return await self._tasks.command(
            id_of(task), "feedback", by=by, body=body, request_id=request_id
        )

    async def wake(
        self,
        task: TaskLike,
        by: str = "",
        *,
        until: Until | None = None,
        call: str = "",
        reason: str = "",
    ) -> Receipt:
        """End the wait of a call before its time, or change its time.

        Args:
            task: The task.
            by: Who asks for it.
            until: When it ends; a datetime with a time zone, or seconds since the epoch. None ends
                it at once.
            call: Id of the call, if several wait.
            reason: Why.

        Raises:
            CommandRefusedError: No such call waits, or the time is over.
        """
        check_arguments(TaskControl.wake, until=until, call=call, reason=reason)
        body: dict[str, Json] = {} if until is None else {"until": seconds_of(until)}
        body |= {**({"call": call} if call else {}), **_why(reason)}
        return await self._tasks.command(id_of(task), "wake", by=by, body=body)

    async def complete(
        self,
        token: str,
        result: Json = None,
        by: str = "",
        *,
        error: str = "",
        until: Until | None = None,
    ) -> Receipt:
        """Give a call of a tool that completes later its outcome.

        Args:
            token: The call's token: `ctx.completion_token` of its tool.
            result: What the model reads: a text, or JSON data.
            by: Who or what sends it.
            error: In place of a result: why the call failed; the model reads it.
            until: In place of both: until when the call may take; a datetime with a time zone, or
                seconds since the epoch.

        Raises:
            InvalidArgumentError: The text cannot be a token of a call.
            CommandRefusedError: The call has its outcome already, or its step was undone.
            TaskClosedError: The task has ended.
        """
        check_arguments(TaskControl.complete, error=error, until=until)
        task = str(token).rpartition(":")[0].rpartition(":")[0]
        if not task:
            msg = "A token is <task id>:<place>:<digits>, as the tool of the call was given it."
            raise InvalidArgumentError(msg)
        given: dict[str, Json] = {"result": result, "error": error or None}
        given["until"] = None if until is None else seconds_of(until)
        body = {name: each for name, each in given.items() if each is not None}
        return await self._tasks.command(
            check_known_id(task), "complete", by=by, body={"token": token, **body}
        )

    async def edit_step(
        self, task: TaskLike, step: TaskStep | str, input: str, by: str = "", *, reason: str = ""
    ) -> Receipt:
        """Change the input of an upcoming step.

        Args:
            task: The task.
            step: The step, or its id.
            input: Its new input.
            by: Who changes it.
            reason: Why.

        Raises:
            CommandRefusedError: No such step is queued.
        """
        check_arguments(TaskControl.edit_step, input=input, reason=reason)
        body: dict[str, Json] = {"step": step_id_of(step), "input": input, **_why(reason)}
        return await self._tasks.command(id_of(task), "edit_step", by=by, body=body)

    async def drop_step(
        self, task: TaskLike, step: TaskStep | str, by: str = "", *, reason: str = ""
    ) -> Receipt:
        """Take an upcoming step out of the queue.

        Args:
            task: The task.
            step: The step, or its id.
            by: Who drops it.
            reason: Why.

        Raises:
            CommandRefusedError: No such step is queued.
        """
        check_arguments(TaskControl.drop_step, reason=reason)
        body: dict[str, Json] = {"step": step_id_of(step), **_why(reason)}
        return await self._tasks.command(id_of(task), "drop_step", by=by, body=body)

    async def change_run(self, task: TaskLike, change: RunChange, by: str = "") -> Receipt:
        """Give the run of a task other settings, as `Runner.run` does that is given a state.

        Args:
            task: The task.
            change: The settings, as data. They hold for all that is begun from now on.
            by: Who gives them.

        Raises:
            CommandRefusedError: A step is in the middle of calls that another model answers; or it
                is a nested run with settings of its own.
        """
        return await self._tasks.command(id_of(task), "configure", by=by, body=change.wire())


def _why(reason: str) -> dict[str, Json]:
    return {"reason": reason} if reason else {}


# Reading the artifacts of tasks: the files that their tools have kept.


class TaskArtifacts(RunnerBase):
    """The part of AgentRunner that reads artifacts."""

    async def artifacts(self, task: TaskLike, *, versions: bool = False) -> list[KeptArtifact]:
        """List the artifacts of a task, oldest first: of its active steps, of each name the newest.

        Args:
            task: The task, open or closed.
            versions: Whether to list older versions as well.

        Raises:
            TaskNotFoundError: No task has this id.
        """
        check_arguments(TaskArtifacts.artifacts, versions=versions)
        found = artifacts_in(*await self._read.ledger(id_of(task)))
        return found if versions else newest(found)

    async def read_artifact(
        self, task: TaskLike, name: str, *, version: int | None = None
    ) -> bytes:
        """Return the bytes of an artifact.

        Args:
            task: The task, open or closed.
            name: Its name, or its reference.
            version: Which of its name; the newest by default.

        Raises:
            TaskNotFoundError: No task has this id.
            NotFoundError: The task has no such artifact.
            ArchiveError: The archive does not have the bytes, or they were erased.
        """
        check_arguments(TaskArtifacts.read_artifact, name=name, version=version)
        return (await read_artifact(self._read, id_of(task), name, version))[1]
