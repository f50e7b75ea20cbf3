"""Calls that wait for a batch, against fakes of OpenAI's and Anthropic's APIs over HTTP."""

import re
import time
from collections.abc import Generator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

from holdfast import Agent, AgentRunner, Runner, tool
from holdfast.archive import Keys
from holdfast.errors import (
    BlobMissingError,
    InvalidArgumentError,
    KeyMissingError,
    StepFailedError,
    UserError,
)
from holdfast.models.libraries.any_llm import AnyLLMModel
from holdfast.models.openai.responses import ResponsesModel
from holdfast.models.prices import Prices
from holdfast.serving.batches import BatchModel, hand
from holdfast.serving.batches.hand import Hand
from holdfast.serving.batches.stored import Stored
from holdfast.serving.batches.workflow import QUEUE, Batches
from tests.support.batch_api import BatchApi, message, serving_batches
from tests.support.master_keys import keys
from tests.support.rig import until, until_blocked, until_status
from tests.support.scale import all_of

PRICES = Prices({"gpt-5-mini": {"input": "1", "output": "10"}})
HALF, WHOLE = 0.001, 0.002
"""What 1,000 tokens read and 100 written cost."""


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Generator[BatchApi]:
    """Serve the fake, and look at batches all the time."""
    for name in ("FIRST_GAP", "LONGEST_GAP"):
        monkeypatch.setattr(hand, name, 0.2)
    with serving_batches() as api:
        yield api


def agent_of(api: BatchApi, tools: Sequence[Any] = (), **options: Any) -> Agent:
    """Make an agent whose calls wait for a batch."""
    model = ResponsesModel("gpt-5-mini", base_url=api.base_url, api_key="key-of-test")
    given: dict[str, Any] = {"age": "1 s", **options}
    return Agent(name="agent", model=BatchModel(model, **given), tools=tools)


def batches_of(runner: AgentRunner) -> WorkflowHandle[Any, Any]:
    """Return the workflow of the batches."""
    return runner.client.get_workflow_handle(f"{QUEUE}.openai.responses.gpt-5-mini")


async def test_calls_of_many_tasks_are_one_batch_at_half_the_price(api: BatchApi) -> None:
    words = ["a", "b", "b"]
    async with AgentRunner.local(agent_of(api), data_dir=None, prices=PRICES) as runner:
        tasks = [await runner.create_task(word, step_mode="automatic") for word in words]
        for task, word in zip(tasks, words, strict=True):
            assert str(await runner.run_task(task)) == f"<{word}>"
            used = (await runner.get_task(task)).usage
            assert (used.requests, used.input_tokens, float(used.paid)) == (1, 1000, HALF)
        await until(lambda: not api.files)  # the provider keeps nothing
        [batch] = api.batches.values()
        assert batch["completion_window"] == "24h"
        assert "key-of-test" not in str(await batches_of(runner).query(Batches.hand))
    assert api.lines == {"a": 1, "b": 2}
    assert not api.direct


async def test_odd_lines_and_those_without_an_answer_are_asked_again_or_wait_for_a_person(
    api: BatchApi,
) -> None:
    said: dict[str, Any] = {
        "wrong": {"response": {"status_code": 400, "body": {"error": {"message": "Too odd."}}}},
        "busy": {"response": {"status_code": 503, "body": {"error": {"message": "Busy."}}}},
        "down": {"response": {"status_code": 200, "body": {"output": [], "status": "failed"}}},
        "lost": {},
        "no number": {"response": {"status_code": "soon", "body": {}}},
        "no body": {"response": {"status_code": 200}},
        "no object": {"response": {"status_code": 200, "body": "<html>"}},
    }
    api.outcome = lambda text: said.get(text) if api.lines[text] == 1 else None
    stranger = b'{"custom_id": "x", "response": {"status_code": 200, "body": {"id": "1"}}}'
    api.odd = (b"", b"{", b"[" * 100_000, b"[]", b'"text"', b"\xff", stranger)
    async with AgentRunner.local(agent_of(api), data_dir=None, prices=PRICES) as runner:
        words = (*said, "good")
        wrong, *tasks = [await runner.create_task(each, step_mode="automatic") for each in words]
        for task, word in zip(tasks, words[1:], strict=True):
            assert str(await runner.run_task(task)) == f"<{word}>"
            assert (await runner.get_task(task)).usage.requests == 1
        refused = await until_status(runner, wrong, "needs_attention")
        assert "refused the request (HTTP 400" in refused.error
        assert "Too odd" in refused.error
        await runner.run_step(wrong)
        await until_status(runner, wrong, "answered")
    assert api.lines == {**dict.fromkeys(said, 2), "good": 1}
    assert not api.direct


