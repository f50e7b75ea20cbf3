"""The components of a pipeline: functions, prompts, models, tools and constants, as data."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json
from holdfast.values.code.user_calls import is_async
from holdfast.values.text.shown import shown
from holdfast.values.tool_result import render_result
from holdfast.workers.pipeline.graph import Slots
from holdfast.workers.turns import as_json

SPECIAL = ("state", "ctx")
"""Parameters of a function that the pipeline itself fills, not a link."""

OnError = Literal["fail", "text", "skip"]

_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass(frozen=True)
class FunctionComponent:
    """A function, called with the values of its links as keyword arguments.

    It is called again whenever the step is run again, so it must give the same output for the same
    arguments, or have `memo=True`. Its output is JSON data.

    A parameter called `state` gets the pipeline's state, a dict of JSON data that lasts from step
    to step and may be changed in place. A parameter `ctx` of an async function gets the
    StepContext. A plain function runs in a thread.

    Attributes:
        name: Name in the pipeline.
        function: The function. Parameters without a default are required slots.
        memo: Make the output once per step, and record it with the change of the state: for calls
            that cost money or time, or whose output would differ the second time.
    """

    name: str
    function: Callable[..., Any]
    memo: bool = False
    slots: Slots = field(init=False, repr=False)
    special: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Read the signature.

        Raises:
            InvalidArgumentError: The function cannot be called by keyword, or its `ctx` would be
                useless.
        """
        _require(self.name, "memo", self.memo, bool)
        parameters = _parameters(self.name, self.function)
        special = frozenset(p.name for p in parameters if p.name in SPECIAL)
        if "ctx" in special and (self.memo or not is_async(self.function)):
            why = "has memo=True" if self.memo else "is not async, and runs in a thread"
            msg = (
                f"Component {self.name!r} takes `ctx`, but {why}, where nothing of ctx can be"
                " called. Use ctx.memo inside of an async function instead."
            )
            raise InvalidArgumentError(msg)
        object.__setattr__(self, "special", special)
        object.__setattr__(self, "slots", _slots(self.name, parameters))


@dataclass(frozen=True)
class PromptComponent:
    """A text with named slots, as in "Translate {text} into {language}".

    Slots are plain names. Values are not scanned for slots, so braces in them are safe. A brace of
    the text itself is doubled: `{{"a": 1}}`. Strings are inserted as they are, other data as JSON.

    Attributes:
        name: Name in the pipeline.
        template: The text.
        defaults: Slot to value, for slots that need no link.
    """

    name: str
    template: str
    defaults: Mapping[str, Json] = field(default_factory=dict[str, Json])
    slots: Slots = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Read the template.

        Raises:
            InvalidArgumentError: A brace has no partner, a slot is not a plain name, a default has
                no slot, or a field has another type than it should.
        """
        _require(self.name, "template", self.template, str)
        _require(self.name, "defaults", self.defaults, Mapping)
        names = _slot_names(self.name, self.template)
        unknown = [slot for slot in self.defaults if slot not in names]
        if unknown:
            msg = f"Prompt {self.name!r} has a default for {unknown[0]!r}, but no such slot."
            raise InvalidArgumentError(msg)
        required = tuple(slot for slot in names if slot not in self.defaults)
        optional = tuple(slot for slot in names if slot in self.defaults)
        object.__setattr__(self, "slots", Slots(required, optional))

    def fill(self, values: Mapping[str, Json]) -> str:
        """Return the text with these values, and the defaults for the others.

        Raises:
            KeyError: A required slot has no value.
        """
        given = {**self.defaults, **values}

        def one(found: re.Match[str]) -> str:
            if found[1] is None:
                return found[0][0]  # a doubled brace
            return render_result(given[found[1]])

        return _BRACES.sub(one, self.template)


@dataclass(frozen=True)
class ModelComponent:
    """One call of the agent's model: the prompt in, the answer's text out.

    The model sees the prompt and the notes of the step, such as feedback, and gets no tools.

    Attributes:
        name: Name in the pipeline.
        instructions: System prompt; None for the agent's own.
        conversation: Whether the model sees the conversation before the prompt as well: the
            session's history and this task's messages.
    """

    name: str
    instructions: str | None = None
    conversation: bool = False
    slots: Slots = field(default=Slots(("prompt",)), init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the types.

        Raises:
            InvalidArgumentError: A field has another type than it should.
        """
        _require(self.name, "instructions", self.instructions, str, type(None))
        _require(self.name, "conversation", self.conversation, bool)


