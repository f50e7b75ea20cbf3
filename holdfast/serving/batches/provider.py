"""What is done at the provider for batches, by activities that may be repeated at any point.

OpenAI knows a batch by its metadata, and its input by the name of the file. So a submission whose
worker was lost is found again, and not made twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import openai
from openai import AsyncOpenAI
from temporalio import activity
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.failures import LoggedError
from holdfast.activities.heartbeat import ensure_ours, heartbeats
from holdfast.errors import ErasedError, ModelError, ModelUnavailableError, message_of
from holdfast.models.base import is_status_passing
from holdfast.models.openai.http.failures import ErrorStatus, cleaned, codes_of, model_error
from holdfast.models.openai.model import OpenAIModel
from holdfast.serving.batches.hand import Asker, Outcome
from holdfast.serving.batches.stored import Stored
from holdfast.serving.batches.workflow import REFUSED, Fetch, Line, Look, Seen, Submission
from holdfast.values.checks.gate import as_object, is_object
from holdfast.values.text.logs import log

METADATA = "holdfast"
CLOCKS = 600.0
"""Seconds by which the provider's clock may be behind."""

AT_ONCE = 20


class BatchActivities:
    """The activities of one model's batches."""

    def __init__(self, model: OpenAIModel) -> None:
        """Work for this model."""
        self._model = model

    @property
    def all(self) -> list[Callable[..., Any]]:
        """The activity functions."""
        return [self.waits, self.submit, self.look, self.fetch, self.tidy]

    @activity.defn(name="batch_waits")
    async def waits(self, askers: list[Asker]) -> list[bool]:
        """Say of each activity of a step whether it waits: the server knows."""
        async with heartbeats():
            runs = {(each.task, each.run) for each in askers}
            room = asyncio.Semaphore(AT_ONCE)

            async def look(task: str, run: str) -> tuple[str, ...]:
                async with room:
                    return await open_activities(task, run)

            found = await asyncio.gather(*(look(*each) for each in runs))
            known = dict(zip(runs, found, strict=True))
            return [each.activity in known[each.task, each.run] for each in askers]

    @activity.defn(name="batch_submit")
    async def submit(self, given: Submission) -> str:
        """Submit a batch, unless that was done; return the provider's id."""
        async with self._asking() as client:
            again = given.again or activity.info().attempt > 1
            since = given.made - CLOCKS
            id = await self._known_batch(client, given.name, since) if again else None
            if id is not None:
                return id
            file = await self._known_file(client, given.name, since) if again else None
            if file is None:
                data = await self._file(given.lines)
                await ensure_ours("submission of a batch")
                whole = (f"{given.name}.jsonl", data, "application/jsonl")
                file = (await client.files.create(file=whole, purpose="batch")).id
            await ensure_ours("submission of a batch")
            endpoint: Any = f"/v1{self._model.path}"
            made = await client.batches.create(
                input_file_id=file,
                endpoint=endpoint,
                completion_window="24h",
                metadata={METADATA: given.name},
            )
            log.info("Batch %s has %d calls of model %r", made.id, len(given.lines), self._name)
            return made.id

    @staticmethod
    async def _known_batch(client: AsyncOpenAI, name: str, since: float) -> str | None:
        async for each in client.batches.list(limit=100):
            if (each.metadata or {}).get(METADATA) == name:
                return each.id
            if each.created_at < since:
                break
        return None

    @staticmethod
    async def _known_file(client: AsyncOpenAI, name: str, since: float) -> str | None:
        async for each in client.files.list(purpose="batch", order="desc"):
            if each.filename == f"{name}.jsonl":
                return each.id
            if each.created_at < since:
                break
        return None

    async def _file(self, lines: tuple[Line, ...]) -> bytes:
        """Write the file of a batch; a line whose task was erased is left out.

        Raises:
            ApplicationError: None is left.
        """
        stored, parts = Stored(activity.client()), list[bytes]()
        for line in lines:
            try:
                body = await stored.read(line.task, line.body)
            except ErasedError:
                continue
            head = {"custom_id": line.id, "method": "POST", "url": f"/v1{self._model.path}"}
            start = json.dumps(head).encode()[:-1]
            parts.append(start + b', "body": ' + body + b"}\n")
        if not parts:
            msg = "The tasks of all calls of the batch were erased."
            raise ApplicationError(msg, type=REFUSED)
        return b"".join(parts)

    @activity.defn(name="batch_look")
    async def look(self, given: Look) -> Seen:
        """Look at a batch, or cancel it; one that is over is only looked at."""
        async with self._asking() as client:
            found = await client.batches.retrieve(given.id)
            if given.cancel and found.status in ("validating", "in_progress"):
                found = await client.batches.cancel(given.id)
            errors = (found.errors.data if found.errors is not None else None) or []
            said = errors[0].message or "" if errors else ""
            outputs = tuple(filter(None, (found.output_file_id, found.error_file_id)))
            return Seen(
                status=found.status,
                outputs=outputs,
                files=(found.input_file_id, *outputs),
                why=f"Batch {found.id} has failed: {cleaned(said, '') or 'no one says why'}.",
                code=errors[0].code or "" if errors else "",
            )

    @activity.defn(name="batch_fetch")
    async def fetch(self, given: Fetch) -> list[Outcome]:
        """Put the answers of a batch into the archive, each for its task."""
        async with self._asking() as client:
            tasks = {line.id: line.task for line in given.lines}
            stored, found = Stored(activity.client()), list[Outcome]()
            for file in given.outputs:
                whole = await client.files.content(file)
                for text in whole.content.splitlines():
                    outcome = await self._outcome(stored, tasks, text)
                    if outcome is not None:
                        found.append(outcome)
            return found

    @staticmethod
    async def _outcome(stored: Stored, tasks: dict[str, str], text: bytes) -> Outcome | None:
        """Store a line's answer; None if there is no final one, or no one waits for it."""
        try:
            line: object = json.loads(text)
        except ValueError:
            log.warning("A line of a batch's answers is not JSON")
            return None
        task = tasks.get(str(line.get("custom_id"))) if is_object(line) else None
        if not is_object(line) or task is None or not is_object(line.get("response")):
            return None  # such as "batch_expired"
        response = as_object(line["response"])
        status, body = int(response.get("status_code") or 0), as_object(response.get("body"))
        if status < 200 or is_status_passing(status, codes_of(as_object(body.get("error")))):  # noqa: PLR2004
            return None
        kept = json.dumps(response, ensure_ascii=False, separators=(",", ":"))
        try:
            sha256 = await stored.write(task, kept.encode("utf-8", "surrogatepass"))
        except ErasedError:
            return None
        return Outcome(line=str(line["custom_id"]), answer=sha256, is_good=status < 300)  # noqa: PLR2004

    @activity.defn(name="batch_tidy")
    async def tidy(self, files: list[str]) -> None:
        """Delete files at the provider; of one that stays, the log says why."""
        async with self._asking() as client:
            for file in files:
                try:
                    await client.files.delete(file)
                except (openai.OpenAIError, ErrorStatus) as error:
                    why = self._cause(error)
                    if isinstance(why, ModelUnavailableError):
                        raise
                    log.warning("File %s of a batch was not deleted: %s", file, why)

    @property
    def _name(self) -> str:
        return self._model.name

    @asynccontextmanager
    async def _asking(self) -> AsyncGenerator[AsyncOpenAI]:
        """Give the client, and heartbeat.

        Raises:
            ApplicationError: The provider did not do it; "BatchRefused" if repeating cannot help.
        """
        async with heartbeats():
            try:
                yield self._model.client()
            except (openai.OpenAIError, ErrorStatus) as error:
                raise _trouble(self._cause(error)) from None

    def _cause(self, error: openai.OpenAIError | ErrorStatus) -> ModelError:
        if isinstance(error, ErrorStatus):
            return error.error(self._name, self._model.secret)
        return model_error(error, model=self._name, secret=self._model.secret)


def _trouble(error: ModelError) -> ApplicationError:
    """Return the failure of an activity, without the key, which causes would hold."""
    log.warning("A batch waits: %s", error)
    kind = "BatchTrouble" if isinstance(error, ModelUnavailableError) else REFUSED
    return LoggedError(message_of(error), type=kind)


async def open_activities(task: str, run: str) -> tuple[str, ...]:
    """Return the activities of a task's run that are open, and are not being cancelled."""
    try:
        found = await activity.client().get_workflow_handle(task, run_id=run).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return ()
        raise
    if found.status is not WorkflowExecutionStatus.RUNNING:
        return ()
    cancelled = PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED
    pending = found.raw_description.pending_activities
    return tuple(each.activity_id for each in pending if each.state != cancelled)