async def test_at_its_deadline_a_batch_is_cancelled_and_what_it_lacks_is_asked_directly(
    api: BatchApi,
) -> None:
    api.auto, api.open_status = 0, "queued"  # which is no state that is known
    api.outcome = lambda text: {} if text == "late" else None
    agent = agent_of(api, wait="4 s")
    async with AgentRunner.local(agent, data_dir=None, prices=PRICES) as runner:
        tasks = [await runner.create_task(word, step_mode="automatic") for word in ("late", "done")]
        why = await until_blocked(runner, tasks[0], "batch_")
        assert "The call waits for batch batch_2, submitted" in why
        assert "at the latest" in why
        paid: list[float] = []
        for task in tasks:
            await until_status(runner, task, "answered")
            paid.append(float((await runner.get_task(task)).usage.paid))
        calls = (await batches_of(runner).query(Batches.hand)).calls.values()
    assert ([call.is_taken for call in calls], paid) == ([True, True], [WHOLE, HALF])
    assert (api.lines, api.direct) == ({"late": 1, "done": 1}, {"late": 1})
    assert [each["status"] for each in api.batches.values()] == ["cancelled"]


async def test_of_a_conversation_that_the_provider_has_forgotten_all_is_sent(api: BatchApi) -> None:
    error = {"code": "previous_response_not_found", "message": "It is not there."}
    gone = {"response": {"status_code": 400, "body": {"error": error}}}
    api.outcome = lambda text: gone if api.lines["14"] == 1 and text == "14" else None
    agent = agent_of(api, tools=[double])
    async with AgentRunner.local(agent, data_dir=None) as runner:
        done = await Runner.run(agent, "a", runner=runner, auto_previous_response_id=True)
    assert (done.final_output, api.lines) == ("<14>", {"a": 1, "14": 2})


