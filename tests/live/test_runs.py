"""Runs: how they are asked for, decided on, resumed here or elsewhere, and what errors leave."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast import MaxTurnsExceeded, RunHooks, Runner, UserError, tool
from holdfast.agents.tools.context import ToolContext
from holdfast.client.runner.runner import RunState
from holdfast.errors import CommandRefusedError, StepFailedError, TaskClosedError
from holdfast.testing import call
from tests.support.rig import Rig, until
from tests.support.runs import Runs, look, tools


@tool(needs_approval=True)
def pay(to: str = "ann") -> str:
    """Pay somebody."""
    return f"paid {to}"


@pytest.mark.parametrize(
    ("agent", "given", "arguments", "text"),
    [
        ("", 5, {}, "input=5"),
        ("", b"q", {}, "is not input"),
        ("nobody", "q", {}, "starting_agent must be an Agent"),
        ("", "q", {"runner": "here"}, "runner must be an AgentRunner"),
        ("", "q", {"max_turns": -1}, "max_turns"),
    ],
)
async def test_a_streamed_run_refuses_what_a_run_refuses(
    run: Runs, agent: Any, given: Any, arguments: dict[str, Any], text: str
) -> None:
    options: dict[str, Any] = {"runner": run.runner, **arguments}
    agent = agent or await run.serve(look)
    with pytest.raises(UserError, match=text):
        Runner.run_streamed(agent, given, **options)
    with pytest.raises(UserError, match=text):
        await Runner.run(agent, given, **options)


async def test_an_argument_that_there_is_not_is_refused_by_each_way_to_run(run: Runs) -> None:
    agent = await run.serve(look)
    options: dict[str, Any] = {"runner": run.runner, "max_turn": 3}
    with pytest.raises(TypeError, match="max_turn"):
        Runner.run_streamed(agent, "q", **options)
    with pytest.raises(TypeError, match="max_turn"):
        await Runner.run(agent, "q", **options)
    with pytest.raises(TypeError, match="max_turn"):
        await asyncio.to_thread(Runner.run_sync, agent, "q", **options)


async def test_a_state_may_be_run_with_the_session_that_it_has(run: Runs) -> None:
    run.model.call("pay")
    state = (await run("q", pay, session="s1")).to_state()
    state.approve(state.get_interruptions()[0])
    with pytest.raises(UserError, match=r"has session 's1', and keeps it: .* session 's2'"):
        await run(state, session="s2")
    run.model.reply("done")
    assert (await run(state, session="s1")).final_output == "done"
    assert (await run(state, session=run.runner.session("s1"))).final_output == "done"


async def test_a_state_without_a_session_is_given_none(run: Runs) -> None:
    run.model.call("pay")
    state = (await run("q", pay)).to_state()
    with pytest.raises(UserError, match="has no session, and keeps it"):
        await run(state, session="s1")
    with pytest.raises(UserError, match="cannot be run as 'other'"):
        await run(state, task_id="other")


@pytest.mark.parametrize(
    "given",
    [
        [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Good day"},
            {"role": "user", "content": [{"type": "input_text", "text": "Which city?"}]},
        ],
        "Which city?" + 20_000 * " ",
    ],
    ids=["items", "a large text"],
)
async def test_a_list_of_tasks_shows_what_was_asked_last(run: Runs, given: Any) -> None:
    run.model.reply("Rome.")
    result = await Runner.run(await run.serve(), given, runner=run.runner)

    async def shown() -> list[str]:
        listed = await run.runner.list_tasks()
        return [each.input.strip() for each in listed if each.task_id == result.task_id]

    assert await until(shown) == ["Which city?"]


# ---- what a RunState decides: each call as it was decided, and nothing that contradicts another


async def waiting(run: Runs, *names: str) -> tuple[list[str], RunState]:
    """Begin a run that waits for a person with a payment to each of these."""
    ran, pay = tools()
    run.model.calls([("pay", {"to": name}) for name in names])
    return ran, (await run("q", pay)).to_state()


async def refusals(run: Runs, state: RunState) -> list[str]:
    """List why the task has refused commands."""
    events = await run.runner.audit(state.task_id)
    return [event.reason for event in events if event.kind == "refused"]


async def test_a_decision_that_contradicts_one_made_elsewhere_is_refused_and_nothing_is_sent(
    run: Runs,
) -> None:
    ran, state = await waiting(run, "ann", "bob")
    first, second = state.get_interruptions()
    await run.runner.reject(second.approval_id, by="eve", reason="too much")
    state.approve(first)
    state.approve(second)
    with pytest.raises(CommandRefusedError, match=r"rejected by eve at 20.*Nothing .* was sent"):
        await run(state, by="ann")
    assert ran == []
    [why] = await refusals(run, state)
    assert "rejected by eve already" in why
    [left] = (await run(RunState.of(state.task_id))).interruptions
    assert left.approval_id == first.approval_id
    await run.runner.abandon(state.task_id, "enough")


@pytest.mark.parametrize("verb", ["approve", "reject"])
async def test_input_added_beside_a_decision_is_read_or_its_sender_is_told_that_the_task_has_ended(
    run: Runs, verb: str
) -> None:
    _, state = await waiting(run, "ann")
    late = (await run(RunState.of(state.task_id))).to_state()
    state.add_input("keep the report")
    getattr(state, verb)(state.get_interruptions()[0])
    run.model.reply("done")
    for _ in range(2):
        assert (await run(state)).final_output == "done"
    said = [m.text for m in run.model.requests[-1].messages if m.role == "user"]
    assert (said, len(run.model.requests)) == (["q", "keep the report"], 2)
    given = [e.verb for e in await run.runner.audit(state.task_id) if e.kind == "command"]
    assert given == ["feedback", verb]
    late.add_input("and stop")
    with pytest.raises(TaskClosedError, match=r"has ended, and no model has read .*'and stop'"):
        await run(late)


# ---- what a run leaves with an error


@dataclass
class Counted:
    """A context."""

    n: int = 0


@tool(effect="read")
def count(ctx: ToolContext[Any]) -> str:
    """Count."""
    ctx.context.n += 1
    return str(ctx.context.n)


async def test_an_error_has_what_the_run_had_made_and_the_context_too(run: Runs) -> None:
    run.model.call("count")
    context = Counted()
    with pytest.raises(MaxTurnsExceeded) as caught:
        await run("q", count, context=context, max_turns=1)
    data = caught.value.run_data
    assert [each.type for each in data.new_items] == ["tool_call_item", "tool_call_output_item"]
    assert (data.input, data.last_agent.name, len(data.raw_responses)) == ("q", "agent", 1)
    assert data.context_wrapper.context is context
    assert context.n == 1


# ---- runs that wait for a person: decided on and resumed, here or elsewhere


async def test_a_failed_step_is_resumed_by_the_task_s_id_in_another_process(
    run: Runs, rig: Rig
) -> None:
    rig.model.fail(401)
    context: dict[str, int] = {"n": 1}
    agent = await run.serve(look)
    with pytest.raises(StepFailedError) as caught:
        await run([{"role": "user", "content": "q"}], context=context)
    rig.model.reply("done")
    other = rig.runner()
    result = await Runner.run(agent, RunState.of(caught.value.task_id), runner=other)
    assert result.final_output == "done"
    assert result.input == [{"role": "user", "content": "q"}]
    assert result.context_wrapper.context == {"n": 1}


@dataclass
class Desk:
    """A context."""

    paid: list[str] = field(default_factory=list[str])


class Office:
    """What a deserializer makes of a context: no data, so only the deserializer can make it."""

    def __init__(self, paid: list[str]) -> None:
        self.paid = paid


@pytest.mark.parametrize(("kind", "is_streamed"), [(Desk, False), (Office, True)])
async def test_a_resumed_run_has_the_context_that_the_deserializer_makes(
    run: Runs, kind: Any, *, is_streamed: bool
) -> None:
    @tool(needs_approval=True)
    def pay(ctx: ToolContext[Desk], to: str) -> str:
        """Pay somebody."""
        ctx.context.paid.append(to)
        return f"paid {to}"

    seen: list[Any] = []

    class Hooks(RunHooks):
        async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
            seen.append(context.context)

    run.model.call("pay", {"to": "ann"})
    text = (await run("q", pay, context=Desk())).to_state().to_string()
    agent: Any = run.agent
    state = await RunState.from_string(
        agent, text, context_deserializer=lambda each: kind(list(each["paid"]))
    )
    assert type((await run(state)).context_wrapper.context) is kind
    state.approve(state.get_interruptions()[0])
    run.model.reply("done")
    result: Any
    if is_streamed:
        result = Runner.run_streamed(agent, state, runner=run.runner, hooks=Hooks())
        await result.result()
    else:
        result = await run(state, hooks=Hooks())
    context = result.context_wrapper.context
    assert (type(context), context.paid) == (kind, ["ann"])
    assert [type(each) for each in seen] == [kind]
    given = Desk()
    assert (await run(state, context=given)).context_wrapper.context is given


async def test_a_state_is_refused_what_belongs_to_another_run(run: Runs) -> None:
    _, pay = tools()
    run.model.add(call("pay", {"to": "ann"}), call("pay", {"to": "bob"}))
    one = await run("q", pay)
    two = await run("q")
    with pytest.raises(UserError, match="another run"):
        one.to_state().approve(two.interruptions[0])
    with pytest.raises(UserError, match="began with agent"):
        await Runner.run(run.rig.agent(name="other"), one.to_state(), runner=run.runner)
    with pytest.raises(UserError, match="not a state"):
        await RunState.from_string(run.agent, "{}")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="session"):
        await run(one.to_state(), session="s")
    with pytest.raises(UserError, match="user messages"):
        one.to_state().add_input([{"role": "assistant", "content": "x"}])
