"""Results of long runs, which are made beside the event loop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import RunContextWrapper, Runner, tool
from holdfast.agents.runs.results import RunResult
from holdfast.reading.runs import run_results
from holdfast.testing import FakeOpenAI, FakeRequest, Reply, calls, reply
from tests.support.rig import MakeAgent, Rig

TURNS = 70


class Watched(dict[str, Any]):
    """Notes in which threads it is changed."""

    threads: set[int]

    def __setitem__(self, name: str, value: Any) -> None:
        self.threads.add(threading.get_ident())
        super().__setitem__(name, value)


@tool(effect="read")
def count(ctx: RunContextWrapper[dict[str, Any]], n: int) -> str:
    """Count."""
    ctx.context["n"] = n
    return f"{n}!"


def answer(request: FakeRequest) -> Reply:
    """Count up to TURNS."""
    done = sum(message.role == "tool" for message in request.messages)
    return calls([("count", {"n": done + 1})]) if done < TURNS else reply("Counted.")


@pytest.fixture
def model() -> Iterator[FakeOpenAI]:
    with FakeOpenAI(answer) as fake:
        yield fake


async def test_the_result_of_a_long_run_is_made_beside_the_loop_and_its_context_within(
    rig: Rig, make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_in: set[int] = set()
    make = run_results.run_result

    def watched(*given: Any, **more: Any) -> RunResult:
        made_in.add(threading.get_ident())
        return make(*given, **more)

    monkeypatch.setattr(run_results, "run_result", watched)
    context = Watched(n=0)
    context.threads = set()
    agent = make_agent(count)
    await rig.serve(agent)
    result = await Runner.run(
        agent, "Count.", context=context, runner=rig.runner(), max_turns=TURNS + 1
    )
    assert result.final_output == "Counted."
    assert len(result.new_items) == 2 * TURNS + 1
    assert result.context_wrapper.context is context
    assert context == {"n": TURNS}
    assert threading.get_ident() not in made_in
    assert context.threads == {threading.get_ident()}
