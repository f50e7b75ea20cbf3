"""Logs of a worker process: no secret of what users' code and models raise is in them."""

import asyncio
import logging
import re
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

import pytest
from temporalio.worker import (
    ExecuteWorkflowInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from holdfast import InputGuardrail, StepFailedError, tool
from holdfast.testing import FakeOpenAI, call, calls
from holdfast.tracing.spans import TaskTrace
from holdfast.values.text.redact import REDACTED
from tests.support.master_keys import LINE, keys
from tests.support.rig import Rig, until
from tests.support.serving import running, worker_of

pytestmark = pytest.mark.usefixtures("logs_told")

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


# ---- HOLDFAST_LOG=json: each line is an object that says which task it is about


AGENTS = f"""
import logging
from holdfast import Agent, tool
from temporalio import activity

@tool(effect="read")
def look(place: str) -> str:
    "Look."
    logging.getLogger("shop").warning("looks at %s with {KEY}", place)
    return "milk"

@tool
async def pay(cents: int) -> str:
    "Pay."
    activity.logger.warning("pays")
    raise ValueError("the purse of {KEY}\\nis empty")

agents = Agent(name="buyer", model="gpt-5-mini", tools=[look, pay])
"""


def by_message(lines: list[dict[str, Any]], part: str) -> dict[str, Any]:
    [found] = [each for each in lines if part in each["message"]]
    return found


async def test_each_line_names_task_step_call_agent_and_trace_and_has_no_secret(
    model: FakeOpenAI, tmp_path: Path
) -> None:
    model.add(calls([("look", {"place": "shelf"}), ("pay", {"cents": 7})]), "sorry")
    async with worker_of(model, tmp_path, AGENTS, HOLDFAST_LOG="json") as (worker, runner):
        task = (await runner.chat("q")).task_id
    lines = worker.lines
    assert KEY not in worker.text
    assert worker.process.returncode == 0
    serving = by_message(lines, "serving buyer on hf:buyer")
    assert (serving["level"], serving["logger"]) == ("info", "holdfast")
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", serving["time"])
    assert "task" not in serving
    trace = TaskTrace.of("default", task).trace
    known = {"task": task, "step": 1, "agent": "buyer", "trace": trace, "attempt": 1}
    looked = by_message(lines, "looks at shelf")
    assert looked.items() >= {**known, "call": "call_1", "activity": "step"}.items()
    assert (looked["logger"], looked["level"]) == ("shop", "warning")
    paid = by_message(lines, "pays")
    assert paid.items() >= {**known, "call": "call_2", "activity": "tool"}.items()
    assert paid["message"] == "pays"
    raised = by_message(lines, "Tool 'pay'")
    assert raised.items() >= {**known, "call": "call_2"}.items()
    assert raised["exception"].splitlines()[-1] == "is empty"
    assert 'raise ValueError("the purse of' in raised["exception"]


async def test_with_keys_the_lines_have_no_texts_either(model: FakeOpenAI, tmp_path: Path) -> None:
    own = {"HOLDFAST_KEYS": f"command:{sys.executable} -c 'print(\"{LINE}\")'"}
    model.add(call("pay", {"cents": 7}), "sorry")
    given: Any = {"keys": keys(), "HOLDFAST_LOG": "json", **own}
    async with worker_of(model, tmp_path, AGENTS, **given) as (worker, runner):
        answer = await runner.chat("q")
    assert "purse" not in worker.text.replace('raise ValueError(\\"the purse of', "")
    raised = by_message(worker.lines, "Tool 'pay'")
    assert raised["task"] == answer.task_id
    assert "ValueError (text of" in raised["exception"]


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_an_unknown_form_is_refused_and_an_error_at_the_start_is_an_object_too(
    form: str, tmp_path: Path
) -> None:
    with running("worker", "gone:agents", home=tmp_path, HOLDFAST_LOG=form) as worker:
        assert worker.process.wait(timeout=60) == 2
    if form == "yaml":
        assert "HOLDFAST_LOG is 'yaml'; the forms of logs are json, and text" in worker.text
    else:
        [line] = worker.lines
        assert (line["level"], "Cannot import 'gone'" in line["message"]) == ("error", True)
