"""The components of a pipeline: functions, prompts, models and tools, as data."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json
from holdfast.values.checks.gate import check_arguments
from holdfast.values.code.user_calls import is_async
from holdfast.values.steps import circle, in_order
from holdfast.values.text.shown import shown
from holdfast.values.tool_result import render_result

GIVEN = ("input", "previous")
"""Sources that are not components: the step's input, and the output of the step before."""

Condition = Callable[[Any], bool]


@dataclass(frozen=True)
class Slots:
    """Names under which a component takes the values of its links.

    Attributes:
        required: Slots that need a value for the component to run.
        optional: Slots that have a default.
        any_name: Whether it takes any other name as well.
    """

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    any_name: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """All slots that are known by name."""
        return (*self.required, *self.optional)


@dataclass(frozen=True)
class Link:
    """A link that passes the output of one component to a slot of another.

    Attributes:
        source: Component whose output it passes, or "input" or "previous".
        target: Component that it leads to.
        to: Slot; empty for the target's only slot. None for a link without a value: the target
            waits for the source, and `when` decides whether it runs.
        when: Function of the source's output that returns whether the link is on; None for always.
    """

    source: str
    target: str
    to: str | None = ""
    when: Condition | None = None

    def __str__(self) -> str:
        """Name both ends."""
        slot = f".{self.to}" if self.to else ""
        return f"{self.source} -> {self.target}{slot}"


def link(source: str, target: str, *, to: str | None = "", when: Condition | None = None) -> Link:
    """Make a link; see Link for the parameters."""
    return Link(source, target, to, when)


class Graph:
    """Components and links, checked.

    Attributes:
        order: Names of the components, each after the components that it waits for, and otherwise
            in the order of their declaration.
        links: The links in the order of their declaration, each with the slot that it leads to.
        output: Component whose output is the pipeline's.
    """

    def __init__(
        self, components: Sequence[tuple[str, Slots]], links: Sequence[Link], output: str
    ) -> None:
        """Check components and links.

        Args:
            components: Names and slots in the order of their declaration.
            links: The links.
            output: Name of the component whose output is the pipeline's.

        Raises:
            InvalidArgumentError: A link is not a Link, a name is unknown, reserved or used twice, a
                required slot has no link, there is a cycle, or no links lead from the input to the
                output.
        """
        self.slots = _by_name(components)
        _check_links(links)
        self.links = tuple(_resolve(each, self.slots) for each in links)
        self.output = output
        _known(output, self.slots, "The output")
        self._check_required()
        self.order = self._ordered()
        self._check_output()

    def into(self, name: str) -> list[tuple[int, Link]]:
        """List the links that lead to a component, each with its position in `links`."""
        return [(k, each) for k, each in enumerate(self.links) if each.target == name]

    def uses(self, source: str) -> bool:
        """Whether any link begins there."""
        return any(each.source == source for each in self.links)

    def _check_required(self) -> None:
        linked = {(each.target, each.to) for each in self.links}
        for name, slots in self.slots.items():
            for slot in slots.required:
                if (name, slot) not in linked:
                    raise InvalidArgumentError(
                        f"Component {name!r} needs a value for {slot!r}, and no link brings one."
                        f" Add link(..., {name!r}, to={slot!r})."
                    )

    def _ordered(self) -> tuple[str, ...]:
        waits = {name: {e.source for _, e in self.into(name)} - {*GIVEN} for name in self.slots}
        if ring := circle(waits)[::-1]:  # in the direction of the links
            raise InvalidArgumentError(
                f"The links form a cycle, {' -> '.join(ring)}: they could never run. To repeat"
                ' them, end the run with `(answer, False)`, and read "previous" or the state.'
            )
        return tuple(in_order(waits))

    def _check_output(self) -> None:
        """Refuse an output that does not depend on the input, if any component reads the input."""
        if not self.uses("input"):
            return
        reached = {"input"}
        for name in self.order:
            if any(each.source in reached for _, each in self.into(name)):
                reached.add(name)
        if self.output not in reached:
            raise InvalidArgumentError(
                f"No links lead from 'input' to the output {self.output!r}, so what is asked could"
                f" not change the answer. From 'input' one gets to: {_listed(reached - {'input'})}."
            )


