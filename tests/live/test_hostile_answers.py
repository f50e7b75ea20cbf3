"""Answers that no honest server gives: the task shows them, asks again, and can be ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, ModelSettings
from holdfast.errors import StepFailedError
from holdfast.models import ChatCompletionsModel, ResponsesModel
from tests.support.hostile import (
    Bytes,
    HostileServer,
    chat,
    hostile_server,
    in_turn,
    message,
    responses,
    sent,
)
from tests.support.rig import Rig, until_status

NAN, INFINITY, LONE = float("nan"), float("inf"), "\ud800"


def nested(levels: int) -> Any:
    data: Any = 1
    for _ in range(levels):
        data = [data]
    return data


ODD: list[tuple[Any, str, bool]] = [
    (nested(240), "responses", False),
    (nested(900), "chat", True),
    ([INFINITY], "responses", True),
    ({LONE: 1}, "chat", False),
    (10**4200, "responses", False),
]
"""What no answer may hold; the API that gives it, and whether its answer is streamed."""


@dataclass
class Served:
    """An agent behind a hostile server."""

    runner: AgentRunner
    server: HostileServer


MakeServed = Callable[..., Any]


@pytest.fixture
async def served(rig: Rig) -> AsyncIterator[MakeServed]:
    """Serve an agent whose model gives these answers."""
    async with AsyncExitStack() as stack:

        async def make(kind: Any, *answers: Bytes, attempts: int = 1) -> Served:
            server = await stack.enter_async_context(hostile_server(in_turn(*answers)))
            model = kind("m", base_url=server.base_url, api_key="sk-of-the-tests-1")
            stack.push_async_callback(model.close)
            settings = ModelSettings(max_attempts=attempts)
            await rig.serve(Agent(name="agent", model=model, model_settings=settings))
            stack.push_async_callback(rig.stop)
            return Served(rig.runner(), server)

        yield make


async def watched(runner: AgentRunner, task: Any) -> None:
    """Run a step and watch its answer being made."""
    _ = [event async for event in runner.stream_step(task)]


def of_responses(odd: Any) -> dict[str, Any]:
    return responses({"type": "reasoning", "id": "r", "summary": [], "odd": odd}, message("odd"))


def of_chat(odd: Any) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "x", "arguments": "{}"}}
    return chat({"content": "odd", "tool_calls": [{**call, "extra_content": odd}]}, "tool_calls")


@pytest.mark.parametrize(("odd", "api", "streamed"), ODD)
async def test_an_answer_that_cannot_be_kept_is_shown_and_asked_again(
    served: MakeServed, api: str, streamed: bool, odd: Any
) -> None:
    kind, bad, good = {
        "responses": (ResponsesModel, of_responses(odd), responses(message("done"))),
        "chat": (ChatCompletionsModel, of_chat(odd), chat({"content": "done"})),
    }[api]
    made = await served(kind, sent(bad, streamed=streamed), sent(good, streamed=streamed))
    task = await made.runner.create_task("q")
    run = watched if streamed else AgentRunner.run_step
    with pytest.raises(StepFailedError, match="answer that cannot be"):
        await run(made.runner, task)
    assert (await made.runner.get_task(task)).status == "needs_attention"
    assert (await made.runner.run_step(task)).output == "done"
    assert len(made.server.requests) == 2


async def test_an_answer_that_cannot_be_kept_can_be_started_anew_or_abandoned(
    served: MakeServed,
) -> None:
    made = await served(ResponsesModel, sent(of_responses(NAN)))
    task = await made.runner.create_task("q")
    for restart in (None, "step"):
        with pytest.raises(StepFailedError, match=r"odd is nan; numbers must be finite"):
            await made.runner.run_step(task, restart=restart)
    await made.runner.abandon(task, reason="enough")
    await until_status(made.runner, task, "abandoned")
