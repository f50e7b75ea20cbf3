"""Guardrails of runs and of tools: when they run, what they stop, and what is recorded."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Runner, RunState, StepFailedError, tool
from holdfast.agents.guardrails import GuardrailFunctionOutput, InputGuardrail, OutputGuardrail
from holdfast.agents.tools.guardrails import (
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolOutputGuardrail,
)
from holdfast.agents_sdk import function_tool
from holdfast.errors import (
    InputGuardrailTripwireTriggered,
    ModelRefusalError,
    OutputGuardrailTripwireTriggered,
    TaskNotFoundError,
)
from holdfast.testing import call
from tests.support.rig import Rig, until
from tests.support.runs import Served, look


def passes(*_: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput({"fine": True}, tripwire_triggered=False)


def trips(*_: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput("because", tripwire_triggered=True)


def reader(runner: Any) -> Any:
    """Return what reads the steps that are open."""
    return runner._read


class Recorder:
    """A guardrail's function that remembers what it was given, and may wait or fail."""

    def __init__(self, *, trips: bool = False, fails: int = 0, waits: bool = False) -> None:
        self.trips = trips
        self.fails = fails
        self.seen: list[Any] = []
        self.contexts: list[Any] = []
        self.started = asyncio.Event()
        self.may_end = asyncio.Event()
        self.cancelled = False
        if not waits:
            self.may_end.set()

    async def __call__(self, ctx: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        self.seen.append(given)
        self.contexts.append(ctx)
        self.started.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        if self.fails:
            self.fails -= 1
            msg = "the guardrail is broken"
            raise RuntimeError(msg)
        return GuardrailFunctionOutput({"seen": len(self.seen)}, tripwire_triggered=self.trips)


class Guarding(Served):
    """Runs guarded agents on the test's own worker."""

    async def run(self, given: Any = "hi", **options: Any) -> Any:
        assert self.agent is not None
        return await Runner.run(self.agent, given, runner=self.runner, **options)

    async def found(self, task_id: str) -> list[tuple[str, bool]]:
        """List name and verdict of the recorded guardrails."""
        events = [e.event for e in await self.runner.ledger(task_id) if e.event is not None]
        found = [event.body for event in events if event.kind == "guardrail"]
        return [(body["name"], "tripped" in body) for body in found]

    async def until_answered(self, task_id: str) -> None:
        """Wait until the first answer of the model is recorded."""

        async def is_recorded() -> bool:
            try:
                _, opens = await reader(self.runner).ledger(task_id)
            except TaskNotFoundError:
                return False
            return bool(opens and opens[0].journal)

        await until(is_recorded)


@pytest.fixture
def guarding(rig: Rig) -> Guarding:
    return Guarding(rig)


# ---- input


async def test_a_trip_cancels_the_model_call_and_the_guardrails_beside_it(
    guarding: Guarding,
) -> None:
    check, slow = Recorder(waits=True, trips=True), Recorder(waits=True)
    await guarding.serve(
        input_guardrails=[InputGuardrail(check, "trips"), InputGuardrail(slow, "slow")]
    )
    guarding.model.hang("never")
    running = asyncio.create_task(guarding.run())
    await guarding.model.until_held()
    await slow.started.wait()
    check.may_end.set()
    with pytest.raises(InputGuardrailTripwireTriggered) as caught:
        await running
    assert slow.cancelled
    assert len(caught.value.run_data.input_guardrail_results) == 1
    await guarding.model.until_held(0)
    guarding.model.release()


async def test_tools_of_the_first_turn_wait_for_the_guardrails(guarding: Guarding) -> None:
    check = Recorder(waits=True)
    order: list[str] = []

    @tool
    async def act() -> str:
        order.append("tool")
        return "acted"

    await guarding.serve(act, input_guardrails=[InputGuardrail(check)])
    guarding.model.add(call("act"), "done")
    running = asyncio.create_task(guarding.run())
    await guarding.model.until_requests(1)
    order.append("passed")
    check.may_end.set()
    assert (await running).final_output == "done"
    assert order == ["passed", "tool"]
    assert len(check.seen) == 1  # not for the second turn


async def test_a_guardrail_that_raises_stops_its_siblings_and_the_task_waits(
    guarding: Guarding,
) -> None:
    broken, slow = Recorder(fails=1, waits=True), Recorder(waits=True)
    good = Recorder()
    await guarding.serve(
        input_guardrails=[
            InputGuardrail(good, "good", run_in_parallel=False),
            InputGuardrail(broken, "broken"),
            InputGuardrail(slow, "slow"),
        ]
    )
    guarding.model.reply("done")
    task_id = f"{guarding.rig.app}-1"
    running = asyncio.create_task(guarding.run(task_id=task_id))
    await guarding.until_answered(task_id)
    broken.may_end.set()
    with pytest.raises(StepFailedError, match="the guardrail is broken") as caught:
        await running
    assert caught.value.cause_type == "RuntimeError"
    assert (await guarding.runner.get_task(task_id)).status == "needs_attention"
    slow.may_end.set()
    assert (await guarding.runner.run_task(task_id)).output == "done"
    assert len(guarding.model.requests) == 1
    assert (len(good.seen), len(broken.seen)) == (1, 2)
    recorded = [(name, False) for name in ("broken", "good", "slow")]
    assert sorted(await guarding.found(task_id)) == recorded


async def test_what_was_checked_survives_continue_as_new(guarding: Guarding) -> None:
    check = Recorder()
    await guarding.serve(look, input_guardrails=[InputGuardrail(check)])
    guarding.model.add(*[call("look")] * 6, "done")
    runner = guarding.rig.runner(roll_events=50)
    task = await runner.create_task("hi")
    assert (await runner.run_task(task)).output == "done"
    assert check.seen == ["hi"]


# ---- output


class Party(BaseModel):
    name: str


async def test_a_trip_has_the_typed_output_in_the_error_and_in_its_run_data(
    guarding: Guarding,
) -> None:
    agent = await guarding.serve(
        look,
        output_type=Party,
        output_guardrails=[OutputGuardrail(passes, "fine"), OutputGuardrail(trips, "no")],
    )
    expected = Party(name="x" * 5000)
    guarding.model.add(call("look", {}), expected.model_dump_json())
    with pytest.raises(OutputGuardrailTripwireTriggered) as plain:
        await guarding.run()
    guarding.model.add(call("look", {}), expected.model_dump_json())
    stream = Runner.run_streamed(agent, "hi", runner=guarding.runner)
    with pytest.raises(OutputGuardrailTripwireTriggered) as streamed:
        await stream.result()
    with pytest.raises(OutputGuardrailTripwireTriggered) as resumed:
        await guarding.run(RunState.of(stream.task_id))
    for caught in (plain, streamed, resumed):
        found = caught.value.run_data.output_guardrail_results
        assert [each.guardrail for each in found][-1] is agent.output_guardrails[1]
        outputs = [each.agent_output for each in (caught.value.guardrail_result, *found)]
        assert outputs == [expected] * len(outputs)
    assert [each.agent_output for each in stream.output_guardrail_results][-1] == expected


# ---- tools


class Topic(BaseModel):
    """What a guardrail has found out."""

    name: str
    seen: tuple[int, ...] = ()


def acting(ran: list[str], **options: Any) -> Any:
    @tool(**options)
    def act(what: str) -> str:
        """Act."""
        ran.append(what)
        return f"did {what}"

    return act


async def test_what_a_guardrail_found_is_an_object_of_its_class_again(guarding: Guarding) -> None:
    class Local(BaseModel):
        name: str

    def allow_all(_data: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.allow(Topic(name="tool"))

    def find(*_: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(Local(name="here only"), tripwire_triggered=False)

    def trip(*_: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(Topic(name="math", seen=(1, 2)), tripwire_triggered=True)

    checked = acting([], tool_input_guardrails=[ToolInputGuardrail(allow_all, "allow")])
    await guarding.serve(
        checked, input_guardrails=[InputGuardrail(find)], output_guardrails=[OutputGuardrail(trip)]
    )
    guarding.model.add(call("act", {"what": "x"}), "done")
    with pytest.raises(OutputGuardrailTripwireTriggered) as caught:
        await guarding.run()
    assert caught.value.guardrail_result.output.output_info == Topic(name="math", seen=(1, 2))
    data = caught.value.run_data
    assert data is not None
    assert data.input_guardrail_results[0].output.output_info == {"name": "here only"}
    assert data.tool_input_guardrail_results[0].output.output_info == Topic(name="tool")


async def test_a_call_waits_while_its_guardrail_raises_and_an_unchecked_result_is_asked_about(
    guarding: Guarding,
) -> None:
    ran: list[str] = []
    left = [1]

    def broken(data: Any) -> ToolGuardrailFunctionOutput:
        if left:
            left.clear()
            msg = "the guardrail is broken"
            raise ValueError(msg)
        return ToolGuardrailFunctionOutput.allow("fine")

    def never(data: Any) -> ToolGuardrailFunctionOutput:
        msg = "it is broken for good"
        raise ValueError(msg)

    before, after = ToolInputGuardrail(broken, "a"), ToolOutputGuardrail(never, "b")
    await guarding.serve(
        acting(ran, tool_input_guardrails=[before], tool_output_guardrails=[after])
    )
    guarding.model.add(call("act", {"what": "x"}), "done")
    task = await guarding.runner.create_task("hi")
    with pytest.raises(StepFailedError, match="the guardrail is broken") as caught:
        await guarding.runner.run_task(task)
    assert (caught.value.cause_type, ran) == ("ValueError", [])
    output = await guarding.runner.run_task(task)
    assert output.status == "waiting"
    assert "its guardrail 'b' failed: ValueError" in output.waiting_for[0]
    [approval] = await guarding.runner.pending_approvals(task)
    await guarding.runner.respond(approval, by="anna", result="did x, I looked")
    assert (await guarding.runner.run_task(task)).output == "done"
    assert ran == ["x"]


@pytest.mark.parametrize("kind", [OutputGuardrailTripwireTriggered, ModelRefusalError])
async def test_what_ended_a_run_within_a_tool_is_told_as_it_was_and_withholds_nothing(
    rig: Rig, kind: Any
) -> None:
    def ask_another() -> str:
        raise kind("so it said")

    agent = rig.agent(function_tool(ask_another, failure_error_function=None))
    await rig.serve(agent)
    runner = rig.runner()
    rig.model.call("ask_another")
    with pytest.raises(kind, match="so it said"):
        await Runner.run(agent, "q", runner=runner, session=runner.session("s"))
    assert [each.role for each in await runner.session("s").chat_history()] == ["user"]
