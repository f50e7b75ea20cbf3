"""Code of a run that raises what ends tasks of asyncio or processes: the run ends with an error.

To Temporal a CancelledError looks like an activity that was cancelled, and SystemExit ends the loop
of the worker: either way the run would wait for ever.
"""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from itertools import cycle
from typing import Any

import pytest

from holdfast import (
    AgentHooks,
    FunctionTool,
    InputGuardrail,
    OutputGuardrail,
    RunConfig,
    Runner,
    StepFailedError,
    tool,
)
from holdfast.agents_sdk import function_tool
from holdfast.testing import call, calls
from holdfast.testing.fake_api.replies import call as called
from holdfast.values.code import user_calls
from tests.support.runs import Runs, look

Code = Callable[..., Any]


def _cancels(*_: Any) -> Any:
    raise asyncio.CancelledError


def _closes(*_: Any) -> Any:
    raise GeneratorExit


def _exits(*_: Any) -> Any:
    raise SystemExit(3)


async def _cancels_async(*_: Any) -> Any:
    raise asyncio.CancelledError


async def _exits_async(*_: Any) -> Any:
    raise SystemExit(3)


async def _cancels_its_task(*_: Any) -> Any:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


class PanicError(BaseException):
    """As Rust extensions raise it."""


def _panics(*_: Any) -> Any:
    raise PanicError("out of bounds")


async def _closes_async(*_: Any) -> Any:
    raise GeneratorExit


STOPS = {
    _panics: "PanicError: out of bounds",
    _cancels_its_task: "CancelledError",
    _closes_async: "GeneratorExit",
    _cancels: "CancelledError",
    _closes: "GeneratorExit",
    _exits: "SystemExit: 3",
    _cancels_async: "CancelledError",
    _exits_async: "SystemExit: 3",
}


def instructions(code: Code) -> dict[str, Any]:
    async def made(_context: Any, _agent: Any) -> Any:
        said = code()
        return await said if asyncio.iscoroutine(said) else said

    return {"instructions": made}


PLACES: dict[str, Callable[[Code], dict[str, Any]]] = {
    "before the model": lambda code: {
        "input_guardrails": [InputGuardrail(code, run_in_parallel=False)]
    },
    "beside the model": lambda code: {"input_guardrails": [InputGuardrail(code)]},
    "after the model": lambda code: {"output_guardrails": [OutputGuardrail(code, name="check")]},
    "at the start": lambda code: {"hooks": type("H", (AgentHooks,), {"on_start": code})()},
    "at an answer": lambda code: {"hooks": type("H", (AgentHooks,), {"on_llm_end": code})()},
    "instructions": instructions,
    "behaviour": lambda code: {"tool_use_behavior": code},
}


NAMED = {"after the model": "output guardrail 'check'"}


@pytest.mark.parametrize(("place", "code"), list(zip(PLACES, cycle(STOPS), strict=False)))
async def test_code_that_stops_is_an_error_of_the_run(run: Runs, place: str, code: Code) -> None:
    run.model.when(lambda _: True, called("look") if place == "behaviour" else "done")
    agent = await run.serve(look, **PLACES[place](code))
    async with asyncio.timeout(100):
        with pytest.raises(StepFailedError, match=NAMED.get(place, "own instead")) as raised:
            await Runner.run(agent, "q", runner=run.runner)
    assert STOPS[code] in str(raised.value)
    assert "Raise an error of your own instead." in str(raised.value)


def acting(ran: list[str], **how: Any) -> FunctionTool:
    """Return a tool `act` that notes each run."""

    def act() -> str:
        ran.append("act")
        return "done"

    return function_tool(act, **how)


@pytest.mark.parametrize("is_embedded", [False, True])
async def test_a_tool_that_cancels_its_own_task_is_run_once_and_told(
    run: Runs, monkeypatch: pytest.MonkeyPatch, *, is_embedded: bool
) -> None:
    ran: list[str] = []

    @tool(effect="read")
    async def scope() -> None:
        """Leak a cancel scope."""
        ran.append("scope")
        await _cancels_its_task()

    if not is_embedded:  # as in a worker process, which has no loop of the caller's
        monkeypatch.setattr(user_calls, "callers_loop", ContextVar("none", default=None))
    run.model.add(call("scope"), "done")
    agent = await run.serve(scope)
    async with asyncio.timeout(100):
        result = await Runner.run(agent, "q", runner=run.runner)
    assert (result.final_output, ran) == ("done", ["scope"])


async def test_a_predicate_for_approvals_that_stops_runs_nothing(run: Runs) -> None:
    code = _cancels
    ran: list[str] = []
    run.model.call("act")
    agent = await run.serve(acting(ran, needs_approval=code))
    with pytest.raises(StepFailedError, match="needs_approval of tool 'act'"):
        await Runner.run(agent, "q", runner=run.runner)
    assert ran == []


async def test_words_for_a_failed_call_that_stop_are_passed_over(run: Runs) -> None:
    code = _cancels_async

    @tool(effect="read")
    def fails() -> str:
        """Fail."""
        raise ValueError

    def fails_too() -> str:
        raise ValueError

    worded = function_tool(fails_too, failure_error_function=code)
    run.model.add(calls([("fails", {}), ("fails_too", {}), ("nowhere", {})]), "done")
    config = RunConfig(tool_error_formatter=code, tool_not_found_behavior="return_error_to_model")
    agent = await run.serve(fails, worded)
    async with asyncio.timeout(100):
        result = await Runner.run(agent, "q", runner=run.runner, run_config=config)
    assert (result.final_output, len(run.model.requests)) == ("done", 2)
