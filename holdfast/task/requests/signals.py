"""Signals that tasks and their activities send, as opposed to those of people."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from holdfast.errors import InvalidArgumentError, UserError
from holdfast.task.data.calls import LONG_CALL, LongCall
from holdfast.task.data.children import (
    GIVEN,
    REPORTS,
    SAYS,
    ChildReport,
    OutputsGiven,
    ParentSays,
)
from holdfast.task.data.commands import LONGEST_REASON, Refusal
from holdfast.values.checks import gate
from holdfast.values.messages import clean

HEARD: dict[str, type[ChildReport | ParentSays | LongCall | OutputsGiven]] = {
    SAYS: ParentSays,
    REPORTS: ChildReport,
    LONG_CALL: LongCall,
    GIVEN: OutputsGiven,
}
"""Name to type of the signals that tasks and activities send, as opposed to people."""


def hear(
    name: str, payloads: Sequence[bytes]
) -> ChildReport | ParentSays | LongCall | OutputsGiven | Refusal | None:
    """Read a signal of a parent, a child or an activity of the task; never raises.

    Args:
        name: Name of the signal.
        payloads: The data of its arguments.

    Returns:
        The signal's content, or why it is refused; None for a signal of another name.
    """
    kind = HEARD.get(name)
    if kind is None:
        return None
    if len(payloads) != 1:
        return Refusal(verb=name, reason=f"It is one value; this signal brought {len(payloads)}.")
    try:
        # a child reports values that have passed the gate already, in envelopes of our own
        data = gate.read(payloads[0], "It", deepest=gate.DEEPEST + gate.ENVELOPE)
        return kind.model_validate(data)
    except (InvalidArgumentError, UserError, ValidationError) as cause:
        return Refusal(verb=name, reason=f"It cannot be read: {clean(str(cause))}"[:LONGEST_REASON])
