"""Commands: the signals by which people and programs steer a task, and the requests to run a step.

A signal has the name of its verb, and one JSON object as its body: the arguments of the verb, and
next to them `by`, `id` and `branch`, all optional. Reading it never raises: what cannot be read
becomes a refusal with its reason, and the task goes on.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, cast

from pydantic import Field, ValidationError, model_validator

from holdfast.errors import InvalidArgumentError, WrongTypeError
from holdfast.values.base import Json, Value, canonical, digest
from holdfast.values.checks import gate
from holdfast.values.checks.gate import as_object, check_known
from holdfast.values.messages import Blob, ImagePart
from holdfast.values.runs.verbs import VERBS, Verb
from holdfast.values.settings import NOT_TRACED
from holdfast.values.steps import TaskStep

NOT_OPEN = "There is no open approval"
"""Begins the reason when one is refused for an approval that the task does not have."""

ENVELOPE = ("by", "id", "branch")
"""Keys of a body that are not arguments of the verb."""

LONGEST_REASON = 2000
LARGEST_COMMAND = 256 * 1024
"""Most bytes of a command, because it stays in the task's history."""


class Command(Value):
    """One command.

    Attributes:
        id: Chosen by the sender; a repeated id is dropped. Empty: each signal counts, and the
            server drops repetitions by their request id.
        verb: What to do.
        by: Who asks.
        branch: Branch of the ledger that it was meant for; empty for the present one.
        body: Arguments of the verb.
    """

    id: str = Field(default="", max_length=200)
    verb: Verb
    by: str = Field(default="", max_length=200)
    branch: str = ""
    body: dict[str, Json] = Field(default_factory=dict)

    @property
    def reason(self) -> str:
        """The reason given, cut to a readable length, or empty."""
        return str(self.body.get("reason", ""))[:LONGEST_REASON]

    @property
    def said(self) -> str:
        """Why, or what it says: text of feedback, a note, the reason, a step's new input, names."""
        return said_in(self.body)

    @property
    def digest(self) -> str:
        """What tells it from another command of its id: not who sends it, nor by which roles."""
        asked = [self.verb, {**self.body, "roles": None, "digest": None}]
        return digest(canonical(asked))

    @property
    def misspelt(self) -> str:
        """Why the command is refused for arguments that its verb does not have, or empty."""
        return misspelt(self.verb, self.body, (*VERBS[self.verb].arguments, *ENVELOPE))

    @property
    def shown(self) -> dict[str, Json]:
        """The arguments as the ledger keeps them: without what settings add to model requests.

        Readers of an audit are more than those who may see a key in a header.
        """
        if self.verb == "complete":  # its place alone: who has the rest may complete the call
            return {**self.body, "token": str(self.body.get("token", "")).rpartition(":")[0]}
        if self.verb != "configure":
            return self.body
        settings = as_object(self.body.get("settings"))
        if not settings:
            return self.body
        kept = {name: value for name, value in settings.items() if name not in NOT_TRACED}
        return {**self.body, "settings": kept}

    def sent(self) -> dict[str, Json]:
        """Return the signal's body."""
        return {**self.body, **self.model_dump(include={*ENVELOPE}, exclude_defaults=True)}


SAYS = ("text", "note", "message", "reason", "input")
"""Arguments of verbs that are words of the sender: why, before what."""


class Receipt(Value):
    """Receipt of a command: whether it was applied.

    Attributes:
        id: The command's id.
        verb: The verb of the command.
        status: "applied", "refused", or "recorded" while no worker has seen it.
        reason: Why it was refused.
        is_decided: Whether the reason names the decision that the approval has already.
        asked: Digest of the command; empty where an AgentRunner returns the receipt.
    """

    id: str
    verb: str
    status: Literal["applied", "refused", "recorded"]
    reason: str = ""
    is_decided: bool = False
    asked: str = Field(default="", repr=False)


def said_in(body: Mapping[str, Json]) -> str:
    """Return the words of the sender in the arguments of a command, or empty.

    Of settings these are their names.
    """
    names = body.get("names")
    if isinstance(names, list):
        return ", ".join(str(name) for name in cast("list[object]", names))
    said = (body.get(name) for name in SAYS)
    return next((each for each in said if isinstance(each, str) and each), "")


def misspelt(name: str, given: Collection[str], known: Sequence[str]) -> str:
    """Return why a request with fields that nothing reads is refused; empty for known ones.

    Args:
        name: Name of the signal or update.
        given: The fields that it has.
        known: The fields that it may have.
    """
    if not set(given).difference(known):
        return ""
    try:
        check_known(f"fields of {name!r}", given, known)
    except WrongTypeError as error:
        return f"{error} Nothing was done."[:LONGEST_REASON]
    return ""


