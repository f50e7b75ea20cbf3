"""Handoffs: one task, several agents, each step by one of them."""

import copy
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Agent, AgentRunner, Runner, StepFailedError, Task, ToolContext, tool
from holdfast.agents.handoffs.filters import HandoffInputData
from holdfast.agents.handoffs.handoff import Handoff, handoff
from holdfast.errors import UndoRefusedError
from holdfast.testing import call
from holdfast.workers import ReActAgentWorker
from tests.support.rig import Rig, activities_of, roles, run_a_task
from tests.support.runs import look
from tests.support.workers import said

TO_BOB = '{"assistant": "bob"}'

events: list[str] = []


@pytest.fixture(autouse=True)
def no_events() -> None:
    events.clear()


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

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.make = rig.agent
        self.model = rig.model
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

    def seen(self, k: int = -1) -> list[tuple[str, str]]:
        """What the model was sent in a call."""
        return said(self.model.requests[k].messages)


@pytest.fixture
def team(rig: Rig) -> Team:
    return Team(rig)


# ---- the switch


async def test_a_plain_handoff_costs_no_activity_of_its_own(team: Team) -> None:
    team.model.add(call("transfer_to_bob"), "done")
    result = await team.run()
    assert await activities_of(team.runner.client, result.task_id) == ["describe", "step", "step"]


async def test_an_agent_with_another_agent_worker_goes_on(team: Team) -> None:
    team.model.call("transfer_to_bob")
    team.model.reply('Thought: I look.\nAction: look\nAction Input: {"where": "there"}')
    team.model.reply("Thought: I know.\nAnswer: it is there")
    assert (await team.run(team.bob(look, worker=ReActAgentWorker()))).final_output == "it is there"
    assert team.seen()[-1] == ("user", "Observation: seen there")


# ---- on_handoff


async def test_on_handoff_gets_its_input_and_its_change_of_the_state_is_kept(team: Team) -> None:
    async def on_handoff(ctx: ToolContext, said: Reason) -> None:
        events.append(f"{ctx.agent_name}: {said!r} {bool(ctx.idempotency_key)}")
        ctx.context["reason"] = said.text

    team.model.add(call("transfer_to_bob", {"text": "hard", "level": 3}), "done")
    handed = handoff(team.bob(), on_handoff=on_handoff, input_type=Reason)
    result = await team.run(handed, context={"name": "kim"})
    assert events == ["ann: Reason(text='hard', level=3) True"]
    task = await team.runner.get_task(result.task_id)
    assert task.extra_state["context"] == {"name": "kim", "reason": "hard"}
    assert team.seen()[-1] == ("tool", TO_BOB)


async def test_an_on_handoff_that_raises_keeps_the_task_where_it_is(team: Team) -> None:
    def on_handoff(_ctx: ToolContext) -> None:
        events.append("handed")
        if len(events) == 1:
            raise KeyError("ticket system")

    runner = await team.serve(handoff(team.bob(), on_handoff=on_handoff))
    team.model.call("transfer_to_bob")
    task = await runner.create_task("hi")
    with pytest.raises(StepFailedError, match="ticket system") as caught:
        await runner.run_step(task)
    assert caught.value.cause_type == "KeyError"
    assert (await runner.get_upcoming_steps(task))[0].agent == ""
    team.model.reply("done")
    assert (await runner.run_task(task)).output == "done"
    assert events == ["handed", "handed"]
    assert team.asked == ["Ann", "Bob"]


