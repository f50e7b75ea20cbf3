"""Objects of the Agents SDK itself, as they are, in runs of ours: sessions, models, filters."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest
from agents import SQLiteSession as SdkSQLiteSession
from agents.extensions import ToolOutputTrimmer
from agents.extensions.memory import (
    AdvancedSQLiteSession,
    AsyncSQLiteSession,
    EncryptedSession,
    SQLAlchemySession,
)
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from sqlalchemy.ext.asyncio import create_async_engine

from holdfast import Agent, RunConfig, Runner, SQLiteSession, StepFailedError
from holdfast.testing import call
from tests.support.rig import Rig
from tests.support.runs import Runs, look
from tests.support.workers import said


@pytest.fixture(params=["async", "alchemy", "encrypted", "advanced"])
async def session(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Any]:
    """Make one of the SDK's sessions."""
    match request.param:
        case "alchemy":
            engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/s.db")
            yield SQLAlchemySession("s", engine=engine, create_tables=True)
            await engine.dispose()
        case "async":
            lazy = AsyncSQLiteSession("s", tmp_path / "s.db")
            yield lazy
            await lazy.close()
        case "advanced":
            advanced = AdvancedSQLiteSession(
                session_id="s", db_path=tmp_path / "s.db", create_tables=True
            )
            yield advanced
            advanced.close()
        case _:
            plain = SdkSQLiteSession("s", tmp_path / "s.db")
            yield EncryptedSession("s", plain, "key")
            plain.close()


async def test_a_session_of_the_sdk_keeps_the_turns_of_our_runs(rig: Rig, session: Any) -> None:
    run = Runs(rig)
    rig.model.add(call("look"), "one")
    await run("q", look, session=session)
    rig.model.reply("two")
    await run("more", session=session)
    assert [role for role, _ in said(rig.model.requests[2].messages)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    items = await session.get_items()
    assert [item.get("role", item.get("type")) for item in items] == [
        "user",
        "function_call",
        "function_call_output",
        "assistant",
        "user",
        "assistant",
    ]


async def test_a_file_of_the_sdk_is_read_by_our_session_and_back(tmp_path: Path) -> None:
    theirs, ours = (kind("s", tmp_path / "s.db") for kind in (SdkSQLiteSession, SQLiteSession))
    items: list[Any] = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    await theirs.add_items(items[:1])
    await ours.add_items(items[1:])
    assert await ours.get_items() == await theirs.get_items() == items
    theirs.close()
    ours.close()


async def test_a_wrapped_session_of_ours_holds_nothing_that_can_be_read_and_has_its_settings(
    rig: Rig, tmp_path: Path
) -> None:
    run = Runs(rig)
    inner = SQLiteSession("s", tmp_path / "s.db", session_settings={"limit": 2})
    session: Any = EncryptedSession("s", cast("Any", inner), "key")
    for text in ("one", "two"):
        rig.model.reply(text)
        await run(f"after {text}", session=session)
    assert [text for _, text in said(rig.model.requests[1].messages)] == [
        "after one",
        "one",
        "after two",
    ]
    items = await inner.get_items(10)
    assert [item["__enc__"] for item in items] == [1, 1, 1, 1]
    assert "after" not in str(items)
    assert [item["role"] for item in await session.get_items()] == ["user", "assistant"]
    inner.session_settings.limit = 3
    assert len(await session.get_items()) == 3
    inner.close()


# ---- the scripted model and the trimmer of the SDK


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_scripted_model_of_the_sdk_answers_a_run(rig: Rig, *, streamed: bool) -> None:
    steps: list[Any] = [
        [function_call("look", {"where": "up"}, call_id="c1")],
        ModelStep(output=[assistant_message("done")]),
    ]
    model = ScriptedModel(steps)
    agent = rig.agent(look, model=model)
    await rig.serve(agent)
    if streamed:
        stream = Runner.run_streamed(agent, "q", runner=rig.runner())
        kinds = [event.type async for event in stream.stream_events()]
        assert "raw_response_event" in kinds
        output = stream.final_output
    else:
        output = (await Runner.run(agent, "q", runner=rig.runner())).final_output
    assert (output, len(model.calls)) == ("done", 2)
    model.assert_complete()
    with pytest.raises(StepFailedError, match="UnexpectedModelCall"):
        await Runner.run(agent, "q", runner=rig.runner())


async def test_the_trimmer_of_the_sdk_shortens_what_tools_gave(rig: Rig) -> None:
    model = ScriptedModel([[assistant_message("done")]])
    agent = Agent(name="trimmed", model=model)
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    given = [
        {"role": "user", "content": "q"},
        call,
        {"type": "function_call_output", "call_id": "c1", "output": "x" * 900},
        {"role": "user", "content": "more"},
    ]
    trimmer = ToolOutputTrimmer(recent_turns=1, max_output_chars=100, preview_chars=20)
    runner = await rig.serving(agent)
    config = RunConfig(call_model_input_filter=trimmer)
    await Runner.run(agent, given, runner=runner, run_config=config)
    call_made = model.last_call
    assert call_made is not None
    output: Any = call_made.input[2]
    assert "Trimmed" in output["output"]
    assert len(output["output"]) < 120
