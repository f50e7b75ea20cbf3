"""Items of a run: what steps, completed and open, show of themselves."""

from typing import Any

from holdfast import Agent, tool
from holdfast.agents.items.run_items import HandoffOutputItem
from holdfast.agents.runs.item_reading import message_items, step_items, step_messages
from holdfast.agents.runs.teams import Team, team_of
from holdfast.agents_sdk import ToolOrigin, ToolOriginType
from holdfast.models.base import ModelAnswer
from holdfast.task.data.calls import Outcome
from holdfast.task.data.failures import Failure
from holdfast.task.data.records import JournalEntry, OpenState, OpenStep, StepRecord, StepResult
from holdfast.task.ledger.recording import SAID_IN_ADDS
from holdfast.task.step_body import body_of
from holdfast.values.messages import Message, ToolCall, assistant, user
from holdfast.values.steps import TaskStep

CALL = ToolCall(id="c1", name="look", arguments="{}")
ANSWERED = ModelAnswer(message=SAID_IN_ADDS)
TEAM = Team("a")


def look() -> str:
    """Look."""
    return "seen"


def types(items: list[Any]) -> list[str]:
    return [item.type for item in items]


def told(call: ToolCall, text: str) -> Message:
    return Message(role="tool", call_id=call.id, content=text)


def test_the_input_of_the_run_is_no_item_and_later_input_is_one() -> None:
    first = StepRecord(n=1, step=TaskStep(input="q"), adds=(user("q"), assistant("a")))
    second = StepRecord(n=2, step=TaskStep(input="more"), adds=(user("more"), assistant("b")))
    assert types(step_items(body_of(first), TEAM)) == ["message_output_item"]
    assert types(step_items(body_of(second), TEAM)) == ["input_item", "message_output_item"]


def test_items_of_a_tool_say_where_it_comes_from() -> None:
    low = Agent("low").as_tool("ask_low", "Ask below.")
    agent = Agent("a", tools=[tool(look), low])
    calls = (CALL, ToolCall(id="c2", name="ask_low"), ToolCall(id="c3", name="gone"))
    adds = (assistant("", calls=calls), *(told(each, "seen") for each in calls))
    items = message_items(adds, agent, team_of(agent))
    function = ToolOrigin(ToolOriginType.FUNCTION)
    below = ToolOrigin(ToolOriginType.AGENT_AS_TOOL, agent_name="low", agent_tool_name="ask_low")
    wanted = [function, below, None]
    assert [getattr(each, "tool_origin", "none") for each in items] == [*wanted, *wanted]
    assert [getattr(each, "description", None) for each in items[:3]] == [
        "Look.",
        "Ask below.",
        None,
    ]


def test_an_open_step_shows_the_outcomes_that_are_known() -> None:
    other = ToolCall(id="c2", name="look", arguments="{}")
    answer = ModelAnswer(message=assistant("", calls=(CALL, other)))
    current = OpenState(
        open=OpenStep(step=TaskStep(input="q")),
        n=1,
        started=0,
        journal=(JournalEntry(request="r", answer=answer),),
        result=StepResult(adds=("input", "j0")),
        calls=(CALL, other),
        outcomes={1: Outcome(content="two")},
    )
    kinds = ["tool_call_item", "tool_call_item", "tool_call_output_item"]
    assert types(step_items(body_of(current), TEAM)) == kinds
    stop = Outcome(attempts=0, failure=Failure(type="Tripped", message="no"))
    stopped = current.model_copy(update={"outcomes": {1: stop}})
    assert types(step_items(body_of(stopped), TEAM)) == kinds[:2]
    unread = current.model_copy(update={"result": None, "calls": (), "outcomes": {}})
    assert types(step_items(body_of(unread), TEAM)) == kinds[:2]


def test_calls_made_inside_a_step_are_shown_and_its_inner_words_are_not_input() -> None:
    """As of ReAct, whose observations are user messages and whose reply is cut short."""
    reply = ModelAnswer(message=assistant("Action: look\nObservation: made up"))
    adds = (user("q"), assistant("Action: look"), Message(role="user", content="O", call_id="c1"))
    step = StepRecord(
        n=1,
        step=TaskStep(input="q"),
        adds=adds,
        journal=(
            JournalEntry(request="r", answer=reply),
            JournalEntry(request="s", calls=(CALL,), outcomes=(Outcome(content="seen"),)),
        ),
    )
    kinds = ["message_output_item", "tool_call_item", "tool_call_output_item"]
    assert types(step_items(body_of(step), TEAM)) == kinds


def test_an_answer_that_is_kept_to_itself_does_not_move_the_final_one_before_its_calls() -> None:
    inner = ModelAnswer(message=assistant("a plan"))
    step = StepRecord(
        n=1,
        step=TaskStep(input="q"),
        adds=(user("q"), assistant("done")),
        journal=(
            JournalEntry(request="r", answer=inner),
            JournalEntry(request="s", calls=(CALL,), outcomes=(Outcome(content="seen"),)),
            JournalEntry(request="t", answer=ANSWERED),
        ),
    )
    kinds = ["tool_call_item", "tool_call_output_item", "message_output_item"]
    assert types(step_items(body_of(step), TEAM)) == kinds


def handed_over(*, step_agent: str = "", target: str = "b") -> StepRecord:
    call = ToolCall(id="h", name=f"transfer_to_{target}")
    adds = (assistant("", calls=(call,)), told(call, f'{{"assistant": "{target}"}}'))
    return StepRecord(
        n=2,
        step=TaskStep(agent=step_agent),
        adds=adds,
        calls=(call,),
        outcomes=(Outcome(),),
        next=(TaskStep(agent=target),),
    )


def test_a_handoff_names_both_agents_also_where_they_are_unknown() -> None:
    b = Agent(name="b")
    for team in (team_of(Agent(name="a", handoffs=[b])), Team("a")):
        items = step_items(body_of(handed_over()), team)
        assert types(items) == ["handoff_call_item", "handoff_output_item"]
        assert isinstance(items[1], HandoffOutputItem)
        assert (items[1].source_agent.name, items[1].target_agent.name) == ("a", "b")
    own = team_of(Agent(name="a", handoffs=[b]))
    output = step_items(body_of(handed_over()), own)[1]
    assert isinstance(output, HandoffOutputItem)
    assert output.target_agent is b


ROME, OSLO = (ToolCall(id="call_0", name="look", arguments=f'{{"at": "{at}"}}') for at in "ro")
"""Calls of two rounds of one step, of a provider that numbers them anew in each answer."""

FIRST_ROUND = (assistant("", calls=(ROME,)), told(ROME, "of rome"))


def second_round() -> OpenState:
    """A step whose first round is done, and whose second has its outcome."""
    result = StepResult(adds=(*FIRST_ROUND, assistant("", calls=(OSLO,))), calls=(OSLO,))
    return OpenState(
        n=2,
        started=0,
        calls=(OSLO,),
        open=OpenStep(step=TaskStep()),
        result=result,
        outcomes={0: Outcome(content="of oslo")},
    )


def test_a_step_adds_the_result_of_a_call_whose_id_an_earlier_call_had() -> None:
    said = [
        message.text for message in step_messages(body_of(second_round())) if message.role == "tool"
    ]
    assert said == ["of rome", "of oslo"]
