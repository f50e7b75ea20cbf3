"""Tool calls that run for long, in workers that a team has made itself."""

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from holdfast import Agent
from holdfast.archive.archive import Archive
from holdfast.serving.plugin import HoldfastPlugin


def config(**_: object) -> dict[str, list[object]]:
    """Stand for the configuration of a client."""
    return {"interceptors": []}


def test_calls_of_a_worker_made_with_the_plugin_have_the_grace_of_that_worker(
    tmp_path: Path,
) -> None:
    agent = Agent(name="agent", model="gpt-5-mini")
    plugin = HoldfastPlugin(archive=Archive(tmp_path), agents=[agent])
    given = {
        "client": SimpleNamespace(config=config),
        "graceful_shutdown_timeout": timedelta(seconds=7),
    }
    made = cast("dict[str, Any]", plugin.configure_worker(cast("Any", given)))
    [rejoin] = [each for each in made["activities"] if each.__name__ == "rejoin"]
    assert rejoin.__self__.grace == timedelta(seconds=7)
