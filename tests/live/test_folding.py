"""FoldingAgentWorker on a real server: long tasks end, nothing is lost, folds are steps."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from holdfast import Agent, Budget, Runner, TaskStepOutput, tool
from holdfast.errors import ModelRequestError
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel
from holdfast.values.messages import Message, ToolCall, user
from holdfast.workers import FoldingAgentWorker
from holdfast.workers.folding import LEFT_OUT, SUMMARISE, SUMMARY, Fold, tokens, view
from tests.support.rig import Rig, run_a_task, until_status
from tests.support.scale import all_of, times

WINDOW = 20_000


@tool(effect="read")
def look(n: int) -> str:
    """Look at a page."""
    return f"page {n}: " + "words and more words " * 40


@dataclass
class Reader:
    """Plays a model with a window: it reads pages in order and knows only what it sees.

    Attributes:
        pages: How many there are.
        window: Tokens that it takes.
        summaries: How often it was asked for one.
        refused: How many requests were too long.
    """

    pages: int
    window: int = WINDOW
    summaries: int = 0
    refused: int = 0
    seen: list[int] = field(default_factory=list)

    def __call__(self, request: ModelRequest) -> str | ToolCall:
        length = tokens(request.messages)
        self.seen.append(length)
        if length > self.window:
            self.refused += 1
            msg = f"Model 'reader' refused the request (HTTP 400): maximum context length {length}"
            raise ModelRequestError(msg, status=400)
        text = "\n".join(message.text for message in request.messages)
        pages = {int(n) for n in re.findall(r"page (\d+):", text)}
        assert LEFT_OUT in text or len(pages) == max(pages, default=0), "what it knew is lost"
        if request.instructions == SUMMARISE:
            self.summaries += 1
            return " ".join(f"page {n}:" for n in sorted(pages))
        assert request.messages[0] == user("Read all.") or "Read all." in text
        calls = {call.id for message in request.messages for call in message.calls}
        results = {message.call_id for message in request.messages if message.role == "tool"}
        assert calls == results
        done = max(pages, default=0)
        if done == self.pages:
            return "all read"
        return ToolCall(id="", name="look", arguments=f'{{"n": {done + 1}}}')


def agent_of(reader: Reader, worker: FoldingAgentWorker) -> Agent:
    return Agent(name="agent", model=ScriptedModel(reader), tools=[look], worker=worker)


def pages_in(transcript: Sequence[Message]) -> list[int]:
    results = [message.text for message in transcript if message.role == "tool"]
    return [int(text.split()[1].removesuffix(":")) for text in results]


async def test_a_task_of_many_turns_ends_within_a_small_window(rig: Rig) -> None:
    turns = times(60, 2_000)
    reader = Reader(turns)
    runner = await rig.serving(agent_of(reader, FoldingAgentWorker(window=WINDOW)))
    task = await run_a_task(runner, "Read all.", budget=Budget(max_turns=3 * turns))
    assert str(await runner.finalize_response(task)) == "all read"
    assert reader.summaries
    assert not reader.refused
    transcript = await runner.transcript(task)
    assert pages_in(transcript) == list(range(1, turns + 1))  # the record keeps everything
    usage = (await runner.get_task(task)).usage
    assert usage is not None
    assert usage.requests == turns + 1 + reader.summaries


@pytest.mark.parametrize("window", [all_of(None), 200_000], ids=["unknown", "wrong"])
async def test_what_the_provider_refuses_as_too_long_is_folded(
    rig: Rig, window: int | None
) -> None:
    reader = Reader(60, window=8_000)
    runner = await rig.serving(agent_of(reader, FoldingAgentWorker(window=window)))
    task = await run_a_task(runner, "Read all.")
    assert str(await runner.finalize_response(task)) == "all read"
    assert 0 < reader.refused < 12
    assert pages_in(await runner.transcript(task)) == list(range(1, 61))


async def test_an_undo_across_a_fold_gives_the_view_back_and_a_fork_has_its_own(rig: Rig) -> None:
    reader = Reader(24, window=6_000)
    runner = await rig.serving(agent_of(reader, FoldingAgentWorker(window=6_000)))
    task = await runner.create_task("Read all.", step_mode="manual")
    before: list[Message] = []
    output: TaskStepOutput | None = None
    while not any(map(Fold.of, await runner.transcript(task))):
        before = list(await runner.transcript(task))
        output = await runner.run_step(task)
    assert output is not None
    assert str(output).startswith("Folded the conversation, ")
    folded = await runner.transcript(task)
    assert SUMMARY in [message.text for message in view(folded)][1]
    assert len(view(folded)) < len(before) == len(folded) - 1
    fork = await runner.fork(task, at=output)
    await runner.undo_step(task)
    kept = [message for message in await runner.transcript(task) if message.role != "system"]
    assert kept == before == view(before)
    assert any(map(Fold.of, await runner.transcript(fork)))
    for each in (task, fork):
        while not (await runner.run_step(each)).is_last:
            pass
        assert pages_in(await runner.transcript(each)) == list(range(1, 25))


async def test_a_session_remembers_its_tasks_over_folds_of_folds(rig: Rig) -> None:
    reader = Reader(0, window=4_000)
    runner = await rig.serving(agent_of(reader, FoldingAgentWorker(window=4_000)))
    for pages in range(6, 61, 6):
        reader.pages = pages
        task = await run_a_task(runner, "Read all.", session="s")
        assert str(await runner.finalize_response(task)) == "all read"
        assert pages_in(await runner.transcript(task)) == list(range(pages - 5, pages + 1))
    assert reader.summaries > 3
    assert not reader.refused
    assert pages_in(await runner.session("s").chat_history()) == list(range(1, 61))


async def test_a_worker_without_a_summary_leaves_messages_out(rig: Rig) -> None:
    reader = Reader(60)
    runner = await rig.serving(
        agent_of(reader, FoldingAgentWorker(window=WINDOW, summarises=False))
    )
    result = await Runner.run(
        agent_of(reader, FoldingAgentWorker(window=WINDOW, summarises=False)),
        "Read all.",
        max_turns=200,
        runner=runner,
    )
    assert (result.final_output, reader.summaries) == ("all read", 0)
    assert len(reader.seen) == 61


async def test_what_cannot_be_folded_waits_for_a_person(rig: Rig) -> None:
    @tool(effect="read")
    def flood() -> str:
        """Return too much."""
        return "x" * 100

    worker = FoldingAgentWorker(window=1_000)
    model = ScriptedModel(["never asked"])
    agent = Agent(name="agent", model=model, tools=[flood], worker=worker)
    runner = await rig.serving(agent)
    task = await runner.create_task("q " * 2_000, step_mode="automatic")
    waiting = await until_status(runner, task, "needs_attention")
    assert waiting.error is not None
    assert "cannot be folded into 750 tokens" in str(waiting.error)
    assert model.calls == 0
