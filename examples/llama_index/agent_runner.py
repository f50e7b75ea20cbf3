"""Chats and steps with a function calling agent and a ReAct agent; both models are offline.

python examples/llama_index/agent_runner.py

Only the import lines differ from those of a program of LlamaIndex's agent API. Kill the program
anywhere and start it again: it goes on where it was.
"""

from __future__ import annotations

from holdfast.llama_index import FunctionTool, OpenAI, OpenAIAgent, ReActAgent
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel


def multiply(a: int, b: int) -> int:
    """Multiply two whole numbers."""
    return a * b


def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


tools = [FunctionTool.from_defaults(fn=multiply), FunctionTool.from_defaults(fn=add)]


def thinking_model(request: ModelRequest) -> str:
    """Stand in for a model that reasons in text."""
    print("(the thinking model is asked)", flush=True)
    said = [message.text for message in request.messages]
    if said[-1] == "Hi":
        return "Thought: A greeting needs no tool.\nAnswer: Hello! Ask me for a sum."
    if "363" in said[-1]:
        return 'Thought: Add the rest.\nAction: add\nAction Input: {"a": 363, "b": 42}'
    if "405" in said[-1]:
        return "Thought: That is all.\nAnswer: It is 405."
    return 'Thought: Multiply first.\nAction: multiply\nAction Input: {"a": 121, "b": 3}'


def main() -> None:
    """Do the same with both agents."""
    agent = OpenAIAgent.from_tools(tools, llm=OpenAI(model="offline"), verbose=True)
    response = agent.chat("What is (121 * 3) + 42?")
    print(f"{response} {[source.raw_output for source in response.sources]}")

    task = agent.create_task("What is (121 * 3) + 42?")
    step_output = agent.run_step(task.task_id)
    print(f"One step: {step_output.output.sources[0].tool_name}", flush=True)
    step_output = agent.run_step(task.task_id)
    step_output = agent.run_step(task.task_id)
    print(f"Last: {step_output.is_last}")
    print(agent.finalize_response(task.task_id))

    thinking = ReActAgent.from_tools(tools, llm=ScriptedModel(thinking_model, name="thinker"))
    print(thinking.chat("Hi"))
    task = thinking.create_task("What is (121 * 3) + 42?")
    step_output = thinking.run_step(task.task_id)
    print(step_output.output, flush=True)
    while not step_output.is_last:
        step_output = thinking.run_step(task.task_id)
    print(thinking.finalize_response(task.task_id))
    print([f"{message.role.value}: {message.content}" for message in thinking.chat_history])


if __name__ == "__main__":
    main()
