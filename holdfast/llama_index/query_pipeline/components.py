"""The components of a QueryPipeline."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
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

    partial_dict: dict[str, Any]

    def partial(self, **known: Any) -> None:
        """Fill in inputs beforehand."""
        self.partial_dict = {**getattr(self, "partial_dict", {}), **known}

    @property
    def required_keys(self) -> list[str]:
        """Inputs that must be given, without the known ones."""
        known = getattr(self, "partial_dict", {})
        return [key for key in self.input_names() if key not in known]

    def input_names(self) -> Sequence[str]:
        """Return the names of the inputs that must be given."""
        raise NotImplementedError

    def run_component(self, **inputs: Any) -> dict[str, Any]:
        """Run it; return its outputs by name."""
        known = getattr(self, "partial_dict", {})
        return self.run_with({**known, **inputs}, {})

    def run_with(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Run it with the state of an agent's step."""
        raise NotImplementedError


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
        self.partial_dict = dict(partial_dict or {})
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
        self.partial_dict = {}

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
        self.partial_dict = {}

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
        self.partial_dict = {}

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
        self.partial_dict = dict(partial or {})

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
