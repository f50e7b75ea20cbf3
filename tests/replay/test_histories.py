"""What earlier versions have recorded, the present workflow code replays."""

import ast
import asyncio
import re
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.worker import Replayer

from holdfast.engine.converter import holdfast_converter
from holdfast.serving.batches.workflow import Batches
from holdfast.serving.governor.workflow import Governor
from holdfast.task.data.state import TaskInput
from holdfast.workflows.agent_task import AgentTask
from holdfast.workflows.core import introduce
from holdfast.workflows.requests.events import EventMailbox
from holdfast.workflows.session import Session
from tests.replay.recorded import CHECKOUT, DIGESTS, HISTORIES, digests, read

LEAST = {"0.1.0": 67}
"""How many histories each version has left."""


def test_the_histories_of_each_version_are_there_and_none_was_changed() -> None:
    listed = [line.split("  ") for line in DIGESTS.read_text("utf-8").splitlines()]
    assert digests() == {name: digest for digest, name in listed}
    found = {each: sum(name.startswith(f"{each}/") for _, name in listed) for each in LEAST}
    assert found == LEAST
    assert sum(LEAST.values()) == len(listed)


async def unlike(version: str) -> dict[str, str]:
    """Replay the histories of a version; return what the present code decides otherwise."""
    kinds = [AgentTask, Session, EventMailbox, Batches, Governor]
    replayer = Replayer(workflows=kinds, data_converter=holdfast_converter(), build_id="1")
    wrong: dict[str, str] = {}
    for file in sorted((HISTORIES / version).iterdir()):
        result = await replayer.replay_workflow(read(file), raise_on_replay_failure=False)
        if result.replay_failure is not None:
            wrong[file.name] = str(result.replay_failure)
    return wrong


@pytest.mark.parametrize("version", LEAST)
async def test_a_task_that_a_version_has_begun_goes_on(version: str) -> None:
    wrong = await unlike(version)
    assert not wrong, "workflow code decides otherwise: put the change behind workflow.patched"


@pytest.mark.parametrize("has_patch", [False, True])
async def test_a_new_decision_needs_a_patch(
    monkeypatch: pytest.MonkeyPatch, has_patch: bool
) -> None:
    timers = list[asyncio.Task[None]]()

    def also(given: TaskInput) -> None:
        introduce(given)
        if not has_patch or workflow.patched("an-hour"):
            timers.append(asyncio.create_task(asyncio.sleep(3600)))

    monkeypatch.setattr("holdfast.workflows.agent_task.introduce", also)
    wrong = await unlike(max(LEAST))
    if has_patch:
        assert not wrong
    else:
        assert len(wrong) > 50
        assert all("[TMPRL1100]" in each for each in wrong.values())


def test_the_patches_of_the_code_are_those_of_the_table() -> None:
    files = [f for name in ("workflows", "holdfast") for f in Path(CHECKOUT, name).rglob("*.py")]
    calls = [
        node
        for code in (file.read_text("utf-8") for file in files)
        if "patch" in code
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") in {"patched", "deprecate_patch"}
    ]
    found = {each.args[0].value for each in calls if isinstance(each.args[0], ast.Constant)}
    assert len(found) == len({ast.dump(each.args[0]) for each in calls}), "an id is a literal"
    page = Path(CHECKOUT, "docs/architecture.md").read_text("utf-8")
    [table] = re.findall(r"^\| patch \|.*\n\| -.*\n((?:\|.*\n)*)", page, re.MULTILINE)
    assert set(re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)) == found
