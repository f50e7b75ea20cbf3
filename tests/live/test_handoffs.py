"""Handoffs: one task, several agents, each step by one of them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import (
    Agent,
    AgentRunner,
    MaxTurnsExceeded,
    MessageOutputItem,
    RunConfig,
    Runner,
    RunResult,
    StepFailedError,
    Task,
    ToolContext,
    UserError,
    tool,
)
from holdfast.activities.steps.handoffs import AgentHandoffs
from holdfast.agents.handoffs.filters import HandoffInputData, remove_all_tools
from holdfast.agents.handoffs.handoff import Handoff, handoff
from holdfast.errors import UndoRefusedError
from holdfast.reading.streams.events import RunItemStreamEvent
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import Message
from holdfast.values.steps import HistoryRef
from holdfast.workers import FunctionCallingAgentWorker, ReActAgentWorker
from tests.support.rig import MakeAgent, Rig, activities_of
from tests.support.workers import said

TO_BOB = '{"assistant": "bob"}'

events: list[str] = []


@pytest.fixture(autouse=True)
def no_events() -> None:
    events.clear()


@tool(effect="read")
def look(where: str = "here") -> str:
    """Look somewhere."""
    return f"seen {where}"


@tool(effect="read", needs_approval=True)
def ask() -> str:
    """Do what a person must approve."""
    events.append("asked")
    return "allowed"


def notes(_ctx: ToolContext) -> None:
    events.append("handed")


class Reason(BaseModel):
    """What a model says with a handoff."""

    text: str
    level: int = 1


class Team:
    """Ann, who may hand over to Bob, on the test's own worker."""

    def __init__(self, rig: Rig, make_agent: MakeAgent, model: FakeOpenAI) -> None:
        self.rig = rig
        self.make = make_agent
        self.model = model
        self.runner: AgentRunner = rig.runner("ann")

    def bob(self, *tools: Any, **options: Any) -> Agent:
        return self.make(*tools, name="bob", instructions="I am Bob.", **options)

    def ann(self, *handoffs: Agent | Handoff, tools: Any = (look, ask), **options: Any) -> Agent:
        made: Agent = self.make(
            *tools, name="ann", instructions="I am Ann.", handoffs=list(handoffs), **options
        )
        return made

    async def run(self, *handoffs: Agent | Handoff, given: Any = "hi", **options: Any) -> Any:
        ann = self.ann(*(handoffs or (self.bob(),)))
        await self.rig.serve(ann)
        return await Runner.run(ann, given, runner=self.runner, **options)

    async def serve(self, *handoffs: Agent | Handoff) -> AgentRunner:
        await self.rig.serve(self.ann(*(handoffs or (self.bob(),))))
        return self.runner

    @property
    def asked(self) -> list[str]:
        """Who was asked, call by call."""
        return [request.instructions.removeprefix("I am ")[:-1] for request in self.model.requests]

    def seen(self, call: int = -1) -> list[tuple[str, str]]:
        """What the model was sent in a call."""
        return said(self.model.requests[call].messages)


@pytest.fixture
def team(rig: Rig, make_agent: MakeAgent, model: FakeOpenAI) -> Team:
    return Team(rig, make_agent, model)


# ---- the switch


async def test_a_plain_handoff_costs_no_activity_of_its_own(team: Team, model: FakeOpenAI) -> None:
    model.call("transfer_to_bob")
    model.reply("done")
    result = await team.run()
    activities = await activities_of(team.runner.client, result.task_id)
    assert activities == ["describe", "step", "step"]


async def test_an_approval_is_waited_for_before_the_handoff(team: Team, model: FakeOpenAI) -> None:
    handed = handoff(team.bob(), on_handoff=notes)
    runner = await team.serve(handed)
    model.calls([("transfer_to_bob", {}), ("ask", {})])
    task = await runner.create_task("hi")
    assert (await runner.run_step(task)).status == "waiting"
    assert not events
    [approval] = await runner.pending_approvals(task)
    model.reply("done")
    await runner.approve(approval, by="kim")
    assert (await runner.run_task(task)).output == "done"
    assert events == ["asked", "handed"]
    assert team.asked == ["Ann", "Bob"]


