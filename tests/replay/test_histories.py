"""Histories that earlier releases have written still replay.

`make` never records: `HOLDFAST_RECORD=0.1.0 pytest tests/replay` writes the histories of a release.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from holdfast.engine.converter import holdfast_converter
from holdfast.workflows.agent_task import AgentTask
from holdfast.workflows.session import Session
from tests.replay.scenarios import SCENARIOS
from tests.support.rig import Rig, histories

RECORDED = Path(__file__).parent / "histories"


async def replay(history: WorkflowHistory) -> None:
    replayer = Replayer(workflows=[AgentTask, Session], data_converter=holdfast_converter())
    await replayer.replay_workflow(history)


async def test_every_recorded_history_replays() -> None:
    for path in sorted(RECORDED.glob("*/*.json")):
        await replay(WorkflowHistory.from_json(path.stem, path.read_text()))


@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_history_of_a_scenario_replays_from_its_file(
    rig: Rig, tmp_path: Path, name: str
) -> None:
    release = os.environ.get("HOLDFAST_RECORD")
    directory = RECORDED / release if release else tmp_path
    directory.mkdir(parents=True, exist_ok=True)
    task_id = await SCENARIOS[name](rig)
    runs = await histories(rig.engine.client, task_id)
    for number, history in enumerate(reversed(runs), start=1):
        path = directory / f"{name}-{number}.json"
        path.write_text(history.to_json())
        await replay(WorkflowHistory.from_json(path.stem, path.read_text()))
    assert runs


async def test_a_history_that_the_code_would_not_write_is_noticed(rig: Rig) -> None:
    task_id = await SCENARIOS["stepwise"](rig)
    [history] = await histories(rig.engine.client, task_id)
    text = history.to_json()
    for name, other in (('"tool"', '"tooth"'), ('"step"', '"stop"'), ('"close"', '"closed"')):
        assert name in text
        changed = WorkflowHistory.from_json(task_id, text.replace(name, other))
        with pytest.raises(Exception, match=r"(?i)nondeterminism|does not match"):
            await replay(changed)
