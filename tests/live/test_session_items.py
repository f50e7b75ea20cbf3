"""Taking items out of a session: durable, and beside others that add some."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio.client import (
    Client,
    DescribeWorkflowInput,
    Interceptor,
    OutboundInterceptor,
    QueryWorkflowInput,
)

from holdfast import AgentRunner, tool
from holdfast.client.agent_runner.sessions import Session
from holdfast.reading.reader import Reader
from holdfast.task.data.state import CommitRef, SessionState
from holdfast.testing import FakeOpenAI
from holdfast.values.messages import user
from tests.support.rig import MakeRunner, until_rolled


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


async def contents(session: Session) -> list[Any]:
    return [item.get("content") or item["type"] for item in await session.get_items()]


async def test_the_newest_item_is_taken_one_by_one_through_turns_of_all_kinds(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    session = runner.session("s")
    await session.add_items([{"role": "user", "content": "first"}])
    model.call("look")
    model.reply("done")
    await runner.chat("q", session="s")
    whole = await session.get_items()
    assert [item.get("type", item.get("role")) for item in whole] == [
        "user",
        "user",
        "function_call",
        "function_call_output",
        "message",
    ]
    taken: list[Any] = []
    while (item := await session.pop_item()) is not None:
        taken.append(item)
        assert await session.get_items() == whole[: -len(taken)]
        assert await session.verify() == []
    assert taken == whole[::-1]
    await session.add_items([{"role": "user", "content": "anew"}])
    assert await contents(session) == ["anew"]


async def test_a_session_that_does_not_exist_has_no_item_to_take(make_runner: MakeRunner) -> None:
    runner = await make_runner()
    assert await runner.session("nothing").pop_item() is None


async def test_two_who_take_items_at_once_get_different_ones(make_runner: MakeRunner) -> None:
    session = (await make_runner()).session("s")
    await session.append([user(str(k)) for k in range(5)])
    taken = await asyncio.gather(session.pop_item(), session.pop_item(), session.pop_item())
    assert sorted(item["content"] for item in taken if item) == ["2", "3", "4"]
    assert await contents(session) == ["0", "1"]


async def test_a_turn_that_came_meanwhile_is_not_lost(make_runner: MakeRunner) -> None:
    runner = await make_runner()
    session = runner.session("s")
    await session.append([user("old")])
    handle = runner.client.get_workflow_handle(session.id)
    state: SessionState = await handle.query("state", result_type=SessionState)
    late = state.commits[0].model_copy(update={"task": "-late", "replaces": 1, "after": 1})
    await session.append([user("new")])
    await handle.signal("commit", late)
    assert await contents(session) == ["old", "new"]


async def test_a_run_sees_the_session_as_it_was_when_it_began(
    make_runner: MakeRunner, model: FakeOpenAI
) -> None:
    runner = await make_runner(look)
    session = runner.session("s")
    await session.append([user("kept"), user("taken")])
    task = await runner.create_task("q", session="s")
    await runner.get_upcoming_steps(task)
    await session.pop_item()
    model.reply("done")
    await runner.run_task(task)
    assert model.requests[0].holds("taken")
    assert await runner.verify(task) == []


async def rolling(runner: AgentRunner) -> Session:
    """Begin a session that continues as new with every turn."""
    session = runner.session("s")
    await runner.client.start_workflow(
        "Session",
        SessionState(roll_events=1, index_size=2),
        id=session.id,
        task_queue=session.queue,
    )
    return session


class Late(Interceptor):
    """Sends the first question to the run that the workflow began with, as if it were overtaken."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002  Temporal's name
        return _LateOutbound(next)


class _LateOutbound(OutboundInterceptor):
    def __init__(self, following: OutboundInterceptor) -> None:
        super().__init__(following)
        self._asked: set[str] = set()

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:
        if input.id not in self._asked:
            self._asked.add(input.id)
            found = await self.describe_workflow(
                DescribeWorkflowInput(input.id, None, rpc_metadata={}, rpc_timeout=None)
            )
            input.run_id = found.raw_description.workflow_execution_info.first_run_id
        return await super().query_workflow(input)


async def test_a_question_to_a_run_that_continued_as_new_is_answered_by_the_next(
    make_runner: MakeRunner,
) -> None:
    runner = await make_runner()
    session = await rolling(runner)
    for k in range(3):
        await session.append([user(str(k))])
    await until_rolled(runner.client, session.id)
    client = Client(
        runner.client.service_client,
        data_converter=runner.client.data_converter,
        interceptors=[Late()],
    )
    reader = Reader(client, runner.archive)
    state = await reader.query(session.id, "state", SessionState)
    assert state.base + len(state.commits) == 3


async def test_items_are_taken_from_lists_of_turns_that_are_in_the_archive(
    make_runner: MakeRunner,
) -> None:
    runner = await make_runner()
    session = await rolling(runner)
    for k in range(12):
        await session.append([user(str(k))])
    assert [(await session.pop_item() or {})["content"] for _ in range(12)] == [
        str(k) for k in range(11, -1, -1)
    ]
    assert await session.get_items() == []
    assert CommitRef(task="x").wire() == {"task": "x"}
