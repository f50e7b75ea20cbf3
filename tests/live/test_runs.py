"""Runs: how they are asked for, decided on, resumed, told of, and what errors leave."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast import RunContextWrapper, RunHooks, Runner, UserError, tool
from holdfast.agents.tools.context import ToolContext
from holdfast.client.runner.runner import RunState
from holdfast.errors import CommandRefusedError, StepFailedError, TaskClosedError
from holdfast.models import ModelAnswer, ModelRequest
from holdfast.testing import call
from tests.support.rig import Rig, until, until_status
from tests.support.runs import Runs, look, pay, tools


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


# ---- runs that wait for a person: decided on and resumed, here or elsewhere


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
    with pytest.raises(UserError, match="has no session, and keeps it"):
        await run(one.to_state(), session="s")
    with pytest.raises(UserError, match="cannot be run as 'other'"):
        await run(one.to_state(), task_id="other")
    with pytest.raises(UserError, match="user messages"):
        one.to_state().add_input([{"role": "assistant", "content": "x"}])


# ---- hooks of runs: told from the record, in the process that called Runner.run


class Counter(RunHooks):
    """Counts in the caller's context."""

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        del agent, response
        context.context["calls"] += 1


@pytest.mark.parametrize("streams", [False, True])
async def test_what_hooks_change_in_the_context_stays_beside_what_tools_change(
    rig: Rig, *, streams: bool
) -> None:
    @tool
    def buy(ctx: RunContextWrapper[dict[str, Any]], euros: int) -> str:
        """Buy."""
        ctx.context["spent"] += euros
        ctx.context["bought"].append(euros)
        ctx.context["of"]["a"] = euros
        return "bought"

    agent = rig.agent(buy)
    await rig.serve(agent)
    rig.model.add(call("buy", {"euros": 3}), "done")
    bought: list[int] = []
    context: dict[str, Any] = {"calls": 0, "spent": 0, "bought": bought, "own": {1, 2}}
    context["of"] = {"z": 0}
    more: Any = {"context": context, "hooks": Counter(), "runner": rig.runner()}
    if streams:
        async for _ in Runner.run_streamed(agent, "q", **more).stream_events():
            context["own"].add(3)
    else:
        await Runner.run(agent, "q", **more)
    own = {1, 2, 3} if streams else {1, 2}
    assert str(context.pop("of")) == "{'z': 0, 'a': 3}"  # in the order in which they were made
    assert context == {"calls": 2, "spent": 3, "bought": [3], "own": own}
    assert context["bought"] is bought


async def test_a_hook_that_raises_ends_the_run_and_its_error_is_raised(run: Runs) -> None:
    @tool(effect="read")
    async def hold() -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    class BrokenError(ValueError):
        """An error that counts as false, as one with the length of an empty list."""

        def __len__(self) -> int:
            return 0

    class Broken(RunHooks):
        async def on_llm_start(self, *_: Any, **__: Any) -> None:
            raise BrokenError("the hook is broken")

    run.model.call("hold")
    with pytest.raises(BrokenError, match="the hook is broken"):
        await run("q", hold, hooks=Broken(), task_id=f"{run.rig.app}-hook")
    task = await until_status(run.runner, f"{run.rig.app}-hook", "abandoned")
    assert "on_llm_start" in task.error
    assert "the hook is broken" in task.error


async def test_usage_of_a_nested_agent_counts_from_the_end_of_its_call(rig: Rig) -> None:
    told: list[tuple[str, int]] = []

    class Told(RunHooks):
        async def on_llm_end(self, context: Any, *_: Any) -> None:
            told.append(("llm_end", context.usage.requests))

        async def on_tool_end(self, context: Any, *_: Any) -> None:
            told.append(("tool_end", context.usage.requests))

        async def on_agent_end(self, context: Any, *_: Any) -> None:
            told.append(("agent_end", context.usage.requests))

    helper = rig.agent(name="helper")
    agent = rig.agent(helper.as_tool(), name="agent")
    await rig.serve(agent)
    rig.model.add(call("helper", {"input": "q"}), "of the helper", "done")
    result = await Runner.run(agent, "q", hooks=Told(), runner=rig.runner())
    assert result.context_wrapper.usage.requests == 3
    assert told == [("llm_end", 1), ("tool_end", 2), ("llm_end", 3), ("agent_end", 3)]


class OwnError(Exception):
    """What a program's own model raises."""


class OwnModel:
    """A model of one method, which fails without a word on what kind of failure that is."""

    name = "own"

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        del request
        raise OwnError("broken")


async def test_the_call_of_a_model_that_raises_an_error_of_its_own_has_begun(run: Runs) -> None:
    told: list[str] = []

    class Told(RunHooks):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            told.append("agent_start")

        async def on_llm_start(self, *_: Any, **__: Any) -> None:
            told.append("llm_start")

    await run.serve(model=OwnModel())
    with pytest.raises(StepFailedError, match="OwnError: broken"):
        await run("q", hooks=Told())
    assert told == ["agent_start", "llm_start"]
