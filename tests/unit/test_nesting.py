"""What a parent knows of its children, and how a call of an agent reads: the pure parts."""

from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import Agent, SQLiteSession
from holdfast.agents.nesting.agent_tool import described, summary_of
from holdfast.errors import UserError
from holdfast.models.base import ModelAnswer
from holdfast.task.data.calls import Outcome
from holdfast.task.data.children import ChildReport, ChildState, child_id
from holdfast.task.data.commands import RunRequest
from holdfast.task.data.head import TaskHead
from holdfast.task.data.state import TaskInput
from holdfast.task.data.wire import Advanced
from holdfast.task.ledger.ledger import Ledger
from holdfast.values.messages import Message, ToolCall, Usage

PLACE = (0, 2, 1, 3)


def test_a_child_is_named_by_the_place_of_its_call_and_once() -> None:
    taken: dict[str, ChildState] = {}
    names: list[str] = []
    for _ in range(3):
        names.append(child_id("t", PLACE, taken))
        taken[names[-1]] = ChildState(place=PLACE, left=True)
    assert names == ["t~0.2.1.3", "t~0.2.1.3.2", "t~0.2.1.3.3"]


def test_a_report_from_before_the_newest_saying_is_dropped_unless_the_child_has_ended() -> None:
    child = ChildState(place=PLACE, said=2, told=True, status="needs_attention")
    assert child.after(ChildReport(id="c", status="needs_attention", heard=1)) is child
    heard = child.after(ChildReport(id="c", status="running", heard=2))
    assert (heard.status, heard.told) == ("running", False)
    ended = child.after(ChildReport(id="c", status="abandoned", closed=True, heard=0))
    assert ended.status == "abandoned"
    assert ended.after(ChildReport(id="c", status="running", heard=9)) is ended


def test_the_cost_of_a_child_is_the_tasks_but_its_turns_are_not() -> None:
    ledger = Ledger(TaskInput(head=TaskHead(agent="a"), input="q"), task_id="t", now=0)
    ledger.begin(RunRequest(), now=0)
    call = ToolCall(id="c1", name="helper", arguments="{}")
    answer = ModelAnswer(
        message=Message(role="assistant", calls=(call,)), usage=Usage(input_tokens=5)
    )
    ledger.advanced(1, Advanced(result=None, request="r", answer=answer, calls=(call,), asked="r2"))
    cost = Usage(requests=4, input_tokens=40)
    ledger.put_child("t~0.1.0.0", ChildState(place=(0, 1, 0, 0), status="answered", usage=cost))
    assert ledger.calls.tool_input(1, 0).child == "t~0.1.0.0"
    ledger.calls.outcome(1, 0, Outcome(content="x"))
    costs = ledger.s.costs
    assert (costs.usage.requests, costs.usage.input_tokens, costs.turns) == (5, 45, 1)
    assert ledger.at(1).outcomes[0].child == "t~0.1.0.0"
    before = ledger.queue.before()
    assert (before.usage, before.turns) == (Usage(), 0)
    ledger.calls.hand_back(1)
    assert (ledger.queue.before().usage, ledger.queue.before().turns) == (Usage(), 0)


def test_structured_input_is_plain_json_unless_there_is_something_to_say_of_it() -> None:
    schema = {"properties": {"a": {"type": "integer"}, "b": {"description": "The b."}}}
    assert summary_of({"properties": {"a": {"type": "integer"}}}) == ""
    assert summary_of({"description": "All.", **schema}) == "All.\n- b (any): The b."
    assert described({"a": 1}, None, "") == '{"a": 1}'
    summary = described({"a": 1}, None, summary_of(schema))
    assert "Input Schema Summary:\n\n- b (any): The b." in summary
    shown = described({"a": 1}, schema, "")
    assert "Input JSON Schema:" in shown
    assert '"integer"' in shown


@dataclass
class Pair:
    """Two numbers."""

    a: int
    b: int


def test_agents_of_tools_are_found_and_the_tool_says_what_it_is() -> None:
    low = Agent(name="low")
    nested = low.as_tool(parameters=Pair, needs_approval=True)
    agent = Agent(name="top", tools=[nested])
    assert agent.nested() == (low,)
    assert agent.team() == ()
    policy = agent.snapshot("m").policies["low"]
    assert (policy.agent, policy.needs_approval, policy.repeatable) == ("low", "yes", True)
    assert nested.parse('{"a": 1, "b": 2}') == {"a": 1, "b": 2}


def test_a_task_refuses_an_agent_as_a_tool_with_a_session_of_its_own() -> None:
    with pytest.raises(UserError, match="used where it is called outside of a task"):
        Agent(name="low").as_tool(session=SQLiteSession("s")).spec()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"on_stream": "no"}, "on_stream must be callable"),
        ({"on_stream_max_pending_events": 0}, "must be a positive integer"),
        ({"on_stream_max_pending_events": "9"}, "must be a positive integer or None; it was '9'"),
        ({"on_stream_max_pending_events": True}, "must be a positive integer"),
        ({"hooks": print}, "is not a RunHooks"),
        ({"parameters": 3}, "not an argument type"),
    ],
)
def test_options_of_the_nested_run_that_cannot_be_used_are_refused(
    options: dict[str, Any], text: str
) -> None:
    with pytest.raises(UserError, match=text):
        Agent(name="low").as_tool(**options)
