"""What is done at a provider for batches, by activities that may be repeated at any point.

OpenAI knows a batch by its metadata, and its input by the name of the file. So a submission whose
worker was lost is found again, and not made twice.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Generic, TypeVar, cast

import openai
from openai import AsyncOpenAI
from temporalio import activity
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError

from holdfast.activities.failures import LoggedError
from holdfast.activities.heartbeat import ensure_ours, heartbeats
from holdfast.archive.session_commits import find_run
from holdfast.errors import DAMAGED, ModelError, ModelUnavailableError, message_of
from holdfast.models.openai.http.failures import ErrorStatus, cleaned, model_error
from holdfast.models.openai.model import OpenAIModel
from holdfast.serving.batches.hand import ENDS, Asker, Outcome, Seen
from holdfast.serving.batches.stored import Stored, answer_of
from holdfast.serving.batches.workflow import REFUSED, Fetch, Line, Look, Submission
from holdfast.values.checks.gate import as_object, is_object
from holdfast.values.code.some_at_once import some_at_once
from holdfast.values.text.logs import log

T = TypeVar("T")
LinesT = TypeVar("LinesT")
"""What writes the lines of a batch and reads their answers: a model, or what asks one."""

METADATA = "holdfast"
CLOCKS = 600.0
"""Seconds by which the provider's clock may be behind."""


class BatchActivities(ABC, Generic[LinesT]):
    """The activities of one model's batches."""

    errors: ClassVar[tuple[type[Exception], ...]] = ()
    """What the provider's client raises."""

    def __init__(self, model: LinesT) -> None:
        """Work for the model that writes the lines, and reads the answers."""
        self._model = model

    @property
    def all(self) -> list[Callable[..., Any]]:
        """The activity functions."""
        return [self.waits, self.submit, self.look, self.fetch, self.tidy]

    @activity.defn(name="batch_waits")
    async def waits(self, askers: list[Asker]) -> list[bool]:
        """Say of each activity of a step whether it waits: the server knows."""
        async with heartbeats():
            runs = [*{(each.task, each.run) for each in askers}]
            found = await some_at_once(lambda each: open_activities(*each), runs)
            known = dict(zip(runs, found, strict=True))
            return [each.activity in known[each.task, each.run] for each in askers]

    async def written(self, lines: Sequence[Line]) -> list[tuple[str, bytes]]:
        """Return the ids and bodies of lines; one that is erased or damaged is left out.

        Raises:
            ApplicationError: None is left.
        """
        stored = Stored(activity.client())

        async def body_of(line: Line) -> tuple[str, bytes] | None:
            try:
                return line.id, await stored.read(line.task, line.body)
            except DAMAGED as error:
                log.warning("A call of task %r is left out of its batch: %s", line.task, error)
                return None

        found = [each for each in await some_at_once(body_of, lines) if each is not None]
        if not found:
            msg = "No call of the batch can be read in the archive any more."
            raise ApplicationError(msg, type=REFUSED)
        return found

    async def kept(
        self, stored: Stored, tasks: dict[str, str], id: str, response: dict[str, Any]
    ) -> Outcome | None:
        """Store a line's answer for its task; None if there is no final one, or no one waits.

        Args:
            stored: The archive.
            tasks: Tasks of the lines that are wanted, by their ids.
            id: The line.
            response: Its `status_code` and `body`, as OpenAI's Batch API gives them.
        """
        status, body = response.get("status_code"), response.get("body")
        if id not in tasks or not isinstance(status, int) or status < 200 or not is_object(body):  # noqa: PLR2004
            return None  # such as "batch_expired"
        is_good = True
        try:
            await answer_of(self._model, response)
        except Exception as error:  # noqa: BLE001  its step raises it again
            if isinstance(error, ModelUnavailableError) and error.usage is None:
                log.warning("A call of task %r joins another batch: %s", tasks[id], error)
                return None
            is_good = isinstance(error, ModelUnavailableError)
        kept = json.dumps(response, ensure_ascii=False, separators=(",", ":"))
        try:
            sha256 = await stored.write(tasks[id], kept.encode("utf-8", "surrogatepass"))
        except DAMAGED as error:
            log.warning("An answer for task %r was not kept: %s", tasks[id], error)
            return None
        return Outcome(line=id, answer=sha256, is_good=is_good)

    @asynccontextmanager
    async def asking(self) -> AsyncGenerator[None]:
        """Heartbeat, and tell what the provider did not do.

        Raises:
            ApplicationError: "BatchRefused" if repeating cannot help.
        """
        async with heartbeats():
            try:
                yield
            except self.errors as error:
                raise trouble(self.cause(error)) from None

    async def given(self, asked: Awaitable[T]) -> T | None:
        """Return what the provider gives; None if it refuses, and the log says why."""
        try:
            return await asked
        except self.errors as error:
            why = self.cause(error)
            if isinstance(why, ModelUnavailableError):
                raise
            log.warning("The provider refuses a part of a batch: %s", why)
            return None

    @abstractmethod
    async def submit(self, given: Submission) -> str:
        """Submit a batch, unless that was done; return the provider's id."""

    @abstractmethod
    async def look(self, given: Look) -> Seen:
        """Look at a batch, or cancel it."""

    @abstractmethod
    async def fetch(self, given: Fetch) -> list[Outcome]:
        """Put the answers of a batch into the archive, each for its task."""

    @abstractmethod
    async def tidy(self, files: list[str]) -> None:
        """Delete what the provider keeps of a batch; of what stays, the log says why."""

    @abstractmethod
    def cause(self, error: Exception) -> ModelError:
        """Return ours for an error of the provider's client."""


