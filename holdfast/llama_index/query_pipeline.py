"""QueryPipeline: components, linked, each run once its inputs are there."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field

from holdfast.engine.loop import shared_loop
from holdfast.errors import InvalidArgumentError
from holdfast.llama_index.llms.openai import llm_of
from holdfast.models.base import Model
from holdfast.models.libraries.llama_index import is_llm
from holdfast.values.code.user_calls import invoke_here
from holdfast.values.text.shown import shown

OUTPUT = "output"
STATE = ("task", "state", "step_state")
"""What an agent's pipeline gives to the components that ask for it."""


class QueryComponent:
    """One part of a pipeline: named inputs, named outputs.

    Attributes:
        partial_dict: Inputs that are known beforehand.
    """

    def __init__(self, partial_dict: Mapping[str, Any] | None = None) -> None:
        """Take what of its inputs is known."""
        self.partial_dict = dict(partial_dict or {})

    def partial(self, **known: Any) -> None:
        """Fill in inputs beforehand."""
        self.partial_dict = {**known_beforehand(self), **known}

    @property
    def required_keys(self) -> list[str]:
        """Inputs that must be given, without the known ones."""
        return [key for key in self.input_names() if key not in known_beforehand(self)]

    def input_names(self) -> Sequence[str]:
        """Return the names of the inputs that must be given."""
        raise NotImplementedError

    def run_component(self, **inputs: Any) -> dict[str, Any]:
        """Run it; return its outputs by name."""
        return self.run_with({**known_beforehand(self), **inputs}, {})

    def run_with(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Run it with the state of an agent's step."""
        raise NotImplementedError


def known_beforehand(component: QueryComponent) -> dict[str, Any]:
    """Return what of a component's inputs is known; one with an `__init__` of its own has none."""
    known: dict[str, Any] = getattr(component, "partial_dict", {})
    return known


class InputComponent(QueryComponent):
    """The beginning of a pipeline: gives on what the pipeline is run with."""

    def input_names(self) -> Sequence[str]:
        """Return no names: it takes what comes."""
        return []

    def run_with(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Give the inputs on."""
        del state
        return dict(inputs)


class FnComponent(QueryComponent):
    """A function; its parameters are the inputs.

    Attributes:
        fn: The function.
        output_key: Name of its output.
    """

    hidden: tuple[str, ...] = ()

    def __init__(
        self,
        fn: Callable[..., Any],
        async_fn: Callable[..., Any] | None = None,
        output_key: str = OUTPUT,
        partial_dict: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Take a function, and what of its inputs is known.

        Raises:
            ValueError: It lacks a parameter that such a component must have.
        """
        self.fn = async_fn or fn
        self.output_key = output_key
        super().__init__(partial_dict)
        self._parameters = inspect.signature(self.fn).parameters
        for name in self.hidden:
            if name not in self._parameters:
                msg = f"{type(self).__name__} must have {name!r} as a parameter: {shown(fn)}"
                raise ValueError(msg)

    def input_names(self) -> Sequence[str]:
        """Return the parameters without a default."""
        kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        return [
            name
            for name, each in self._parameters.items()
            if each.default is each.empty and each.kind not in kinds and name not in self.hidden
        ]

    def run_with(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Call the function."""
        hidden = {name: self.from_state(name, state) for name in self.hidden}
        if inspect.iscoroutinefunction(self.fn):
            made = shared_loop().run(invoke_here(self.fn, **hidden, **inputs))
        else:
            made = self.fn(**hidden, **inputs)
        return self.outputs(made)

    def from_state(self, name: str, state: Mapping[str, Any]) -> Any:
        """Return what a hidden parameter gets."""
        return state["step_state"] if name == "state" else state[name]

    def outputs(self, made: Any) -> dict[str, Any]:
        """Name what the function returned."""
        return {self.output_key: made}


class StatefulFnComponent(FnComponent):
    """A function of `state`: the pipeline's, or of an agent's one its "task" and "step_state"."""

    hidden = ("state",)

    def from_state(self, name: str, state: Mapping[str, Any]) -> Any:
        """Return the state."""
        del name
        return state


class AgentFnComponent(FnComponent):
    """A function of `task` and `state`, the state that steps share."""

    hidden = ("task", "state")


class AgentInputComponent(AgentFnComponent):
    """The beginning of an agent's pipeline: a function that returns a dict of outputs."""

    def outputs(self, made: Any) -> dict[str, Any]:
        """Return the outputs.

        Raises:
            ValueError: The function returned no dict.
        """
        if isinstance(made, Mapping):
            return dict(cast("Mapping[str, Any]", made))
        msg = f"The function of an AgentInputComponent must return a dict: {shown(made)}"
        raise ValueError(msg)


class CustomQueryComponent(BaseModel, QueryComponent):
    """Base of a component of your own: write `_input_keys`, `_output_keys`, `_run_component`."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="allow")

    partial_dict: dict[str, Any] = Field(default_factory=dict)

    @property
    def _input_keys(self) -> set[str]:
        """Names of the inputs."""
        raise NotImplementedError

    @property
    def _output_keys(self) -> set[str]:
        """Names of the outputs."""
        return {OUTPUT}

    def _validate_component_inputs(self, input: dict[str, Any]) -> dict[str, Any]:
        """Check inputs before a run."""
        return input

    def _run_component(self, **kwargs: Any) -> Any:
        """Run it; return its outputs by name."""
        raise NotImplementedError

    def input_names(self) -> Sequence[str]:
        """Return the names that the subclass gives."""
        return sorted(self._input_keys.difference(STATE))

    def run_with(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Call the subclass's method."""
        del state
        made: Any = self._run_component(**self._validate_component_inputs({**inputs}))
        return {**made} if hasattr(made, "keys") else {OUTPUT: made}


class CustomAgentComponent(CustomQueryComponent):
    """Base of a component of your own that sees `task` and `state` of an agent's step."""

    def run_with(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Call the subclass's method."""
        seen = {"task": state["task"], "state": state["step_state"]}
        return super().run_with({**seen, **inputs}, state)


class ArgPackComponent(QueryComponent):
    """Packs its inputs into a list.

    Attributes:
        convert_fn: Applied to each.
    """

    def __init__(self, convert_fn: Callable[[Any], Any] | None = None) -> None:
        """Take what is applied to each input."""
        self.convert_fn = convert_fn
        super().__init__()

    def input_names(self) -> Sequence[str]:
        """Return no names: it takes what comes."""
        return []

    def run_with(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Pack the inputs."""
        del state
        convert = self.convert_fn
        return {OUTPUT: [each if convert is None else convert(each) for each in inputs.values()]}


class KwargPackComponent(ArgPackComponent):
    """Packs its inputs into a dict."""

    def run_with(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Pack the inputs."""
        del state
        convert = self.convert_fn
        packed = {k: each if convert is None else convert(each) for k, each in inputs.items()}
        return {OUTPUT: packed}


class ToolRunnerComponent(QueryComponent):
    """Calls one of several tools, by its name."""

    def __init__(self, tools: Sequence[Any], **_: Any) -> None:
        """Take the tools."""
        self._tools = {str(each.metadata.name): each for each in tools}
        super().__init__()

    def input_names(self) -> Sequence[str]:
        """Return the names of the tool and of its arguments."""
        return ["tool_name", "tool_input"]

    def run_with(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Call the tool.

        Raises:
            InvalidArgumentError: There is no such name.
        """
        del state
        name = str(inputs["tool_name"])
        given: Any = inputs["tool_input"]
        if name not in self._tools:
            msg = f"There is no tool {name!r}; the tools are {', '.join(self._tools)}."
            raise InvalidArgumentError(msg)
        arguments: dict[str, Any] = {**given} if hasattr(given, "keys") else {"input": given}
        return {OUTPUT: self._tools[name].call(**arguments)}


class _Wrapped(QueryComponent):
    """An object of the program as a component with one input."""

    def __init__(self, name: str, run: Callable[[Any], Any]) -> None:
        self._name = name
        self._run = run
        super().__init__()

    def input_names(self) -> Sequence[str]:
        return [self._name]

    def run_with(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        del state
        return {OUTPUT: self._run(inputs[self._name])}


class PromptComponent(QueryComponent):
    """A prompt; its names are the inputs.

    Attributes:
        prompt: The prompt.
    """

    def __init__(self, prompt: Any, partial: Mapping[str, Any] | None = None) -> None:
        """Take a prompt, and what of its names is known."""
        self.prompt = prompt
        super().__init__(partial)

    def input_names(self) -> Sequence[str]:
        """Return the prompt's names."""
        known = getattr(self.prompt, "known", None) or getattr(self.prompt, "kwargs", {})
        return [name for name in self.prompt.template_vars if name not in known]

    def run_with(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Fill the prompt in."""
        del state
        texts = {name: text_of(each) for name, each in inputs.items()}
        return {"prompt": self.prompt.format(**texts)}


def text_of(given: Any) -> str:
    """Return a text, a model's answer or a response as text."""
    message = getattr(given, "message", None)
    return str(given) if message is None else str(message.content or "")


def as_component(given: Any) -> QueryComponent:
    """Return a component as it is, and make one of a model, a prompt, an engine, a tool.

    Raises:
        InvalidArgumentError: It cannot be made one.
    """
    if isinstance(given, QueryComponent):
        return given
    if isinstance(given, Model) or is_llm(given):
        llm = llm_of(given)
        return _Wrapped("messages", lambda messages: llm.chat(_messages(messages)))
    if hasattr(given, "template_vars") and callable(getattr(given, "format", None)):
        return PromptComponent(given)
    for name in ("query", "retrieve", "parse"):
        method = getattr(given, name, None)
        if callable(method):
            return _Wrapped("input", _of_text(method))
    if callable(given):
        return FnComponent(given)
    msg = f"{shown(given)} cannot be a component. Wrap a function: FnComponent(function)."
    raise InvalidArgumentError(msg)


def _of_text(method: Callable[[str], Any]) -> Callable[[Any], Any]:
    """Make a function of anything with a text."""
    return lambda given: method(text_of(given))


def _messages(given: Any) -> list[Any]:
    """Return messages; a text is the user's."""
    from holdfast.llama_index.llms.messages import chat_message, to_message

    listed: list[Any] = [*given] if type(given) is list else [text_of(given)]  # pyright: ignore[reportUnknownVariableType]  anybody's
    return [chat_message(to_message(each)) if isinstance(each, str) else each for each in listed]


LONGEST_SHOWN = 200


@dataclass(frozen=True)
class Link:
    """Hands an output of one component to an input of another.

    Attributes:
        src: Name of the component with the output.
        dest: Name of the component with the input.
        src_key: The output, when there are several.
        dest_key: The input, when there are several.
        condition_fn: Whether it is handed on, from the output.
        input_fn: Makes the input of the output.
    """

    src: str
    dest: str
    src_key: str | None = None
    dest_key: str | None = None
    condition_fn: Callable[[Any], bool] | None = None
    input_fn: Callable[[Any], Any] | None = None


class QueryPipeline(QueryComponent):
    """A graph of components.

    They run one after the other. One whose inputs are not there, because a condition was not met,
    is left out, and so is what hangs on it alone.

    Attributes:
        module_dict: The components by name.
        links: The links.
        verbose: Whether each component is printed when it runs.
        state: What the functions of its StatefulFnComponents share in `run`.
        origin: The pipeline that this one is a copy of, with a state of its own; else itself.
    """

    def __init__(
        self,
        chain: Sequence[Any] | None = None,
        modules: Mapping[str, Any] | None = None,
        links: Sequence[Link] = (),
        verbose: bool = False,
        state: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Take a chain of components, or components by name and their links."""
        self.state: dict[str, Any] = dict(state or {})
        self.origin: QueryPipeline = self
        self.module_dict: dict[str, QueryComponent] = {}
        self.links: list[Link] = []
        self.verbose = verbose
        super().__init__()
        self.add_modules(modules or {})
        if chain is not None:
            named = {str(k): each for k, each in enumerate(chain)}
            self.add_modules(named)
            self.add_chain(list(named))
        self.add_links(links)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Replace the state."""
        self.state = dict(state)

    def update_state(self, state: Mapping[str, Any]) -> None:
        """Add to the state."""
        self.state.update(state)

    def reset_state(self) -> None:
        """Forget the state."""
        self.state = {}

    def with_state(self, state: Mapping[str, Any]) -> QueryPipeline:
        """Return a copy with a state of its own: the same components and links."""
        made = copy(self)
        made.set_state(state)
        return made

    def add(self, module_key: str, module: Any) -> None:
        """Add a component.

        Raises:
            ValueError: There is one of this name.
        """
        if module_key in self.module_dict:
            raise ValueError(f"Module {module_key} already exists in pipeline")
        self.module_dict[module_key] = as_component(module)

    def add_modules(self, module_dict: Mapping[str, Any]) -> None:
        """Add components by name."""
        for name, module in module_dict.items():
            self.add(name, module)

    def add_chain(self, module_keys: Sequence[str]) -> None:
        """Link components one to the next."""
        for src, dest in pairwise(module_keys):
            self.add_link(src, dest)

    def add_link(
        self,
        src: str,
        dest: str,
        src_key: str | None = None,
        dest_key: str | None = None,
        condition_fn: Callable[[Any], bool] | None = None,
        input_fn: Callable[[Any], Any] | None = None,
    ) -> None:
        """Link two components; the arguments are the attributes of Link.

        Raises:
            ValueError: There is no such component, or the links would form a circle.
        """
        for name in (src, dest):
            if name not in self.module_dict:
                raise ValueError(f"Module {name} does not exist in pipeline.")
        self.links.append(Link(src, dest, src_key, dest_key, condition_fn, input_fn))
        try:
            self._order()
        except CycleError as error:
            self.links.pop()
            raise ValueError(f"A link from {src} to {dest} would form a circle.") from error

    def add_links(self, links: Sequence[Link]) -> None:
        """Link components."""
        for each in links:
            self.add_link(**vars(each))

    def _order(self) -> list[str]:
        """Return the names so that each comes after the ones it needs."""
        before: dict[str, dict[str, None]] = {name: {} for name in self.module_dict}
        for link in self.links:
            before[link.dest][link.src] = None
        return list(TopologicalSorter(before).static_order())

    def _roots(self) -> list[str]:
        fed = {link.dest for link in self.links}
        return [name for name in self.module_dict if name not in fed]

    def input_names(self) -> Sequence[str]:
        """Return the inputs of the first component."""
        roots = self._roots()
        return self.module_dict[roots[0]].required_keys if len(roots) == 1 else []

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the pipeline; return its output, or a dict of them when there are several.

        Args:
            args: The input of a pipeline with one.
            kwargs: The inputs by name.

        Raises:
            ValueError: The inputs do not fit.
        """
        kwargs.pop("return_values_direct", None)
        return self._result(self._all(self._given(args, kwargs), self.state))

    async def arun(self, *args: Any, **kwargs: Any) -> Any:
        """Do what `run` does, in a thread."""
        return await asyncio.to_thread(self.run, *args, **kwargs)

    def run_multi(self, module_inputs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Run a pipeline with several first components; return the outputs of the last ones."""
        return self._all({k: dict(each) for k, each in module_inputs.items()}, self.state)

    async def arun_multi(self, module_inputs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Do what `run_multi` does, in a thread."""
        return await asyncio.to_thread(self.run_multi, module_inputs)

    def run_with(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Run it as a component, with the state of an agent's step."""
        return {"output": self._result(self._all(self._given((), inputs), state))}

    def _given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        roots = self._roots()
        if len(roots) != 1:
            if not args and not kwargs:
                return {}
            raise ValueError(f"The pipeline begins with {', '.join(roots)}: use run_multi.")
        inputs = dict(kwargs)
        for given in args:
            wanted = self.module_dict[roots[0]].required_keys or ["input"]
            if len(args) > 1 or len(wanted) > 1:
                raise ValueError(f"Name the inputs: {', '.join(wanted)}.")
            inputs[wanted[0]] = given
        return {roots[0]: inputs}

    def _all(
        self, inputs: dict[str, dict[str, Any]], state: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """Run the components in order; return the outputs of the last ones."""
        feeds = {link.src for link in self.links}
        fed = {link.dest for link in self.links}
        ends: dict[str, dict[str, Any]] = {}
        for name in self._order():
            module, given = self.module_dict[name], inputs.get(name, {})
            missing = [key for key in module.required_keys if key not in given]
            if name in fed and (missing or not given):
                continue
            if missing:
                raise ValueError(f"Component {name} lacks its input {', '.join(missing)}.")
            self._show(name, given)
            made = module.run_with({**known_beforehand(module), **given}, state)
            for link in self.links:
                if link.src == name:
                    self._hand_on(link, made, inputs)
            if name not in feeds:
                ends[name] = made
        return ends

    def _hand_on(self, link: Link, made: dict[str, Any], inputs: dict[str, dict[str, Any]]) -> None:
        value = _output(link, made)
        if link.condition_fn is not None and not link.condition_fn(value):
            return
        held = inputs.setdefault(link.dest, {})
        key = link.dest_key or self._free(link, held)
        held[key] = value if link.input_fn is None else link.input_fn(value)

    def _free(self, link: Link, held: Mapping[str, Any]) -> str:
        """Return the one input of a component that a link without a name can mean.

        Raises:
            InvalidArgumentError: There are several.
        """
        module = self.module_dict[link.dest]
        wanted = module.required_keys
        if not wanted:
            return f"input_{len(held)}" if not isinstance(module, InputComponent) else "input"
        free = [key for key in wanted if key not in held] or wanted
        if len(wanted) == 1 or len(free) == 1:
            return free[0]
        raise InvalidArgumentError(
            f"The link from {link.src} to {link.dest} must name its input with dest_key: one of"
            f" {', '.join(wanted)}."
        )

    def _result(self, ends: dict[str, dict[str, Any]]) -> Any:
        """Return the one output, or all of them by name.

        Raises:
            InvalidArgumentError: Nothing came to an end.
        """
        match list(ends.values()):
            case [made]:
                return next(iter(made.values())) if len(made) == 1 else made
            case []:
                msg = "No component at the end of the pipeline has run: no condition was met."
                raise InvalidArgumentError(msg)
            case _:
                return ends

    def _show(self, name: str, given: Mapping[str, Any]) -> None:
        if not self.verbose:
            return
        print(f"> Running module {name} with input: ")
        for key, each in given.items():
            print(f"{key}: {text_of(each)[:LONGEST_SHOWN]}")
        print()


def _output(link: Link, made: Mapping[str, Any]) -> Any:
    """Return the output that a link hands on.

    Raises:
        InvalidArgumentError: There is no output of its name.
    """
    if link.src_key is None:
        return next(iter(made.values())) if len(made) == 1 else dict(made)
    if link.src_key in made:
        return made[link.src_key]
    value: Any = next(iter(made.values()), None)
    if hasattr(value, "keys") and link.src_key in value:
        return value[link.src_key]
    msg = f"Component {link.src} has no output {link.src_key!r}: {shown(dict(made))}"
    raise InvalidArgumentError(msg)