async def test_an_agent_with_another_agent_worker_goes_on(team: Team, model: FakeOpenAI) -> None:
    model.call("transfer_to_bob")
    model.reply('Thought: I look.\nAction: look\nAction Input: {"where": "there"}')
    model.reply("Thought: I know.\nAnswer: it is there")
    result = await team.run(team.bob(look, worker=ReActAgentWorker()))
    assert result.final_output == "it is there"
    assert team.seen()[-1] == ("user", "Observation: seen there")


async def test_an_agent_worker_that_cannot_hand_over_does_not_offer_it(
    team: Team, model: FakeOpenAI
) -> None:
    ann = team.ann(team.bob(), worker=ReActAgentWorker())
    await team.rig.serve(ann)
    model.reply("Thought: I cannot.\nAction: transfer_to_bob\nAction Input: {}")
    model.reply("Thought: Then I answer.\nAnswer: myself")
    task = await team.runner.create_task("hi")
    assert (await team.runner.run_task(task)).output == "myself"
    assert "transfer_to_bob" not in model.requests[0].instructions
    assert "not on offer" in team.seen()[-1][1]


async def test_one_call_at_a_time_holds_for_what_stands_beside_a_handoff(
    team: Team, model: FakeOpenAI
) -> None:
    ann = team.ann(team.bob(), worker=FunctionCallingAgentWorker(allow_parallel_tool_calls=False))
    await team.rig.serve(ann)
    model.calls([("transfer_to_bob", {}), ("look", {})])
    model.reply("done")
    await Runner.run(ann, "hi", runner=team.runner)
    assert [text[:8] for _, text in team.seen()[2:]] == ["Not run:", TO_BOB[:8]]


# ---- step by step


async def test_a_handoff_is_a_step_that_shows_and_is_undone(team: Team, model: FakeOpenAI) -> None:
    runner = await team.serve()
    model.call("transfer_to_bob")
    task = await runner.create_task("hi")
    await runner.run_step(task)
    [step] = await runner.get_completed_steps(task)
    assert [(each.tool_name, each.content) for each in step.sources] == [
        ("transfer_to_bob", TO_BOB)
    ]
    assert (await runner.get_upcoming_steps(task))[0].agent == "bob"
    assert (await runner.get_task(task)).agent == "ann"
    await runner.undo_step(task)
    assert (await runner.get_upcoming_steps(task))[0].agent == ""
    model.reply("I do it")
    assert (await runner.run_step(task)).output == "I do it"
    assert team.asked == ["Ann", "Ann"]


async def test_a_rewind_and_a_fork_find_the_agent_of_their_step(
    team: Team, model: FakeOpenAI
) -> None:
    runner = await team.serve(team.bob(look))
    model.call("look")
    model.call("transfer_to_bob")
    model.call("look")
    task = await runner.create_task("hi")
    steps = [await runner.run_step(task) for _ in range(3)]
    fork = await runner.fork(task, at=steps[1])
    model.reply("forked")
    assert (await runner.run_task(fork)).output == "forked"
    await runner.rewind(task, to=steps[0])
    model.reply("rewound")
    assert (await runner.run_task(task)).output == "rewound"
    assert team.asked[3:] == ["Bob", "Ann"]


async def test_after_an_undo_a_follow_up_is_for_the_agent_that_then_had_answered(
    team: Team, model: FakeOpenAI
) -> None:
    runner = await team.serve()
    model.reply("one")
    model.call("transfer_to_bob")
    model.reply("two")
    model.reply("three")
    task = await runner.create_task("hi")
    await runner.run_task(task)
    agents: list[str] = []
    for _ in range(2):
        await runner.give_feedback(task, "more", when="queued")
        await runner.run_task(task)
    for kept in ("s3", "s1"):
        await runner.rewind(task, to=kept)
        [queued] = await runner.get_upcoming_steps(task)
        await runner.drop_step(task, queued.step_id)
        await runner.give_feedback(task, "again", when="queued")
        agents += [step.agent for step in await runner.get_upcoming_steps(task)]
    assert agents == ["bob", ""]