class Traversal:
    """One run through a graph: which components have run, are skipped, or may run now.

    A link is on once its source has run and its condition holds; off once its source is skipped or
    the condition does not hold; undecided before that. A component is ready as soon as all of its
    incoming links are decided. It then runs if each required slot has a link that is on, and at
    least one of its links is on, and, if it has links with `to=None`, one of those is on. Otherwise
    it is skipped, and its outgoing links are off. A component without incoming links is ready at
    once. Of several links into one slot that are on, the one declared first counts.

    Attributes:
        values: Name to output, for the given sources and the components that have run.
        skipped: Components that do not run.
    """

    def __init__(self, graph: Graph, given: Mapping[str, Json]) -> None:
        """Begin a run.

        Args:
            graph: The graph.
            given: Values of the sources in GIVEN; a source without links may be left out.
        """
        self.graph = graph
        self.values: dict[str, Json] = {}
        self.skipped: set[str] = set()
        self._is_on: dict[int, bool] = {}
        for name, value in given.items():
            self.put(name, value)

    def ready(self) -> list[str]:
        """List the components that can run now, in the graph's order; note the skipped ones."""
        found: list[str] = []
        for name in self.graph.order:  # a source comes before its targets: one pass skips them all
            links = self.graph.into(name)
            if name in self.values or name in self.skipped:
                continue
            if any(k not in self._is_on for k, _ in links):
                continue
            if self._runs(name, links):
                found.append(name)
            else:
                self.skip(name)
        return found

    def inputs(self, name: str) -> dict[str, Json]:
        """Return the slots and values of a component that is ready."""
        arrived: dict[str, Json] = {}
        for k, each in self.graph.into(name):
            if self._is_on[k] and each.to is not None:
                arrived.setdefault(each.to, self.values[each.source])
        return arrived

    def put(self, name: str, value: Json) -> None:
        """Record a component's output, and decide its outgoing links.

        Raises:
            InvalidArgumentError: A condition failed, or did not return a bool.
        """
        self.values[name] = value
        for k, each in enumerate(self.graph.links):
            if each.source == name:
                self._is_on[k] = _holds(each, value)

    def skip(self, name: str) -> None:
        """Leave a component out of this run."""
        self.skipped.add(name)
        self._is_on |= {k: False for k, e in enumerate(self.graph.links) if e.source == name}

    def why_skipped(self, name: str) -> str:
        """Return the reason why a component was skipped: its links that were off."""
        off = [str(each) for k, each in self.graph.into(name) if not self._is_on[k]]
        return f"these links were off: {', '.join(off)}" if off else "it gave no value"

    def _runs(self, name: str, links: Sequence[tuple[int, Link]]) -> bool:
        on = {each.to for k, each in links if self._is_on[k]}
        gated = any(each.to is None for _, each in links)
        if (links and not on) or (gated and None not in on):
            return False
        return on.issuperset(self.graph.slots[name].required)


def _holds(each: Link, value: Json) -> bool:
    if each.when is None:
        return True
    try:
        verdict: Any = each.when(value)
    except Exception as error:
        msg = f"The condition of link {each} failed: {type(error).__name__}: {error}"
        raise InvalidArgumentError(msg) from error
    if not isinstance(verdict, bool):
        msg = f"The condition of link {each} gave {shown(verdict)}; it must give True or False."
        raise InvalidArgumentError(msg)
    return verdict


def _by_name(components: Sequence[tuple[str, Slots]]) -> dict[str, Slots]:
    found: dict[str, Slots] = {}
    for name, slots in components:
        if not name or name in GIVEN:
            raise InvalidArgumentError(
                f"{name!r} cannot be the name of a component: a name has at least one character,"
                f" and {_listed(GIVEN)} are what a pipeline is given."
            )
        if name in found:
            msg = f"Two components are called {name!r}. Give each a name of its own."
            raise InvalidArgumentError(msg)
        found[name] = slots
    return found


def _check_links(given: object) -> None:
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise InvalidArgumentError(f"`links` must be a list of link(...); it was {shown(given)}.")
    for k, each in enumerate(cast("Sequence[object]", given)):
        if not isinstance(each, Link):
            msg = f"Link {k + 1} is {shown(each)}. Write link(source, target, to=...)."
            raise InvalidArgumentError(msg)
        _check_link(each)


def _check_link(each: Link) -> None:
    names: list[Any] = [each.source, each.target, each.to or ""]
    if not all(isinstance(name, str) for name in names):
        msg = f"Link {each}: source, target and `to` are names, so texts; `to` may be None."
        raise InvalidArgumentError(msg)
    when: Any = each.when
    if when is not None and not callable(when):
        raise InvalidArgumentError(
            f"Link {each}: `when` must be a function of the source's output that gives True or"
            f" False; it was {shown(when)}. Leave it out for a link that is always on."
        )


def _resolve(each: Link, slots: Mapping[str, Slots]) -> Link:
    """Check both ends of a link and fill in the only slot of its target."""
    _known(each.source, (*slots, *GIVEN), f"The source of link {each}")
    _known(each.target, slots, f"The target of link {each}")
    takes = slots[each.target]
    if each.to is None or each.to in takes.names or (each.to and takes.any_name):
        return each
    if each.to:
        _known(each.to, takes.names, f"The slot of link {each}")
    if len(takes.names) == 1 and not takes.any_name:
        return replace(each, to=takes.names[0])
    raise InvalidArgumentError(
        f"Link {each} does not say which slot it leads to. Give to=..., one of:"
        f" {_listed(takes.names) or 'any name'}; or to=None, if {each.target!r} only waits for it."
    )


