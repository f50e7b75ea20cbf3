"""Calls of Anthropic's models that wait for a batch, against a fake of its API over HTTP."""

from collections.abc import Generator
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Agent, AgentRunner, tool
from holdfast.errors import UserError
from holdfast.models.libraries.any_llm import AnyLLMModel
from holdfast.models.prices import Prices
from holdfast.serving.batches import BatchModel, hand
from holdfast.serving.batches.workflow import QUEUE, Batches
from tests.support.batch_api import BatchApi, serving_batches
from tests.support.rig import until, until_status

NAME = "anthropic/claude-sonnet-4-5"
PRICES = Prices({NAME: {"input": "1", "output": "10"}})
HALF, WHOLE = 0.001, 0.002
"""What 1,000 tokens read and 100 written cost."""


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Generator[BatchApi]:
    """Serve the fake, and look at batches all the time."""
    for name in ("FIRST_GAP", "LONGEST_GAP"):
        monkeypatch.setattr(hand, name, 0.2)
    patience = timedelta(seconds=6)
    monkeypatch.setattr("holdfast.serving.batches.workflow.PATIENCE", patience)
    with serving_batches() as api:
        yield api


@tool(effect="read")
def double(n: int) -> int:
    """Double a number."""
    return 2 * n


def runner_of(api: BatchApi, *tools: Any, **options: Any) -> AgentRunner:
    """Make a runner for an agent whose calls wait for a batch."""
    model = AnyLLMModel(NAME, base_url=api.base_url.removesuffix("/v1"), api_key="key-of-test")
    given: dict[str, Any] = {"age": "1 s", **options}
    agent = Agent(
        name="agent", model=BatchModel(model, **given), tools=tools, instructions="Be brief."
    )
    return AgentRunner.local(agent, data_dir=None, prices=PRICES)


async def test_calls_of_many_tasks_with_tools_are_batches_at_half_the_price(api: BatchApi) -> None:
    async with runner_of(api, double) as runner:
        tasks = [await runner.create_task(word, step_mode="automatic") for word in ("a", "b")]
        for task in tasks:
            await until_status(runner, task, "answered")
            used = (await runner.get_task(task)).usage
            assert (used.requests, float(used.paid)) == (2, 2 * HALF)
            assert [str(each.output) for each in await runner.get_completed_steps(task)][-1] == (
                "<14>"
            )
        await until(lambda: not api.batches)  # the provider keeps nothing
    assert (api.lines["a"], api.lines["b"], sum(api.lines.values())) == (1, 1, 4)
    assert not api.direct


async def test_what_expires_is_asked_once_more_and_what_is_refused_waits_for_a_person(
    api: BatchApi,
) -> None:
    wrong = {"type": "invalid_request_error", "message": "Too odd."}
    busy = {"type": "overloaded_error", "message": "Busy."}
    said: dict[str, dict[str, Any]] = {
        "gone": {"type": "expired"},
        "busy": {"type": "errored", "error": {"type": "error", "error": busy}},
        "odd": {"type": "errored", "error": {"type": "error", "error": wrong}},
    }
    api.outcome = lambda text: said.get(text) if api.lines[text] == 1 else None
    async with runner_of(api) as runner:
        tasks = [await runner.create_task(word, step_mode="automatic") for word in said]
        for task in tasks[:2]:
            await until_status(runner, task, "answered")
        assert "Too odd" in (await until_status(runner, tasks[2], "needs_attention")).error
    assert api.lines == {"gone": 2, "busy": 2, "odd": 1}


async def test_at_its_deadline_a_batch_is_cancelled_and_its_calls_are_asked_directly(
    api: BatchApi,
) -> None:
    api.auto = 0
    api.outcome = lambda _: {"type": "canceled"}
    async with runner_of(api, wait="3 s") as runner:
        task = await runner.create_task("late", step_mode="automatic")
        await until_status(runner, task, "answered")
        assert float((await runner.get_task(task)).usage.paid) == WHOLE
    assert (api.lines, api.direct) == ({"late": 1}, {"late": 1})


async def test_a_submission_whose_answer_was_lost_is_found_by_its_lines_when_it_has_ended(
    api: BatchApi, caplog: pytest.LogCaptureFixture
) -> None:
    api.auto = 0
    api.breaks.add("POST /v1/messages/batches")
    async with runner_of(api) as runner:
        task = await runner.create_task("a", step_mode="automatic")
        await until(lambda: api.lines)
        api.fails["POST /v1/messages/batches"] = 429, {"message": "Too many."}
        unlisted = api.batches.pop("msgbatch_1")
        api.breaks.clear()
        await until(lambda: "Too many" in caplog.text)
        api.batches["msgbatch_1"] = unlisted
        api.fails.clear()
        await until(lambda: "msgbatch_1 is this batch shows when it has ended" in caplog.text)
        theirs = {"custom_id": "theirs", "params": api.batches["msgbatch_1"]["given"][0]["params"]}
        other = {"id": "msgbatch_0", "status": "completed", "looks": 0, "given": [theirs]}
        api.batches["msgbatch_0"] = other  # of the same account and size
        api.end()
        await until_status(runner, task, "answered")
    assert api.lines == {"a": 1}
    assert not api.direct


async def test_a_submission_that_was_refused_is_made_again_and_waits_for_no_other_batch(
    api: BatchApi, caplog: pytest.LogCaptureFixture
) -> None:
    api.auto = 0
    theirs = {"custom_id": "theirs", "params": {"messages": [{"content": "theirs"}]}}
    other = {"id": "msgbatch_0", "status": "in_progress", "looks": 0, "given": [theirs]}
    api.batches["msgbatch_0"] = other
    api.fails["POST /v1/messages/batches"] = 429, {"message": "Too many."}
    async with runner_of(api) as runner:
        task = await runner.create_task("a", step_mode="automatic")
        await until(lambda: "Too many" in caplog.text)
        api.fails.clear()
        await until(lambda: api.lines)
        api.auto = 1
        await until_status(runner, task, "answered")
    assert (api.lines, api.direct) == ({"a": 1}, {})


async def test_a_batch_whose_submission_was_lost_is_found_though_a_task_of_it_has_ended(
    api: BatchApi,
) -> None:
    api.auto = 0
    api.breaks.add("POST /v1/messages/batches")
    api.fails["GET /v1/messages/batches"] = 500, {"message": "We are down."}
    async with runner_of(api, wait="15 s") as runner:
        tasks = [await runner.create_task(word, step_mode="automatic") for word in ("gone", "a")]
        await until(lambda: len(api.lines) == 2)
        await runner.abandon(tasks[0], "enough")

        async def is_late() -> bool:
            name = f"{QUEUE}.anthropic.messages.any-llm/{NAME}"
            found = await runner.client.get_workflow_handle(name).query(Batches.hand)
            return any(each.late for each in found.batches.values())

        await until(is_late)  # its calls are due to be asked directly
        api.end()
        api.fails.clear()
        await until_status(runner, tasks[1], "answered")
        assert float((await runner.get_task(tasks[1])).usage.paid) == HALF
    assert api.lines == {"gone": 1, "a": 1}
    assert not api.direct


def test_other_providers_have_no_batches() -> None:
    with pytest.raises(UserError, match="one of Anthropic by any-llm"):
        BatchModel(AnyLLMModel("mistral/small"))