# ---- on_handoff


async def test_on_handoff_gets_its_input_and_its_change_of_the_state_is_kept(
    team: Team, model: FakeOpenAI
) -> None:
    async def on_handoff(ctx: ToolContext, said: Reason) -> None:
        events.append(f"{ctx.agent_name}: {said!r} {bool(ctx.idempotency_key)}")
        ctx.context["reason"] = said.text

    model.call("transfer_to_bob", {"text": "hard", "level": 3})
    model.reply("done")
    handed = handoff(team.bob(), on_handoff=on_handoff, input_type=Reason)
    result = await team.run(handed, context={"name": "kim"})
    assert events == ["ann: Reason(text='hard', level=3) True"]
    task = await team.runner.get_task(result.task_id)
    assert task.extra_state["context"] == {"name": "kim", "reason": "hard"}
    assert team.seen()[-1] == ("tool", TO_BOB)


async def test_an_on_handoff_that_raises_keeps_the_task_where_it_is(
    team: Team, model: FakeOpenAI
) -> None:
    def on_handoff(_ctx: ToolContext) -> None:
        events.append("handed")
        if len(events) == 1:
            raise KeyError("ticket system")

    runner = await team.serve(handoff(team.bob(), on_handoff=on_handoff))
    model.call("transfer_to_bob")
    task = await runner.create_task("hi")
    with pytest.raises(StepFailedError, match="ticket system") as caught:
        await runner.run_step(task)
    assert caught.value.cause_type == "KeyError"
    assert (await runner.get_upcoming_steps(task))[0].agent == ""
    model.reply("done")
    assert (await runner.run_task(task)).output == "done"
    assert events == ["handed", "handed"]
    assert team.asked == ["Ann", "Bob"]


async def test_a_step_whose_on_handoff_ran_is_not_undone_lightly(
    team: Team, model: FakeOpenAI
) -> None:
    runner = await team.serve(handoff(team.bob(), on_handoff=notes))
    model.call("transfer_to_bob")
    task = await runner.create_task("hi")
    await runner.run_step(task)
    with pytest.raises(UndoRefusedError):
        await runner.undo_step(task)
    await runner.undo_step(task, residue="keep")
    model.reply("I do it")
    assert (await runner.run_step(task)).output == "I do it"
    assert team.asked == ["Ann", "Ann"]


# ---- is_enabled


async def test_a_predicate_is_asked_in_every_turn(team: Team, model: FakeOpenAI) -> None:
    @tool
    def unlock(ctx: ToolContext) -> str:
        """Unlock."""
        ctx.context["open"] = True
        return "open"

    async def is_enabled(ctx: Any, agent: Agent) -> bool:
        events.append(agent.name)
        return bool(ctx.context.get("open"))

    ann = team.ann(handoff(team.bob(), is_enabled=is_enabled), tools=(unlock,))
    await team.rig.serve(ann)
    model.call("unlock")
    model.call("transfer_to_bob")
    model.reply("done")
    await Runner.run(ann, "hi", runner=team.runner, context={"open": False})
    names = [request.tool_names for request in model.requests]
    assert names == [("unlock",), ("unlock", "transfer_to_bob"), ()]
    assert events == ["ann", "ann"]


# ---- what the next agent sees


def show(given: HandoffInputData) -> HandoffInputData:
    events.append(str(given.input_history))
    events.append(" ".join(item.type for item in given.pre_handoff_items))
    events.append(" ".join(item.type for item in given.new_items))
    return given


