"""Hooks of agents: told at the right moments, in order, and nothing is lost when they fail."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import StepFailedError, tool
from holdfast.agents.hooks import AgentHooks
from holdfast.testing import call, fail
from tests.support.runs import Runs


class Told(AgentHooks):
    """Remembers what it is told; fails once at each moment that it was told to."""

    def __init__(self, *failing: str) -> None:
        self.told: list[str] = []
        self.failing = set(failing)

    def _tell(self, what: str) -> None:
        self.told.append(what)
        if what in self.failing:
            self.failing.discard(what)
            msg = f"the hook {what} is broken"
            raise LookupError(msg)

    async def on_start(self, context: Any, agent: Any) -> None:
        self._tell("start")

    async def on_end(self, context: Any, agent: Any, output: Any) -> None:
        self._tell("end")

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self._tell("tool_start")

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self._tell("tool_end")

    async def on_llm_start(
        self, context: Any, agent: Any, system_prompt: str | None, input_items: list[Any]
    ) -> None:
        self._tell("llm_start")

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self._tell("llm_end")


ONE_TURN = ["llm_start", "llm_end"]
TOOL = ["tool_start", "tool_end"]


@tool
def act(what: str) -> str:
    """Act."""
    return f"did {what}"


async def test_a_model_call_that_is_tried_again_starts_the_agent_once(run: Runs) -> None:
    hooks = Told()
    run.model.add(fail(503), "done")
    await run("hi", of={"hooks": hooks})
    assert hooks.told == ["start", "llm_start", *ONE_TURN, "end"]


@pytest.mark.parametrize(
    ("moment", "again"),
    [
        ("llm_start", ["start", *ONE_TURN, *TOOL, *ONE_TURN, "end"]),
        ("llm_end", [*TOOL, *ONE_TURN, "end"]),
        ("tool_start", [*TOOL, *ONE_TURN, "end"]),
        ("end", ["end"]),
    ],
)
async def test_a_hook_that_raises_stops_the_step_and_nothing_is_done_twice(
    run: Runs, moment: str, again: list[str]
) -> None:
    hooks = Told(moment)
    ran: list[str] = []

    @tool
    def act_once() -> str:
        ran.append("x")
        return "ok"

    run.model.add(call("act_once"), "done")
    task_id = f"{run.rig.app}-1"
    with pytest.raises(StepFailedError, match=f"the hook {moment} is broken") as caught:
        await run("hi", act_once, of={"hooks": hooks}, task_id=task_id)
    assert caught.value.cause_type == "LookupError"
    before = len(hooks.told)
    assert hooks.told[-1] == moment
    assert (await run.runner.run_task(task_id)).output == "done"
    assert hooks.told[before:] == again
    assert len(run.model.requests) == 2
    assert ran == ["x"]


async def test_hooks_of_a_tool_share_its_context(run: Runs) -> None:
    class Counts(AgentHooks):
        async def on_start(self, context: Any, agent: Any) -> None:
            context.context["lost"] = True

        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            context.context["kept"] = result

    run.model.add(call("act", {"what": "x"}), "done")
    result = await run("hi", act, of={"hooks": Counts()}, context={})
    assert (await run.runner.get_task(result.task_id)).extra_state == {"context": {"kept": "did x"}}


async def test_without_hooks_an_activity_asks_the_task_nothing(
    run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.activities.data.source import Source

    asked: list[str] = []
    original = Source.status

    async def status(self: Source) -> Any:
        asked.append("status")
        return await original(self)

    monkeypatch.setattr(Source, "status", status)
    run.model.reply("done")
    await run("hi", of={"hooks": None})
    without = len(asked)
    run.model.reply("done")
    await run("hi", of={"hooks": Told()})
    assert len(asked) - without == without + 1  # one more, for what the run has cost