class OpenAIBatches(BatchActivities[OpenAIModel]):
    """By OpenAI's Batch API."""

    errors = openai.OpenAIError, ErrorStatus

    @activity.defn(name="batch_submit")
    async def submit(self, given: Submission) -> str:
        """Submit a batch, unless that was done; return the provider's id.

        Without lines it is only found out whether it was; empty if not.
        """
        async with self.asking():
            client = self._model.client()
            name, since = given.name, given.made - CLOCKS
            file: str | None = None
            if given.again or activity.info().attempt > 1:
                batches: Any = client.batches.list(limit=100)
                files: Any = client.files.list(purpose="batch", order="desc")
                if id := await _known(batches, since, lambda each: _named(each) == name):
                    return str(id)
                file = await _known(files, since, lambda each: each.filename == f"{name}.jsonl")
            if not given.lines:
                if file is not None:
                    await client.files.delete(file)
                return ""
            if file is None:
                data = await self._file(given.lines)
                await ensure_ours("submission of a batch")
                whole = (f"{name}.jsonl", data, "application/jsonl")
                file = (await client.files.create(file=whole, purpose="batch")).id
            await ensure_ours("submission of a batch")
            about: Any = {"completion_window": "24h", "metadata": {METADATA: name}}
            endpoint: Any = f"/v1{self._model.path}"
            made = await client.batches.create(input_file_id=file, endpoint=endpoint, **about)
            calls = len(given.lines)
            log.info("Batch %s has %d calls of model %r", made.id, calls, self._model.name)
            if not made.id:
                raise LoggedError("The provider gave the batch no id.", type="BatchTrouble")
            return str(made.id)

    async def _file(self, lines: tuple[Line, ...]) -> bytes:
        """Write the file of a batch."""

        def written(id: str, body: bytes) -> bytes:
            head = {"custom_id": id, "method": "POST", "url": f"/v1{self._model.path}"}
            return json.dumps(head).encode()[:-1] + b', "body": ' + body + b"}\n"

        return b"".join(written(*each) for each in await self.written(lines))

    @activity.defn(name="batch_look")
    async def look(self, given: Look) -> Seen:
        """Look at a batch, or cancel it; one that is over is only looked at."""
        async with self.asking():
            client = self._model.client()
            found = await client.batches.retrieve(given.id)
            if given.cancel and found.status not in {*ENDS, "finalizing", "cancelling"}:
                found = await client.batches.cancel(given.id)
            errors = (found.errors.data if found.errors is not None else None) or []
            wrong = {each.line for each in errors} - {None}
            said = errors[0].message or "" if errors else ""
            outputs = tuple(filter(None, (found.output_file_id, found.error_file_id)))
            return Seen(
                status=str(found.status),
                outputs=outputs,
                files=(found.input_file_id, *outputs),
                why=f"Batch {found.id} has failed: {cleaned(said, '') or 'no one says why'}.",
                code=errors[0].code or "" if errors else "",
                lines=await self._ids(client, found.input_file_id, wrong) if wrong else (),
            )

    async def _ids(
        self, client: AsyncOpenAI, file: str, wrong: Collection[int | None]
    ) -> tuple[str, ...]:
        """Return the ids of lines of a batch's input, by their numbers; none if it is not given."""
        found = await self.given(client.files.content(file))
        lines = enumerate(found.content.splitlines() if found is not None else (), 1)
        return tuple(json.loads(text)["custom_id"] for k, text in lines if k in wrong)

    @activity.defn(name="batch_fetch")
    async def fetch(self, given: Fetch) -> list[Outcome]:
        """Put the answers of a batch into the archive, each for its task."""
        async with self.asking():
            client = self._model.client()
            tasks = {line.id: line.task for line in given.lines}
            stored, found = Stored(activity.client()), list[Outcome]()
            for file in given.outputs:
                texts = (await client.files.content(file)).content.splitlines()
                said = await some_at_once(lambda each: self._outcome(stored, tasks, each), texts)
                found += [each for each in said if each is not None]
            return found

    async def _outcome(self, stored: Stored, tasks: dict[str, str], text: bytes) -> Outcome | None:
        try:
            line = as_object(json.loads(text))
        except (ValueError, RecursionError):
            log.warning("A line of a batch's answers is not JSON")
            return None
        id, response = str(line.get("custom_id")), as_object(line.get("response"))
        return await self.kept(stored, tasks, id, response)

    @activity.defn(name="batch_tidy")
    async def tidy(self, files: list[str]) -> None:
        """Delete files at the provider; of one that stays, the log says why."""
        async with self.asking():
            client = self._model.client()
            for file in files:
                await self.given(client.files.delete(file))

    def cause(self, error: Exception) -> ModelError:
        """Return ours for an error of the client."""
        if isinstance(error, ErrorStatus):
            return error.error(self._model.name, self._model.secret)
        known = cast("openai.OpenAIError", error)
        return model_error(known, model=self._model.name, secret=self._model.secret)