async def only_the_last(given: HandoffInputData) -> HandoffInputData:
    return given.clone(input_history="only this", pre_handoff_items=(), new_items=())


class Empty:
    """A filter that counts for nothing as a truth value."""

    def __bool__(self) -> bool:
        return False

    async def __call__(self, given: HandoffInputData) -> HandoffInputData:
        return await only_the_last(given)


async def test_a_filter_is_used_although_it_counts_as_false(team: Team, model: FakeOpenAI) -> None:
    model.call("transfer_to_bob")
    model.reply("done")
    await team.run(
        handoff(team.bob(), input_filter=Empty()),
        run_config=RunConfig(handoff_input_filter=remove_all_tools),
    )
    assert team.seen() == [("user", "only this")]


async def test_the_next_agent_sees_what_the_filter_made_and_the_record_stays_whole(
    team: Team, model: FakeOpenAI
) -> None:
    model.call("look")
    model.call("transfer_to_bob")
    model.call("look")
    model.reply("done")
    result = await team.run(handoff(team.bob(look), input_filter=only_the_last))
    assert team.seen(2) == [("user", "only this")]
    assert team.seen(3) == [("user", "only this"), ("assistant", ""), ("tool", "seen here")]
    whole = await team.runner.all_messages(result.task_id)
    assert [message.role for message in whole] == [
        *("user", "assistant", "tool", "assistant", "tool"),
        *("assistant", "tool", "assistant"),
    ]


async def test_what_was_filtered_stays_filtered_after_undo_fork_and_rollover(
    team: Team, model: FakeOpenAI
) -> None:
    await team.serve(handoff(team.bob(look), input_filter=only_the_last))
    runner = team.rig.runner("ann", roll_events=50)
    model.call("transfer_to_bob")
    task = await runner.create_task("hi")
    handed = await runner.run_step(task)
    model.call("look")
    await runner.run_step(task)
    await runner.undo_step(task)
    for _ in range(6):
        model.call("look")
        await runner.run_step(task)
    assert all(team.seen(k)[0] == ("user", "only this") for k in range(1, 8))
    assert len(team.seen(7)) == 1 + 2 * 5 + 1  # the undo is told of
    fork = await runner.fork(task, at=handed)
    model.reply("forked")
    await runner.run_task(fork)
    assert team.seen() == [("user", "only this")]
    await team.rig.stop()  # another process, which remembers nothing
    await team.serve(handoff(team.bob(look), input_filter=only_the_last))
    model.reply("done")
    await runner.run_task(task)
    assert team.seen()[0] == ("user", "only this")
    assert len(team.seen()) == 1 + 2 * 6 + 1


async def test_a_filter_that_gives_no_items_is_to_be_mended(team: Team, model: FakeOpenAI) -> None:
    def wrong(given: HandoffInputData) -> Any:
        return given.clone(new_items=("text",))

    model.call("transfer_to_bob")
    with pytest.raises(UserError, match="run items"):
        await team.run(handoff(team.bob(), input_filter=wrong))


def test_a_run_filter_that_is_no_function_is_refused() -> None:
    no_filter: Any = "not a function"
    with pytest.raises(UserError, match="cannot use handoff_input_filter='not a function'"):
        RunConfig(handoff_input_filter=no_filter)


async def test_a_filter_that_raises_leaves_the_step_to_be_mended(
    team: Team, model: FakeOpenAI
) -> None:
    async def breaks(given: HandoffInputData) -> HandoffInputData:
        events.append("filtered")
        if len(events) == 1:
            raise LookupError("no such part")
        return given

    runner = await team.serve(handoff(team.bob(), input_filter=breaks))
    model.call("transfer_to_bob")
    task = await runner.create_task("hi")
    with pytest.raises(StepFailedError, match="no such part"):
        await runner.run_step(task)
    model.reply("done")
    assert (await runner.run_task(task)).output == "done"
    assert team.asked == ["Ann", "Bob"]  # the answer that was paid for stayed


# ---- nested history


