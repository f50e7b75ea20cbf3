"""Connections to a real server: what works, and what each failure says."""

from __future__ import annotations

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
from holdfast.engine.dev_server.ephemeral import ephemeral_server
from holdfast.engine.dev_server.process import free_port
from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.errors import ConnectError
from holdfast.testing import ScriptedModel


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


async def test_arguments_win_over_the_environment(
    server: ServerInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", f"127.0.0.1:{free_port()}")
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "nowhere")
    client = await connect_client(server.address, namespace="default")
    assert client.namespace == "default"
    assert len(client.identity) == 4


async def test_the_environment_is_enough(
    server: ServerInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    client = await connect_client()
    assert client.service_client.config.target_host == server.address


async def test_the_embedded_server_never_gets_a_key_of_the_environment(
    server: ServerInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_API_KEY", "secret-key")
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "cloud")
    client = await connect_embedded(server)
    assert client.service_client.config.api_key is None
    assert client.namespace == "default"


async def test_a_closed_port_says_so() -> None:
    with pytest.raises(ConnectError, match=r"connection refused.*TEMPORAL_ADDRESS"):
        await connect_client(f"127.0.0.1:{free_port()}")


async def test_a_missing_namespace_is_named_with_the_command_that_makes_it(
    server: ServerInfo,
) -> None:
    with pytest.raises(ConnectError, match="namespace create --namespace nowhere"):
        await connect_client(server.address, namespace="nowhere")


async def test_tls_to_a_plain_server_says_so_and_keeps_the_key(server: ServerInfo) -> None:
    with pytest.raises(ConnectError, match="we use TLS and it does not") as caught:
        await connect_client(server.address, api_key="secret-key")
    assert "secret-key" not in str(caught.value)


async def test_a_server_that_is_not_temporal_is_an_error(server: ServerInfo) -> None:
    with pytest.raises(ConnectError, match="cannot be reached"):
        await connect_client(server.ui_url.removeprefix("http://"))


async def test_a_lazy_client_checks_nothing() -> None:
    await connect_client(f"127.0.0.1:{free_port()}", lazy=True)


async def test_search_attributes_are_added_where_they_are_missing(server: ServerInfo) -> None:
    client = await connect_embedded(server)
    await ensure_search_attributes(client)
    await client.operator_service.remove_search_attributes(
        RemoveSearchAttributesRequest(
            namespace="default", search_attributes=["HfAgent", "HfApprovals"]
        )
    )
    await ensure_search_attributes(client)
    found = await client.count_workflows("HfStatus = 'x' OR HfAgent = 'y' OR HfApprovals > 0")
    assert found.count == 0


async def test_a_worker_with_the_plugin_begins_with_all_search_attributes(
    server: ServerInfo, tmp_path: Path
) -> None:
    archive = Archive(tmp_path / "archive")
    plugin = HoldfastPlugin(archive=archive, agents=[Agent(name="a", model=ScriptedModel([]))])
    client = await connect_embedded(server, plugins=[plugin])
    await ensure_search_attributes(client)
    await client.operator_service.remove_search_attributes(
        RemoveSearchAttributesRequest(namespace="default", search_attributes=["HfRules"])
    )
    assert not await are_usable(client)
    async with Worker(client, task_queue="plugged"):
        async with asyncio.timeout(60):
            while not await are_usable(client):
                await asyncio.sleep(0.05)


async def test_a_queue_has_workers_only_when_somebody_polls_it_for_workflows(
    server: ServerInfo,
) -> None:
    client = await connect_embedded(server)
    assert not await has_workers(client, "nobody")
    async with Worker(client, task_queue="tools-only", activities=[nothing], build_id="x"):
        await client.execute_activity(
            nothing,
            id="served",
            task_queue="tools-only",
            start_to_close_timeout=timedelta(seconds=10),
        )
        assert not await has_workers(client, "tools-only")
    async with Worker(client, task_queue="flows", workflows=[Nothing], build_id="x"):
        await client.execute_workflow("engine_test.Nothing", id="done", task_queue="flows")
        assert await has_workers(client, "flows")


async def test_pollers_that_went_away_long_ago_do_not_count(
    server: ServerInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect_embedded(server)
    async with Worker(client, task_queue="gone", workflows=[Nothing], build_id="x"):
        await client.execute_workflow("engine_test.Nothing", id="gone", task_queue="gone")
    monkeypatch.setattr("holdfast.engine.cluster.POLLER_SECONDS", 0.0)
    assert not await has_workers(client, "gone")


async def test_a_server_that_leaves_one_question_for_pollers_unanswered_is_asked_again(
    server: ServerInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect_embedded(server)
    ask, left = client.workflow_service.describe_task_queue, [1]

    async def unanswered(*args: Any, **options: Any) -> Any:
        if left[0] > 0:
            left[0] -= 1
            raise RPCError("operation was canceled", RPCStatusCode.CANCELLED, b"")
        return await ask(*args, **options)

    monkeypatch.setattr(client.workflow_service, "describe_task_queue", unanswered)
    async with Worker(client, task_queue="asked", workflows=[Nothing], build_id="x"):
        await client.execute_workflow("engine_test.Nothing", id="asked", task_queue="asked")
        assert await has_workers(client, "asked")
    left[0] = 99
    with pytest.raises(ConnectError, match="did not answer"):
        await has_workers(client, "asked")
    assert left[0] == 99 - 4
