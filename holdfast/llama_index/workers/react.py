"""The workers whose models reason and act in text."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.errors import InvalidArgumentError
from holdfast.llama_index.llms.messages import PromptTemplate, filled
from holdfast.llama_index.workers.tools import ToolAgentWorker
from holdfast.models.base import ToolSpec
from holdfast.values.text.shown import shown
from holdfast.workers import base
from holdfast.workers.react import parser
from holdfast.workers.react import worker as react_prompt
from holdfast.workers.react.worker import MultimodalReActAgentWorker as MultimodalReAct
from holdfast.workers.react.worker import ReActAgentWorker as ReAct
from holdfast.workers.react.worker import multimodal_instructions

if TYPE_CHECKING:
    from holdfast.workers.react.parser import ParseFailure


@dataclass
class ReActChatFormatter:
    """What the model of a ReAct agent reads.

    Attributes:
        system_header: The prompt; it may have `{tool_desc}`, `{tool_names}` and `{context}`. None
            for Holdfast's own.
        context: What the model reads besides it.
    """

    system_header: str | None = None
    context: str = ""

    @classmethod
    def from_defaults(
        cls, system_header: str | None = None, context: str | None = None, **_: Any
    ) -> ReActChatFormatter:
        """Make a formatter."""
        return cls(system_header, context or "")

    def format(
        self,
        tools: Sequence[Any],
        chat_history: Sequence[Any],
        current_reasoning: Sequence[Any] | None = None,
    ) -> list[Any]:
        """Write what a model reads, for step logic of your own, as LlamaIndex's formatter does.

        Args:
            tools: The tools, LlamaIndex's.
            chat_history: The conversation.
            current_reasoning: Reasoning steps of LlamaIndex.

        Raises:
            InvalidArgumentError: llama-index-core is not installed.
        """
        try:
            from llama_index.core.agent.react.formatter import ReActChatFormatter as Formatter
        except ImportError as error:
            raise InvalidArgumentError(
                "ReActChatFormatter.format needs llama-index-core, whose reasoning steps it writes."
                " Install it, or pass the formatter to a ReActAgentWorker."
            ) from error
        known: dict[str, Any] = {"system_header": self.system_header, "context": self.context}
        made = Formatter.from_defaults(**{key: each for key, each in known.items() if each})
        return made.format(tools, list(chat_history), list(current_reasoning or ()))


@dataclass
class ReasoningStep:
    """What a reply of a ReAct model says.

    Attributes:
        thought: The reasoning before.
        action: Name of the tool that must be called; empty for an answer.
        action_input: Its arguments.
        response: The answer.
        is_done: Whether it is an answer.
        is_streaming: Whether more of it may come.
    """

    thought: str
    action: str = ""
    action_input: dict[str, Any] = field(default_factory=dict[str, Any])
    response: str = ""
    is_done: bool = False
    is_streaming: bool = False

    def get_content(self) -> str:
        """Return the reply in the form of ReAct."""
        if self.is_done:
            return f"Thought: {self.thought}\nAnswer: {self.response}"
        return f"Thought: {self.thought}\nAction: {self.action}\nAction Input: {self.action_input}"


class ReActOutputParser:
    """Reads replies of ReAct models, as ReActAgentWorker does."""

    def parse(self, output: str, is_streaming: bool = False) -> ReasoningStep:
        """Read a reply.

        Args:
            output: The reply.
            is_streaming: Whether more of it may come.

        Raises:
            ValueError: It is neither an action nor an answer.
        """
        match parser.parse(output):
            case parser.Action() as said:
                given = json.loads(said.arguments)
                return ReasoningStep(said.thought, said.tool, given, is_streaming=is_streaming)
            case parser.Answer() as said:
                return ReasoningStep(
                    said.thought, response=said.text, is_done=True, is_streaming=is_streaming
                )
            case failure:
                raise ValueError(f"Could not parse output: {failure.text}")


class ReActAgentWorker(ToolAgentWorker):
    """ReAct: the model reasons and acts in text, in rounds of thought, action and observation."""

    kind = "react"
    observes = True

    def take_options(
        self,
        *,
        max_iterations: int = 10,
        react_chat_formatter: Any = None,
        context: str | None = None,
        handle_reasoning_failure_fn: Callable[[Any, Exception], Any] | None = None,
        output_parser: Any = None,
        **_: Any,
    ) -> None:
        """Take what ReAct knows.

        Args:
            max_iterations: Most model calls of one user turn.
            react_chat_formatter: Its `system_header` is the prompt, its `context` joins it.
            context: What the model reads besides the prompt.
            handle_reasoning_failure_fn: Called as `(callback_manager, error)` when a reply cannot
                be read; what it returns is the observation.
            output_parser: LlamaIndex's own is taken and not needed.

        Raises:
            InvalidArgumentError: The parser or the formatter has a grammar of its own.
        """
        _ensure_known_grammar("output_parser", output_parser, "parse")
        _ensure_known_grammar("react_chat_formatter", react_chat_formatter, "format")
        self.max_iterations = max_iterations
        self._handle = handle_reasoning_failure_fn
        given = context or getattr(react_chat_formatter, "context", "") or ""
        self.context = str(given)
        self._template: str | None = None
        header = getattr(react_chat_formatter, "system_header", None)
        if header is not None and _is_changed(react_chat_formatter, header):
            self._template = str(header)

    def get_prompts(self) -> dict[str, Any]:
        """Return the system prompt; it may have `{tool_desc}`, `{tool_names}`, `{context}`."""
        return {"system_prompt": PromptTemplate(self._template or _DEFAULT_PROMPT)}

    def set_prompt(self, name: str, text: str) -> None:
        """Take the system prompt."""
        del name
        self._template = text

    def default_prompt(self, instructions: str, tools: Sequence[ToolSpec]) -> str:
        """Make the system prompt where none was given."""
        return react_prompt.react_instructions(instructions, tools)

    def prompt(self, instructions: str, tools: Sequence[ToolSpec]) -> str:
        """Make the system prompt."""
        known = "\n\n".join(part for part in (instructions, self.context) if part)
        if self._template is None:
            return self.default_prompt(known, tools)
        parts = {
            "tool_desc": react_prompt.described(tools),
            "tool_names": ", ".join(tool.name for tool in tools),
            "context": known,
            "context_prompt": known,
        }
        text = filled(self._template, parts)
        return text if known in text else f"{known}\n\n{text}"

    def step_logic(self) -> base.AgentWorker:
        """Make the AgentWorker of Holdfast."""
        handler = None if self._handle is None else self._not_readable
        return ReAct(max_turns=self.max_iterations, on_parse_failure=handler, prompt=self.prompt)

    def _not_readable(self, reply: str, failure: ParseFailure) -> str:
        del reply
        handle = self._handle
        if handle is None:
            raise RuntimeError("there is no handler")
        made = handle(self.callback_manager, ValueError(failure.text))
        return str(getattr(made, "content", made))


_DEFAULT_PROMPT = (
    "{context}\n\n"
    + react_prompt.FORMAT.replace("{", "{{").replace("}", "}}")
    + "\n\nTools:\n\n{tool_desc}"
)


def _is_changed(formatter: Any, header: Any) -> bool:
    """Whether a formatter's header is not the one that its class has."""
    kind: Any = type(formatter)  # pyright: ignore[reportUnknownVariableType]  anybody's class
    fields: Any = getattr(kind, "model_fields", {})
    default = getattr(fields.get("system_header"), "default", None)
    if default is None:
        parameter = inspect.signature(kind).parameters.get("system_header")
        default = None if parameter is None else parameter.default
    return bool(header != default)


