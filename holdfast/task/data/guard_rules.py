"""Guardrails as a task knows them, and their results as it records them."""

from __future__ import annotations

from typing import Literal

from holdfast.values.base import Json, Value
from holdfast.values.messages import Blob

GUARDRAIL = "guardrail"
"""Kind of the event that records what a guardrail found."""

INPUT_TRIPPED = "InputGuardrailTripwireTriggered"
OUTPUT_TRIPPED = "OutputGuardrailTripwireTriggered"
TOOL_INPUT_TRIPPED = "ToolInputGuardrailTripwireTriggered"
TOOL_OUTPUT_TRIPPED = "ToolOutputGuardrailTripwireTriggered"


class GuardRule(Value):
    """A guardrail of a run, by name.

    Attributes:
        kind: What it checks.
        name: Its name.
        blocks: Whether the first turn waits for it.
        ref: Reference to it, when the run brought it along; else the agent has it.
    """

    kind: Literal["input", "output"] = "input"
    name: str
    blocks: bool = False
    ref: str = ""


class Guarded(Value):
    """An input or output that was checked, and the guardrails that it has passed.

    Attributes:
        digest: Names the input or output: another one is checked again.
        passed: Keys of the guardrails that it has passed.
    """

    digest: str = ""
    passed: tuple[str, ...] = ()


class GuardFound(Value):
    """What a guardrail found: result of its activity.

    Attributes:
        info: Its `output_info`.
        info_class: Name of the class of that, if it is a dataclass or pydantic model.
        stored: Where the archive keeps it, when it is large.
        tripped: Whether the run must not go on.
        output: For a tripped output guardrail: what it checked, unless that is large.
        attempts: How often it was started.
        worker: Identity of the worker that ran it.
    """

    info: Json = None
    info_class: str = ""
    stored: Blob | None = None
    tripped: bool = False
    output: Json = None
    attempts: int = 1
    worker: str = ""


class ToolGuarded(Value):
    """What a guardrail of a tool found.

    Attributes:
        kind: Whether it checked the call or its result.
        name: Its name.
        behavior: What followed.
        message: Text that the model got instead, for "reject_content".
        info: Its `output_info`.
        info_class: As for `GuardFound`.
        stored: Where the archive keeps it, when it is large.
    """

    kind: Literal["input", "output"] = "input"
    name: str
    behavior: Literal["allow", "reject_content", "raise_exception"] = "allow"
    message: str = ""
    info: Json = None
    info_class: str = ""
    stored: Blob | None = None
