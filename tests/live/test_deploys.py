"""Runs that are under way when the code they depend on is exchanged, and put back."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from holdfast import (
    Agent,
    GuardrailFunctionOutput,
    Runner,
    RunState,
    ToolContext,
    handoff,
    output_guardrail,
    tool,
)
from holdfast.agents.tools.decorator import Tool
from holdfast.errors import ModelBehaviorError, StepFailedError, UserError
from holdfast.task.data.head import ToolEffect
from holdfast.testing import call
from tests.support.people import ask
from tests.support.rig import Rig
from tests.support.scale import all_of
from tests.support.site import Site


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


class Errand(BaseModel):
    """What a handoff was told at first."""

    thing: str


class Journey(BaseModel):
    """What a deploy wants it to be told."""

    place: str


def handing_over(site: Site, rig: Rig, said: list[Any], kind: type[Any]) -> Agent:
    """Make an agent that hands over to another one, with this input."""

    def on_handoff(_ctx: ToolContext, errand: Any) -> None:
        said.append(errand)

    other = rig.agent(name="other")
    return rig.agent(
        site.ask(), handoffs=[handoff(other, "go", on_handoff=on_handoff, input_type=kind)]
    )


def paying(paid: list[Any], **options: Any) -> Tool:
    """Make a tool as it was when the run began."""

    @tool(name="pay", needs_approval=True, **options)
    def pay(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        return "paid"

    return pay


def paying_anew(paid: list[Any], **options: Any) -> Tool:
    """Make the tool that a deploy has put in its place."""

    @tool(name="pay", needs_approval=True, **options)
    def pay(euros: int) -> str:
        """Pay."""
        paid.append(euros)
        return "paid"

    return pay


@tool(needs_approval=True)
def go() -> str:
    """Go, before it was a handoff."""
    return "gone"


Make = Callable[[Site, Callable[..., Agent], list[Any]], Agent]
GO_MILK: list[Any] = [[("ask", {}), ("go", {"thing": "milk"})]]
PAY_700: list[Any] = [[("pay", {"cents": 700})]]
TO_OTHER: list[Any] = [[("transfer_to_other", {})], [("ask", {})]]
NOT_TOLD = "not the one that the model was told of"
CITY = '{"city": "Oslo"}'

# What a run began with, what a deploy has put in its place, what the model calls and answers, why
# the run waits, and what its tools were given once it went on.
CHANGES: dict[str, tuple[Make, Make, list[Any], str, type[Exception], str, list[Any]]] = {
    "output type": (
        lambda site, make, _: make(site.ask(), output_type=Answer),
        lambda site, make, _: make(site.ask(), output_type=Changed),
        *([[("ask", {})]], CITY, UserError, "began with another output type", []),
    ),
    "input of a handoff": (
        lambda site, _, told: handing_over(site, site.rig, told, Errand),
        lambda site, _, told: handing_over(site, site.rig, told, Journey),
        *(GO_MILK, "done", UserError, f"'go'.*{NOT_TOLD}", [Errand(thing="milk")]),
    ),
    "parameter of a tool": (
        lambda _, make, paid: make(paying(paid, failure_error_function=None)),
        lambda _, make, paid: make(paying_anew(paid, failure_error_function=None)),
        *(PAY_700, "done", UserError, f"'pay'.*{NOT_TOLD}", [700]),
    ),
    "tool is a handoff": (
        lambda _, make, __: make(go),
        lambda _, make, __: make(handoffs=[handoff(make(name="other"), "go")]),
        *([[("go", {})]], "done", ModelBehaviorError, "queued tool go.*do something else", []),
    ),
    "agent is gone": (
        lambda site, make, _: make(handoffs=[make(site.ask(), name="other")]),
        lambda _, make, __: make(),
        *(TO_OTHER, "done", StepFailedError, "wants agent 'other'", []),
    ),
}


@pytest.mark.parametrize("what", CHANGES)
async def test_a_run_that_fits_only_the_code_of_before_a_deploy_waits_for_it(
    site: Site, rig: Rig, what: str
) -> None:
    before, after, turns, answer, kind, text, wanted = CHANGES[what]
    given: list[Any] = []
    old = before(site, rig.agent, given)
    for calls in turns:
        rig.model.calls(calls)
    rig.model.reply(answer)
    state = await site.waiting(old)
    await site.parks(after(site, rig.agent, given), state, kind, text)
    assert not given
    result = await site.goes_on(old, state)
    assert result.final_output == (Answer(city="Oslo") if answer == CITY else answer)
    assert given == wanted
    assert len(rig.model.requests) == len(turns) + 1


async def test_a_run_goes_on_without_what_it_does_not_need_any_more(site: Site, rig: Rig) -> None:
    other = rig.agent(site.ask(), name="other")
    for calls in TO_OTHER:
        rig.model.calls(calls)
    rig.model.reply("done")
    state = await site.waiting(rig.agent(handoffs=[other]))
    new = rig.agent()  # nobody hands over to the other agent any more
    await site.rig.serve(new, other)
    result = await Runner.run(new, state, runner=site.runner)
    assert (result.final_output, result.last_agent.name) == ("done", "other")
    paid: list[Any] = []
    rig.model.calls(PAY_700[0])
    rig.model.reply("as you like")
    state = await site.waiting(rig.agent(paying(paid)))
    state = RunState.of(state.task_id)
    [asked] = await site.runner.pending_approvals(state.task_id)
    await site.runner.reject(asked, "ann", "no")
    await site.rig.serve(new)  # a tool that is gone, and whose call is rejected
    assert (await Runner.run(new, state, runner=site.runner)).final_output == "as you like"
    assert paid == []


async def test_a_call_that_fits_the_tool_of_a_deploy_too_is_made(site: Site, rig: Rig) -> None:
    @tool(name="pay", needs_approval=True)
    def pay(cents: int | str) -> str:
        """Pay."""
        paid.append(cents)
        return "paid"

    paid: list[Any] = []
    rig.model.add(call("pay", {"cents": 700}), "done")
    state = await site.waiting(rig.agent(paying(paid)))
    new = rig.agent(pay)
    await site.rig.serve(new)
    assert (await Runner.run(new, state, runner=site.runner)).final_output == "done"
    assert paid == [700]


async def test_a_run_is_not_left_unchecked_by_a_deploy_without_its_guardrail(
    site: Site, rig: Rig
) -> None:
    def guarded(named: str) -> Agent:
        async def check(*_given: Any) -> GuardrailFunctionOutput:
            return GuardrailFunctionOutput(None, tripwire_triggered=False)

        guard: Any = output_guardrail(name=named)(check)
        return rig.agent(site.ask(), output_guardrails=[guard])

    old = guarded("check")
    rig.model.add(call("ask"), "done")
    state = await site.waiting(old)
    new = guarded("renamed")
    await site.parks(new, state, StepFailedError, "began with output guardrail 'check'")
    assert (await site.goes_on(old, state)).final_output == "done"


def cut_once(began: asyncio.Event, done: list[str]) -> Callable[[], Awaitable[str]]:
    """Make a function that acts, and does not end the first time."""

    async def act() -> str:
        done.append("acted")
        began.set()
        if len(done) == 1:
            await asyncio.Event().wait()
        return "done"

    return act


async def test_a_call_that_was_cut_off_is_not_repeated_once_a_deploy_says_that_it_must_not_be(
    site: Site, rig: Rig
) -> None:
    began, done = asyncio.Event(), list[str]()

    def make(effect: ToolEffect) -> Agent:
        act = cut_once(began, done)
        return rig.agent(tool(act, effect=effect, description="Act."))

    await site.rig.serve(make("read"), graceful_shutdown_timeout=timedelta(0))
    rig.model.call("act")
    task = await site.runner.create_task("q")
    running = asyncio.create_task(site.runner.run_step(task))
    await began.wait()
    await site.rig.serve(make("irreversible"))
    asked = await ask(site.runner, task)
    assert asked.kind == "unknown"
    assert "must not be repeated" in asked.text
    assert done == ["acted"]
    await site.runner.approve(asked, "ann")
    output = await running
    if output.status == "waiting":
        output = await site.runner.run_step(task)
    assert [str(source) for source in output.sources] == ["done"]
    assert done == ["acted", "acted"]


async def test_a_predicate_that_raises_since_a_deploy_waits_for_mended_code(
    site: Site, rig: Rig
) -> None:
    broken = False

    def is_enabled(_ctx: object, _agent: object) -> bool:
        if broken:
            raise KeyError("no flags are configured")
        return True

    @tool(is_enabled=is_enabled)
    def look() -> str:
        """Look."""
        return "seen"

    agent = rig.agent(site.ask(), look)
    rig.model.add(call("ask"), "done")
    state = await site.waiting(agent)
    broken = True
    await site.parks(agent, state, (UserError, StepFailedError), "no flags are configured")
    broken = False
    assert (await site.goes_on(agent, state)).final_output == "done"
    assert site.asked == ["ask"]


@pytest.mark.parametrize("where", ["tool", all_of("instructions"), all_of("guardrail")])
async def test_wherever_a_changed_context_class_is_read_the_run_waits_for_the_old_one(
    site: Site, rig: Rig, where: str
) -> None:
    seen: list[int] = []

    def read(ctx: Any, *_given: Any) -> Any:
        seen.append(ctx.context.paid)
        return "Answer."

    async def check(ctx: Any, *_given: Any) -> GuardrailFunctionOutput:
        seen.append(ctx.context.paid)
        return GuardrailFunctionOutput(None, tripwire_triggered=False)

    @tool(name="ask", needs_approval=True)
    def ask(ctx: ToolContext) -> str:
        """Ask."""
        return str(read(ctx))

    options: dict[str, dict[str, Any]] = {
        "tool": {},
        "instructions": {"instructions": read},
        "guardrail": {"output_guardrails": [output_guardrail(check)]},
    }
    agent = rig.agent(ask if where == "tool" else site.ask(), **options[where])
    rig.model.add(call("ask"), "done")
    state = await site.waiting(agent, context=Desk(7))
    Desk.strict = True
    await site.parks(agent, state, UserError, "does not fit Desk any more")
    Desk.strict = False
    assert (await site.goes_on(agent, state)).final_output == "done"
    assert set(seen) == {7}


async def test_the_next_step_runs_new_code_with_the_snapshot_of_the_task(
    site: Site, rig: Rig
) -> None:
    def version(name: str) -> Agent:
        @tool(effect="read", description=f"Look, {name}.")
        def look() -> str:
            return f"seen by {name}"

        return rig.agent(look, instructions=f"Prompt {name}.")

    await site.rig.serve(version("v1"))
    rig.model.add(call("look"), call("look"), "done", "new")
    task = await site.runner.create_task("q")
    first = await site.runner.run_step(task)
    await site.rig.serve(version("v2"))
    second = await site.runner.run_step(task)
    assert [str(each.sources[0]) for each in (first, second)] == ["seen by v1", "seen by v2"]
    await site.runner.run_task(task)
    await site.runner.run_task(await site.runner.create_task("q"))
    told = [(each.instructions, each.tools[0].description) for each in rig.model.requests]
    assert told == [("Prompt v1.", "Look, v1.")] * 3 + [("Prompt v2.", "Look, v2.")]
