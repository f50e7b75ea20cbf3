"""Agents of LangGraph and Strands as tools."""

import importlib
import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from typing_extensions import TypedDict

from holdfast import ToolContext
from holdfast.agents.tools.foreign.servers import QuestionAskedError
from holdfast.contrib.frameworks import langgraph_tool, strands_tool
from holdfast.errors import InvalidArgumentError
from holdfast.testing import FakeOpenAI, call
from tests.support.rig import Rig, until_status

RAN: list[str] = []


def lang(name: str) -> Any:
    """Return a module of LangGraph, which takes two seconds to import."""
    return importlib.import_module(f"langgraph.{name}")


def talk(state: Any) -> Any:
    said = str(state["messages"][-1].content)
    return {"messages": [{"role": "assistant", "content": f"heard: {said}"}]}


def graph_of(*nodes: Callable[..., Any], state: Any = None, **options: Any) -> Any:
    graph = lang("graph").StateGraph(state or lang("graph").MessagesState)
    before = lang("graph").START
    for each in nodes:
        graph.add_node(each.__name__, each)
        graph.add_edge(before, each.__name__)
        before = each.__name__
    return graph.compile(**options)


class Trip(TypedDict):
    """A state without messages."""

    city: str
    steps: Annotated[list[str], operator.add]


def plan(state: Trip) -> Any:
    RAN.append("plan")
    return {"steps": [f"go to {state['city']}"]}


def ask(state: Trip) -> Any:
    nights = lang("types").interrupt(f"How long in {state['city']}?")
    hotel = lang("types").interrupt("Which hotel?")
    return {"steps": [f"stay {nights} at {hotel}"]}


async def test_a_graph_answers_by_its_last_message_or_by_what_reads_its_state(
    rig: Rig, model: FakeOpenAI
) -> None:
    parts = [{"type": "text", "text": "in "}, "parts"]
    lists = graph_of(lambda_of := lambda _: {"messages": [{"role": "ai", "content": parts}]})
    assert lambda_of.__name__ == "<lambda>"
    tools = [
        langgraph_tool(graph_of(talk), name="talker"),
        langgraph_tool(lists, name="lister"),
        langgraph_tool(
            graph_of(plan, state=Trip),
            name="planner",
            to_input=lambda text: {"city": text, "steps": []},
            to_output=lambda state: state["steps"],
        ),
    ]
    runner = await rig.make(*tools)
    for each in tools:
        model.call(each.name, {"request": "Rome"})
    model.reply("Done.")
    task = await runner.create_task("Go.")
    assert str(await runner.run_task(task)) == "Done."
    said = [m.text for m in await runner.transcript(task) if m.role == "tool"]
    assert said == ["heard: Rome", "in parts", '["go to Rome"]']


async def test_an_interrupt_is_a_question_for_a_person_and_the_graph_goes_on(
    rig: Rig, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    RAN.clear()
    graph = graph_of(plan, ask, state=Trip, checkpointer=lang("checkpoint.memory").InMemorySaver())
    trip = langgraph_tool(
        graph,
        name="trip",
        to_input=lambda text: {"city": text, "steps": []},
        to_output=lambda state: "; ".join(state["steps"]),
    )
    runner = await rig.make(trip)
    model.add(call("trip", {"request": "Rome"}), "Booked.")
    task = await runner.create_task("Go.", step_mode="automatic")
    for question, answer in (("How long in Rome?", "two nights"), ("Which hotel?", "Roma")):
        await until_status(runner, task, "waiting")
        [asked] = await runner.pending_approvals(task)
        assert question in asked.text
        await runner.respond(asked, "ann", answer)
        await until_status(runner, task, "waiting", "answered")
    assert model.requests[-1].results.popitem()[1] == "go to Rome; stay two nights at Roma"
    assert RAN == ["plan"]
    again = ToolContext[Any, Any]()  # an attempt whose outcome was lost
    [again.idempotency_key] = graph.checkpointer.storage
    assert await trip.run(again, '{"request": "Rome"}') == "go to Rome; stay two nights at Roma"
    assert RAN == ["plan"]
    monkeypatch.setattr("langgraph.types._interrupt_id", lambda *_: "0" * 32)  # before 1.2
    again.idempotency_key = "another"
    with pytest.raises(QuestionAskedError, match="How long in Rome"):
        await trip.run(again, '{"request": "Rome"}')
    again.answers["0" * 32] = {"action": "accept", "content": {"answer": "two nights"}}
    with pytest.raises(RuntimeError, match="share an id"):
        await trip.run(again, '{"request": "Rome"}')


async def test_an_agent_of_strands_is_made_for_each_call() -> None:
    """By the protocol alone; tests/packaging/test_extras.py has the library itself."""
    made: list[str] = []

    def make(stop: str = "end_turn", output: Any = None) -> Any:
        class Result(SimpleNamespace):
            def __str__(self) -> str:
                return "It is dry.\n"

        async def invoke_async(request: str) -> Any:
            made.append(request)
            return Result(stop_reason=stop, structured_output=output)

        return SimpleNamespace(invoke_async=invoke_async)

    ctx = ToolContext[Any, Any]()
    for _ in range(2):
        assert await strands_tool(make, name="s").run(ctx, '{"request": "Oslo?"}') == "It is dry."
    assert made == ["Oslo?", "Oslo?"]
    with pytest.raises(RuntimeError, match="cannot wait"):
        await strands_tool(lambda: make("interrupt"), name="s").run(ctx, '{"request": "x"}')
    with pytest.raises(InvalidArgumentError, match="a function that makes an agent"):
        strands_tool(make())
    with pytest.raises(InvalidArgumentError, match="a compiled graph"):
        langgraph_tool(lang("graph").StateGraph(lang("graph").MessagesState))