@dataclass(frozen=True)
class ToolComponent:
    """A call of one of the agent's tools: arguments by link, the result's text out.

    The task runs it like any tool call, with its approval, retries and effect.

    Attributes:
        name: Name in the pipeline.
        tool: Name of the tool; empty for the component's own name.
        on_error: What to do after a failed call. "fail": the step fails and waits for a decision.
            "text": the error's text is the output. "skip": the component counts as skipped, and so
            do the components that depend on it.
    """

    name: str
    tool: str = ""
    on_error: OnError = "fail"
    slots: Slots = field(default=Slots(any_name=True), init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            InvalidArgumentError: `tool` is not a text, or `on_error` is unknown.
        """
        _require(self.name, "tool", self.tool, str)
        if self.on_error not in get_args(OnError):
            msg = (
                f"Component {self.name!r}: on_error={shown(self.on_error)} means nothing. Use"
                f" {', '.join(map(repr, get_args(OnError)))}."
            )
            raise InvalidArgumentError(msg)

    @property
    def tool_name(self) -> str:
        """Name of the tool."""
        return self.tool or self.name


@dataclass(frozen=True)
class ConstantComponent:
    """A value that is always the same.

    Attributes:
        name: Name in the pipeline.
        value: JSON data.
    """

    name: str
    value: Json
    slots: Slots = field(default=Slots(), init=False, repr=False)

    def __post_init__(self) -> None:
        """Keep a copy of the value.

        Raises:
            InvalidArgumentError: It is not JSON data.
        """
        _require(self.name)
        kept = as_json(self.value, f"Constant {self.name!r} is")
        object.__setattr__(self, "value", kept)


Component = FunctionComponent | PromptComponent | ModelComponent | ToolComponent | ConstantComponent


_WORDS: dict[type, str] = {
    str: "a text",
    bool: "True or False",
    type(None): "None",
    Mapping: "a dict",
}


def _require(name: Any, field: str = "", value: Any = None, *kinds: type) -> None:
    """Refuse a name that is not a string, and a field of another type than these."""
    if not isinstance(name, str):
        msg = f"The name of a component must be a text; it was {shown(name)}."
        raise InvalidArgumentError(msg)
    if kinds and not isinstance(value, kinds):
        wanted = " or ".join(_WORDS[kind] for kind in kinds)
        msg = (
            f"Component {name!r}: {field} must be {wanted}; it was {shown(value)}"
            f" ({type(value).__name__})."
        )
        raise InvalidArgumentError(msg)


def _parameters(name: str, function: Any) -> list[inspect.Parameter]:
    if not callable(function):
        msg = f"Component {name!r}: {shown(function)} is not a function. Pass one."
        raise InvalidArgumentError(msg)
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        msg = (
            f"Component {name!r}: the signature of {shown(function)} cannot be read: {error}. Pass"
            " a function, or wrap it in one."
        )
        raise InvalidArgumentError(msg) from error


def _slots(name: str, parameters: list[inspect.Parameter]) -> Slots:
    required: list[str] = []
    optional: list[str] = []
    for each in parameters:
        if each.kind is each.POSITIONAL_ONLY and each.default is each.empty:
            msg = (
                f"Component {name!r}: parameter {each.name!r} of its function can only be given by"
                " position, and links give by name. Wrap the function in a def of your own."
            )
            raise InvalidArgumentError(msg)
        if each.name in SPECIAL or each.kind not in {each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY}:
            continue
        (required if each.default is each.empty else optional).append(each.name)
    any_name = any(each.kind is each.VAR_KEYWORD for each in parameters)
    return Slots(tuple(required), tuple(optional), any_name)


def _slot_names(name: str, template: str) -> list[str]:
    names: list[str] = []
    for found in _BRACES.finditer(template):
        slot = found[1]
        if found[0] in {"{{", "}}"}:
            continue
        if slot is None or not slot.isidentifier():
            what = "brace without a partner" if slot is None else f"slot {slot!r}, not a name"
            msg = (
                f"Prompt {name!r} has a {what}, at character {found.start()}. Write {{name}} for a"
                " slot, and {{ or }} for a brace of the text."
            )
            raise InvalidArgumentError(msg)
        if slot not in names:
            names.append(slot)
    return names
