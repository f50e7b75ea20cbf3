"""Tool calls planned at once and run side by side; the model is offline.

python examples/llama_index/llm_compiler.py
"""

from __future__ import annotations

from holdfast.llama_index import AgentRunner, FunctionTool, LLMCompilerAgentWorker
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel


def multiply(a: int, b: int) -> int:
    """Multiply two whole numbers."""
    print(f"> multiply {a} {b}", flush=True)
    return a * b


def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


def model(request: ModelRequest) -> str:
    """Stand in for a model that plans calls, and reads what they gave."""
    print("(the model is asked)", flush=True)
    if "405" in request.messages[-1].text:
        return "Thought: It is there.\nAction: finish(405)"
    return "1. multiply(121, 3)\n2. add($1, 42)\n3. join()<END_OF_PLAN>"


def main() -> None:
    """Ask once."""
    tools = [
        FunctionTool.from_defaults(fn=multiply, effect="read"),
        FunctionTool.from_defaults(fn=add, effect="read"),
    ]
    print(tools[0].metadata.fn_schema_str)
    worker = LLMCompilerAgentWorker.from_tools(tools, llm=ScriptedModel(model, name="compiler"))
    agent = AgentRunner(worker)
    response = agent.chat("What is (121 * 3) + 42?")
    print(f"{response} {[source.content for source in response.sources]}")
    print([f"{message.role.value}: {message.content}" for message in agent.memory.get_all()])


if __name__ == "__main__":
    main()
