"""One setting encrypts histories, the archive and logs; keys change, and are lost, without harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, ToolCall, tool
from holdfast.errors import KeyMissingError, StepFailedError
from holdfast.testing import ScriptedModel
from tests.support.master_keys import K1, K2, keys, logs_are_told_again

pytestmark = pytest.mark.usefixtures("logs_told")
__all__ = ["logs_are_told_again"]

MARKS = {
    *("MKquestion", "MKinstructions", "MKargument", "MKresult", "MKanswer", "MKfeedback"),
    *("MKreason", "MKperson", "MKtool_text", "MKtool_error", "MKbig", "MKmodel_error", "MKchild"),
}


@tool(effect="read", needs_approval=True)
def ask(text: str) -> str:
    """MKtool_text."""
    return f"MKresult {text}"


@tool(effect="read")
def big() -> str:
    """Return much."""
    return "MKbig " * 60_000


@tool(effect="read")
def fail() -> str:
    """Fail."""
    raise ValueError("MKtool_error")


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(id="", name=name, arguments=json.dumps(arguments))


def agent() -> Agent:
    helper = Agent(name="helper", model=ScriptedModel(["MKchild"]))
    return Agent(
        name="clerk",
        instructions="MKinstructions",
        model=ScriptedModel(
            [
                call("big"),
                call("fail"),
                call("ask_helper", input="MKargument"),
                call("ask", text="MKargument"),
                RuntimeError("MKmodel_error"),
                call("ask", text="MKargument"),
                "MKanswer",
            ]
        ),
        tools=[ask, big, fail, helper.as_tool("ask_helper", "MKtool_text")],
    )


def marks_in(place: Path) -> set[str]:
    """Return the marks that stand in any file of a directory, or in a file's name."""
    every = [each for each in place.rglob("*") if each.is_file()]
    assert any(each.suffix == ".db" for each in every), every
    return {
        mark
        for mark in MARKS
        if any(mark.encode() in each.read_bytes() or mark in str(each) for each in every)
    }


async def test_no_text_of_a_task_is_anywhere_and_keys_are_exchanged_while_it_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    place = tmp_path / "data"
    served = agent()
    async with AgentRunner.local(served, data_dir=place, keys=keys()) as runner:
        task = await runner.create_task("MKquestion", session="talk", task_id="t1")
        await runner.run_task(task)
        await runner.give_feedback(task, "MKfeedback", by="MKperson")
        [card] = await runner.pending_approvals(task)
        await runner.reject(card, reason="MKreason", by="MKperson")
        with pytest.raises(StepFailedError, match="MKmodel_error"):
            await runner.run_task(task)
        await runner.run_task(task)
        [listed] = [each for each in await runner.list_tasks() if each.task_id == "t1"]
        assert listed.input == "MKquestion"
    assert marks_in(place) == set()
    assert not [mark for mark in MARKS if mark in caplog.text]

    with pytest.raises(KeyMissingError, match="the key 'k1', which is not here"):
        await AgentRunner.local(served, data_dir=place, keys=keys(k2=K2)).start()
    async with AgentRunner.local(served, data_dir=place, keys=keys(k2=K2, k1=K1)) as runner:
        store = runner.archive.encrypted
        assert store is not None
        assert all(store.data_keys.rotate())
    async with AgentRunner.local(served, data_dir=place, keys=keys(k2=K2)) as runner:
        [card] = await runner.pending_approvals("t1")
        assert card.arguments == '{"text": "MKargument"}'
        await runner.approve(card, by="MKperson")
        assert str(await runner.run_task("t1")) == "MKanswer"
        await runner.finalize_response("t1")
        assert not await runner.verify("t1")
        said = [each.content for each in await runner.session("talk").chat_history()]
        assert said[0] == "MKquestion"
    assert marks_in(place) == set()
