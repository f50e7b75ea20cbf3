"""The demo's pure parts: what the answer must be, and what was executed how often."""

import math
from pathlib import Path

import pytest

from holdfast.cli.demo.command import expected_value, is_right, join_calls
from holdfast.cli.demo.log import ExecutionLog, count, in_flight
from holdfast.errors import InvalidArgumentError
from holdfast.task.data.records import StepRecord
from holdfast.values.messages import Usage
from holdfast.values.steps import TaskStep, ToolOutput


@pytest.mark.parametrize(
    ("question", "expression", "value"),
    [
        ("What is (121 * 3) + 42?", "(121 * 3) + 42", 405),
        ("12 divided by 5, please", "12 / 5", 2.4),
        ("2 to the power of 3 to the power of 2", "2^3^2", 512),
        ("-2^2", "-2^2", -4),
        ("2 ^ -1", "2^-1", 0.5),
        ("1,000 + 007", "1,000 + 007", 1007),
        ("0.1 + 0.2", "0.1 + 0.2", 0.3),
        ("2 ^ 0.5", "2^0.5", math.sqrt(2)),
    ],
)
def test_the_value_is_worked_out_apart(question: str, expression: str, value: float) -> None:
    found, worked_out = expected_value(question)
    assert found == expression
    assert worked_out == pytest.approx(value)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("hello", "no arithmetic"),
        ("42", "no arithmetic"),
        ("1 / 0", "divides by zero"),
        ("0 ^ -1", "divides by zero"),
        ("9 ^ 9 ^ 9", "too large"),
        ("10 ^ 500", "too large"),
        ("(0 - 8) ^ 0.5", "not a real number"),
    ],
)
def test_what_has_no_value_is_refused(question: str, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        expected_value(question)


@pytest.mark.parametrize(
    ("answer", "value", "right"),
    [
        ("The result of (121 * 3) + 42 is 405.", 405, True),
        ("**405**", 405, True),
        ("It is 1,234,567.", 1234567, True),
        ("It is -0.5", -0.5, True),
        ("It is \u22127.", -7, True),
        ("It is 406.", 405, False),
        ("405 is less than 406", 405, False),
        ("I cannot say.", 405, False),
        ("", 0, False),
    ],
)
def test_the_last_number_of_an_answer_decides(answer: str, value: float, right: bool) -> None:
    assert is_right(answer, value) is right


def test_the_log_counts_what_was_started_and_what_was_completed(tmp_path: Path) -> None:
    log = ExecutionLog(tmp_path / "log")
    assert log.read() == []
    with log.execution("tool", "a"):
        pid = log.read()[0].pid
        assert in_flight(log.read(), "tool", "a", pid)
        assert not in_flight(log.read(), "tool", "a", pid + 1)
    assert not in_flight(log.read(), "tool", "a", pid)
    with pytest.raises(ZeroDivisionError), log.execution("tool", "a"):
        _ = 1 / 0
    counted = count(log.read())["tool", "a"]
    assert (counted.starts, counted.completions, counted.pids) == (2, 1, (pid, pid))


def test_a_line_that_a_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    log = ExecutionLog(tmp_path / "log")
    with log.execution("model", "1"):
        pass
    with (tmp_path / "log").open("a") as file:
        file.write('{"kind": "mod')
    assert [each.event for each in log.read()] == ["start", "end"]


def test_calls_of_the_ledger_stand_beside_their_executions(tmp_path: Path) -> None:
    log = ExecutionLog(tmp_path / "log")
    with log.execution("model", "1"):
        pass
    with log.execution("tool", "c1"):
        pass
    steps = [
        StepRecord(n=1, step=TaskStep(), usage=Usage(requests=1)),
        StepRecord(n=2, step=TaskStep(), usage=Usage(requests=1), output="It is 3."),
    ]
    output = ToolOutput(tool_name="add", call_id="c1", raw_input='{"a": 1}', content="3")
    calls = join_calls("offline", steps, [[output], []], count(log.read()))
    assert [(c.name, c.text, c.starts, c.recorded) for c in calls] == [
        ("offline", 'asks for add {"a": 1}', 1, "answered"),
        ("add", '{"a": 1} -> 3', 1, "done"),
        ("offline", "It is 3.", 0, "answered"),  # the ledger has it, but nobody says to have run it
    ]
