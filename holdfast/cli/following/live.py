"""The live view of a task: each model call and tool call as it happens, with retries and why."""

from __future__ import annotations

import asyncio
import itertools
import re
from contextlib import suppress

from rich.console import Console
from rich.status import Status
from rich.text import Text
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RPCError

from holdfast.archive.archive import Archive
from holdfast.cli.following.history import LiveEvent, TaskHistory, place
from holdfast.cli.output import shortened
from holdfast.errors import ConnectError
from holdfast.reading.queries import activities_of, cause_of, why_blocked
from holdfast.reading.step_events import attempt_text
from holdfast.reading.streams.follower import lost_calls, seconds_until
from holdfast.task.data.wire import activity_key
from holdfast.values.messages import ToolCall
from holdfast.values.text.terminal import printable

POLL_SECONDS = 0.5
AGAIN_SECONDS = 1.0


class LiveView:
    """Prints the events of one task while a command waits for it."""

    def __init__(self, client: Client, archive: Archive, task_id: str, console: Console) -> None:
        """Print to this console; on a terminal a last line shows the calls in flight."""
        self._client = client
        self._archive = archive
        self._task_id = task_id
        self._console = console
        self._history = TaskHistory(client, task_id)
        self._flying: dict[str, LiveEvent] = {}
        self._retries: set[tuple[str, int]] = set()
        self._blocks: set[str] = set()
        self._status = Status("") if console.is_terminal else None

    async def follow(self) -> None:
        """Print until the task is closed or this is cancelled."""
        polling = asyncio.create_task(self._poll())
        if self._status is not None:
            self._status = self._console.status("waiting for the worker")
            self._status.start()
        try:
            for _ in itertools.count():
                if await self._read(wait=True):
                    return
                await asyncio.sleep(AGAIN_SECONDS)
        finally:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
            if self._status is not None:
                self._status.stop()

    async def catch_up(self) -> None:
        """Print the events up to now that were not printed yet."""
        await self._read(wait=False)

    async def _read(self, *, wait: bool) -> bool:
        """Print events; return False when the server was away and reading must begin again."""
        try:
            async for event in self._history.read(wait=wait):
                self.take(event)
        except RPCError:
            return False
        return True

    async def _poll(self) -> None:
        """Find retries while they happen: history shows a retry only once the attempt has ended."""
        handle = self._client.get_workflow_handle(self._task_id)
        while True:
            with suppress(RPCError, ConnectError):
                found = await handle.describe()
                await self._tell_block(found)
                for pending in activities_of(found):
                    known = self._flying.get(pending.activity_id)
                    if known is not None and pending.attempt > 1:
                        changes: dict[str, object] = {"kind": "retried", "attempt": pending.attempt}
                        changes |= {"text": await cause_of(self._client, pending.last_failure)}
                        changes |= {"seconds": seconds_until(pending)}
                        if known.name == "model":
                            ours = (activity_key(found.run_id, known.activity), known.lost)
                            lost = await lost_calls(self._archive, self._task_id, known.lane, ours)
                            changes |= {"name": ", ".join(lost) or known.name}
                        self.take(known.model_copy(update=changes))
            await asyncio.sleep(POLL_SECONDS)

    async def _tell_block(self, found: WorkflowExecutionDescription) -> None:
        """Say once what the task waits for while no call is in flight that says it itself."""
        why = "" if self._flying else await why_blocked(self._client, found)
        cause = re.sub(r"\d+|begins at [^.]*|is under way", "", why)  # the same in each attempt
        if cause and cause not in self._blocks:
            self._blocks.add(cause)
            hint = f"It is tried again; `holdfast abandon {self._task_id}` gives the task up."
            self._console.print(printable(f"    task  waits. {why} {hint}"), style="yellow")

    def take(self, event: LiveEvent) -> None:
        """Print one event, unless it is a retry that was printed already."""
        if event.kind == "retried":
            mark = (event.activity, event.attempt)
            if mark in self._retries:
                return
            self._retries.add(mark)
        elif event.kind in ("asking", "calling"):
            self._flying[event.activity] = event
        else:
            self._flying.pop(event.activity, None)
        self._console.print(line(event), style=style(event))
        if self._status is not None:
            flying = ", ".join(
                f"{place(h.step, h.step_id)}: {h.name}" for h in self._flying.values()
            )
            shown = printable(f"{flying} in flight" if flying else "waiting")
            self._status.update(Text(shown))  # a str would be read as markup


def line(event: LiveEvent) -> str:
    """Return an event in one line."""
    where = place(event.step, event.step_id) if event.step else "task"
    return f"{where:>8}  {_words(event)}"


def _words(event: LiveEvent) -> str:
    name, text = event.name, shortened(event.text)
    match event.kind:
        case "asking":
            return "model call"
        case "answered":
            calls = ", ".join(call_words(call) for call in event.calls)
            said = " and ".join(part for part in (repr(text) if text else "", calls) if part)
            failed = f"; the step failed: {shortened(event.error)}" if event.error else ""
            return f"model answers {said or 'nothing'}{failed}"
        case "calling":
            return f"{name} {text}"
        case "returned":
            verb = "failed:" if event.is_error else "gave"
            again = f" (attempt {event.attempt})" if event.attempt > 1 else ""
            return f"{name} {verb} {text}{again}"
        case "retried":
            return f"{name}: {attempt_text(text, event.attempt, event.seconds)}"
        case "failed":
            return f"{name} failed: {text}"
        case "waiting":
            return f"waits for a decision on {text}"
        case "command":
            return f"{name} {text}".rstrip()
        case "ended":
            return f"closed: {text}"


def call_words(call: ToolCall) -> str:
    """Show a tool call in one line."""
    return f"{call.name} {shortened(call.arguments)}"


def style(event: LiveEvent) -> str | None:
    """Return the style of a line."""
    match event.kind:
        case "failed":
            return "red"
        case "retried" | "waiting":
            return "yellow"
        case "returned" if event.is_error:
            return "yellow"
        case "asking" | "calling":
            return "dim"
        case "answered" if event.error:
            return "red"
        case "answered" | "returned" | "command" | "ended":
            return None
