"""What earlier versions have recorded, the present workflow code replays."""

from __future__ import annotations

import pytest
from temporalio.worker import Replayer

from holdfast.engine.converter import holdfast_converter
from holdfast.workflows.agent_task import AgentTask
from holdfast.workflows.session import Session
from tests.replay.recorded import HISTORIES, read

LEAST = {"0.1.0": 60}
"""How many histories each version has left."""


def test_the_histories_of_each_version_are_there() -> None:
    found = {each.name: len([*each.glob("*.json.gz")]) for each in HISTORIES.iterdir()}
    assert found == LEAST


@pytest.mark.parametrize("version", LEAST)
async def test_a_task_that_a_version_has_begun_goes_on(version: str) -> None:
    replayer = Replayer(
        workflows=[AgentTask, Session], data_converter=holdfast_converter(), build_id="1"
    )
    wrong: dict[str, str] = {}
    for file in sorted((HISTORIES / version).iterdir()):
        result = await replayer.replay_workflow(read(file), raise_on_replay_failure=False)
        if result.replay_failure is not None:
            wrong[file.name] = str(result.replay_failure)
    assert not wrong, "workflow code decides otherwise: put the change behind workflow.patched"
