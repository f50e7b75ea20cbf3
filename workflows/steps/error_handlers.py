"""Errors that a handler of the run answers for: its final output becomes the step's result."""

from __future__ import annotations

from holdfast.task.data.failures import TURN_FOLLOWS, Failure
from holdfast.task.data.records import OpenState, StepResult
from holdfast.task.data.wire import Advanced, Handled, HandleInput
from holdfast.task.ledger.ledger import Ledger
from holdfast.values.base import Json
from holdfast.values.messages import Message
from holdfast.values.steps import TaskStep
from holdfast.workflows.activity_calls import now, quick


async def ask_handler(ledger: Ledger, n: int, kind: str, failure: Failure) -> Handled | None:
    """Ask the run's handler for an error of an open step; None when it has none, or it declines."""
    if kind not in ledger.head.run.error_handlers:
        return None
    given = HandleInput(step=ledger.advance_input(n, now=now()), kind=kind, failure=failure)
    handled = await quick(ledger, "handle", given, Handled, summary=failure.type)
    body: dict[str, Json] = {"kind": kind, "error": failure.type, "declined": handled.declined}
    ledger.note("handled", now=now(), text=failure.text, body=body)
    return None if handled.declined else handled


def end_with(ledger: Ledger, n: int, handled: Handled) -> None:
    """Make a handler's final output the result of the step that it answered for."""
    said = () if handled.said is None else (handled.said,)
    result = StepResult(
        output=handled.output,
        stored=handled.stored,
        echo=False,
        adds=(*_adds(ledger.at(n)), *said),
        calls=(),
        next=(),
        last=True,
    )
    ledger.advanced(n, Advanced(result=result))


def take_another_turn(ledger: Ledger, n: int, failure: Failure) -> bool:
    """Let another turn follow an answer without output, if that is what the failure says."""
    if not failure.data.get(TURN_FOLLOWS):
        return False
    result = StepResult(adds=_adds(ledger.at(n)), calls=(), next=(TaskStep(),))
    ledger.advanced(n, Advanced(result=result))
    return True


def _adds(current: OpenState) -> tuple[Message | str, ...]:
    """Name what an open step has put before the model and what the model has said."""
    notes = tuple(f"n{i}" for i in range(len(current.open.notes)))
    told = ("input",) if current.open.step.message() is not None else ()
    answers = tuple(
        f"j{i}"
        for i, entry in enumerate(current.journal)
        if entry.answer is not None and _says(entry.answer.message)
    )
    return (*notes, *told, *answers)


def _says(message: Message) -> bool:
    """Whether an answer holds anything."""
    return bool(message.content or message.items or message.kept)
