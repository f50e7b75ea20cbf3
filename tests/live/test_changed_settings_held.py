"""Settings given with a state that a task must refuse, and the code that comes with them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import AgentRunner, ModelSettings, RunConfig, RunState
from holdfast.activities import task_end
from holdfast.errors import CommandRefusedError, MaxTurnsExceeded, StepFailedError
from holdfast.task.data.children import SAYS
from holdfast.testing import FakeOpenAI
from holdfast.workers import ReActAgentWorker
from tests.live.test_changed_settings import changes, gives, named, paused, says
from tests.live.test_ending import Record
from tests.support.rig import MakeAgent, Rig
from tests.support.runs import Runs, look, outputs, tools

PAYS = 'Thought: it is due.\nAction: pay\nAction Input: {"to": "ann"}'
DONE = "Thought: I can answer without using any more tools.\nAnswer: done"


@pytest.fixture
def run(rig: Rig, make_agent: MakeAgent) -> Runs:
    return Runs(rig, make_agent)


UNREADABLE: list[tuple[dict[str, Any], str]] = [
    ({"names": ["model_settings"], "settings": {"max_tokens": "many"}}, "max_tokens"),
    ({"names": ["model_settings"], "settings": {"nonsense": 1}}, "nonsense"),
    ({"names": ["tool_execution"], "run": {"of_model": {"top_p": "x"}}}, "top_p"),
    ({"names": ["tool_error_formatter"], "run": {"tool_eror_formatter": "m:f"}}, "eror"),
    ({"names": ["tool_execution"], "run": {"handoff_filter": "m:f"}}, "run.tool_concurrency"),
    ({"names": ["tool_execution"], "model": "x"}, "model: of the settings in names"),
    ({"names": ["max_turns"]}, "names"),
    ({"run": {}}, "names"),
    ({"names": "all"}, "names"),
]


async def test_settings_that_cannot_be_read_are_refused_whole_and_the_task_goes_on(
    run: Runs, model: FakeOpenAI
) -> None:
    state = await paused(run, model, run_config=RunConfig(tool_error_formatter=says("old")))
    handle = run.runner.client.get_workflow_handle(state.task_id)
    for body, _ in UNREADABLE:
        await handle.signal("configure", body)
        await handle.signal(SAYS, {"secret": "x", "number": 1, "change": body})
    events = [e for e in await run.runner.audit(state.task_id) if e.verb == "configure"]
    assert [event.kind for event in events] == ["refused"] * len(UNREADABLE)
    for event, (_, why) in zip(events, UNREADABLE, strict=True):
        assert why in event.reason
    model.reply("sorry")
    assert outputs(await run(state)) == ["old: approval_rejected pay"]


async def test_what_is_in_requests_is_refused_between_the_model_calls_of_a_step(
    run: Runs, model: FakeOpenAI
) -> None:
    _, pay = tools()
    await run.serve(pay, worker=ReActAgentWorker())
    model.reply(PAYS)
    state = (await run("q")).to_state()
    state.approve(state.get_interruptions()[0])
    refused = [
        RunConfig(model="another"),
        RunConfig(model_settings=ModelSettings(tool_choice="none")),
    ]
    for config in refused:
        with pytest.raises(CommandRefusedError, match="'s1' has asked"):
            await run(state, run_config=config)
    model.reply(DONE)
    config = RunConfig(model_settings=ModelSettings(temperature=0.5))
    assert (await run(state, run_config=config)).final_output == "done"
    assert model.requests[-1].body["temperature"] == 0.5


async def test_what_works_for_a_nested_run_with_settings_of_its_own_keeps_those(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    _, pay = tools()
    low = make_agent(pay, name="low")
    middle = make_agent(low.as_tool(), name="middle")
    run = Runs(rig, make_agent)
    model.call("middle", {"input": "q"})
    model.call("low", {"input": "q"})
    model.call("pay", {"to": "ann"})
    own = RunConfig(tool_error_formatter=says("own"))
    state = (await run("q", middle.as_tool(run_config=own))).to_state()
    state.reject(state.get_interruptions()[0])
    for text in ("sorry", "sorry", "done"):
        model.reply(text)
    await run(state, run_config=RunConfig(tool_error_formatter=says("new")))
    assert list(model.requests[3].results.values()) == ["own: approval_rejected pay"]


async def test_code_stays_when_the_call_that_gave_it_is_cancelled_before_it_knows(
    run: Runs, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_run, sent = AgentRunner.change_run, asyncio.Event()

    async def late(*args: Any, **options: Any) -> Any:
        await change_run(*args, **options)
        sent.set()
        await asyncio.Event().wait()

    before = named()
    state = await paused(run, model)
    with monkeypatch.context() as patch:
        patch.setattr(AgentRunner, "change_run", late)
        config = RunConfig(tool_error_formatter=says("new"))
        going = asyncio.create_task(run(state, run_config=config))
        await sent.wait()
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
    model.reply("sorry")
    assert outputs(await run(state)) == ["new: approval_rejected pay"]
    assert named() == before


async def test_two_callers_of_one_task_release_nothing_of_another(
    run: Runs, model: FakeOpenAI
) -> None:
    before, shared = named(), RunConfig(tool_error_formatter=says("old"))
    one = await paused(run, model, run_config=shared)
    model.call("pay", {"to": "bob"})
    other = (await run("q", run_config=shared)).to_state()
    other.reject(other.get_interruptions()[0])
    configs = [RunConfig(tool_error_formatter=says(what)) for what in ("a", "b")]
    await asyncio.gather(*(run(RunState.of(one.task_id), run_config=each) for each in configs))
    model.reply("sorry")
    assert outputs(await run(other)) == ["old: approval_rejected pay"]
    model.reply("sorry")
    await run(one)
    assert named() == before


async def test_code_is_released_when_a_run_does_not_get_to_use_it(
    run: Runs, model: FakeOpenAI
) -> None:
    def fails(_: Any) -> Any:
        raise ValueError("no context")

    before = named()
    state = await paused(run, model, context={"a": 1})
    began = named()
    assert run.agent is not None
    text = state.to_string()
    again = await RunState.from_string(run.agent, text, context_deserializer=fails)
    with pytest.raises(ValueError, match="no context"):
        await run(again, run_config=RunConfig(tool_error_formatter=says("new")))
    assert named() == began
    model.reply("sorry")
    retry: Any = {"max_retries": 1, "policy": gives(False)}
    await run(state, run_config=RunConfig(model_settings=ModelSettings(retry=retry)))
    assert named() == before


async def test_a_run_that_could_not_be_closed_is_closed_also_by_a_state_with_settings(
    run: Runs, model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Record()
    monkeypatch.setattr(task_end, "write_record", record)
    model.call("look", {})
    name = f"{run.rig.app}-full"
    with pytest.raises(StepFailedError, match="the disk is full"):
        await run("q", look, task_id=name, max_turns=1)
    record.broken = False
    config = RunConfig(tool_error_formatter=says("new"))
    with pytest.raises(MaxTurnsExceeded):
        await run(RunState.of(name), run_config=config)


async def test_a_nested_run_between_two_model_calls_takes_all_but_settings_of_models(
    rig: Rig, make_agent: MakeAgent, model: FakeOpenAI
) -> None:
    _, pay = tools()
    helper = make_agent(pay, name="helper", worker=ReActAgentWorker())
    run = Runs(rig, make_agent)
    model.call("helper", {"input": "q"})
    model.reply(PAYS)
    state = (await run("q", helper.as_tool())).to_state()
    [asked] = state.get_interruptions()
    child = asked.approval_id.rpartition(":")[0]
    settings = ModelSettings(tool_choice="none", temperature=0.5)
    config = RunConfig(model_settings=settings, tool_error_formatter=says("new"))
    rest = (await run(RunState.of(state.task_id), run_config=config)).to_state()
    while len(await changes(run, child)) < 2:
        await asyncio.sleep(0.02)
    both = ["model_settings", "tool_error_formatter"]
    assert await changes(run, child) == [
        ("Runner", "refused", both),
        ("Runner", "command", both[1:]),
    ]
    rest.reject(rest.get_interruptions()[0])
    model.reply(DONE)
    model.reply("done")
    assert (await run(rest)).final_output == "done"
    assert "new: approval_rejected pay" in str(model.requests[2].body)
    assert model.requests[3].body["temperature"] == 0.5
    assert "temperature" not in model.requests[2].body
