"""Connections to a real server: what works, and what each failure says."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.api.operatorservice.v1 import RemoveSearchAttributesRequest
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from holdfast import Agent, HoldfastPlugin
from holdfast.archive.archive import Archive
from holdfast.engine.cluster import are_usable, ensure_search_attributes, has_workers
from holdfast.engine.connect import connect_client, connect_embedded
from holdfast.engine.dev_server.process import free_port
from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.errors import ConnectError
from holdfast.testing import ScriptedModel
from tests.support.lent import ephemeral_server
from tests.support.rig import until


@pytest.fixture(scope="module")
async def server() -> AsyncGenerator[ServerInfo]:
    async with await ephemeral_server() as running:
        yield running.info


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ADDRESS", "NAMESPACE", "API_KEY", "TLS", "PROFILE"):
        monkeypatch.delenv(f"TEMPORAL_{name}", raising=False)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "none.toml"))


@activity.defn(name="engine_test.nothing")
async def nothing() -> None:
    pass


@workflow.defn(name="engine_test.Nothing", sandboxed=False)
class Nothing:
    @workflow.run
    async def run(self) -> None:
        pass


async def test_the_environment_is_enough_and_an_embedded_server_gets_none_of_it(
    server: ServerInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    client = await connect_client()
    assert client.service_client.config.target_host == server.address
    assert len(client.identity) == 4
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "cloud")
    monkeypatch.setenv("TEMPORAL_API_KEY", "secret-key")
    client = await connect_embedded(server)
    assert client.service_client.config.api_key is None
    assert client.namespace == "default"


async def test_each_failure_says_what_is_wrong_and_a_lazy_client_checks_nothing(
    server: ServerInfo,
) -> None:
    closed = f"127.0.0.1:{free_port()}"
    other = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    page = f"127.0.0.1:{other.sockets[0].getsockname()[1]}"
    failures: list[tuple[str, dict[str, Any], str]] = [
        (closed, {}, r"connection refused.*TEMPORAL_ADDRESS"),
        (server.address, {"namespace": "nowhere"}, "namespace create --namespace nowhere"),
        (server.address, {"api_key": "secret-key"}, "we use TLS and it does not"),
        (page, {}, "cannot be reached"),
    ]
    for address, options, said in failures:
        with pytest.raises(ConnectError, match=said) as caught:
            await connect_client(address, **options)
        assert "secret-key" not in str(caught.value)
    other.close()
    await connect_client(closed, lazy=True)


async def test_search_attributes_are_added_where_they_are_missing_also_by_a_worker(
    server: ServerInfo, tmp_path: Path
) -> None:
    archive = Archive(tmp_path / "archive")
    plugin = HoldfastPlugin(archive=archive, agents=[Agent(name="a", model=ScriptedModel([]))])
    client = await connect_embedded(server, plugins=[plugin])

    async def remove(*names: str) -> None:
        asked = RemoveSearchAttributesRequest(namespace="default", search_attributes=names)
        await client.operator_service.remove_search_attributes(asked)
        assert not await are_usable(client)

    await ensure_search_attributes(client)
    await remove("HfAgent", "HfApprovals")
    await ensure_search_attributes(client)
    found = await client.count_workflows("HfStatus = 'x' OR HfAgent = 'y' OR HfApprovals > 0")
    assert found.count == 0
    await remove("HfRules")
    async with Worker(client, task_queue="plugged"):
        await until(lambda: are_usable(client))


async def test_a_queue_has_workers_only_when_somebody_polls_it_for_workflows(
    server: ServerInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect_embedded(server)
    assert not await has_workers(client, "nobody")
    async with Worker(client, task_queue="tools-only", activities=[nothing], build_id="x"):
        timeout = timedelta(seconds=10)
        options: Any = {"task_queue": "tools-only", "start_to_close_timeout": timeout}
        await client.execute_activity(nothing, id="served", **options)
        assert not await has_workers(client, "tools-only")
    ask, left = client.workflow_service.describe_task_queue, [1]

    async def unanswered(*args: Any, **options: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            raise RPCError("operation was canceled", RPCStatusCode.CANCELLED, b"")
        return await ask(*args, **options)

    monkeypatch.setattr(client.workflow_service, "describe_task_queue", unanswered)
    async with Worker(client, task_queue="flows", workflows=[Nothing], build_id="x"):
        await client.execute_workflow("engine_test.Nothing", id="done", task_queue="flows")
        assert await has_workers(client, "flows")  # it is asked again
    left[0] = 99
    with pytest.raises(ConnectError, match="did not answer"):
        await has_workers(client, "flows")
    left[0] = 0
    monkeypatch.setattr("holdfast.engine.cluster.POLLER_SECONDS", 0.0)
    assert not await has_workers(client, "flows")  # pollers of long ago do not count