def _ensure_known_grammar(name: str, given: object, method: str) -> None:
    """Refuse a subclass with another grammar, which would not be used.

    Raises:
        InvalidArgumentError: It is one.
    """
    kinds = [kind for kind in type(given).__mro__ if method in vars(kind)]
    if kinds and kinds[0].__name__ not in ("ReActOutputParser", "ReActChatFormatter"):
        raise InvalidArgumentError(
            f"{name}={shown(given)} has its own {method}(), which is not called here. Say how to"
            " answer in the system_header of a ReActChatFormatter, or write the loop as a"
            " CustomSimpleAgentWorker."
        )


class MultimodalReActAgentWorker(ReActAgentWorker):
    """ReAct for a model that sees images: those in `extra_state["image_docs"]` of a task."""

    kind = "multimodal"

    def __init__(
        self, tools: Sequence[Any] = (), multi_modal_llm: Any = None, **options: Any
    ) -> None:
        """Take tools and a model, as `multi_modal_llm` or `llm`."""
        super().__init__(tools, options.pop("llm", None) or multi_modal_llm, **options)

    def default_prompt(self, instructions: str, tools: Sequence[ToolSpec]) -> str:
        """Make the system prompt where none was given."""
        return multimodal_instructions(instructions, tools)

    def step_logic(self) -> base.AgentWorker:
        """Make the AgentWorker of Holdfast."""
        return MultimodalReAct(max_turns=self.max_iterations, prompt=self.prompt)
