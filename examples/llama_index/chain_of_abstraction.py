"""Reasoning with calls in the place of their results, which tools fill in; the model is offline.

python examples/llama_index/chain_of_abstraction.py
"""

from __future__ import annotations

from holdfast.llama_index import CoAAgentWorker, QueryEngineTool
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel

GROWTH = {"trams": "Trams grew by 57 percent.", "ferries": "Ferries grew by 36 percent."}
CHAIN = """\
Trams: [FUNC trams("How much did trams grow?") = y1] Ferries: [FUNC ferries("How much?") = y2]
Compare y1 with y2."""


class Report:
    """One small report."""

    def __init__(self, text: str) -> None:
        self.text = text

    def query(self, question: str) -> str:
        print(f"> Asked: {question}", flush=True)
        return self.text


def model(request: ModelRequest) -> str:
    """Stand in for a model that writes the chain, then reads it with its results."""
    print("(the model is asked)", flush=True)
    if "Compare Trams grew by 57 percent. with Ferries" in request.instructions:
        return "Trams grew more."
    return CHAIN


def main() -> None:
    """Ask once."""
    tools = [
        QueryEngineTool.from_defaults(Report(text), name=name, description=f"Growth of {name}.")
        for name, text in GROWTH.items()
    ]
    worker = CoAAgentWorker.from_tools(tools=tools, llm=ScriptedModel(model), verbose=False)
    agent = worker.as_agent()
    task = agent.create_task("Which grew more, trams or ferries?")
    step_output = agent.run_step(task.task_id)
    print("The chain is written.", flush=True)
    while not step_output.is_last:
        step_output = agent.run_step(task.task_id)
    print(agent.finalize_response(task.task_id))
    print([f"{message.role.value}: {message.content}" for message in agent.memory.get_all()])


if __name__ == "__main__":
    main()
