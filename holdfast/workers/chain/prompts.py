"""What a model is told that writes a chain of abstraction, and one that reads its results.

The method is that of chain-of-abstraction reasoning (arXiv:2401.17464); the words are ours.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from holdfast.models.base import ToolSpec
from holdfast.workers.compiler.binding import parameter_names

PLAN_PROMPT = """\
Do not answer the last request yet. Write down how to reason towards its answer, in a few
sentences, and put a call in the place of each fact or number that a tool can give:

[FUNC tool(argument, argument) = y1]

Rules:
- The result of a call gets a name of its own: y1, y2, y3 and so on.
- Use that name for the result in the sentences, and in the arguments of other calls, also inside a
  text.
- Arguments stand in the order of the tool's parameters, or as name=value; texts in double quotes.
- Use the tools of the list below only. Where no tool helps, write the reasoning without calls.
- Calls that do not need each other's results are made at the same time.

Example, with tools price(item) and multiply(a, b):
One pear costs [FUNC price("pear") = y1] and four of them cost [FUNC multiply(y1, 4) = y2]."""

ANSWER_PROMPT = """\
Below is the reasoning on the last request, with the results of the tools in it. Answer the request
now, in plain sentences and from these results, without speaking of tools or of the reasoning
itself. Where a result is an error, say what is missing."""

NO_TOOLS = "There are no tools: write no calls."

UNREADABLE = (
    "This cannot be run:\n{problems}\nWrite the whole reasoning again, each call as"
    " [FUNC tool(arguments) = y1]."
)

NOT_READ = "No tool could be used, because the calls could not be read:"


def planning(instructions: str, prompt: str, tools: Sequence[ToolSpec]) -> str:
    """Make the system prompt: the agent's instructions, the rules, the tools."""
    listed = "\n\n".join(map(_described, tools)) or NO_TOOLS
    return "\n\n".join(
        part for part in (instructions.strip(), prompt, f"Tools:\n\n{listed}") if part
    )


def _described(tool: ToolSpec) -> str:
    names = ", ".join(parameter_names(tool))
    schema = json.dumps(tool.parameters.get("properties", {}), ensure_ascii=False)
    about = " ".join(tool.description.split())
    return f"- {tool.name}({names}): {about}\n  Parameters: {schema}"


def answering(instructions: str, prompt: str, reasoning: str) -> str:
    """Make the system prompt: the agent's instructions, the rules, the reasoning."""
    parts = (instructions.strip(), prompt, f"Reasoning:\n\n{reasoning}")
    return "\n\n".join(part for part in parts if part)
