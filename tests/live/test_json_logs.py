"""`HOLDFAST_LOG=json`: each line is an object that says which task it is about, without secrets."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import FakeOpenAI, call, calls
from holdfast.tracing.spans import TaskTrace
from tests.support.master_keys import LINE, keys
from tests.support.serving import running, worker_of

pytestmark = pytest.mark.usefixtures("logs_told")

SECRET = "sk-abcdefghijklmnop"
AGENTS = f"""
import logging
from holdfast import Agent, tool
from temporalio import activity

@tool(effect="read")
def look(place: str) -> str:
    "Look."
    logging.getLogger("shop").warning("looks at %s with {SECRET}", place)
    return "milk"

@tool
async def pay(cents: int) -> str:
    "Pay."
    activity.logger.warning("pays")
    raise ValueError("the purse of {SECRET}\\nis empty")

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
    assert SECRET not in worker.text
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
