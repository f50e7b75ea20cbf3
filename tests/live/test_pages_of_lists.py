"""Lists of tasks are read page by page: one or two requests each, however many there are."""

from base64 import urlsafe_b64encode
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.workflowservice.v1 import ListWorkflowExecutionsRequest
from temporalio.client import Client

from holdfast import AgentRunner
from holdfast.engine.search_attributes import AGENT_TASK
from holdfast.errors import InvalidArgumentError
from holdfast.reading.visibility import attributes, memo
from holdfast.task.data.head import TaskHead
from holdfast.task.data.state import TaskInput
from tests.support.cli import Here
from tests.support.lent import ephemeral_server
from tests.support.rig import Engine, Rig, make_engine, until

CLOSED = 230


@pytest.fixture(scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Engine]:
    """A server of this module's own, with closed tasks."""
    home = tmp_path_factory.mktemp("lists")
    async with await ephemeral_server() as running:
        made = await make_engine(running.info, home / "archive")
        for k in range(CLOSED):  # one after the other: none began while a newer one was open
            await closed(made.client, k)

        async def all_listed() -> bool:
            query = f"WorkflowType = '{AGENT_TASK}' AND ExecutionStatus = 'Terminated'"
            return (await made.client.count_workflows(query)).count == CLOSED

        await until(all_listed)
        yield made


async def closed(client: Client, k: int) -> None:
    """Begin a task that no worker serves, and end it."""
    given = TaskInput(head=TaskHead(agent="agent"), input=f"q{k}")
    handle = await client.start_workflow(
        AGENT_TASK,
        given,
        id=f"closed{k}",
        task_queue="nobody",
        memo=memo(given.input, now=float(k)),
        search_attributes=attributes(given),
    )
    await handle.terminate()


@pytest.fixture
def requests(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the pages that were asked for."""
    sizes: list[int] = []
    service = engine.client.workflow_service
    ask = service.list_workflow_executions

    async def counted(req: ListWorkflowExecutionsRequest, **options: Any) -> Any:
        sizes.append(req.page_size)
        return await ask(req, **options)

    monkeypatch.setattr(service, "list_workflow_executions", counted)
    return sizes


async def test_each_page_is_one_request_and_together_they_are_the_list(
    engine: Engine, requests: list[int]
) -> None:
    runner: AgentRunner = Rig(engine).runner()
    whole = [each.task_id for each in await runner.list_tasks()]
    assert len(whole) == CLOSED
    assert requests == [1000]
    requests.clear()
    paged, after = list[str](), ""
    while True:
        page = await runner.list_tasks("abandoned", "agent", limit=50, after=after)
        paged += [each.task_id for each in page]
        after = page.next
        if not after:
            break
    assert paged == whole
    assert requests == [60] * 5
    requests.clear()
    assert len(await runner.list_tasks(limit=20)) == 20
    assert requests == [30, 30]  # open ones, closed ones


async def test_a_token_of_another_kind_is_refused(engine: Engine) -> None:
    runner = Rig(engine).runner()
    nested = urlsafe_b64encode(b"[" * 45_000).decode()
    for token in ("nonsense", "bm9uc2Vuc2U=", "ä", "WzEsMl0=", nested):
        with pytest.raises(InvalidArgumentError, match="is not a token of a list"):
            await runner.list_tasks(limit=5, after=token)
    assert (await runner.list_tasks(limit=0)) == []


def test_the_command_line_lists_page_by_page(engine: Engine, tmp_path: Path) -> None:
    cli = Here(tmp_path, tmp_path / "data")
    address = engine.client.service_client.config.target_host
    first = cli("tasks", "--json", "--limit", "200", "--address", address)
    token = first.err.split("--after ")[1].split()[0]
    rest = cli("tasks", "--json", "--limit", "200", "--after", token, "--address", address)
    assert "--after" not in rest.err
    assert len({each["task_id"] for each in [*first.lines, *rest.lines]}) == CLOSED
    refused = cli("tasks", "--after", "nonsense", "--address", address, expect=2)
    assert "is not a token of a list" in refused.err
