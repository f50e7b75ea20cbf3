"""What a notebook shows of tasks, steps, calls and answers: escaped, short, without empty rows."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Agent, AgentResponse, RunContextWrapper, RunResult
from holdfast.values.steps import Task, TaskStep, TaskStepOutput, ToolOutput
from holdfast.values.text.html import LONGEST, table

EVIL = "<script>alert(1)</script>"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;"
CALL = ToolOutput(tool_name=EVIL, raw_input=EVIL, content=EVIL)


def shown_in_notebook(value: Any) -> str:
    """Return what a notebook shows: it calls a method that other code should not call."""
    return str(value._repr_html_())


@pytest.mark.parametrize(
    "value",
    [
        Task(task_id=EVIL, input=EVIL, error=EVIL),
        TaskStep(task_id=EVIL, step_id=EVIL, input=EVIL),
        CALL,
        TaskStepOutput(output=EVIL, sources=(CALL,), waiting_for=(EVIL,)),
        AgentResponse(response=EVIL, sources=(CALL,), task_id=EVIL),
        RunResult(
            input=EVIL,
            last_agent=Agent(name="a"),
            context_wrapper=RunContextWrapper(context=None),
            task_id=EVIL,
            final_output=EVIL,
            waiting_for=(EVIL,),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_is_shown_and_nothing_in_it_is_markup(value: Any) -> None:
    shown = shown_in_notebook(value)
    assert ESCAPED in shown
    assert "<script" not in shown
    assert shown.startswith("<table>")


def test_an_empty_row_is_left_out_and_a_long_value_is_cut() -> None:
    assert "<th" not in table("title", {"nothing": ""})
    shown = table("title", {"text": "x" * (LONGEST + 5)})
    assert "x" * LONGEST in shown
    assert "x" * (LONGEST + 1) not in shown
    assert "(5 more characters)" in shown
