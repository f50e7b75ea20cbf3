"""What a notebook shows of tasks, steps, calls and answers: escaped, short, without empty rows."""

import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import Agent, AgentResponse, RunContextWrapper, RunResult
from holdfast.reading.step_events import (
    ApprovalDecided,
    Attempt,
    ChatEnd,
    ChatStart,
    CommandGiven,
    StepEnd,
    StepEvent,
    StepFailed,
    StepStart,
    StepUndone,
    Thought,
    ToolCalled,
    Waiting,
    event_text,
)
from holdfast.sync import Progress
from holdfast.values.messages import ToolCall
from holdfast.values.steps import Task, TaskStep, TaskStepOutput, ToolOutput
from holdfast.values.text.html import LONGEST, Rows, table

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


def test_a_list_is_a_table_with_the_columns_that_have_values() -> None:
    tasks = Rows([Task(task_id="a", input=EVIL), Task(task_id="b", agent="x", input="y" * 300)])
    shown = shown_in_notebook(tasks)
    assert re.findall(r"<th[^>]*>([^<]*)</th>", shown) == ["", "status", "agent", "input"]
    assert shown.count("<tr>") == 3
    assert (ESCAPED in shown, "… [300 characters]" in shown) == (True, True)
    assert tasks == [*tasks]


def test_an_agent_shows_what_it_was_declared_with() -> None:
    other = Agent(name="other")
    made = Agent(name=EVIL, model="offline", instructions=shown_in_notebook, handoffs=[other])
    shown = shown_in_notebook(made)
    for said in (ESCAPED, "offline", "shown_in_notebook", "other"):
        assert said in shown


STEP = TaskStep(step_id="s1")
OUTPUT = TaskStepOutput(output="done", task_step=STEP)
EVENTS: tuple[StepEvent, ...] = (
    ChatStart(number=0, task_id=EVIL, input=EVIL),
    StepStart(number=1, task_id="t", step=STEP),
    ToolCalled(
        number=2, task_id="t", step_id="s1", call=ToolCall(id="c", name="pay", arguments=EVIL)
    ),
    StepEnd(number=3, task_id="t", output=OUTPUT.model_copy(update={"is_last": True})),
    StepUndone(number=4, task_id="t", steps=("s1",), by="ann", reason=""),
    ChatEnd(number=5, task_id="t", status="abandoned"),
)


def test_progress_is_one_table_in_a_notebook_and_lines_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for event in EVENTS:
        Progress()(event)
    assert "s1 calls pay" in capsys.readouterr().out
    views = list[str]()

    def update(new: object) -> None:
        views.append(shown_in_notebook(new))

    def display(_: object, *, display_id: bool) -> Any:
        assert display_id
        return SimpleNamespace(update=update)

    notebook = SimpleNamespace(
        get_ipython=lambda: SimpleNamespace(kernel=None), display=SimpleNamespace(display=display)
    )
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    progress = Progress()
    for event in EVENTS:
        progress(event)
    assert capsys.readouterr().out == ""
    assert "<script" not in "".join(views)
    states = [
        re.findall(r">(not begun|running|done|undone|answered|abandoned)<", view) for view in views
    ]
    assert states == [
        ["running"],
        *[["running", "running"]] * 2,
        ["answered", "done"],
        ["running", "undone"],
        ["abandoned", "undone"],
    ]


def test_an_empty_row_is_left_out_and_a_long_value_is_cut() -> None:
    assert "<th" not in table("title", {"nothing": ""})
    shown = table("title", {"text": "x" * (LONGEST + 5)})
    assert "x" * LONGEST in shown
    assert "x" * (LONGEST + 1) not in shown
    assert f"… [{LONGEST + 5} characters]" in shown


# ---- the line that is printed for each event of a task

PAY = {"approval": "t:1", "tool": "pay"}


def made(kind: Any, **facts: Any) -> StepEvent:
    event: StepEvent = kind(number=1, task_id="t", **facts)
    return event


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (made(Thought, step_id="s1", text="I\nlook first."), "  s1 says I look first."),
        (
            made(Waiting, step_id="s1", arguments='{"euros": 5}', text="dear", **PAY),
            '  s1 waits for approval of pay (t:1): {"euros": 5}: dear',
        ),
        (
            made(Waiting, approval="t:2", approval_kind="limit", text="used up", expires=60.0),
            "  waits until 1970-01-01 00:01:00 UTC for a decision on its budget (t:2): used up",
        ),
        (
            made(ApprovalDecided, step_id="s1", status="rejected", by="ann", note="no", **PAY),
            "  s1 pay rejected by ann: no",
        ),
        (made(ApprovalDecided, approval="t:2", status="expired"), "  approval expired"),
        (
            made(CommandGiven, verb="feedback", by="ann", text="be brief"),
            "> feedback by ann: be brief",
        ),
        (
            made(CommandGiven, verb="drop_step", is_refused=True, reason="not queued"),
            "> drop step was refused: not queued",
        ),
        (made(StepFailed, step_id="s1", error="E: why"), "> Step s1 failed: E: why"),
        (made(StepFailed, error="E: why"), "> Task failed: E: why"),
        (
            made(Attempt, step_id="s1", name="look", attempt=2, why="worker lost", seconds=19.6),
            "  s1 look: worker lost; attempt 2 in 20 s",
        ),
        (made(Attempt, name="model", attempt=3, why="busy"), "  model: busy; attempt 3"),
    ],
)
def test_an_event_beside_the_steps_is_one_line(event: StepEvent, text: str) -> None:
    assert event_text(event) == text