async def test_a_handoff_is_a_step_that_shows_and_is_not_undone_lightly_once_on_handoff_ran(
    team: Team,
) -> None:
    runner = await team.serve(handoff(team.bob(), on_handoff=notes))
    team.model.call("transfer_to_bob")
    task = await runner.create_task("hi")
    [source] = (await runner.run_step(task)).sources
    assert (source.tool_name, source.content) == ("transfer_to_bob", TO_BOB)
    assert (await runner.get_upcoming_steps(task))[0].agent == "bob"
    assert (await runner.get_task(task)).agent == "ann"
    with pytest.raises(UndoRefusedError):
        await runner.undo_step(task)
    await runner.undo_step(task, residue="keep")
    assert (await runner.get_upcoming_steps(task))[0].agent == ""
    team.model.reply("I do it")
    assert (await runner.run_step(task)).output == "I do it"
    assert team.asked == ["Ann", "Ann"]


# ---- what the next agent sees


async def only_the_last(given: HandoffInputData) -> HandoffInputData:
    return given.clone(input_history="only this", pre_handoff_items=(), new_items=())


async def test_what_was_filtered_stays_filtered_after_undo_fork_and_rollover(team: Team) -> None:
    await team.serve(handoff(team.bob(look), input_filter=only_the_last))
    runner = team.rig.runner("ann", roll_events=50)
    team.model.call("transfer_to_bob")
    task = await runner.create_task("hi")
    handed = await runner.run_step(task)
    team.model.call("look")
    await runner.run_step(task)
    await runner.undo_step(task)
    for n in range(6):
        team.model.call("look", {"where": f"there {n}"})
        await runner.run_step(task)
    assert all(team.seen(k)[0] == ("user", "only this") for k in range(1, 8))
    assert len(team.seen(7)) == 1 + 2 * 5 + 1  # the undo is told of
    fork = await runner.fork(task, at=handed)
    team.model.reply("forked")
    await runner.run_task(fork)
    assert team.seen() == [("user", "only this")]
    await team.rig.stop()  # another process, which remembers nothing
    await team.serve(handoff(team.bob(look), input_filter=only_the_last))
    team.model.reply("done")
    await runner.run_task(task)
    assert team.seen()[0] == ("user", "only this")
    assert len(team.seen()) == 1 + 2 * 6 + 1


# ---- what a result says of it


def kinds(items: str | list[dict[str, Any]]) -> list[str]:
    assert isinstance(items, list)
    return [str(item.get("type", item.get("role"))) for item in items]


async def test_the_input_of_a_result_is_what_a_filter_made_of_it(team: Team) -> None:
    team.model.add(call("look"), call("transfer_to_bob"), "done")
    result = await team.run(handoff(team.bob(), input_filter=only_the_last))
    assert result.input == "only this"
    assert (await team.runner.get_task(result.task_id)).input == "hi"
    assert len(result.new_items) == 5
    whole = await team.runner.all_messages(result.task_id)
    assert roles(whole) == ["user", *("assistant", "tool") * 2, "assistant"]
    kept = ["user", "function_call", "function_call_output", "message"]
    assert kinds(result.to_input_list()) == kept
    copied = [copy.copy(item) for item in result.new_items]
    result.new_items = copied
    assert kinds(result.to_input_list()) == kept
    assert kinds(result.to_input_list(mode="normalized")) == ["user", "message"]
    team.model.reply("again")
    await Runner.run(result.last_agent, result.to_state(), runner=team.runner)
    assert team.seen() == [("user", "only this"), ("assistant", "done")]


async def test_a_fork_goes_on_with_the_agent_whose_turn_it_was_unless_it_names_another(
    rig: Rig,
) -> None:
    bob = rig.agent(name="bob", instructions="I am bob.")
    handed = handoff(bob, input_filter=only_the_last)
    ann = rig.agent(name="agent", instructions="I am ann.", handoffs=[handed])
    carl = rig.agent(name="carl", instructions="I am carl.")
    runner = await rig.serving(ann, carl)
    rig.model.add(call("transfer_to_bob", {}), "bob answers")
    task = await run_a_task(runner)
    first, last = await runner.get_completed_steps(task)

    async def answers(fork: Task) -> tuple[str, list[str]]:
        rig.model.reply("so be it")
        await runner.run_task(fork)
        asked = rig.model.requests[-1]
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
