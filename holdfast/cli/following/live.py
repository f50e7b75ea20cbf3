"""The live view of a task: its events as they happen, in the words that `verbose=True` has."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from functools import partial

from rich.console import Console
from rich.status import Status
from rich.text import Text
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.common import RawValue

from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.errors import HoldfastError
from holdfast.reading.queries import activities_of, said_by, why_blocked
from holdfast.reading.reader import Reader
from holdfast.reading.step_events import (
    Attempt,
    CommandGiven,
    StepEnd,
    StepEvent,
    StepFailed,
    StepStart,
    ToolCalled,
    ToolDone,
    Waiting,
    event_text,
)
from holdfast.reading.streams.follower import Follower
from holdfast.task.data.commands import Command, decode
from holdfast.task.requests.command_effects import HEARD
from holdfast.values.text.terminal import printable

POLL_SECONDS = 0.2
LAST_SECONDS = 3.0
"""Time limit of the last reading: no worker may be up."""


class LiveView:
    """Prints the events of one task while a command waits for it."""

    def __init__(self, runner: AgentRunner, task_id: str, console: Console) -> None:
        """Print to this console; on a terminal a last line shows the calls in flight."""
        self._reader = runner.reader
        self._task_id = task_id
        self._console = console
        self._following = partial(Follower, runner.reader, runner.response, task_id)
        self._follower = self._following()
        self._mark: object = None
        self._one = asyncio.Lock()
        self._flying: dict[tuple[str, str], str] = {}
        self._said: set[str] = set()
        self._status: Status | None = None

    async def follow(self) -> None:
        """Print until the task is closed or this is cancelled."""
        if self._console.is_terminal:
            self._status = self._console.status("waiting for the worker")
            self._status.start()
        reading = asyncio.ensure_future(asyncio.sleep(0))
        try:
            while not self._follower.ended:
                with suppress(HoldfastError):  # the server is away, or was asked in vain
                    found = await self._reader.describe(self._task_id)
                    mark = (found.run_id, found.history_length)
                    if found.status is not WorkflowExecutionStatus.RUNNING:
                        await reading
                        return await self._read()
                    # A query costs an action: nothing is asked while nothing has happened. It may
                    # wait for a worker, and what the server knows is told meanwhile.
                    if mark != self._mark and reading.done():
                        self._mark = mark
                        reading = asyncio.ensure_future(self._read())
                    await self._tell_block(found)
                    for attempt in await self._follower.attempts():
                        self.take(attempt)
                await asyncio.sleep(POLL_SECONDS)
        finally:
            # What it has read already would be told by no later reading.
            await asyncio.wait((reading,), timeout=LAST_SECONDS)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            if self._status is not None:
                self._status.stop()

    async def catch_up(self) -> None:
        """Print the events up to now that were not printed yet."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await self._read()

    async def _read(self) -> None:
        """Print what is new, as far as it can be read."""
        try:
            async with self._one:  # each event is printed once
                for event in await self._follower.new():
                    self.take(event)
        except HoldfastError:  # no worker or no server is up, or the archive cannot be read
            self._mark, self._follower = None, self._following(self._follower.after)
        except Exception as error:  # noqa: BLE001  of a codec; shown
            self._follower = self._following(self._follower.after)
            self._tell(f"It cannot be read here: {said_by(error)}")

    async def _tell_block(self, found: WorkflowExecutionDescription) -> None:
        """Say what the task waits for while no call is in flight that says it itself."""
        calls = [each for each in activities_of(found) if each.activity_type.name in _CALLS]
        why = "" if calls else await why_blocked(self._reader.client, found)
        hint = f"It is tried again; `holdfast abandon {self._task_id}` gives the task up."
        self._tell(why, hint)

    def _tell(self, why: str, hint: str = "") -> None:
        """Print once why nothing goes on."""
        cause = re.sub(r"\d+|begins at [^.]*|is under way", "", why)  # the same in each attempt
        if cause and cause not in self._said:
            self._said.add(cause)
            self._console.print(printable(f"task  waits. {why} {hint}".rstrip()), style="yellow")

    def take(self, event: StepEvent) -> None:
        """Print one event."""
        match event:
            case StepStart():
                self._flying[event.step_id, ""] = "model"
            case ToolCalled(call=call):
                self._flying[event.step_id, call.id] = call.name
            case ToolDone(output=output):
                self._flying.pop((event.step_id, output.call_id), None)
            case StepEnd() | StepFailed():
                kept = self._flying.items()
                self._flying = {at: name for at, name in kept if at[0] != event.step_id}
            case _:
                pass
        if text := event_text(event):
            self._console.print(printable(text), style=style(event))
        if self._status is not None:
            flying = ", ".join(f"{step}: {name}" for (step, _), name in self._flying.items())
            shown = printable(f"{flying} in flight" if flying else "waiting")
            self._status.update(Text(shown))  # a str would be read as markup


_CALLS = ("step", "tool")
"""Activities whose attempts are events."""


def style(event: StepEvent) -> str | None:
    """Return the style of an event's line."""
    match event:
        case StepFailed():
            return "red"
        case Attempt() | Waiting():
            return "yellow"
        case ToolDone(output=output) if output.is_error:
            return "yellow"
        case StepStart() | ToolCalled():
            return "dim"
        case _:
            return None


async def sent_since(reader: Reader, task_id: str, until: float) -> list[tuple[float, StepEvent]]:
    """Return the commands that a task has not read yet, each with the time at which it came.

    Args:
        reader: Reads the namespace's tasks.
        task_id: The task.
        until: When a worker process last had it, seconds since the epoch.
    """
    found: list[tuple[float, StepEvent]] = []
    converter = reader.client.data_converter
    handle = reader.client.get_workflow_handle(task_id)
    async for event in handle.fetch_history_events():
        at = event.event_time.ToMicroseconds() / 1e6
        sent = event.workflow_execution_signaled_event_attributes
        is_signal = event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
        if at <= until or not is_signal or sent.signal_name in HEARD:
            continue
        kinds: list[type] = [RawValue] * len(sent.input.payloads)
        verb, by = sent.signal_name, ""
        try:
            bodies = await converter.decode(sent.input.payloads, kinds)
        except Exception as error:  # noqa: BLE001  of a codec; shown
            text = f"cannot be read here: {said_by(error)}"
        else:
            got = decode(verb, [each.payload.data for each in bodies])
            by, text = (got.by, got.said) if isinstance(got, Command) else ("", got.reason)
        told = CommandGiven(number=0, task_id=task_id, verb=verb, by=by, text=text)
        found.append((at, told))
    return found
