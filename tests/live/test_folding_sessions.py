"""When a session of the caller's own is asked to fold what it holds: after which turns."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from openai import RateLimitError

from holdfast import ModelSettings, RunConfig, Runner
from holdfast.agents_sdk import CallModelData, ModelInputData, SessionSettings
from holdfast.testing import call
from tests.support.kept_session import Items, Kept
from tests.support.rig import Rig
from tests.support.runs import Runs, look


class Folding(Kept):
    """A session that notes how it is asked to fold itself."""

    def __init__(self, items: Items | None = None) -> None:
        super().__init__(items=items)
        self.asked: list[dict[str, Any]] = []

    async def run_compaction(self, args: Any = None) -> None:
        """Note what was asked."""
        self.asked.append(dict(args))


async def test_a_session_is_asked_after_each_turn_whose_model_was_shown_all_of_it(
    run: Runs,
) -> None:
    session = Folding(
        [{"role": "user", "content": "before"}, {"role": "assistant", "content": "a"}]
    )
    run.model.add(call("look", {"where": "up"}), "done")
    result = await run("q", look, session=session)
    assert session.asked == [{"response_id": result.last_response_id}]
    run.model.reply("again")
    unstored = RunConfig(model_settings=ModelSettings(store=False))
    result = await run("q", session=session, run_config=unstored)
    assert session.asked[1:] == [{"response_id": result.last_response_id, "store": False}]


class Limited(Folding):
    """A session whose provider limits it twice."""

    async def run_compaction(self, args: Any = None) -> None:
        """Be refused twice."""
        await super().run_compaction(args)
        if len(self.asked) < 3:
            answer: Any = SimpleNamespace(
                status_code=429, headers={"retry-after-ms": "1"}, request=None
            )
            raise RateLimitError("slow down", response=answer, body=None)


@pytest.mark.parametrize(("seconds", "asked"), [(None, 3), (0.0001, 1)])
async def test_a_rate_limit_of_a_session_that_folds_is_waited_out(
    run: Runs, seconds: float | None, asked: int
) -> None:
    session = Limited()
    run.model.reply("done")
    config = RunConfig(model_settings=ModelSettings(rate_limit_seconds=seconds))
    expected = nullcontext() if seconds is None else pytest.raises(RateLimitError)
    with expected:
        assert (await run("q", session=session, run_config=config)).final_output == "done"
    assert len(session.asked) == asked


async def test_a_session_is_not_asked_after_a_turn_that_ends_with_a_tools_output(
    run: Runs, rig: Rig
) -> None:
    session = Folding()
    agent = rig.agent(look, tool_use_behavior="stop_on_first_tool")
    await run.rig.serve(agent)
    rig.model.call("look", {"where": "up"})
    result = await Runner.run(agent, "q", session=session, runner=run.runner)
    assert (result.final_output, session.asked) == ("seen up", [])
    assert len(session.items) == 3


def shortened(data: CallModelData[Any]) -> ModelInputData:
    given = data.model_data
    return ModelInputData(input=given.input[-1:], instructions=given.instructions)


async def chosen(history: Items, new: Items) -> Items:
    return [*history[1:], *new]


@pytest.mark.parametrize(
    "config",
    [
        RunConfig(session_settings=SessionSettings(limit=1)),
        RunConfig(session_input_callback=chosen),
        RunConfig(call_model_input_filter=shortened),
    ],
    ids=["limit", "callback", "filter"],
)
async def test_a_session_is_not_asked_when_the_model_was_shown_a_part_of_it(
    run: Runs, config: RunConfig, caplog: pytest.LogCaptureFixture
) -> None:
    before = [{"role": "user", "content": "before"}, {"role": "assistant", "content": "a"}]
    session = Folding(before)
    run.model.reply("done")
    await run("q", look, session=session, run_config=config)
    assert (session.asked, session.items[:2]) == ([], before)
    assert len(session.items) == 4
    assert "Session 'mine' is not folded" in caplog.text
