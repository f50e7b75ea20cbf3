"""Prompts of ReActAgentWorker: the reply format with the tools, and messages during the loop.

Source: the loop of thought, action and observation is that of ReAct, arXiv:2210.03629; the words
are ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.models.base import ToolSpec
from holdfast.values.messages import system

if TYPE_CHECKING:
    from holdfast.workers.react.parser import Action, ParseFailure

Prompt = Callable[[str, Sequence[ToolSpec]], str]
"""Makes the system prompt from the agent's instructions and its tools. It must be pure: it is
called again for each model call, and another prompt would not match the step's journal."""

FORMAT = """\
You work towards an answer in rounds: reason, use one tool, read what it gave, and so on until you \
can answer. Write one reply per round, in one of these two forms and nothing else.

To use a tool:

Thought: what is known, what is missing, and why this tool helps
Action: the name of the tool
Action Input: {"argument": "value"}

To finish:

Thought: why this is enough
Answer: the answer, in the language of the question

Rules:
- Each of these keywords begins a line. Put no code fence around a reply.
- An action names one tool of the list below. Its input is one JSON object that fits the tool's \
schema; a tool without arguments gets {}.
- A reply ends after its action input. The tool is run for you, and the next message gives its \
result after "Observation:". Never write an observation yourself.
- An observation may also be a remark of the person you work for.
- If the tools cannot give what is asked, say so in an answer."""

NO_TOOLS = "There are no tools: finish with your first reply."

ANSWER_NOW = system(
    "No more tools can be used for this question. Reply in the form that finishes: say what is"
    " known, and what is missing."
)
WITHOUT_TOOL = system("Use no tool in the next reply.")


def react_instructions(instructions: str, tools: Sequence[ToolSpec]) -> str:
    """Make the system prompt: the agent's own instructions, the reply format, the tools.

    Args:
        instructions: The agent's instructions; may be empty.
        tools: The agent's tools.
    """
    listed = f"Tools:\n\n{described(tools)}" if tools else NO_TOOLS
    return "\n\n".join(part for part in (instructions.strip(), FORMAT, listed) if part)


def described(tools: Sequence[ToolSpec]) -> str:
    """List tools with their descriptions and schemas."""
    return "\n\n".join(map(_describe, tools))


def _describe(tool: ToolSpec) -> str:
    schema = json.dumps(tool.parameters, ensure_ascii=False)
    lines = [f"- {tool.name}", *tool.description.strip().splitlines(), f"Schema: {schema}"]
    return "\n  ".join(lines)


def use_tool(choice: str) -> str:
    """Ask for an action in the next reply.

    Args:
        choice: "required", or a tool's name.
    """
    return "Use a tool in the next reply." if choice == "required" else f"Use {choice} next."


def not_readable(reply: str, failure: ParseFailure) -> str:
    """Make the observation that says why the reply could not be read, and how to write it."""
    del reply
    return (
        f"Nothing was run, because the reply could not be read: {failure.text}. Reply again with"
        ' "Thought:", then either "Action:" and "Action Input:" with one JSON object, or "Answer:".'
    )


def unknown_tool(name: str, known: Sequence[str]) -> str:
    """Make the observation after an action with an unknown tool."""
    tools = f"The tools are: {', '.join(known)}." if known else "There are no tools: answer."
    return f"There is no tool named {name!r}. {tools}"


def refused(action: Action) -> str:
    """Make the observation after an action in a reply that had to do without one."""
    return f"{action.tool} was not run: this reply had to do without a tool."


def unfinished(action: Action, why: str) -> str:
    """Make the task's answer from an action that a limit forbids to run.

    Args:
        action: The model's action.
        why: The limit, as in "the limit of 3 model calls".
    """
    thought = f" Its last thought: {action.thought}" if action.thought else ""
    wish = f"{action.tool} with {action.arguments}"
    return f"There is no final answer: {why} was reached.{thought} It wanted to run {wish} next."


def unread(failure: ParseFailure, why: str) -> str:
    """Make the task's answer from a last reply that cannot be read.

    Args:
        failure: The problem, with the part of the reply that was kept.
        why: The limit, as in "the limit of 3 model calls".
    """
    said = f" The last words were: {failure.said}" if failure.said else ""
    return f"There is no final answer: {why} was reached.{said}"
