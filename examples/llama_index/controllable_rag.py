r"""Steer an agent between its steps, at the terminal or from a script; the model is offline.

printf 'risks?\nI meant June\n\nexit\n' | python examples/llama_index/controllable_rag.py

After each step you may say something, which the agent takes as an observation. The tools are query
engines over two small reports; any query engine of LlamaIndex takes their place.
"""

from __future__ import annotations

from holdfast.llama_index import QueryEngineTool, ReActAgent, ToolMetadata
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel

REPORTS = {
    "march": ["Costs rose by 14 percent in March.", "The risks in March were prices and storms."],
    "june": ["Costs fell by 2 percent in June.", "The risks in June were strikes and heat."],
}


class KeywordEngine:
    """Answers with the sentence that shares most words with the question."""

    def __init__(self, sentences: list[str]) -> None:
        self.sentences = sentences

    def query(self, question: str) -> str:
        """Look a question up."""
        asked = set(question.lower().split())
        return max(self.sentences, key=lambda each: len(asked & set(each.lower().split())))


def model(request: ModelRequest) -> str:
    """Stand in for a model that looks into March first, unless somebody says June."""
    print("(the model is asked)", flush=True)
    said = request.messages[-1].text
    if "June were" in said:
        return f"Thought: That is it.\nAnswer: {said.removeprefix('Observation: ')}"
    tool = "june" if "June" in said else "march"
    return f'Thought: Look into {tool}.\nAction: {tool}\nAction Input: {{"input": "the risks"}}'


def tool_for(name: str) -> QueryEngineTool:
    """Make a tool of a report."""
    about = f"What the report of {name} says."
    metadata = ToolMetadata(name=name, description=about)
    return QueryEngineTool(query_engine=KeywordEngine(REPORTS[name]), metadata=metadata)


agent = ReActAgent.from_tools(
    [tool_for("march"), tool_for("june")],
    llm=ScriptedModel(model, name="reader"),
    max_iterations=20,
)


def chat_repl() -> None:
    """Run tasks step by step, and ask for a remark after each."""
    while (message := input(">> Human: ")) != "exit":
        task = agent.create_task(message)
        remark: str | None = None
        while True:
            step_output = agent.run_step(task.task_id, input=remark or None)
            print(step_output.output, flush=True)
            if step_output.is_last:
                break
            remark = input(">> A remark? ")
        print(f"Agent: {agent.finalize_response(task.task_id)}")
    for message in agent.memory.get_all():
        print(f"{message.role.value}: {message.content}")


if __name__ == "__main__":
    chat_repl()
