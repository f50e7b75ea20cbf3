"""Runs that wait for a person: decided on and resumed, here or elsewhere."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast import RunHooks, Runner, UserError, tool
from holdfast.agents.tools.context import ToolContext
from holdfast.client.runner.runner import RunState
from holdfast.errors import StepFailedError
from holdfast.testing import call
from tests.support.rig import Rig
from tests.support.runs import Runs, look, tools


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
    waits = await run(state)
    assert type(waits.context_wrapper.context) is kind
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
