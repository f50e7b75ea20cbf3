"""Tasks by which an agent answers in threads: what the doors for other protocols share.

A thread is a session of one person. A message of theirs begins a task, the same one each time it is
sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote

from holdfast.desk.api.access import Access
from holdfast.desk.identity.tokens import READ, Identity, Verb
from holdfast.errors import InvalidArgumentError, SessionBusyError, TaskNotFoundError
from holdfast.task.data.calls import Approval
from holdfast.values.checks.ids import MADE, task_of
from holdfast.values.runs.status import OnBusy
from holdfast.values.steps import Task
from holdfast.values.text.decided import for_decision


@dataclass(frozen=True)
class Answer:
    """A person's answer to an approval.

    Attributes:
        id: The approval.
        approved: Whether the call may run.
        reason: Why.
        arguments: What it runs with in place of the model's arguments, if given.
    """

    id: str
    approved: bool
    reason: str = ""
    arguments: Mapping[str, Any] | None = None


def thread(visitor: Identity, id: str) -> str:
    """Return the name of the session of a person's thread."""
    # A name with the mark of a tenant's sessions would name those of another person.
    return f"{quote(visitor.name, safe='').replace(MADE, '%7E')}/{id}"


def names_digest(*names: str) -> str:
    """Return a part of a task's id that is made of names."""
    return hashlib.sha256("\0".join(names).encode()).hexdigest()[:24]


def only_text(parts: Sequence[object]) -> str:
    """Return the text of a message of a user, given that of each part; None for another part.

    Raises:
        InvalidArgumentError: It has other parts, or none.
    """
    texts = [each for each in parts if isinstance(each, str)]
    if len(texts) < max(len(parts), 1):
        raise InvalidArgumentError("A message has text alone; this one has other parts, or none.")
    return "\n".join(texts)


async def begin(
    asked: Access, text: str, *, agent: str, thread_id: str, on_busy: OnBusy = "refuse", **more: Any
) -> str:
    """Begin the task of a message, unless it has begun; return its id.

    Args:
        asked: The request.
        text: The message.
        agent: Name of the agent.
        thread_id: The thread.
        on_busy: What to do while the thread has a task that has not ended.
        more: Further arguments of `create_task`.

    Raises:
        SessionBusyError: The thread has a task that has not ended.
    """
    by = await asked.may("create", agent)
    create = partial(
        asked.runner.create_task,
        text,
        agent=agent,
        session=thread(asked.visitor, thread_id),
        on_busy=on_busy,
        step_mode="automatic",
        streams=True,
        exist_ok=True,
        by=by,
        **more,
    )
    try:
        return (await create()).task_id
    except SessionBusyError as error:  # by a task that was not followed to its end?
        if (await settled(asked, error.task_id)).status != "finished":
            raise
        return (await create()).task_id


def question_of(approval: Approval) -> str:
    """Return what a person of a thread is asked: all that would run can be read."""
    asks = approval.text or f"May {approval.tool} run with {approval.as_agreed}?"
    if approval.text and approval.tool and approval.kind != "question":
        asks += f"\n{approval.what}"
    return for_decision("\n".join([asks, *approval.filled_in]))


async def settled(asked: Access, task_id: str) -> Task:
    """Return a task; one that has its answer is closed before, if the sender may do that."""
    task = await asked.runner.get_task(task_id)
    if task.status != "answered" or not await asked.allows("finalize", task_id):
        return task
    await asked.runner.finalize_response(task_id)
    return await asked.runner.get_task(task_id)


async def line_of(asked: Access, thread_id: str) -> tuple[str, ...]:
    """Return the tasks of a thread that have not ended; the first one has the floor."""
    session = asked.runner.session(thread(asked.visitor, thread_id))
    with suppress(TaskNotFoundError):
        return (await asked.runner.reader.session(session.id)).line
    return ()


async def resumed(asked: Access, answers: Sequence[Answer], thread_id: str) -> tuple[str, int]:
    """Decide what a thread's task waits for, as far as it still does, and its child tasks.

    Returns:
        The task, and the offset of what the sender knows; 0 to begin with its first event,
        as it has been decided before.

    Raises:
        InvalidArgumentError: The answers are about two tasks.
        NotAllowedError: The sender may not read the task, or not decide.
    """
    line, due = await line_of(asked, thread_id), list[Answer]()
    task_id = line[0] if line else ""
    if not line or not (due := await _due(asked, task_id, answers)):
        tasks = {task_of(each.id) for each in answers}
        if len(tasks) > 1:
            raise InvalidArgumentError("The answers of one run are about one task.")
        [task_id] = tasks
    await asked.may(READ, task_id)
    due = due or await _due(asked, task_id, answers)
    if not due:  # the same run again
        return task_id, 0
    for each in due:  # all, before the first is decided
        await asked.may(_verb(each), each.id)
    after = 0
    async with aclosing(asked.runner.stream_events(task_id, until="waiting")) as told:
        async for event in told:
            after = event.offset
    for answer in due:
        await _decide(asked, answer)
    return task_id, after


async def _due(asked: Access, task_id: str, answers: Sequence[Answer]) -> list[Answer]:
    waiting = {each.id for each in await asked.runner.pending_approvals(task_id)}
    return [each for each in answers if each.id in waiting]


def _verb(answer: Answer) -> Verb:
    if not answer.approved:
        return "reject"
    return "approve" if answer.arguments is None else "edit"


async def _decide(asked: Access, answer: Answer) -> None:
    """Decide by the id alone: a call that was edited since it was shown is refused then."""
    by, roles = await asked.may(_verb(answer), answer.id), asked.person.roles
    if answer.approved:
        await asked.runner.approve(answer.id, by, answer.arguments, answer.reason, roles=roles)
    else:
        reason = answer.reason or "It was cancelled."
        await asked.runner.reject(answer.id, by, reason, roles=roles)