def _named(batch: Any) -> object:
    return (batch.metadata or dict[str, str]()).get(METADATA)


async def _known(listed: AsyncIterable[Any], since: float, is_it: Callable[[Any], bool]) -> Any:
    """Return the id of what is listed, newest first, and not older; None if it is not there."""
    async for each in listed:
        if is_it(each):
            return each.id
        if each.created_at < since:
            break
    return None


def trouble(error: ModelError, untaken: str = "") -> ApplicationError:
    """Return the failure of an activity, without the key, which causes would hold.

    Args:
        error: What the provider says.
        untaken: Type of the failure of a submission that the provider knows nothing of, if it
            passes: the next one must not look for it.
    """
    log.warning("A batch waits: %s", error)
    passes = isinstance(error, ModelUnavailableError)
    kind = (untaken or "BatchTrouble") if passes else REFUSED
    return LoggedError(message_of(error), type=kind, non_retryable=kind == untaken)


async def open_activities(task: str, run: str) -> tuple[str, ...]:
    """Return the activities of a task's run that are open, and are not being cancelled."""
    found = await find_run(activity.client(), task, run)
    if found is None or found.status is not WorkflowExecutionStatus.RUNNING:
        return ()
    cancelled = PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED
    pending = found.raw_description.pending_activities
    return tuple(each.activity_id for each in pending if each.state != cancelled)