def last(messages: tuple[Message, ...]) -> str:
    return messages[-1].text


# ---- what a result says of it


def kinds(items: str | list[dict[str, Any]]) -> list[str]:
    assert isinstance(items, list)
    return [str(item.get("type", item.get("role"))) for item in items]


async def test_the_input_of_a_result_is_what_a_filter_made_of_it(
    team: Team, model: FakeOpenAI
) -> None:
    model.call("look")
    model.call("transfer_to_bob")
    model.reply("done")
    result = await team.run(handoff(team.bob(), input_filter=only_the_last))
    assert result.input == "only this"
    assert (await team.runner.get_task(result.task_id)).input == "hi"
    assert len(result.new_items) == 5
    kept = ["user", "function_call", "function_call_output", "message"]
    assert kinds(result.to_input_list()) == kept
    copied = [copy.copy(item) for item in result.new_items]
    result.new_items = copied
    assert kinds(result.to_input_list()) == kept
    assert kinds(result.to_input_list(mode="normalized")) == ["user", "message"]
    model.reply("again")
    await Runner.run(result.last_agent, result.to_state(), runner=team.runner)
    assert team.seen() == [("user", "only this"), ("assistant", "done")]


async def test_an_item_that_a_filter_replaces_by_an_equal_one_stays_in_the_next_input(
    team: Team, model: FakeOpenAI
) -> None:
    def rewritten(given: HandoffInputData) -> HandoffInputData:
        said, *others = given.new_items
        assert isinstance(said, MessageOutputItem)
        other = MessageOutputItem(agent=said.agent, raw_item=copy.deepcopy(said.raw_item))
        return given.clone(new_items=(other, *others))

    model.call("transfer_to_bob", text="I ask Bob.")
    model.reply("done")
    result = await team.run(handoff(team.bob(), input_filter=rewritten))
    called = ["function_call", "function_call_output"]
    assert kinds(result.to_input_list()) == ["user", "message", *called, "message"]


async def test_a_nested_history_is_the_input_and_what_it_has_is_not_said_twice(
    team: Team, model: FakeOpenAI
) -> None:
    model.call("transfer_to_bob", text="over")
    model.reply("done")
    result = await team.run(run_config=RunConfig(nest_handoff_history=True))
    assert kinds(result.input) == ["assistant", "message", "assistant"]
    assert len(result.new_items) == 4
    assert len(result.to_input_list()) == 3 + 3
    assert len(result.to_input_list(mode="normalized")) == 3 + 1
    result.new_items = [copy.copy(item) for item in result.new_items]
    assert len(result.to_input_list()) == 3 + 3
    del result.input[1]
    assert len(result.to_input_list()) == 2 + 4


async def test_an_error_after_a_handoff_has_the_input_that_the_next_agent_had(
    team: Team, model: FakeOpenAI
) -> None:
    model.call("transfer_to_bob")
    with pytest.raises(MaxTurnsExceeded) as caught:
        await team.run(handoff(team.bob(), input_filter=only_the_last), max_turns=1)
    assert caught.value.run_data is not None
    assert caught.value.run_data.input == "only this"