async def test_a_batch_that_is_refused_waits_for_a_person_and_one_without_room_for_room(
    api: BatchApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.serving.batches.workflow.PAUSE", 0.5)
    api.auto = 0
    async with AgentRunner.local(agent_of(api), data_dir=None) as runner:
        task = await runner.create_task("a", step_mode="automatic")
        await until(lambda: len(api.batches) == 1)
        api.end("failed", "token_limit_exceeded")
        await until(lambda: len(api.batches) == 2)
        api.end("failed", "model_not_found")
        assert "has failed: It is so" in (await until_status(runner, task, "needs_attention")).error
        api.fails["POST /v1/files"] = 401, {"message": "No such key: key-of-test."}
        with pytest.raises(StepFailedError, match="No such key"):
            await runner.run_step(task)
        assert "key-of-test" not in str(await runner.get_task(task))
        api.fails.clear()
        api.auto = 1
        assert str(await runner.run_step(task)) == "<a>"


async def test_one_line_that_a_provider_refuses_fails_no_other(api: BatchApi) -> None:
    api.auto, api.line = 0, 1
    async with AgentRunner.local(agent_of(api), data_dir=None) as runner:
        tasks = [await runner.create_task(word, step_mode="automatic") for word in ("a", "b")]
        await until(lambda: len(api.batches) == 1)
        [batch] = api.batches.values()
        api.auto = 1
        api.end("failed", "invalid_request")
        for task, word in zip(tasks, ("a", "b"), strict=True):
            assert str(await runner.run_task(task)) == f"<{word}>"
    wrong, right = (each["body"]["input"][-1]["content"] for each in batch["given"])
    assert (api.direct, api.lines) == ({wrong: 1}, {wrong: 1, right: 2})


async def test_what_may_have_reached_the_provider_is_found_there_before_it_is_asked_directly(
    api: BatchApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.serving.batches.workflow.PATIENCE", timedelta(seconds=1))
    api.breaks.add("POST /v1/batches")
    api.fails["GET /v1/batches"] = 500, {"message": "We are down."}
    api.auto = 0
    async with AgentRunner.local(agent_of(api, wait="6 s"), data_dir=None) as runner:
        task = await runner.create_task("a", step_mode="automatic")
        await until_blocked(runner, task, "waits for its batch to be submitted")

        async def is_late() -> bool:
            found = await batches_of(runner).query(Batches.hand)
            return any(each.late for each in found.batches.values())

        await until(is_late)
        api.fails.clear()
        assert str(await runner.run_task(task)) == "<a>"
        await until(lambda: not api.files)
    assert (api.lines, api.uploads) == ({"a": 1}, 1)
    assert not api.direct


async def test_a_batch_that_is_over_when_the_workers_come_back_is_read_whatever_the_time(
    api: BatchApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for place in ("hand", "model"):
        monkeypatch.setattr(f"holdfast.serving.batches.{place}.GRACE", 0.1)
    api.auto = 0
    agent = agent_of(api, wait="15 s")
    async with AgentRunner.local(agent, data_dir=tmp_path) as runner:
        task = await runner.create_task("a", step_mode="automatic")
        await until_blocked(runner, task, "batch_")
        late = time.time() + 15.5
    api.end()
    await until(lambda: time.time() > late)
    monkeypatch.setattr("holdfast.serving.batches.hand.HASTE", 0.5)
    with monkeypatch.context() as busy:  # so that the first look gets no answer in time
        busy.setattr("holdfast.serving.batches.model.ASKING", timedelta(microseconds=1))
        async with AgentRunner.local(agent, data_dir=tmp_path) as runner:
            await until_blocked(runner, task, "nothing can be read now")
            busy.undo()
            assert str(await runner.run_task(task)) == "<a>"
    assert (api.lines, api.direct) == ({"a": 1}, {})


async def test_a_call_that_cannot_be_read_in_the_archive_holds_up_no_other(
    api: BatchApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Stored.read

    async def damaged(self: Stored, task: str, sha256: str) -> bytes:
        data = await read(self, task, sha256)
        if b"bad" in data:
            raise KeyMissingError("Its key is lost.")
        return data

    monkeypatch.setattr(Stored, "read", damaged)
    async with AgentRunner.local(agent_of(api), data_dir=None) as runner:
        tasks = [await runner.create_task(word, step_mode="automatic") for word in ("bad", "good")]
        await until_status(runner, tasks[1], "answered")
    assert api.lines == {"good": 1}


async def test_a_call_that_is_abandoned_while_the_provider_is_down_is_not_submitted(
    api: BatchApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.serving.batches.workflow.PATIENCE", timedelta(seconds=1))
    api.fails["POST /v1/files"] = 500, {"message": "We are down."}
    async with AgentRunner.local(agent_of(api), data_dir=None) as runner:
        words = ("gone", "stays")
        tasks = [await runner.create_task(word, step_mode="automatic") for word in words]
        for task in tasks:
            await until_blocked(runner, task, "waits for its batch to be submitted")
        await runner.abandon(tasks[0], "no more")
        await until_status(runner, tasks[0], "abandoned")
        api.fails.clear()
        await until_status(runner, tasks[1], "answered")
    assert api.lines == {"stays": 1}


@pytest.mark.usefixtures("logs_told")
@pytest.mark.parametrize("own", [all_of(None), keys()], ids=["plain", "encrypted"])
async def test_nothing_of_erased_tasks_is_left_in_the_batches_and_others_get_their_answers(
    api: BatchApi, own: Keys | None, tmp_path: Path
) -> None:
    api.auto = 0
    async with AgentRunner.local(agent_of(api, size=2), data_dir=tmp_path, keys=own) as runner:
        done = await runner.create_task("MKdone", step_mode="automatic")
        late = await runner.create_task("MKlate", step_mode="automatic")
        await until(lambda: len(api.batches) == 1)
        await runner.erase(late, by="ann", reason="asked to", open_tasks="abandon")
        api.end()
        assert str(await runner.run_task(done)) == "<MKdone>"
        await runner.finalize_response(done)
        hand = await batches_of(runner).query(Batches.hand)
        [call] = [each for each in hand.calls.values() if each.asker.task == done.task_id]
        stored = Stored(runner.client)
        for each in (call.body, call.answer):
            assert b"MKdone" in await stored.read(done.task_id, each)
        await runner.erase(done, by="ann", reason="asked to")
        await until(lambda: not api.files)
        events = [*(await batches_of(runner).fetch_history()).events]
        told = str([hand, await batches_of(runner).query(Batches.hand), *events])
        assert not re.search("MK(done|late)", told)
        files = [each for each in tmp_path.rglob("*") if each.is_file()]
        marked = [each for each in files if re.search(b"MK(done|late)", each.read_bytes())]
        if own is None:
            place = Path(runner.archive.url)
            within = [each.relative_to(place) for each in marked if each.is_relative_to(place)]
            assert {each.parts[0] for each in within} == {"blobs"}
        else:
            assert marked == []
            with pytest.raises(BlobMissingError):
                await stored.read(done.task_id, call.answer)
    assert api.lines == {"MKdone": 1, "MKlate": 1}


async def test_calls_that_are_over_are_forgotten_and_the_workflow_ends(
    api: BatchApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hand, "SWEEP", 0.2)
    async with AgentRunner.local(agent_of(api), data_dir=None) as runner:
        assert str(await runner.run_task(await runner.create_task("a"))) == "<a>"
        await batches_of(runner).result()
        assert str(await runner.run_task(await runner.create_task("a"))) == "<a>"
        assert await batches_of(runner).query("hand", result_type=Hand)
    assert api.lines == {"a": 2}


def test_an_option_that_cannot_be_used_is_refused() -> None:
    odds: list[dict[str, Any]] = [
        {"wait": "soon"},
        {"age": timedelta(0)},
        {"wait": "1 s", "age": "1 s"},
        {"size": 0},
        {"size": 2001},
        {"account": "a.b"},
    ]
    for options in odds:
        with pytest.raises(InvalidArgumentError, match=next(iter(options))):
            BatchModel("gpt-5-mini", **options)
    for model, why in (("offline", "OpenAI's APIs"), (AnyLLMModel("mistral/small"), "any-llm")):
        with pytest.raises(UserError, match=why):
            BatchModel(model)


# ---- calls of Anthropic's models that wait for a batch, against a fake of its API over HTTP

NAME = "anthropic/claude-sonnet-4-5"
ANTHROPIC_PRICES = Prices({NAME: {"input": "1", "output": "10"}})


@pytest.fixture
def anthropic(api: BatchApi, monkeypatch: pytest.MonkeyPatch) -> BatchApi:
    """Be patient: a submission may be looked for."""
    monkeypatch.setattr("holdfast.serving.batches.workflow.PATIENCE", timedelta(seconds=6))
    return api


@tool(effect="read")
def double(n: int) -> int:
    """Double a number."""
    return 2 * n


def runner_of(anthropic: BatchApi, *tools: Any, **options: Any) -> AgentRunner:
    """Make a runner for an agent whose calls wait for a batch."""
    model = AnyLLMModel(
        NAME, base_url=anthropic.base_url.removesuffix("/v1"), api_key="key-of-test"
    )
    given: dict[str, Any] = {"age": "1 s", **options}
    agent = Agent(
        name="agent", model=BatchModel(model, **given), tools=tools, instructions="Be brief."
    )
    return AgentRunner.local(agent, data_dir=None, prices=ANTHROPIC_PRICES)


async def test_calls_of_many_tasks_with_tools_are_batches_at_half_the_price(
    anthropic: BatchApi,
) -> None:
    async with runner_of(anthropic, double) as runner:
        tasks = [await runner.create_task(word, step_mode="automatic") for word in ("a", "b")]
        for task in tasks:
            await until_status(runner, task, "answered")
            used = (await runner.get_task(task)).usage
            assert (used.requests, float(used.paid)) == (2, 2 * HALF)
            assert [str(each.output) for each in await runner.get_completed_steps(task)][-1] == (
                "<14>"
            )
        await until(lambda: not anthropic.batches)  # the provider keeps nothing
    assert (anthropic.lines["a"], anthropic.lines["b"], sum(anthropic.lines.values())) == (1, 1, 4)
    assert not anthropic.direct


async def test_what_expires_is_asked_once_more_and_what_is_refused_waits_for_a_person(
    anthropic: BatchApi,
) -> None:
    wrong = {"type": "invalid_request_error", "message": "Too odd."}
    busy = {"type": "overloaded_error", "message": "Busy."}
    blank = {**message({"model": "m", "messages": [{"content": "-"}]}), "content": None}
    said: dict[str, dict[str, Any]] = {
        "blank": {"type": "succeeded", "message": blank},
        "gone": {"type": "expired"},
        "busy": {"type": "errored", "error": {"type": "error", "error": busy}},
        "odd": {"type": "errored", "error": {"type": "error", "error": wrong}},
    }
    anthropic.outcome = lambda text: said.get(text) if anthropic.lines[text] == 1 else None
    async with runner_of(anthropic) as runner:
        tasks = [await runner.create_task(word, step_mode="automatic") for word in said]
        for task in tasks[:3]:
            await until_status(runner, task, "answered")
        assert "Too odd" in (await until_status(runner, tasks[3], "needs_attention")).error
    assert [anthropic.lines[word] for word in said] == [1, 2, 2, 1]


async def test_at_its_deadline_a_batch_is_cancelled_and_its_calls_are_asked_directly(
    anthropic: BatchApi,
) -> None:
    anthropic.auto = 0
    anthropic.outcome = lambda _: {"type": "canceled"}
    async with runner_of(anthropic, wait="3 s") as runner:
        task = await runner.create_task("late", step_mode="automatic")
        await until_status(runner, task, "answered")
        assert float((await runner.get_task(task)).usage.paid) == WHOLE
    assert (anthropic.lines, anthropic.direct) == ({"late": 1}, {"late": 1})


async def test_a_submission_whose_answer_was_lost_is_found_by_its_lines_when_it_has_ended(
    anthropic: BatchApi, caplog: pytest.LogCaptureFixture
) -> None:
    anthropic.auto = 0
    anthropic.breaks.add("POST /v1/messages/batches")
    async with runner_of(anthropic) as runner:
        task = await runner.create_task("a", step_mode="automatic")
        await until(lambda: anthropic.lines)
        anthropic.fails["POST /v1/messages/batches"] = 429, {"message": "Too many."}
        unlisted = anthropic.batches.pop("msgbatch_1")
        anthropic.breaks.clear()
        await until(lambda: "Too many" in caplog.text)
        anthropic.batches["msgbatch_1"] = unlisted
        anthropic.fails.clear()
        await until(lambda: "msgbatch_1 is this batch shows when it has ended" in caplog.text)
        theirs = {
            "custom_id": "theirs",
            "params": anthropic.batches["msgbatch_1"]["given"][0]["params"],
        }
        other = {"id": "msgbatch_0", "status": "completed", "looks": 0, "given": [theirs]}
        anthropic.batches["msgbatch_0"] = other  # of the same account and size
        anthropic.end()
        await until_status(runner, task, "answered")
    assert anthropic.lines == {"a": 1}
    assert not anthropic.direct


async def test_a_submission_that_was_refused_is_made_again_and_waits_for_no_other_batch(
    anthropic: BatchApi, caplog: pytest.LogCaptureFixture
) -> None:
    anthropic.auto = 0
    theirs = {"custom_id": "theirs", "params": {"messages": [{"content": "theirs"}]}}
    other = {"id": "msgbatch_0", "status": "in_progress", "looks": 0, "given": [theirs]}
    anthropic.batches["msgbatch_0"] = other
    anthropic.fails["POST /v1/messages/batches"] = 429, {"message": "Too many."}
    async with runner_of(anthropic) as runner:
        task = await runner.create_task("a", step_mode="automatic")
        await until(lambda: "Too many" in caplog.text)
        anthropic.fails.clear()
        await until(lambda: anthropic.lines)
        anthropic.auto = 1
        await until_status(runner, task, "answered")
    assert (anthropic.lines, anthropic.direct) == ({"a": 1}, {})


async def test_a_batch_whose_submission_was_lost_is_found_though_a_task_of_it_has_ended(
    anthropic: BatchApi,
) -> None:
    anthropic.auto = 0
    anthropic.breaks.add("POST /v1/messages/batches")
    anthropic.fails["GET /v1/messages/batches"] = 500, {"message": "We are down."}
    async with runner_of(anthropic, wait="15 s") as runner:
        tasks = [await runner.create_task(word, step_mode="automatic") for word in ("gone", "a")]
        await until(lambda: len(anthropic.lines) == 2)
        await runner.abandon(tasks[0], "enough")

        async def is_late() -> bool:
            name = f"{QUEUE}.anthropic.messages.any-llm/{NAME}"
            found = await runner.client.get_workflow_handle(name).query(Batches.hand)
            return any(each.late for each in found.batches.values())

        await until(is_late)  # its calls are due to be asked directly
        anthropic.end()
        anthropic.fails.clear()
        await until_status(runner, tasks[1], "answered")
        assert float((await runner.get_task(tasks[1])).usage.paid) == HALF
    assert anthropic.lines == {"gone": 1, "a": 1}
    assert not anthropic.direct
