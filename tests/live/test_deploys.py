"""Runs that are under way when the code they depend on is exchanged, and put back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import pytest
from pydantic import BaseModel

from holdfast import Runner, RunState, ToolContext, tool
from holdfast.errors import UserError
from holdfast.testing import FakeOpenAI
from tests.support.rig import MakeAgent, Rig


@dataclasses.dataclass
class Desk:
    """A context whose class is another one while it is `strict`."""

    paid: int = 0
    strict: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if Desk.strict:
            raise ValueError("the field 'limit' is missing")


class Answer(BaseModel):
    """What the agent began with."""

    city: str


class Changed(BaseModel):
    """What it was given by a deploy."""

    town: str


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    yield
    Desk.strict = False


async def test_a_run_whose_context_class_has_changed_waits_and_goes_on_with_the_old_one(
    rig: Rig, model: FakeOpenAI, make_agent: MakeAgent
) -> None:
    ran: list[int] = []

    @tool(needs_approval=True)
    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        ran.append(ctx.context.paid)
        return "paid"

    agent = make_agent(pay)
    await rig.serve(agent)
    model.call("pay")
    model.reply("done")
    stopped = await Runner.run(agent, "q", context=Desk(7), runner=rig.runner())
    state = stopped.to_state()
    state.approve(stopped.interruptions[0])
    Desk.strict = True
    with pytest.raises(UserError, match="does not fit Desk any more"):
        await Runner.run(agent, state, runner=rig.runner())
    assert (await rig.runner().get_task(stopped.task_id)).status == "needs_attention"
    assert not ran
    Desk.strict = False
    result = await Runner.run(agent, RunState.of(stopped.task_id), runner=rig.runner())
    assert result.final_output == "done"
    assert ran == [7]


async def test_an_answer_that_fits_only_the_output_type_of_before_a_deploy_waits_for_it(
    rig: Rig, model: FakeOpenAI, make_agent: MakeAgent
) -> None:
    @tool(needs_approval=True)
    async def look() -> str:
        """Look."""
        return "seen"

    agent = make_agent(look, output_type=Answer)
    await rig.serve(agent)
    model.call("look")
    model.reply('{"city": "Oslo"}')
    stopped = await Runner.run(agent, "q", runner=rig.runner())
    state = stopped.to_state()
    state.approve(stopped.interruptions[0])
    await rig.serve(make_agent(look, output_type=Changed))
    with pytest.raises(UserError, match="began with another output type"):
        await Runner.run(agent, state, runner=rig.runner())
    await rig.serve(agent)
    result = await Runner.run(agent, RunState.of(stopped.task_id), runner=rig.runner())
    assert result.final_output == Answer(city="Oslo")
    assert len(model.requests) == 2


async def test_a_user_error_of_instructions_waits_for_mended_code(
    rig: Rig, model: FakeOpenAI, make_agent: MakeAgent
) -> None:
    broken = True

    def instruct(_ctx: object, _agent: object) -> str:
        if broken:
            raise UserError("no tenant is configured")
        return "Answer."

    agent = make_agent(instructions=instruct)
    await rig.serve(agent)
    model.reply("done")
    with pytest.raises(UserError, match="no tenant is configured") as raised:
        await Runner.run(agent, "q", runner=rig.runner())
    broken = False
    state = RunState.of(raised.value.run_data.task_id)
    assert (await Runner.run(agent, state, runner=rig.runner())).final_output == "done"