@pytest.fixture
def old_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record handoffs as releases did that did not say what of a view is the input."""
    view = AgentHandoffs.view

    async def as_before(self: AgentHandoffs, *given: Any) -> HistoryRef:
        made = await view(self, *given)
        return HistoryRef(sha256=made.sha256, skip=made.skip)

    monkeypatch.setattr(AgentHandoffs, "view", as_before)


@pytest.mark.usefixtures("old_records")
async def test_a_result_of_an_old_record_has_the_input_of_the_run(
    team: Team, model: FakeOpenAI
) -> None:
    model.call("look")
    model.call("transfer_to_bob", text="over")
    model.reply("done")
    result = await team.run(handoff(team.bob(), input_filter=remove_all_tools))
    assert result.input == "hi"
    assert len(result.to_input_list()) == 1 + len(result.new_items)
    normalized = result.to_input_list(mode="normalized")
    assert kinds(normalized) == ["user", "message", "message"]


async def there_and_back(
    team: Team, model: FakeOpenAI, *, text: str = "", **options: Any
) -> RunResult:
    """Run ann, who hands over to bob by a handoff with these options, and he back to her."""
    bob = team.bob(handoffs=(people := list[Handoff]()))
    ann = team.ann(handoff(bob, **options))
    people.append(handoff(ann, input_filter=show))
    model.call("transfer_to_bob", text=text)
    model.call("transfer_to_ann")
    model.reply("done")
    await team.rig.serve(ann)
    return await Runner.run(ann, "hi", runner=team.runner)


async def test_a_second_filter_gets_the_input_of_the_first_and_the_items_since_the_run_began(
    team: Team, model: FakeOpenAI
) -> None:
    def shorter(given: HandoffInputData) -> HandoffInputData:
        return given.clone(input_history="short")

    result = await there_and_back(team, model, input_filter=shorter)
    of_a_handoff = "handoff_call_item handoff_output_item"
    assert events == ["short", of_a_handoff, of_a_handoff]
    assert result.input == "short"
    assert len(result.to_input_list(mode="normalized")) == 1 + 5


async def test_what_was_moved_to_the_input_is_known_after_a_filter_that_leaves_it(
    team: Team, model: FakeOpenAI
) -> None:
    result = await there_and_back(team, model, text="over", nest_handoff_history=True)
    assert kinds(result.input) == ["assistant", "message", "assistant"]
    assert len(result.to_input_list()) == 3 + len(result.new_items) - 1


async def test_a_fork_goes_on_with_the_agent_whose_turn_it_was_unless_it_names_another(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    bob = make_agent(name="bob", instructions="I am bob.")
    handed = handoff(bob, input_filter=only_the_last)
    ann = make_agent(name="agent", instructions="I am ann.", handoffs=[handed])
    carl = make_agent(name="carl", instructions="I am carl.")
    await rig.serve(ann, carl)
    runner = rig.runner()
    model.call("transfer_to_bob", {})
    model.reply("bob answers")
    task = await runner.create_task("q")
    await runner.run_task(task)
    first, last = await runner.get_completed_steps(task)

    async def answers(fork: Task) -> tuple[str, list[str]]:
        model.reply("so be it")
        await runner.run_task(fork)
        asked = model.requests[-1]
        said = [m.text for m in asked.messages if m.role == "user"]
        return asked.body["instructions"], said

    fork = await runner.fork(task, at=last, input="and more?")
    assert await answers(fork) == ("I am bob.", ["only this", "and more?"])
    fork = await runner.fork(task, at=first, input="and more?")  # the handoff was made
    assert await answers(fork) == ("I am bob.", ["only this", "and more?"])
    fork = await runner.fork(task, at=last)
    await runner.give_feedback(fork, "one thing more", when="queued")
    assert await answers(fork) == ("I am bob.", ["only this", "one thing more"])
    fork = await runner.fork(task, at=first, agent="carl")
    assert [step.agent for step in await runner.get_upcoming_steps(fork)] == [""]
    assert await answers(fork) == ("I am carl.", ["only this"])
    fork = await runner.fork(task, at=last, agent="carl", input="and more?")
    assert await answers(fork) == ("I am carl.", ["only this", "and more?"])


async def test_handoffs_are_told_as_such_by_a_process_that_does_not_have_the_agents(
    team: Team, model: FakeOpenAI
) -> None:
    model.call("look", id="c1")
    model.call("transfer_to_bob", id="c2")
    model.reply("done")
    result = await team.run()
    told = [event async for event in team.runner.stream_events(result.task_id)]
    names = [event.name for event in told if isinstance(event, RunItemStreamEvent)]
    assert names == [
        "tool_called",
        "tool_output",
        "handoff_requested",
        "handoff_occured",
        "message_output_created",
    ]
