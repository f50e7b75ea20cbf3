"""Tool choices: the model's own, a tool that it must call first, and none; the model is offline.

python examples/llama_index/forced_function_call.py
"""

from __future__ import annotations

import json

from holdfast import ToolCall
from holdfast.llama_index import FunctionTool, OpenAIAgent
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel


def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


def say_nothing() -> str:
    """Say nothing of any use."""
    return "Nothing of any use."


def model(request: ModelRequest) -> str | ToolCall:
    """Stand in for a model: obey the tool choice, then add."""
    print(f"(the model is asked, tool_choice={request.tool_choice})", flush=True)
    if request.tool_choice == "say_nothing":
        return ToolCall(id="", name="say_nothing")
    last = request.messages[-1]
    if request.tool_choice == "none":
        return "It is 7, I think."
    if last.role == "tool" and last.text == "7":
        return "It is 7."
    return ToolCall(id="", name="add", arguments=json.dumps({"a": 5, "b": 2}))


def main() -> None:
    """Ask three times."""
    tools = [FunctionTool.from_defaults(fn=say_nothing), FunctionTool.from_defaults(fn=add)]
    agent = OpenAIAgent.from_tools(tools, llm=ScriptedModel(model, name="adder"))
    for choice in ("auto", "say_nothing", "none"):
        response = agent.chat("What is 5 + 2?", tool_choice=choice)
        used = [source.tool_name for source in response.sources]
        print(f"{choice}: {response} {used}", flush=True)


if __name__ == "__main__":
    main()
