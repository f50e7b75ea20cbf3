"""What AgentRunner is given, and the names that it makes up."""

from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, AgentRunner
from holdfast.client.agent_runner.base import new_id
from holdfast.errors import ConnectError, InvalidArgumentError


@pytest.mark.parametrize("agents", [(), ([Agent(name="a"), Agent(name="b")],), ("a",)])
def test_local_says_how_agents_are_passed(agents: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"local\(first, second, \*others\)"):
        AgentRunner.local(*agents)


async def test_a_data_dir_without_a_server_is_not_connected_to(tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match="No server is running in"):
        await AgentRunner.connect(data_dir=tmp_path, agent="a")
    assert list(tmp_path.iterdir()) == []


async def test_an_address_and_a_data_dir_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="data_dir alone"):
        await AgentRunner.connect("localhost:7233", data_dir=tmp_path, agent="a")


@pytest.mark.parametrize(
    ("agent", "slug"),
    [("Triage agent", "Triage-agent"), ("a & b", "a-b"), ("clerk.2", "clerk.2"), ("?", "task")],
)
def test_an_id_needs_no_quotes_in_a_shell(agent: str, slug: str) -> None:
    assert new_id(agent).rpartition("-")[0] == slug
