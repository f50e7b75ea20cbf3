"""Guardrails of runs and of tools: when they run, what they stop, and what is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import (
    Agent,
    AgentRunner,
    RunConfig,
    Runner,
    RunState,
    StepFailedError,
    TaskStep,
    TaskStepOutput,
    tool,
)
from holdfast.activities import heartbeat
from holdfast.activities import task_end as closing
from holdfast.agents.guardrails import (
    GuardrailFunctionOutput,
    InputGuardrail,
    OutputGuardrail,
    input_guardrail,
)
from holdfast.agents.run_config import ToolExecutionConfig
from holdfast.agents.runs.guardrail_results import (
    GuardrailResults,
    Known,
    guardrail_results,
    with_known,
)
from holdfast.agents.tools.guardrails import (
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolOutputGuardrail,
)
from holdfast.archive import segments
from holdfast.errors import (
    CommandRefusedError,
    InputGuardrailTripwireTriggered,
    ModelRequestError,
    OutputGuardrailTripwireTriggered,
    TaskNotFoundError,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
    UndoRefusedError,
)
from holdfast.models import ModelAnswer, ModelRequest
from holdfast.task.data.records import EventRecord
from holdfast.task.step_body import body_of
from holdfast.task.undo import active_steps
from holdfast.testing import FakeOpenAI, ScriptedModel
from holdfast.values.messages import ToolCall, assistant
from holdfast.workers import StepContext
from tests.support.rig import MakeAgent, Rig, activities_of, histories, until, until_status
from tests.support.runs import Served, look
from tests.support.workers import Doing, ends


def passes(*_: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput({"fine": True}, tripwire_triggered=False)


def trips(*_: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput("because", tripwire_triggered=True)


@input_guardrail(name="of the run", run_in_parallel=False)
def of_the_run(ctx: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(given, tripwire_triggered="bad" in str(given))


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

    async def events(self, task_id: str) -> list[EventRecord]:
        entries = await self.runner.ledger(task_id)
        found = [entry.event for entry in entries if entry.event is not None]
        return [event for event in found if event.kind == "guardrail"]

    async def found(self, task_id: str) -> list[tuple[str, bool]]:
        """List name and verdict of the recorded guardrails."""
        events = await self.events(task_id)
        return [(event.body["name"], "tripped" in event.body) for event in events]

    async def until_found(self, task_id: str) -> None:
        """Wait until a guardrail is recorded."""

        async def is_recorded() -> bool:
            return bool(await self.found(task_id))

        await until(is_recorded)

    async def until_answered(self, task_id: str) -> None:
        """Wait until the first answer of the model is recorded."""

        async def is_recorded() -> bool:
            try:
                _, opens = await reader(self.runner).ledger(task_id)
            except TaskNotFoundError:
                return False
            return bool(opens and opens[0].journal)

        await until(is_recorded)

    async def results(self, task_id: str) -> GuardrailResults:
        assert self.agent is not None
        entries, opens = await reader(self.runner).ledger(task_id)
        steps = [*map(body_of, active_steps(entries)), *map(body_of, opens)]
        return guardrail_results(entries, steps, first="agent", known=Known.of(self.agent))


@pytest.fixture
def guarding(rig: Rig, make_agent: MakeAgent) -> Guarding:
    return Guarding(rig, make_agent)


# ---- input


async def test_a_blocking_guardrail_that_trips_makes_no_model_call(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    agent = await guarding.serve(
        input_guardrails=[InputGuardrail(trips, "no", run_in_parallel=False)]
    )
    with pytest.raises(InputGuardrailTripwireTriggered, match="'no' triggered") as caught:
        await guarding.run(task_id=f"{guarding.rig.app}-1")
    assert model.requests == []
    result = caught.value.guardrail_result
    assert result.output == GuardrailFunctionOutput("because", tripwire_triggered=True)
    assert result.guardrail.get_name() == "no"
    own: Any = with_known(result, Known.of(agent))
    assert own.guardrail is agent.input_guardrails[0]
    assert await guarding.found(f"{guarding.rig.app}-1") == [("no", True)]


async def test_a_blocking_guardrail_ends_before_the_first_model_call(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    check = Recorder(waits=True)
    await guarding.serve(input_guardrails=[InputGuardrail(check, run_in_parallel=False)])
    model.reply("done")
    running = asyncio.create_task(guarding.run())
    await check.started.wait()
    assert model.requests == []
    check.may_end.set()
    assert (await running).final_output == "done"


async def test_a_parallel_guardrail_runs_beside_the_first_model_call(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    check = Recorder(waits=True)
    await guarding.serve(input_guardrails=[InputGuardrail(check, "slow")])
    model.reply("done")
    running = asyncio.create_task(guarding.run(task_id=f"{guarding.rig.app}-1"))
    await check.started.wait()
    await model.until_requests(1)
    check.may_end.set()
    assert (await running).final_output == "done"
    assert await guarding.found(f"{guarding.rig.app}-1") == [("slow", False)]


async def test_a_parallel_trip_raises_although_the_model_has_answered(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    check = Recorder(waits=True, trips=True)
    looked: list[str] = []

    @tool
    def act() -> str:
        looked.append("done")
        return "done"

    await guarding.serve(act, input_guardrails=[InputGuardrail(check, "slow")])
    model.call("act")
    task_id = f"{guarding.rig.app}-1"
    running = asyncio.create_task(guarding.run(task_id=task_id))
    await model.until_requests(1)
    await guarding.until_answered(task_id)
    check.may_end.set()
    with pytest.raises(InputGuardrailTripwireTriggered) as caught:
        await running
    assert caught.value.run_data.usage.requests == 1
    assert [item.type for item in caught.value.run_data.new_items] == ["tool_call_item"]
    assert looked == []  # no effect before the input has passed


async def test_a_parallel_trip_does_not_wait_for_the_model(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    check = Recorder(waits=True, trips=True)
    await guarding.serve(input_guardrails=[InputGuardrail(check, "slow")])
    model.hang("never")
    running = asyncio.create_task(guarding.run())
    await model.until_held()
    check.may_end.set()
    with pytest.raises(InputGuardrailTripwireTriggered):
        await running
    await model.until_held(0)  # its request was cancelled
    model.release()


async def test_a_trip_cancels_the_guardrails_beside_it_before_the_error_is_raised(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    check, slow = Recorder(waits=True, trips=True), Recorder(waits=True)
    await guarding.serve(
        input_guardrails=[
            InputGuardrail(check, "trips", run_in_parallel=False),
            InputGuardrail(slow, "slow", run_in_parallel=False),
        ]
    )
    running = asyncio.create_task(guarding.run())
    await slow.started.wait()
    check.may_end.set()
    with pytest.raises(InputGuardrailTripwireTriggered) as caught:
        await running
    assert slow.cancelled
    assert len(caught.value.run_data.input_guardrail_results) == 1
    assert model.requests == []


async def test_what_is_cancelled_in_the_process_hears_of_it_before_its_next_heartbeat_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heartbeat, "FASTEST_SECONDS", 5.0)
    check, slow = Recorder(waits=True, trips=True), Recorder(waits=True)
    guards = [InputGuardrail(each, run_in_parallel=False) for each in (check, slow)]
    agent = Agent(name="agent", model=ScriptedModel(["done"]), input_guardrails=guards)
    async with AgentRunner.local(agent, data_dir=None) as runner:
        running = asyncio.create_task(Runner.run(agent, "hi", runner=runner))
        await slow.started.wait()
        check.may_end.set()
        with pytest.raises(InputGuardrailTripwireTriggered):
            await running
        assert slow.cancelled


async def test_a_guardrail_that_raises_cancels_the_model_call_beside_it(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    check = Recorder(waits=True, fails=1)
    await guarding.serve(input_guardrails=[InputGuardrail(check, "broken")])
    model.hang("never")
    running = asyncio.create_task(guarding.run())
    await model.until_held()
    check.may_end.set()
    with pytest.raises(StepFailedError, match="the guardrail is broken") as caught:
        await running
    await model.until_held(0)
    model.reply("done")
    assert (await guarding.runner.run_task(caught.value.task_id)).output == "done"
    assert len(check.seen) == 2


class Refusing:  # what Holdfast asks of a model
    """Refuses its first request, once it is told to."""

    name = "refusing"

    def __init__(self, after: asyncio.Event) -> None:
        self.after = after
        self.asked = 0

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        del request
        self.asked += 1
        await self.after.wait()
        if self.asked == 1:
            msg = "a wrong key"
            raise ModelRequestError(msg)
        return ModelAnswer(message=assistant("done"))


async def test_a_model_call_that_fails_cancels_the_guardrails_beside_it(
    guarding: Guarding,
) -> None:
    check = Recorder(waits=True)
    refusing = Refusing(after=check.started)
    await guarding.serve(model=refusing, input_guardrails=[InputGuardrail(check, "slow")])
    with pytest.raises(StepFailedError, match="a wrong key") as caught:
        await guarding.run()
    task_id = caught.value.task_id
    assert check.cancelled
    assert await guarding.found(task_id) == []
    check.may_end.set()
    assert (await guarding.runner.run_task(task_id)).output == "done"
    assert (refusing.asked, len(check.seen)) == (2, 2)


async def test_tools_of_the_first_turn_wait_for_the_guardrails(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    check = Recorder(waits=True)
    order: list[str] = []

    @tool
    async def act() -> str:
        order.append("tool")
        return "acted"

    await guarding.serve(act, input_guardrails=[InputGuardrail(check)])
    model.call("act")
    model.reply("done")
    running = asyncio.create_task(guarding.run())
    await model.until_requests(1)
    order.append("passed")
    check.may_end.set()
    assert (await running).final_output == "done"
    assert order == ["passed", "tool"]
    assert len(check.seen) == 1  # not for the second turn


async def test_guardrails_see_the_input_as_it_was_given(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    check = Recorder()
    await guarding.serve(input_guardrails=[InputGuardrail(check)])
    items = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    for given in ("text", items):
        model.reply("done")
        await guarding.run(given, context={"user": "anna"})
    assert check.seen[0] == "text"
    assert [item["role"] for item in check.seen[1]] == ["user", "assistant"]
    assert check.contexts[0].context == {"user": "anna"}


async def test_guardrails_of_the_run_are_added(guarding: Guarding, model: FakeOpenAI) -> None:
    await guarding.serve(input_guardrails=[InputGuardrail(passes, "own")])
    model.reply("done")
    config = RunConfig(
        input_guardrails=[of_the_run], output_guardrails=[OutputGuardrail(passes, "out")]
    )
    task_id = f"{guarding.rig.app}-1"
    await guarding.run(run_config=config, task_id=task_id)
    assert await guarding.found(task_id) == [("of the run", False), ("own", False), ("out", False)]
    with pytest.raises(InputGuardrailTripwireTriggered):
        await guarding.run("bad", run_config=config)


async def test_a_guardrail_that_raises_stops_its_siblings_and_the_task_waits(
    guarding: Guarding, model: FakeOpenAI
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
    model.reply("done")
    task_id = f"{guarding.rig.app}-1"
    running = asyncio.create_task(guarding.run(task_id=task_id))
    await guarding.until_answered(task_id)
    broken.may_end.set()
    with pytest.raises(StepFailedError, match="the guardrail is broken") as caught:
        await running
    assert caught.value.cause_type == "RuntimeError"
    assert (await guarding.runner.get_task(task_id)).status == "needs_attention"
    slow.may_end.set()
    output = await guarding.runner.run_task(task_id)
    assert output.output == "done"
    assert len(model.requests) == 1
    assert (len(good.seen), len(broken.seen)) == (1, 2)
    assert sorted(await guarding.found(task_id)) == [
        ("broken", False),
        ("good", False),
        ("slow", False),
    ]


@pytest.mark.parametrize("acts", [False, True])
async def test_a_guardrail_that_raised_is_run_again_before_a_step_without_model_calls_goes_on(
    guarding: Guarding, acts: bool
) -> None:
    check, ran = Recorder(trips=True, fails=1), list[str]()

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        if acts:
            await ctx.call_tools([ToolCall(id="c1", name="act", arguments='{"what": "x"}')])
        return ends(step)

    checks = [InputGuardrail(check)]
    await guarding.serve(make_tool(ran), worker=Doing(body), input_guardrails=checks)
    task = await guarding.runner.create_task("hi")
    with pytest.raises(StepFailedError, match="the guardrail is broken"):
        await guarding.runner.run_task(task)
    with pytest.raises(InputGuardrailTripwireTriggered):
        await guarding.runner.run_task(task)
    assert (len(check.seen), ran) == (2, [])


async def test_an_undone_step_is_checked_again_only_with_another_input(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    check = Recorder()
    await guarding.serve(input_guardrails=[InputGuardrail(check)])
    for text in ("one", "two", "three"):
        model.reply(text)
    task = await guarding.runner.create_task("hi")
    await guarding.runner.run_step(task)
    await guarding.runner.undo_step(task)
    await guarding.runner.run_step(task)
    assert check.seen == ["hi"]
    await guarding.runner.undo_step(task)
    await guarding.runner.run_step(task, input="other")
    assert check.seen == ["hi", "other"]


async def test_what_was_checked_survives_continue_as_new(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    check = Recorder()

    @tool(effect="read")
    def look() -> str:
        return "seen"

    await guarding.serve(look, input_guardrails=[InputGuardrail(check)])
    for _ in range(6):
        model.call("look")
    model.reply("done")
    runner = guarding.rig.runner(roll_events=50)
    task = await runner.create_task("hi")
    assert (await runner.run_task(task)).output == "done"
    assert check.seen == ["hi"]


async def refuse_to_close(
    guarding: Guarding, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch, task_id: str
) -> tuple[Recorder, Any]:
    """End a run by a guardrail that trips once, and fail to close it, both ways."""
    check, left, real = Recorder(trips=True), [1, 2], segments.write_record

    async def write_record(*given: Any) -> Any:
        if left:
            left.pop()
            msg = "the disk is full"
            raise ValueError(msg)
        return await real(*given)

    monkeypatch.setattr(closing, "write_record", write_record)
    await guarding.serve(input_guardrails=[InputGuardrail(check, run_in_parallel=False)])
    runner = guarding.rig.runner(roll_events=50)
    await runner.create_task("hi", task_id=task_id)
    with pytest.raises(StepFailedError, match="the disk is full"):
        await runner.run_task(task_id)
    check.trips = False
    return check, runner


async def test_a_verdict_survives_continue_as_new_until_the_task_can_be_closed(
    guarding: Guarding, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id = f"{guarding.rig.app}-1"
    check, runner = await refuse_to_close(guarding, model, monkeypatch, task_id)

    async def rolled() -> bool:
        with pytest.raises(CommandRefusedError, match="No step runs any more"):
            await runner.give_feedback(task_id, "note")
        return len(await histories(runner.client, task_id)) == 2

    await until(rolled)
    with pytest.raises(InputGuardrailTripwireTriggered):
        await runner.run_task(task_id)
    assert (len(check.seen), len(model.requests)) == (1, 0)


async def test_a_verdict_that_cannot_be_closed_yet_is_not_undone(
    guarding: Guarding, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id = f"{guarding.rig.app}-1"
    check, runner = await refuse_to_close(guarding, model, monkeypatch, task_id)
    with pytest.raises(CommandRefusedError, match="No step runs any more"):
        await runner.undo_step(task_id)
    with pytest.raises(InputGuardrailTripwireTriggered):
        await runner.run_task(task_id)
    assert (len(check.seen), len(model.requests)) == (1, 0)


async def test_a_task_without_guardrails_has_no_activity_for_them(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    await guarding.serve()
    model.reply("done")
    task = await guarding.runner.create_task("hi")
    await guarding.runner.run_task(task)
    client = guarding.runner.client
    assert await activities_of(client, task.task_id) == ["describe", "step"]


# ---- output


class Answer(BaseModel):
    number: int


async def test_an_output_guardrail_sees_the_typed_output(guarding: Guarding) -> None:
    check = Recorder()

    async def answers(step: Any, ctx: Any) -> Any:
        return ends(step, {"number": 7})

    await guarding.serve(
        worker=Doing(answers), output_type=Answer, output_guardrails=[OutputGuardrail(check)]
    )
    await guarding.run()
    assert check.seen == [Answer(number=7)]


class Party(BaseModel):
    name: str


@pytest.mark.parametrize("is_large", [False, True])
async def test_a_trip_has_the_typed_output_in_the_error_and_in_its_run_data(
    guarding: Guarding, model: FakeOpenAI, *, is_large: bool
) -> None:
    agent = await guarding.serve(
        look,
        output_type=Party,
        output_guardrails=[OutputGuardrail(passes, "fine"), OutputGuardrail(trips, "no")],
    )
    expected = Party(name="x" * (5000 if is_large else 1))
    model.call("look", {})
    model.reply(expected.model_dump_json())
    with pytest.raises(OutputGuardrailTripwireTriggered) as plain:
        await guarding.run()
    model.call("look", {})
    model.reply(expected.model_dump_json())
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


async def test_a_broken_output_guardrail_leaves_the_typed_output_of_the_others(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    broken = Recorder(fails=1, waits=True)
    await guarding.serve(
        look,
        output_type=Party,
        output_guardrails=[OutputGuardrail(passes, "fine"), OutputGuardrail(broken, "broken")],
    )
    model.call("look", {})
    model.reply('{"name": "x"}')
    task_id = f"{guarding.rig.app}-1"
    running = asyncio.create_task(guarding.run(task_id=task_id))
    await broken.started.wait()

    await guarding.until_found(task_id)
    broken.may_end.set()
    with pytest.raises(StepFailedError) as caught:
        await running
    [result] = caught.value.run_data.output_guardrail_results
    assert result.agent_output == Party(name="x")


async def test_an_output_trip_keeps_the_message_out_of_the_session(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    agent = await guarding.serve(
        output_guardrails=[OutputGuardrail(passes, "fine"), OutputGuardrail(trips, "secret")]
    )
    model.reply("the secret")
    task_id = f"{guarding.rig.app}-1"
    with pytest.raises(OutputGuardrailTripwireTriggered) as caught:
        await guarding.run(session=f"{guarding.rig.app}-s", task_id=task_id)
    result: Any = with_known(caught.value.guardrail_result, Known.of(agent))
    assert result.agent_output == "the secret"
    assert result.agent is agent
    assert result.guardrail is agent.output_guardrails[1]
    history = await guarding.runner.session(f"{guarding.rig.app}-s").chat_history()
    assert "the secret" not in str(history)
    assert (await guarding.runner.get_task(task_id)).status == "failed"


async def test_an_output_guardrail_that_raises_is_run_again_alone(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    good, broken = Recorder(), Recorder(fails=1, waits=True)
    await guarding.serve(
        output_guardrails=[OutputGuardrail(good, "good"), OutputGuardrail(broken, "broken")]
    )
    model.reply("done")
    task_id = f"{guarding.rig.app}-1"
    running = asyncio.create_task(guarding.run(task_id=task_id))
    await broken.started.wait()

    await guarding.until_found(task_id)
    broken.may_end.set()
    with pytest.raises(StepFailedError, match="broken"):
        await running
    assert (await guarding.runner.run_task(task_id)).output == "done"
    assert (len(good.seen), len(broken.seen), len(model.requests)) == (1, 2, 1)


async def test_tasks_of_an_agent_runner_are_guarded_as_well(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    await guarding.serve(output_guardrails=[OutputGuardrail(trips, "no")])
    model.reply("done")
    task = await guarding.runner.create_task("hi")
    with pytest.raises(OutputGuardrailTripwireTriggered):
        await guarding.runner.run_step(task)
    await until_status(guarding.runner, task, "failed")
    audit = await guarding.runner.audit(task)
    [event] = [each for each in audit if each.kind == "guardrail"]
    assert event.reason == "Output guardrail 'no' tripped"
    assert event.body["info"] == "because"


# ---- tools


Decide = Callable[..., ToolGuardrailFunctionOutput]


def allow(_: Any) -> ToolGuardrailFunctionOutput:
    return ToolGuardrailFunctionOutput.allow("fine")


def reject(_: Any) -> ToolGuardrailFunctionOutput:
    return ToolGuardrailFunctionOutput.reject_content("not this", {"why": 1})


def stop(_: Any) -> ToolGuardrailFunctionOutput:
    return ToolGuardrailFunctionOutput.raise_exception("danger")


def make_tool(ran: list[str], **options: Any) -> Any:
    @tool(**options)
    def act(what: str) -> str:
        """Act."""
        ran.append(what)
        return f"did {what}"

    return act


async def test_a_rejected_call_is_not_run_and_the_loop_goes_on(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    ran: list[str] = []
    seen: list[tuple[str, str]] = []

    def look(data: Any) -> ToolGuardrailFunctionOutput:
        seen.append((data.context.arguments, data.agent.name))
        return allow(data)

    checks = [ToolInputGuardrail(look, "look"), ToolInputGuardrail(reject, "reject")]
    await guarding.serve(make_tool(ran, tool_input_guardrails=checks))
    model.call("act", {"what": "x"})
    model.reply("done")
    task_id = f"{guarding.rig.app}-1"
    result = await guarding.run(task_id=task_id)
    assert result.final_output == "done"
    assert ran == []
    assert seen == [('{"what": "x"}', "agent")]
    assert model.requests[1].messages[-1].text == "not this"
    results = (await guarding.results(task_id)).tool_input
    assert [each.output.behavior["type"] for each in results] == ["allow", "reject_content"]
    assert results[1].output.output_info == {"why": 1}
    assert results[1].guardrail is checks[1]


async def test_an_output_guardrail_of_a_tool_replaces_its_result(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    ran: list[str] = []
    seen: list[Any] = []

    def look(data: Any) -> ToolGuardrailFunctionOutput:
        seen.append(data.output)
        return reject(data)

    checks = [ToolOutputGuardrail(look, "look")]
    await guarding.serve(make_tool(ran, tool_output_guardrails=checks))
    model.call("act", {"what": "x"})
    model.reply("done")
    await guarding.run()
    assert (ran, seen) == (["x"], ["did x"])
    assert model.requests[1].messages[-1].text == "not this"


async def test_what_others_have_found_beside_a_guardrail_that_raises_is_known(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    task_id = f"{guarding.rig.app}-1"

    async def fail(*_: Any) -> GuardrailFunctionOutput:
        await guarding.until_found(task_id)
        msg = "out of order"
        raise ValueError(msg)

    guards = [OutputGuardrail(passes, "passes"), OutputGuardrail(fail, "fails")]
    agent = await guarding.serve(output_guardrails=guards)
    model.reply("done")
    stream = Runner.run_streamed(agent, "q", runner=guarding.runner, task_id=task_id)
    with pytest.raises(StepFailedError, match="out of order") as caught:
        await stream.result()
    for results in (caught.value.run_data, stream):
        found = [each.guardrail.get_name() for each in results.output_guardrail_results]
        assert found == ["passes"]


class Topic(BaseModel):
    """What a guardrail has found out."""

    name: str
    seen: tuple[int, ...] = ()


async def test_what_a_guardrail_found_is_an_object_of_its_class_again(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    class Local(BaseModel):
        name: str

    def allow_all(_data: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.allow(Topic(name="tool"))

    def find(*_: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(Local(name="here only"), tripwire_triggered=False)

    def trip(*_: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(Topic(name="math", seen=(1, 2)), tripwire_triggered=True)

    checked = make_tool([], tool_input_guardrails=[ToolInputGuardrail(allow_all, "allow")])
    await guarding.serve(
        checked, input_guardrails=[InputGuardrail(find)], output_guardrails=[OutputGuardrail(trip)]
    )
    model.call("act", {"what": "x"})
    model.reply("done")
    with pytest.raises(OutputGuardrailTripwireTriggered) as caught:
        await guarding.run()
    assert caught.value.guardrail_result.output.output_info == Topic(name="math", seen=(1, 2))
    data = caught.value.run_data
    assert data is not None
    assert data.input_guardrail_results[0].output.output_info == {"name": "here only"}
    assert data.tool_input_guardrail_results[0].output.output_info == Topic(name="tool")


@pytest.mark.parametrize("kind", ["input", "output"])
async def test_a_guardrail_of_a_tool_ends_the_run(
    guarding: Guarding, model: FakeOpenAI, kind: str
) -> None:
    ran: list[str] = []
    check: Any = (
        ToolInputGuardrail(stop, "s") if kind == "input" else ToolOutputGuardrail(stop, "s")
    )
    await guarding.serve(make_tool(ran, **{f"tool_{kind}_guardrails": [check]}))
    model.call("act", {"what": "x"})
    task_id = f"{guarding.rig.app}-1"
    expected = (
        ToolInputGuardrailTripwireTriggered
        if kind == "input"
        else ToolOutputGuardrailTripwireTriggered
    )
    with pytest.raises(expected) as caught:
        await guarding.run(task_id=task_id)
    assert caught.value.guardrail_result.output.output_info == "danger"
    assert caught.value.guardrail is check
    assert ran == ([] if kind == "input" else ["x"])
    results = await guarding.results(task_id)
    assert [len(results.tool_input), len(results.tool_output)] == (
        [1, 0] if kind == "input" else [0, 1]
    )


async def test_a_guardrail_of_a_tool_that_raises_lets_the_task_wait(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    ran: list[str] = []
    left = [1]

    def broken(data: Any) -> ToolGuardrailFunctionOutput:
        if left:
            left.pop()
            msg = "the guardrail is broken"
            raise ValueError(msg)
        return allow(data)

    await guarding.serve(make_tool(ran, tool_input_guardrails=[ToolInputGuardrail(broken, "b")]))
    model.call("act", {"what": "x"})
    model.reply("done")
    task_id = f"{guarding.rig.app}-1"
    with pytest.raises(StepFailedError, match="the guardrail is broken") as caught:
        await guarding.run(task_id=task_id)
    assert caught.value.cause_type == "ValueError"
    assert ran == []
    assert (await guarding.runner.run_task(task_id)).output == "done"
    assert ran == ["x"]


async def test_a_tripwire_ends_a_run_also_when_a_sibling_stopped_the_step_before(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    left = [1]

    def broken(data: Any) -> ToolGuardrailFunctionOutput:
        if left:
            left.pop()
            msg = "the guardrail is broken"
            raise ValueError(msg)
        return allow(data)

    ran: list[str] = []

    @tool(effect="read", inline=False, tool_input_guardrails=[ToolInputGuardrail(broken, "broken")])
    def look() -> str:
        """Look."""
        ran.append("look")
        return "seen"

    await guarding.serve(
        look, make_tool(ran, tool_output_guardrails=[ToolOutputGuardrail(stop, "stop")])
    )
    model.calls([("look", {}), ("act", {"what": "x"})])
    task_id = f"{guarding.rig.app}-1"
    with pytest.raises(StepFailedError, match="the guardrail is broken"):
        await guarding.run(task_id=task_id)
    with pytest.raises(ToolOutputGuardrailTripwireTriggered):
        await guarding.runner.run_task(task_id)
    assert (ran, len(model.requests)) == (["x"], 1)


async def test_a_tripwire_ends_a_run_also_after_an_undo_that_was_refused(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    began, may_end = asyncio.Event(), asyncio.Event()

    @tool(effect="read", inline=False)
    async def wait() -> str:
        """Wait."""
        began.set()
        await may_end.wait()
        return "waited"

    @tool
    def send() -> str:
        """Send."""
        return "sent"

    stopping = [ToolOutputGuardrail(stop, "stop")]
    act = make_tool([], effect="read", inline=False, tool_output_guardrails=stopping)
    await guarding.serve(wait, send, act)
    model.calls([("send", {}), ("act", {"what": "x"}), ("wait", {})])
    task_id = f"{guarding.rig.app}-1"
    running = asyncio.create_task(guarding.run(task_id=task_id))

    async def tripped() -> bool:
        _, opens = await reader(guarding.runner).ledger(task_id)
        return any({0, 1} <= set(current.outcomes) for current in opens)

    await began.wait()
    await until(tripped)
    with pytest.raises(UndoRefusedError, match="send"):
        await guarding.runner.undo_step(task_id)
    may_end.set()
    with pytest.raises(ToolOutputGuardrailTripwireTriggered):
        await running
    assert len(model.requests) == 1


async def test_a_result_that_nobody_could_check_is_asked_about_when_it_must_not_be_repeated(
    guarding: Guarding, model: FakeOpenAI
) -> None:
    ran: list[str] = []

    def broken(data: Any) -> ToolGuardrailFunctionOutput:
        msg = "the guardrail is broken"
        raise ValueError(msg)

    await guarding.serve(make_tool(ran, tool_output_guardrails=[ToolOutputGuardrail(broken, "b")]))
    model.call("act", {"what": "x"})
    model.reply("done")
    task = await guarding.runner.create_task("hi")
    output = await guarding.runner.run_task(task)
    assert output.status == "waiting"
    assert "its guardrail 'b' failed: ValueError" in output.waiting_for[0]
    [approval] = await guarding.runner.pending_approvals(task)
    await guarding.runner.respond(approval, by="anna", result="did x, I looked")
    assert (await guarding.runner.run_task(task)).output == "done"
    assert ran == ["x"]


@pytest.mark.parametrize("before", [True, False])
async def test_a_call_may_be_checked_before_a_person_is_asked(
    guarding: Guarding, model: FakeOpenAI, before: bool
) -> None:
    ran: list[str] = []
    checks = [ToolInputGuardrail(reject, "reject")]
    await guarding.serve(make_tool(ran, needs_approval=True, tool_input_guardrails=checks))
    model.call("act", {"what": "x"})
    if before:
        model.reply("done")
    execution = ToolExecutionConfig(pre_approval_tool_input_guardrails=before)
    result = await guarding.run(run_config=RunConfig(tool_execution=execution))
    assert bool(result.waiting_for) is not before
    assert ran == []
