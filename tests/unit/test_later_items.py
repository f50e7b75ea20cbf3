"""Items and answers of results that are made when they are first read, and say the same."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast import Agent, handoff, tool
from holdfast.agents.items.run_items import HandoffOutputItem, ToolCallItem, member_of
from holdfast.agents.runs import results
from holdfast.agents.runs.item_reading import message_items, step_items, step_messages
from holdfast.agents.runs.teams import Team, team_of
from holdfast.agents_sdk import ToolOrigin, ToolOriginType
from holdfast.archive.archive import Archive
from holdfast.archive.segments import write_record, write_segment
from holdfast.models.base import ModelAnswer
from holdfast.reading.reader import Reader
from holdfast.reading.runs.recorded import Recorded, read_recorded, resolved
from holdfast.reading.runs.run_results import run_data, run_result
from holdfast.task.data.calls import Outcome
from holdfast.task.data.failures import Failure
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import (
    Entry,
    EventRecord,
    JournalEntry,
    OpenState,
    OpenStep,
    StepRecord,
    StepResult,
)
from holdfast.task.data.state import TaskRecord
from holdfast.task.ledger.recording import SAID_IN_ADDS
from holdfast.task.step_body import StepBody, body_of
from holdfast.values.messages import Blob, Content, Message, ToolCall, Usage, assistant, user
from holdfast.values.steps import Task, TaskStep
from tests.support.runs import look
from tests.support.there import there

COST = Usage(requests=1, input_tokens=10, output_tokens=2)
CALL = ToolCall(id="c1", name="look", arguments='{"where": "there"}')
LATER = {"new_items", "raw_responses"}
KINDS = ["tool_call_item", "tool_call_output_item", "message_output_item"]


def listen(where: str) -> str:
    """Listen."""
    return where


def ann(**options: Any) -> Agent:
    return Agent("ann", tools=[copy.copy(look)], **options)


def asked(call: ToolCall = CALL, *, failed: int = 0, **more: Any) -> StepRecord:
    """Record a step in which the model calls a tool."""
    answer = ModelAnswer(message=SAID_IN_ADDS, usage=COST, failed=failed, response_id="r1")
    step: dict[str, Any] = {
        "n": 1,
        "step": TaskStep(input="q"),
        "adds": (
            user("q"),
            assistant("", calls=(call,)),
            Message(role="tool", call_id=call.id, content="seen there"),
        ),
        "calls": (call,),
        "outcomes": (Outcome(at=2),),
        "journal": (JournalEntry(request="", answer=answer),),
    }
    return StepRecord(**{**step, **more})


def answered(n: int = 2, text: str = "done", **more: Any) -> StepRecord:
    """Record a step in which the model answers."""
    answer = ModelAnswer(message=SAID_IN_ADDS, usage=COST)
    step: dict[str, Any] = {
        "n": n,
        "step": TaskStep(),
        "adds": (assistant(text),),
        "output": text,
        "last": True,
        "journal": (JournalEntry(request="", answer=answer),),
    }
    return StepRecord(**{**step, **more})


async def closed(archive: Archive, *found: StepRecord | EventRecord, **more: Any) -> Reader:
    """Archive the task "t" with these steps and events in two segments, and return its reader."""
    entries = [
        Entry(step=each) if isinstance(each, StepRecord) else Entry(event=each) for each in found
    ]
    first = await write_segment(archive, entries[:1])
    newest = await write_segment(archive, entries[1:], before=first)
    task = Task(
        task_id="t", input="q", agent="ann", status="finished", usage=COST + COST, steps=len(found)
    )
    record = TaskRecord(task=task.wire(), head=TaskHead(agent="ann"), segment=newest, **more)
    await write_record(archive, "t", record)
    return Reader(cast("Any", None), archive)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "archive")


@pytest.fixture
async def recorded(archive: Archive) -> Recorded:
    return await read_recorded(await closed(archive, asked(failed=1), answered()), "t")


def at_once(recorded: Recorded) -> Recorded:
    """Return the record without what its items could be made of later."""
    return dataclasses.replace(recorded, data=())


def shown(result: Any) -> str:
    """Return all that a result says, also of what its repr leaves out."""
    names = [(member_of(each), each.agent.name) for each in result.new_items]
    costs = result.usage.request_usage_entries
    return f"{result!r} {names} {costs} {result.to_input_list()} {result.last_member}"


def is_unread(result: Any) -> bool:
    return LATER.isdisjoint(result.__dict__)


def types(result: Any) -> list[str]:
    return [each.type for each in result.new_items]


# ---- when they are made


@pytest.mark.parametrize("first", sorted(LATER))
def test_both_are_made_when_one_is_read_and_only_once(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    made: list[int] = []

    def noted(of: Any, team: Any) -> Any:
        made.append(of.n)
        return step_items(of, team)

    monkeypatch.setattr(results, "step_items", noted)
    result = run_result(recorded, ann())
    assert (result.final_output, result.usage.total_tokens, made) == ("done", 24, [])
    found = getattr(result, first)
    assert result.new_items is result.new_items
    assert result.raw_responses is result.raw_responses
    assert getattr(result, first) is found
    assert (made, types(result)) == ([1, 2], KINDS)
    assert [each.response_id for each in result.raw_responses] == ["r1", None]


def test_what_is_read_later_is_what_is_made_at_once(recorded: Recorded) -> None:
    agent = ann()
    for make in (run_data, run_result):
        later, soon = make(recorded, agent), make(at_once(recorded), agent)
        assert is_unread(later)
        assert not is_unread(soon)
        assert shown(later) == shown(soon)
        assert later == dataclasses.replace(later)
        entries = later.usage.request_usage_entries
        assert [each.total_tokens for each in entries] == [0, 12, 12]


# ---- what has changed meanwhile


def renamed(agent: Agent) -> None:
    agent.name = "zoe"


def without_tools(agent: Agent) -> None:
    agent.tools.clear()


def with_another_tool(agent: Agent) -> None:
    agent.tools[:] = [tool(listen, name="look")]


def with_a_tool_that_says_otherwise(agent: Agent) -> None:
    agent.tools[0].description = "Another."


def with_a_handoff_of_the_name(agent: Agent) -> None:
    agent.handoffs.append(handoff(Agent("bob"), tool_name_override="look"))


CHANGES = [
    renamed,
    without_tools,
    with_another_tool,
    with_a_tool_that_says_otherwise,
    with_a_handoff_of_the_name,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_result_says_what_it_would_have_said_before_its_agent_was_changed(
    recorded: Recorded, change: Callable[[Agent], None]
) -> None:
    agent, other = ann(), ann()
    later, soon = run_result(recorded, agent), run_result(at_once(recorded), other)
    change(agent)
    change(other)
    assert is_unread(later)
    assert shown(later) == shown(soon)
    assert {each.agent is agent is later.last_agent for each in later.new_items} == {True}
    called = later.new_items[0]
    assert isinstance(called, ToolCallItem)
    assert called.description == "Look somewhere."


async def test_what_the_archive_has_lost_is_read_before(archive: Archive, tmp_path: Path) -> None:
    recorded = await read_recorded(await closed(archive, asked(), answered()), "t")
    result = run_result(recorded, ann())
    for file in [*tmp_path.rglob("*")]:
        if file.is_file():
            file.unlink()
    assert (is_unread(result), types(result)) == (True, KINDS)


# ---- what is made at once


async def test_items_with_archived_texts_are_made_at_once(archive: Archive) -> None:
    text = "a long answer"
    blob = Blob(sha256=await archive.aput(text.encode()), size=len(text))
    items = b'[{"type": "reasoning", "id": "rs_1", "summary": []}]'
    kept = Blob(sha256=await archive.aput(items), size=len(items))
    said = assistant("").model_copy(update={"content": blob})
    thought = assistant("done").model_copy(update={"kept": kept})
    outcome = Outcome(content=blob)
    for steps in (
        [asked(), answered(adds=(said,), output=None, stored=blob)],
        [asked(), answered(adds=(thought,))],
        [asked(outcomes=(outcome,), adds=asked().adds[:2]), answered()],
    ):
        recorded = await read_recorded(await closed(archive, *steps), "t")
        assert recorded.made.whole == ()
        result = run_result(recorded, ann())
        assert not is_unread(result)
        assert [each for each in types(result) if each != "reasoning_item"] == KINDS
        assert text in repr(result) or "rs_1" in repr(result)


async def test_undone_steps_are_no_part_of_what_is_read_later(archive: Archive) -> None:
    undo = EventRecord(kind="undone", at=1.0, body={"n": 2, "steps": ["s2"]})
    ledger = (asked(), answered(text="wrong"), undo, answered(text="right"))
    recorded = await read_recorded(await closed(archive, *ledger), "t")
    later, soon = run_result(recorded, ann()), run_result(at_once(recorded), ann())
    assert is_unread(later)
    assert shown(later) == shown(soon)
    assert (types(later), "wrong" in shown(later)) == (KINDS, False)


# ---- what programs do with a result


def plain_agent() -> Agent:
    """Make an agent that can be pickled."""
    return Agent("ann")


COPIES: list[Callable[[Any], Any]] = [
    copy.copy,
    copy.deepcopy,
    dataclasses.replace,
    lambda result: pickle.loads(pickle.dumps(result)),
]


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("is_read", [False, True])
def test_copies_have_the_items_whenever_they_are_made(
    recorded: Recorded, copied: Callable[[Any], Any], *, is_read: bool
) -> None:
    for make in (run_data, run_result):
        result: Any = make(recorded, plain_agent())
        if is_read:
            assert result.new_items
        before = shown(make(at_once(recorded), plain_agent()))
        made = copied(result)
        assert shown(made) == before
        assert shown(result) == before
        shares = copied in (copy.copy, dataclasses.replace)
        assert (made.new_items is result.new_items) is shares
        assert (made.raw_responses is result.raw_responses) is shares


# ---- items of a run: what steps, completed and open, show of themselves

LOOKS = ToolCall(id="c1", name="look", arguments="{}")
ANSWERED = ModelAnswer(message=SAID_IN_ADDS)
TEAM = Team("a")


def kinds_of(items: list[Any]) -> list[str]:
    return [item.type for item in items]


def told(call: ToolCall, text: str) -> Message:
    return Message(role="tool", call_id=call.id, content=text)


def test_the_input_of_the_run_is_no_item_and_later_input_is_one() -> None:
    first = StepRecord(n=1, step=TaskStep(input="q"), adds=(user("q"), assistant("a")))
    second = StepRecord(n=2, step=TaskStep(input="more"), adds=(user("more"), assistant("b")))
    assert kinds_of(step_items(body_of(first), TEAM)) == ["message_output_item"]
    assert kinds_of(step_items(body_of(second), TEAM)) == ["input_item", "message_output_item"]


def test_items_of_a_tool_say_where_it_comes_from() -> None:
    low = Agent("low").as_tool("ask_low", "Ask below.")
    agent = Agent("a", tools=[look, low])
    calls = (LOOKS, ToolCall(id="c2", name="ask_low"), ToolCall(id="c3", name="gone"))
    adds = (assistant("", calls=calls), *(told(each, "seen") for each in calls))
    items = message_items(adds, agent, team_of(agent))
    function = ToolOrigin(ToolOriginType.FUNCTION)
    below = ToolOrigin(ToolOriginType.AGENT_AS_TOOL, agent_name="low", agent_tool_name="ask_low")
    wanted = [function, below, None]
    assert [getattr(each, "tool_origin", "none") for each in items] == [*wanted, *wanted]
    assert [getattr(each, "description", None) for each in items[:3]] == [
        "Look somewhere.",
        "Ask below.",
        None,
    ]


def test_an_open_step_shows_the_outcomes_that_are_known() -> None:
    other = ToolCall(id="c2", name="look", arguments="{}")
    answer = ModelAnswer(message=assistant("", calls=(LOOKS, other)))
    current = OpenState(
        open=OpenStep(step=TaskStep(input="q")),
        n=1,
        started=0,
        journal=(JournalEntry(request="r", answer=answer),),
        result=StepResult(adds=("input", "j0")),
        calls=(LOOKS, other),
        outcomes={1: Outcome(content="two")},
    )
    kinds = ["tool_call_item", "tool_call_item", "tool_call_output_item"]
    assert kinds_of(step_items(body_of(current), TEAM)) == kinds
    stop = Outcome(attempts=0, failure=Failure(type="Tripped", message="no"))
    stopped = current.model_copy(update={"outcomes": {1: stop}})
    assert kinds_of(step_items(body_of(stopped), TEAM)) == kinds[:2]
    unread = current.model_copy(update={"result": None, "calls": (), "outcomes": {}})
    assert kinds_of(step_items(body_of(unread), TEAM)) == kinds[:2]


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
            JournalEntry(request="s", calls=(LOOKS,), outcomes=(Outcome(content="seen"),)),
        ),
    )
    kinds = ["message_output_item", "tool_call_item", "tool_call_output_item"]
    assert kinds_of(step_items(body_of(step), TEAM)) == kinds


def test_an_answer_that_is_kept_to_itself_does_not_move_the_final_one_before_its_calls() -> None:
    inner = ModelAnswer(message=assistant("a plan"))
    step = StepRecord(
        n=1,
        step=TaskStep(input="q"),
        adds=(user("q"), assistant("done")),
        journal=(
            JournalEntry(request="r", answer=inner),
            JournalEntry(request="s", calls=(LOOKS,), outcomes=(Outcome(content="seen"),)),
            JournalEntry(request="t", answer=ANSWERED),
        ),
    )
    kinds = ["tool_call_item", "tool_call_output_item", "message_output_item"]
    assert kinds_of(step_items(body_of(step), TEAM)) == kinds


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
        assert kinds_of(items) == ["handoff_call_item", "handoff_output_item"]
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


# ---- steps with their archived texts put in

LOOKED = ToolCall(id="c", name="look")
STORED = Blob(sha256="f" * 64, size=4)


async def read(blob: Blob) -> str:
    assert blob == STORED
    return "long"


def step(content: Content, outcome: Outcome) -> StepBody:
    """Make a step whose model has called a tool; its result is in the transcript, or is not."""
    result = Message(role="tool", call_id="c", content=content)
    record = StepRecord(
        n=1,
        step=TaskStep(step_id="s1", input="Look."),
        journal=(JournalEntry(request="r", answer=ModelAnswer(message=SAID_IN_ADDS)),),
        adds=(assistant("", calls=(LOOKED,)), *((result,) if outcome.at is not None else ())),
        calls=(LOOKED,),
        outcomes=(outcome,),
    )
    return body_of(record)


async def test_the_text_of_a_result_is_put_in_wherever_the_step_has_it() -> None:
    body = await resolved(step(STORED, Outcome(at=1)), read)
    [call] = body.calls
    assert there(call.outcome).content == "long"
    assert call.message == body.adds[1] == Message(role="tool", call_id="c", content="long")


async def test_a_result_outside_the_transcript_gets_its_text() -> None:
    [call] = (await resolved(step("", Outcome(content=STORED)), read)).calls
    assert there(call.outcome).content == "long"
    assert call.message == Message(role="tool", call_id="c", content="long")
