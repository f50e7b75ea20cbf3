"""Answers that no honest server gives: the task shows them, asks again, and can be ended."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, ModelSettings
from holdfast.errors import UnfitAnswerError
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
    (nested(900), "chat", True),
    ([INFINITY], "responses", True),
    ({LONE: 1}, "chat", False),
    (10**4200, "responses", False),
]
"""What no answer may hold; the API that gives it, and whether its answer is streamed."""


@pytest.fixture
async def served(rig: Rig) -> AsyncIterator[Callable[..., Any]]:
    """Serve an agent whose model gives these answers; return the requests that it gets."""
    async with AsyncExitStack() as stack:

        async def make(kind: Any, *answers: Bytes) -> HostileServer:
            server = await stack.enter_async_context(hostile_server(in_turn(*answers)))
            model = kind("m", base_url=server.base_url, api_key="sk-of-the-tests-1")
            stack.push_async_callback(model.close)
            settings = ModelSettings(max_attempts=1)
            await rig.serve(Agent(name="agent", model=model, model_settings=settings))
            stack.push_async_callback(rig.stop)
            return server

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
async def test_an_answer_that_cannot_be_kept_is_shown_and_asked_again_or_abandoned(
    rig: Rig, served: Callable[..., Any], *, api: str, streamed: bool, odd: Any
) -> None:
    kind, bad, good = {
        "responses": (ResponsesModel, of_responses(odd), responses(message("done"))),
        "chat": (ChatCompletionsModel, of_chat(odd), chat({"content": "done"})),
    }[api]
    asked, made = ("prompt", "completion") if api == "chat" else ("input", "output")
    usage = {"usage": {f"{asked}_tokens": 5, f"{made}_tokens": 2}}
    told = [bad | usage, bad | usage, good | usage, bad]
    runner, server = rig.runner(), await served(kind, *(sent(o, streamed=streamed) for o in told))
    run = watched if streamed else AgentRunner.run_step
    task, other = [await runner.create_task("q", max_output_attempts=2 - n) for n in range(2)]
    with pytest.raises(UnfitAnswerError, match="answer that cannot be"):
        await run(runner, task)
    seen = await runner.get_task(task)
    assert (seen.status, seen.usage.requests, seen.usage.total_tokens) == ("needs_attention", 2, 14)
    assert (await runner.run_step(task)).output == "done"
    assert (len(server.requests), (await runner.get_task(task)).usage.total_tokens) == (3, 21)
    with pytest.raises(UnfitAnswerError, match="answer that cannot be"):
        await run(runner, other)
    await runner.abandon(other, reason="enough")
    await until_status(runner, other, "abandoned")
