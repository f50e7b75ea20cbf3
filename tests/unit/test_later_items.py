"""Items and answers of results that are made when they are first read, and say the same."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast import Agent, handoff, tool
from holdfast.agents.items.run_items import ToolCallItem, member_of
from holdfast.agents.runs import results
from holdfast.agents.runs.item_reading import step_items
from holdfast.archive.archive import Archive
from holdfast.archive.segments import write_record, write_segment
from holdfast.models.base import ModelAnswer
from holdfast.reading.reader import Reader
from holdfast.reading.runs.recorded import Recorded, read_recorded
from holdfast.reading.runs.run_results import run_data, run_result
from holdfast.task.data.calls import Outcome
from holdfast.task.data.head import TaskHead
from holdfast.task.data.records import Entry, EventRecord, JournalEntry, StepRecord
from holdfast.task.data.state import TaskRecord
from holdfast.task.ledger.recording import SAID_IN_ADDS
from holdfast.values.messages import Blob, Message, ToolCall, Usage, assistant, user
from holdfast.values.steps import Task, TaskStep
from tests.support.runs import look

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
