"""Two custom agents that try again until an answer is good: a function, and a subclass; offline.

python examples/llama_index/custom_agent.py

The state of each step is recorded: what is data as it is, the model and the engine by their names.
"""

from __future__ import annotations

from typing import Any

from holdfast.llama_index import (
    AgentChatResponse,
    ChatMessage,
    CustomSimpleAgentWorker,
    FnAgentWorker,
    HoldfastLLM,
    MessageRole,
    QueryEngineTool,
    Task,
)
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel

CITIES = {"Osterhamn": "Osterhamn has trams and ferries.", "Silla": "Silla has no trams."}
CHECK = "Say OK, or a better question."


class CityEngine:
    """Knows one sentence of each city that a question names."""

    def query(self, question: str) -> str:
        """Look a question up."""
        print(f"> Question: {question}", flush=True)
        return next((CITIES[city] for city in CITIES if city in question), "Which city?")


def checking_model(request: ModelRequest) -> str:
    """Stand in for a model that says whether an answer answers."""
    print("(the model is asked)", flush=True)
    said = request.messages[-1].text
    return "Which transport has Osterhamn?" if said == "Which city?" else "OK"


llm = HoldfastLLM(ScriptedModel(checking_model, name="checker"))


def evaluated(reasoning: list[tuple[str, str]], model: Any) -> str:
    """Ask the model about what was said so far."""
    messages = [ChatMessage(CHECK, MessageRole.SYSTEM)]
    messages += [ChatMessage(text, role) for role, text in reasoning]
    return str(model.chat(messages).message.content)


def retry_agent_fn(state: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Ask the engine once, and have the answer checked."""
    task, engine = state["__task__"], state["engine"]
    new_input = state.get("new_input", task.input)
    response = engine.query(new_input)
    state["current_reasoning"].extend([("user", new_input), ("assistant", response)])
    state["new_input"] = evaluated(state["current_reasoning"], state["llm"])
    state["__output__"] = response
    return state, state["new_input"] == "OK"


class RetryAgentWorker(CustomSimpleAgentWorker):
    """The same as a subclass."""

    prompt_str: str = CHECK

    def _initialize_state(self, task: Task, **kwargs: Any) -> dict[str, Any]:
        del task, kwargs
        return {"count": 0, "current_reasoning": []}

    def _run_step(
        self, state: dict[str, Any], task: Task, input: str | None = None
    ) -> tuple[AgentChatResponse, bool]:
        del input
        new_input = state.get("new_input", task.input)
        response = str(self.tools[0](new_input))
        state["count"] += 1
        state["current_reasoning"].extend([("user", new_input), ("assistant", response)])
        state["new_input"] = evaluated(state["current_reasoning"], self.llm)
        return AgentChatResponse(response=response), state["new_input"] == "OK"


def main() -> None:
    """Ask both."""
    engine = CityEngine()
    state: dict[str, Any] = {"engine": engine, "llm": llm, "current_reasoning": []}
    agent = FnAgentWorker(fn=retry_agent_fn, initial_state=state).as_agent()
    print(f"Function: {agent.chat('Which transport has the city?')}", flush=True)

    tool = QueryEngineTool.from_defaults(engine, name="cities", description="Cities.")
    custom = RetryAgentWorker.from_tools([tool], llm=llm).as_agent()
    task = custom.create_task("Which transport has the city?")
    step_output = custom.run_step(task.task_id)
    print(f"One step: {step_output}", flush=True)
    while not step_output.is_last:
        step_output = custom.run_step(task.task_id)
    print(f"Subclass: {custom.finalize_response(task.task_id)}")
    print(f"Tries: {custom.get_task(task.task_id).extra_state['count']}")
    print([f"{message.role.value}: {message.content}" for message in custom.chat_history])


if __name__ == "__main__":
    main()