def _known(name: str, known: Sequence[str] | Mapping[str, Slots], what: str) -> None:
    if not isinstance(cast("object", name), str) or name not in known:
        raise InvalidArgumentError(
            f"{what} is {shown(name)}, which does not exist. There are: {_listed(known) or 'none'}."
        )


def _listed(names: Sequence[str] | set[str] | Mapping[str, Slots]) -> str:
    return ", ".join(map(repr, sorted(names) if isinstance(names, set) else names))


SPECIAL = ("state", "ctx")
"""Parameters of a function that the pipeline itself fills, not a link."""

OnError = Literal["fail", "text"]

_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass(frozen=True)
class FunctionComponent:
    """A function, called with the values of its links as keyword arguments.

    It is called again whenever the step is run again, so it must give the same output for the same
    arguments; an async one has `ctx.memo`. Its output is JSON data.

    A parameter called `state` gets the pipeline's state, a dict of JSON data that lasts from step
    to step and may be changed in place. A parameter `ctx` of an async function gets the
    StepContext. A plain function runs in a thread.

    Attributes:
        name: Name in the pipeline.
        function: The function. Parameters without a default are required slots.
    """

    name: str
    function: Callable[..., Any]
    slots: Slots = field(init=False, repr=False)
    special: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Read the signature.

        Raises:
            InvalidArgumentError: The function cannot be called by keyword, or its `ctx` would be
                useless.
        """
        check_arguments(FunctionComponent, name=self.name)
        parameters = _parameters(self.name, self.function)
        special = frozenset(p.name for p in parameters if p.name in SPECIAL)
        if "ctx" in special and not is_async(self.function):
            raise InvalidArgumentError(
                f"Component {self.name!r} takes `ctx`, but is not async, and runs in a thread,"
                " where nothing of ctx can be called. Make it an async function."
            )
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
    """

    name: str
    template: str
    slots: Slots = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Read the template.

        Raises:
            InvalidArgumentError: A brace has no partner, a slot is not a plain name, or a field has
                another type than it should.
        """
        check_arguments(PromptComponent, name=self.name, template=self.template)
        object.__setattr__(self, "slots", Slots(tuple(_slot_names(self.name, self.template))))

    def fill(self, values: Mapping[str, Json]) -> str:
        """Return the text with these values.

        Raises:
            KeyError: A required slot has no value.
        """

        def one(found: re.Match[str]) -> str:
            if found[1] is None:
                return found[0][0]  # a doubled brace
            return render_result(values[found[1]])

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
        given = {"instructions": self.instructions, "conversation": self.conversation}
        check_arguments(ModelComponent, name=self.name, **given)


@dataclass(frozen=True)
class ToolComponent:
    """A call of one of the agent's tools: arguments by link, the result's text out.

    The task runs it like any tool call, with its approval, retries and effect.

    Attributes:
        name: Name in the pipeline.
        tool: Name of the tool; empty for the component's own name.
        on_error: What to do after a failed call. "fail": the step fails and waits for a decision.
            "text": the error's text is the output.
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
        check_arguments(ToolComponent, name=self.name, tool=self.tool, on_error=self.on_error)

    @property
    def tool_name(self) -> str:
        """Name of the tool."""
        return self.tool or self.name


Component = FunctionComponent | PromptComponent | ModelComponent | ToolComponent


def _parameters(name: str, function: Any) -> list[inspect.Parameter]:
    if not callable(function):
        msg = f"Component {name!r}: {shown(function)} is not a function. Pass one."
        raise InvalidArgumentError(msg)
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"Component {name!r}: the signature of {shown(function)} cannot be read: {error}. Pass"
            " a function, or wrap it in one."
        ) from error


def _slots(name: str, parameters: list[inspect.Parameter]) -> Slots:
    required: list[str] = []
    optional: list[str] = []
    for each in parameters:
        if each.kind is each.POSITIONAL_ONLY and each.default is each.empty:
            raise InvalidArgumentError(
                f"Component {name!r}: parameter {each.name!r} of its function can only be given by"
                " position, and links give by name. Wrap the function in a def of your own."
            )
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
            raise InvalidArgumentError(
                f"Prompt {name!r} has a {what}, at character {found.start()}. Write {{name}} for a"
                " slot, and {{ or }} for a brace of the text."
            )
        if slot not in names:
            names.append(slot)
    return names