class UpdateRequest(Value):
    """Argument of an update, which people send by hand as well.

    A field that it does not have is noted rather than refused where it is read: the update that
    was accepted is read again by each replay, also by one of older code.

    Attributes:
        unknown: Names of fields that it does not have.
    """

    unknown: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _note_unknown(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        fields = dict(cast("dict[str, object]", given))
        unknown = fields.keys() - cls.fields()
        named = tuple(name for name in fields if name in unknown) if unknown else ()
        return {**fields, "unknown": named}

    @classmethod
    @functools.cache
    def fields(cls) -> tuple[str, ...]:
        """Return the names of the fields that it may be sent with."""
        return tuple(name for name in cls.model_fields if name != "unknown")


class RunRequest(UpdateRequest):
    """Argument of the `run` update.

    Attributes:
        all: Run until the task has its answer or needs a person; else run one step.
        input: New user input for the step.
        step: Id of the queued step to run; empty for the first one.
        tool_choice: Tool choice of the step.
        restart: Throw the step's journal away and start it again.
        round: Run all steps that are ready, at once.
        stored: The input in the archive, when it is too large for history.
        images: Images of the new input; without one they join what the step has.
        stream: Whether the client follows the step's answers while they are made.
    """

    all: bool = False
    input: str | None = None
    stored: Blob | None = None
    images: tuple[ImagePart, ...] = ()
    step: str = ""
    tool_choice: str = ""
    restart: bool = False
    round: bool = False
    stream: bool = False

    @property
    def attaches(self) -> bool:
        """Whether this asks only for the output of the step in progress."""
        return self in _BARE

    @property
    def changes(self) -> bool:
        """Whether this changes the step's input, images or tool choice."""
        return self.brings_input or bool(self.tool_choice or self.images)

    @property
    def brings_input(self) -> bool:
        """Whether this replaces the step's input."""
        return self.input is not None or self.stored is not None

    def images_after(self, step: TaskStep) -> tuple[ImagePart, ...]:
        """Return the images that the step then has; asking again gives it none twice."""
        if self.brings_input:
            return self.images
        return (*step.images, *(image for image in self.images if image not in step.images))


_BARE = (RunRequest(), RunRequest(stream=True))


class RunReply(Value):
    """Result of the `run` update: a reference, never the output itself.

    Attributes:
        n: Ordinal of the step that was run; 0 when none was.
        round: For several steps: the ordinal of each in the order of the queue, 0 for one that
            waits.
        status: "done", "waiting" (for a person), "paused", "moved" (continued as new: ask again).
        branch: Branch on which the step was run; with the ordinal it names a completed step.
        record: Digest of the task's record, when the task is closed: the workflow task that sends
            this is also the one that makes the end a part of the history, so that anyone who gets
            it knows that the record counts.
    """

    n: int = 0
    status: Literal["done", "waiting", "paused", "moved"] = "done"
    round: tuple[int, ...] = ()
    branch: int = 0
    record: str = ""


class Refusal(Value):
    """A command that cannot be obeyed.

    Attributes:
        id: The command's id, as far as it could be read.
        verb: The verb, as far as it could be read.
        reason: Why, in words for the sender.
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
    if name not in VERBS:
        return Refusal(verb=name[:80], reason=f"A task has no signal {name[:80]!r}; {_KNOWN}")
    if len(payloads) > 1:
        text = f"A body is one JSON object; this signal brought {len(payloads)} values."
        return Refusal(verb=name, reason=text)
    if payloads and len(payloads[0]) > LARGEST_COMMAND:
        return Refusal(verb=name, reason=too_large(len(payloads[0])))
    try:
        data: Json = gate.read(payloads[0], "The body") if payloads else {}
    except InvalidArgumentError as cause:
        return Refusal(verb=name, reason=str(cause)[:LONGEST_REASON])
    if not isinstance(data, dict):
        text = (
            f"A body is a JSON object, not {type(data).__name__}. {VERBS[cast('Verb', name)].body}"
        )
        return Refusal(verb=name, reason=text)
    body = cast("dict[str, Json]", data)
    named = {key: body.pop(key) for key in ENVELOPE if key in body}
    try:
        return Command.model_validate({**named, "verb": name, "body": body})
    except ValidationError as cause:
        identity = named.get("id")
        return Refusal(
            id=identity[:200] if isinstance(identity, str) else "",
            verb=name,
            reason=f"The body is malformed: {_wrong(cause)}",
        )


_KNOWN = f"it has: {', '.join(VERBS)}."
