"""Commands: the one signal by which people and programs steer a task.

A command is a raw value `{id, verb, by, branch, body}`. Reading it never raises: what cannot be
read becomes a refusal with its reason, and the task goes on as if it had not come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast, get_args

from pydantic import Field, ValidationError

from holdfast import gate
from holdfast.errors import InvalidArgumentError
from holdfast.values import Json, Value

Verb = Literal[
    "pause",
    "resume",
    "abandon",
    "approve",
    "reject",
    "respond",
    "feedback",
    "edit_step",
    "drop_step",
]
VERBS: tuple[str, ...] = get_args(Verb)
SIGNAL = "command"
LONGEST_REASON = 2000
LARGEST_COMMAND = 256 * 1024
"""Most bytes of a command: it stays in the task's history, with what it led to."""


class Command(Value):
    """One command.

    Attributes:
        id: Chosen by the sender; a repeated id is dropped.
        verb: What to do.
        by: Who asks.
        branch: Branch of the ledger that it was meant for; empty for the present one.
        body: Arguments of the verb.
    """

    id: str = Field(min_length=1, max_length=200)
    verb: Verb
    by: str = Field(default="", max_length=200)
    branch: str = ""
    body: dict[str, Json] = Field(default_factory=dict)

    @property
    def reason(self) -> str:
        """The reason given, cut to a readable length, or empty."""
        return str(self.body.get("reason", ""))[:LONGEST_REASON]


class Refusal(Value):
    """A command that cannot be obeyed.

    Attributes:
        id: The command's id, as far as it could be read.
        verb: The verb, as far as it could be read.
        reason: Why, in words for whoever sent it.
    """

    id: str = ""
    verb: str = ""
    reason: str


def too_large(size: int) -> str:
    """Say that a command is too large."""
    return f"A command may have at most {LARGEST_COMMAND} bytes; this one has {size}."


def compose(identity: str, verb: Verb, *, by: str, body: dict[str, Json]) -> Command:
    """Make a command that a task can read.

    Raises:
        InvalidArgumentError: It holds what no task can keep; the text says what.
    """
    gate.check({"id": identity, "verb": verb, "by": by, "body": body}, "The command")
    try:
        made = Command.model_validate({"id": identity, "verb": verb, "by": by, "body": body})
    except ValidationError as cause:
        raise InvalidArgumentError(f"The command is malformed: {_wrong(cause)}") from None
    size = len(made.model_dump_json().encode())
    if size > LARGEST_COMMAND:
        raise InvalidArgumentError(f"{too_large(size)} Nothing was sent.")
    return made


def _wrong(cause: ValidationError) -> str:
    problems = cause.errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in problems)[:400]


def decode(name: str, payloads: Sequence[bytes]) -> Command | Refusal:
    """Read a signal as a command; never raises.

    Args:
        name: Name of the signal.
        payloads: The data of its arguments.
    """
    if name != SIGNAL:
        return Refusal(verb=name[:80], reason=f"A task knows one signal, {SIGNAL!r}.")
    if len(payloads) != 1:
        return Refusal(reason=f"A command is one value; this signal brought {len(payloads)}.")
    if len(payloads[0]) > LARGEST_COMMAND:
        return Refusal(reason=too_large(len(payloads[0])))
    try:
        data = gate.read(payloads[0], "The command")
    except InvalidArgumentError as cause:
        return Refusal(reason=str(cause)[:LONGEST_REASON])
    if not isinstance(data, dict):
        return Refusal(reason=f"A command is a JSON object, not {type(data).__name__}.")
    data = cast("dict[str, Json]", data)
    identity = str(data.get("id", ""))[:200]
    verb = str(data.get("verb", ""))[:80]
    if verb not in VERBS:
        known = ", ".join(VERBS)
        return Refusal(id=identity, verb=verb, reason=f"Unknown verb {verb!r}; known: {known}.")
    try:
        return Command.model_validate(data)
    except ValidationError as cause:
        return Refusal(id=identity, verb=verb, reason=f"The command is malformed: {_wrong(cause)}")
