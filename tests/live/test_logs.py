"""Logs of a worker process: secrets in what users' code and models raise are not in them."""

import asyncio
import logging
import threading
from typing import Any, NoReturn

import pytest
from temporalio.worker import (
    ExecuteWorkflowInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from holdfast import InputGuardrail, StepFailedError, tool
from holdfast.testing import call
from holdfast.values.text.redact import REDACTED
from tests.support.rig import Rig, until

KEY = "sk-abcdefghijklmnop"


def everything(caplog: pytest.LogCaptureFixture) -> str:
    """Return all that any handler could write of what was logged."""
    assert not any(record.exc_info for record in caplog.records if record.name == "holdfast")
    return caplog.text + "".join(str(vars(record)) for record in caplog.records)


async def test_a_secret_that_a_tool_or_its_formatter_raises_is_in_no_log(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    def worded(_ctx: Any, _error: Exception) -> NoReturn:
        raise ValueError(KEY)

    @tool(failure_error_function=worded)
    def look() -> str:
        """Look."""
        raise RuntimeError(KEY)

    @tool(failure_error_function=None)
    def break_off() -> str:
        """Break off."""
        raise RuntimeError(KEY)

    runner = await rig.serving(rig.agent(look, break_off))
    rig.model.add(call("look", {}), call("break_off", {}))
    with caplog.at_level(logging.DEBUG), pytest.raises(Exception, match="break_off"):
        await runner.run_task(await runner.create_task("q"))
    assert KEY not in everything(caplog)
    assert REDACTED in caplog.text
    assert "failure_error_function of tool 'look' failed" in caplog.text


class _Held(WorkflowInboundInterceptor):
    """Begins a workflow once it is let go; told by events of threads, as workflows run in one."""

    begun, let_go = threading.Event(), threading.Event()

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        self.begun.set()
        self.let_go.wait(timeout=60)  # below `DEADLOCK_SECONDS`
        return await super().execute_workflow(input)


class _Holding(Interceptor):
    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor]:
        return _Held


async def test_what_the_native_part_of_the_sdk_has_to_say_is_not_on_stdout(
    rig: Rig, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    await rig.serve(rig.agent(), interceptors=[_Holding()])
    runner = rig.runner()
    task = await runner.create_task("q")
    await asyncio.to_thread(_Held.begun.wait)
    await runner.client.get_workflow_handle(task.task_id).terminate()
    _Held.let_go.set()

    await until(lambda: "Task not found when completing" in caplog.text)
    assert capfd.readouterr().out == ""


def told(caplog: pytest.LogCaptureFixture, part: str) -> list[str]:
    """Return what was logged as a warning or worse, by any logger, and holds a text."""
    records = [each for each in caplog.records if each.levelno >= logging.WARNING]
    texts = [f"{each.getMessage()}\n{each.exc_text}" for each in records]
    return [text for text in texts if part in text]


def broken(_ctx: Any, _agent: Any, _given: Any) -> NoReturn:
    raise ValueError("mistyped")


def unsure(*_: Any) -> NoReturn:
    raise ValueError("mistyped")


@tool(is_enabled=unsure)
def look() -> str:
    """Look."""
    return "x"


@tool(needs_approval=unsure)
def pay() -> str:
    """Pay."""
    return "paid"


BY_AGENT = " of agent 'agent'"


@pytest.mark.parametrize(
    ("options", "what", "function"),
    [
        ({"input_guardrails": [InputGuardrail(broken)]}, "input guardrail 'broken'", broken),
        ({"tools": [look]}, f"is_enabled of 'look'{BY_AGENT}", unsure),
        ({"tools": [pay]}, "needs_approval of tool 'pay'", unsure),
    ],
    ids=["input guardrail", "is_enabled", "needs_approval"],
)
async def test_code_that_raises_is_named_with_its_line_and_told_once(
    rig: Rig, caplog: pytest.LogCaptureFixture, *, options: dict[str, Any], what: str, function: Any
) -> None:
    given = dict(options)
    await rig.serve(rig.agent(*given.pop("tools", ()), **given))
    if "guardrail" in what:
        rig.model.reply("done")
    elif "pay" in what:
        rig.model.call("pay", {})
    with caplog.at_level(logging.WARNING), pytest.raises(StepFailedError) as raised:
        await rig.runner().chat("q")
    [logged] = told(caplog, "mistyped")
    where = f"{function.__name__}, {__file__}:{function.__code__.co_firstlineno + 1}\n"
    for text in (str(raised.value), logged):
        assert f"Raised by {what}" in text
        assert where in text
