"""Agents around a graph of components: ReAct made of its parts, and one that tries again; offline.

python examples/llama_index/query_pipeline_agent.py
"""

from __future__ import annotations

from typing import Any

from holdfast.llama_index import (
    AgentChatResponse,
    ChatMessage,
    FunctionTool,
    HoldfastLLM,
    MessageRole,
    PromptTemplate,
    QueryPipelineAgentWorker,
)
from holdfast.llama_index.query_pipeline import (
    AgentInputComponent,
    QueryPipeline,
    StatefulFnComponent,
    ToolRunnerComponent,
)
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel

ALBUMS = {"The Tin Boats": 3, "Ida and the Locks": 1}


def count_albums(artist: str) -> str:
    """Count the albums of an artist."""
    return f"{artist} made {ALBUMS[artist]} albums." if artist in ALBUMS else "Unknown artist."


def model(request: ModelRequest) -> str:
    """Stand in for a model: uses the tool, reads what it gave, or puts a question better."""
    print("(the model is asked)", flush=True)
    said = request.messages[-1].text
    if said.startswith("Put better"):
        return "The Tin Boats" if "Unknown" in said else "the boats"
    if said.startswith("Is this"):
        return "NO" if "Unknown" in said else "YES"
    if "made 3" in said:
        return "Answer: They made three."
    return "Action: count_albums with The Tin Boats"


tool = FunctionTool.from_defaults(count_albums)
llm = HoldfastLLM(ScriptedModel(model, name="reasoner"))


# ---- ReAct made of its parts


def agent_input(state: dict[str, Any]) -> str:
    """Begin the reasoning with the question."""
    state["step_state"].setdefault("current_reasoning", [state["task"].input])
    return str(state["task"].input)


def react_prompt(state: dict[str, Any], input: str, tools: list[Any]) -> list[ChatMessage]:
    """Make the conversation."""
    history = state["task"].memory.get() + state["step_state"]["memory"].get_all()
    about = "\n".join(f"{each.metadata.name}: {each.metadata.description}" for each in tools)
    said = [ChatMessage(each) for each in state["step_state"]["current_reasoning"]]
    del input
    return [ChatMessage(about, MessageRole.SYSTEM), *history, *said]


def parse_output(state: dict[str, Any], chat_response: Any) -> dict[str, Any]:
    """Read what the model said."""
    del state
    text = str(chat_response.message.content)
    return {"done": text.startswith("Answer:"), "text": text.partition(": ")[2]}


def run_tool(state: dict[str, Any], text: str) -> dict[str, Any]:
    """Run the tool that the model wants."""
    name, _, artist = text.partition(" with ")
    output = ToolRunnerComponent([tool]).run_component(
        tool_name=name, tool_input={"artist": artist}
    )
    state["step_state"]["current_reasoning"].append(str(output["output"]))
    return {"response_str": str(output["output"]), "is_done": False}


def process_response(state: dict[str, Any], text: str) -> dict[str, Any]:
    """Keep question and answer."""
    memory = state["step_state"]["memory"]
    memory.put(ChatMessage(state["task"].input, MessageRole.USER))
    memory.put(ChatMessage(text, MessageRole.ASSISTANT))
    return {"response_str": text, "is_done": True}


def process_agent_response(
    state: dict[str, Any], response_dict: dict[str, Any]
) -> tuple[AgentChatResponse, bool]:
    """Give the step's output."""
    del state
    return AgentChatResponse(response_dict["response_str"]), response_dict["is_done"]


def react_pipeline() -> QueryPipeline:
    """Link the parts."""
    qp = QueryPipeline(verbose=False)
    qp.add_modules(
        {
            "agent_input": StatefulFnComponent(fn=agent_input),
            "react_prompt": StatefulFnComponent(fn=react_prompt, partial_dict={"tools": [tool]}),
            "llm": llm,
            "parser": StatefulFnComponent(fn=parse_output),
            "run_tool": StatefulFnComponent(fn=run_tool),
            "process_response": StatefulFnComponent(fn=process_response),
            "process_agent_response": StatefulFnComponent(fn=process_agent_response),
        }
    )
    qp.add_chain(["agent_input", "react_prompt", "llm", "parser"])
    qp.add_link(
        "parser", "run_tool", condition_fn=lambda x: not x["done"], input_fn=lambda x: x["text"]
    )
    qp.add_link(
        "parser", "process_response", condition_fn=lambda x: x["done"], input_fn=lambda x: x["text"]
    )
    qp.add_link("process_response", "process_agent_response")
    qp.add_link("run_tool", "process_agent_response")
    return qp


# ---- one that tries again


def retry_input(task: Any, state: dict[str, Any]) -> dict[str, Any]:
    """Give the question and what was tried."""
    tried = state.setdefault("convo_history", [])
    state["count"] = state.get("count", 0) + 1
    return {"input": task.input, "convo_history": "\n".join(tried) or "None"}


validate = PromptTemplate("Is this good? {input} -> {answer}")


def retry_output(state: dict[str, Any], output: Any) -> tuple[AgentChatResponse, bool]:
    """Have the answer judged."""
    state["step_state"]["convo_history"].append(str(output))
    judge = QueryPipeline(chain=[validate.as_query_component(partial={"answer": str(output)}), llm])
    verdict = judge.run(input=state["task"].input).message.content
    is_done = "YES" in str(verdict) or state["step_state"]["count"] >= 3
    return AgentChatResponse(response=str(output)), is_done


class AlbumEngine:
    """Looks an artist up."""

    def query(self, artist: str) -> str:
        return count_albums(artist)


def retry_pipeline() -> QueryPipeline:
    """Link the parts."""
    qp = QueryPipeline(
        modules={
            "input": AgentInputComponent(fn=retry_input),
            "retry_prompt": PromptTemplate("Put better: {input}\nTried: {convo_history}"),
            "llm": llm,
            "albums": AlbumEngine(),
            "output": StatefulFnComponent(fn=retry_output),
        }
    )
    qp.add_link("input", "retry_prompt", src_key="input", dest_key="input")
    qp.add_link("input", "retry_prompt", src_key="convo_history", dest_key="convo_history")
    qp.add_chain(["retry_prompt", "llm", "albums", "output"])
    return qp


def main() -> None:
    """Ask both agents."""
    agent = QueryPipelineAgentWorker(react_pipeline()).as_agent()
    task = agent.create_task("How many albums did The Tin Boats make?")
    step_output = agent.run_step(task.task_id)
    print(f"One step: {step_output}", flush=True)
    step_output = agent.run_step(task.task_id)
    print(f"ReAct: {step_output.is_last} {agent.finalize_response(task.task_id)}", flush=True)
    print([f"{message.role.value}: {message.content}" for message in agent.chat_history])

    retrying = QueryPipelineAgentWorker(retry_pipeline()).as_agent()
    print(f"Retry: {retrying.chat('How many albums did the boats make?')}")


if __name__ == "__main__":
    main()
