"""The workers that choose among tools; they stand for Holdfast's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.agents.agent import Agent
from holdfast.llama_index.llms.messages import PromptTemplate, template_text, to_message
from holdfast.llama_index.llms.openai import (
    CallParser,
    CallParsingModel,
    PrefixedModel,
    default_llm,
)
from holdfast.llama_index.workers.base import BaseAgentWorker, MadeOfTools
from holdfast.workers import base
from holdfast.workers import chain as chain_prompts
from holdfast.workers.chain import ChainOfAbstractionAgentWorker as ChainOfAbstraction
from holdfast.workers.compiler.worker import LLMCompilerAgentWorker as Compiler
from holdfast.workers.function_calling import FunctionCallingAgentWorker as FunctionCalling


class ToolAgentWorker(MadeOfTools, BaseAgentWorker):
    """Base of the workers that choose among tools.

    Attributes:
        tools: The tools: ours, LlamaIndex's, Holdfast's, or plain functions.
        tool_retriever: Chooses among tools for each step, instead of `tools`.
        llm: The model: LlamaIndex's, Holdfast's or its name; None for the default.
        verbose: Whether runners print what happens.
        callback_manager: Kept as it is.
    """

    gives_data = False

    def __init__(
        self,
        tools: Sequence[Any] = (),
        llm: Any = None,
        *,
        tool_retriever: Any = None,
        prefix_messages: Sequence[Any] | None = None,
        system_prompt: str | None = None,
        verbose: bool = False,
        callback_manager: Any = None,
        **options: Any,
    ) -> None:
        """Take tools and a model.

        Args:
            tools: The tools.
            llm: The model.
            tool_retriever: Chooses among tools for each step.
            prefix_messages: Messages that the model reads before each conversation.
            system_prompt: Instructions for the model.
            verbose: Whether runners print what happens.
            callback_manager: Kept as it is.
            options: What only some workers know.

        Raises:
            ValueError: Both tools and a retriever, or both kinds of instructions, are given.
        """
        if tools and tool_retriever is not None:
            raise ValueError("Cannot specify both tools and tool_retriever")
        if system_prompt is not None and prefix_messages is not None:
            raise ValueError("Cannot specify both system_prompt and prefix_messages")
        self.tools = list(tools)
        self.tool_retriever = tool_retriever
        self.llm = llm
        self.verbose = verbose
        self.callback_manager = callback_manager
        prefix = [to_message(each) for each in prefix_messages or ()]
        said = [each.text for each in prefix if each.role == "system"]
        self.instructions = system_prompt or "\n\n".join(said)
        self._prefix = [each for each in prefix if each.role != "system"]
        self.take_options(**options)

    def take_options(self, **options: Any) -> None:
        """Take what only this worker knows; what no one knows any more is left out."""

    def step_logic(self) -> base.AgentWorker:
        """Make the AgentWorker of Holdfast."""
        raise NotImplementedError

    def make_agent(self, name: str, llm: Any = None) -> Agent[Any]:
        """Make the agent of Holdfast."""
        model = default_llm(self.llm or llm)
        return Agent(
            name=name,
            instructions=self.instructions,
            model=PrefixedModel(model, self._prefix) if self._prefix else model,
            tools=self.tools,
            tool_retriever=self.tool_retriever,
            worker=self.step_logic(),
        )


class FunctionCallingAgentWorker(ToolAgentWorker):
    """Function calling: the model calls tools until it answers in words."""

    kind = "functions"

    def take_options(
        self,
        *,
        max_function_calls: int | None = 5,
        allow_parallel_tool_calls: bool = True,
        **_: Any,
    ) -> None:
        """Take the limits: calls of one task, and whether one answer may hold several."""
        self.max_function_calls = max_function_calls
        self.allow_parallel_tool_calls = allow_parallel_tool_calls

    def step_logic(self) -> base.AgentWorker:
        """Make the AgentWorker of Holdfast."""
        return FunctionCalling(
            max_function_calls=self.max_function_calls,
            allow_parallel_tool_calls=self.allow_parallel_tool_calls,
        )


class OpenAIAgentWorker(FunctionCallingAgentWorker):
    """Function calling of OpenAI's models."""

    kind = "openai"

    def take_options(self, *, tool_call_parser: CallParser | None = None, **options: Any) -> None:
        """Take the limits, and what reads the arguments of calls instead of JSON."""
        super().take_options(**options)
        self._parser = tool_call_parser

    def make_agent(self, name: str, llm: Any = None) -> Agent[Any]:
        """Make the agent of Holdfast."""
        made = super().make_agent(name, llm)
        if self._parser is None:
            return made
        return made.clone(model=CallParsingModel(made.model, self._parser))


class CoAAgentWorker(ToolAgentWorker):
    """Chain of abstraction: reasoning with placeholders, which tools fill in."""

    kind = "coa"

    def get_prompts(self) -> dict[str, Any]:
        """Return the prompts that may be changed."""
        return {name: PromptTemplate(text) for name, text in self._prompts.items()}

    def take_options(
        self,
        *,
        reasoning_prompt_template: Any = None,
        refine_reasoning_prompt_template: Any = None,
        **_: Any,
    ) -> None:
        """Take the prompts: how to write a chain, and how to answer."""
        self._prompts = {
            "reasoning_prompt": template_text(
                reasoning_prompt_template or chain_prompts.PLAN_PROMPT
            ),
            "refine_prompt": template_text(
                refine_reasoning_prompt_template or chain_prompts.ANSWER_PROMPT
            ),
        }

    def set_prompt(self, name: str, text: str) -> None:
        """Take the text of a prompt, for agents that are made afterwards."""
        self._prompts[name] = text

    def step_logic(self) -> base.AgentWorker:
        """Make the AgentWorker of Holdfast."""
        return ChainOfAbstraction(
            plan_prompt=self._prompts["reasoning_prompt"],
            answer_prompt=self._prompts["refine_prompt"],
        )


class LLMCompilerAgentWorker(ToolAgentWorker):
    """Plans tool calls as a graph, and runs each the moment its inputs are there."""

    kind = "compiler"

    def take_options(self, *, max_replans: int = 3, **_: Any) -> None:
        """Take the limit of further plans."""
        self.max_replans = max_replans

    def step_logic(self) -> base.AgentWorker:
        """Make the AgentWorker of Holdfast."""
        return Compiler(max_replans=self.max_replans)
