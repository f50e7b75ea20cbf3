"""The demo's last page: the executed calls next to the recorded ones."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from holdfast.cli.demo.log import CallCount, CallKind
from holdfast.cli.output import shortened, table
from holdfast.task.data.records import StepRecord
from holdfast.values.base import Json, Value
from holdfast.values.steps import ToolOutput


class Call(Value):
    """One call of the task, from both sides.

    Attributes:
        kind: Model call or tool call.
        step: Ordinal of its step.
        name: The model's or the tool's name.
        text: Answer, or arguments and result.
        starts: How often worker processes started it, by their own log.
        completions: How often they completed it, by their own log.
        pids: The processes that started it.
        recorded: How the ledger has it.
    """

    kind: CallKind
    step: int
    name: str
    text: str
    starts: int
    completions: int
    pids: tuple[int, ...]
    recorded: str


class Kill(Value):
    """The end of a worker process.

    Attributes:
        pid: The process.
        during: The call that it was in, as the task shows it.
    """

    pid: int
    during: str


class DemoReport(Value):
    """All facts of one demo.

    Attributes:
        question: The question.
        expression: The arithmetic in it.
        expected: Its value, computed without the agent.
        answer: The task's answer.
        correct: Whether they agree.
        model: The model that answered.
        task_id: The task.
        kill: The kill; None when the task was over before.
        workers: The worker processes, in order.
        calls: The calls, in order.
        repeated: Calls that were completed more than once; Holdfast promises none.
    """

    question: str
    expression: str
    expected: float
    answer: str
    correct: bool
    model: str
    task_id: str
    kill: Kill | None
    workers: tuple[int, ...]
    calls: tuple[Call, ...]
    repeated: tuple[str, ...] = ()

    def page(self) -> Json:
        """Return it as JSON data."""
        return self.model_dump(mode="json")


def join_calls(
    model: str,
    steps: Sequence[StepRecord],
    outputs: Sequence[Sequence[ToolOutput]],
    counts: dict[tuple[CallKind, str], CallCount],
) -> tuple[Call, ...]:
    """Put the ledger and the execution log side by side. Pure.

    Args:
        model: The model's name.
        steps: Completed steps, oldest first.
        outputs: The tool results of each.
        counts: What was executed.
    """
    calls: list[Call] = []
    answered = 0
    for step, results in zip(steps, outputs, strict=True):
        for _ in range(step.usage.requests):
            answered += 1
            counted = counts.get(("model", str(answered)), _never("model", str(answered)))
            asked = ", ".join(f"{r.tool_name} {r.raw_input}" for r in results)
            said = f"asks for {asked}" if asked else shortened(str(step.output), 60)
            calls.append(_call(counted, step.n, model, said, "answered"))
        for result in results:
            counted = counts.get(("tool", result.call_id), _never("tool", result.call_id))
            text = f"{result.raw_input} -> {shortened(result.content, 40)}"
            calls.append(_call(counted, step.n, result.tool_name, text, result.status))
    return tuple(calls)


def _never(kind: CallKind, key: str) -> CallCount:
    return CallCount(kind=kind, key=key)


def _call(counted: CallCount, step: int, name: str, text: str, recorded: str) -> Call:
    return Call(
        kind=counted.kind,
        step=step,
        name=name,
        text=text,
        starts=counted.starts,
        completions=counted.completions,
        pids=counted.pids,
        recorded=recorded,
    )


def print_report(report: DemoReport, console: Console) -> None:
    """Print the page."""
    rows = [
        (
            f"{call.step} {call.name if call.kind == 'tool' else 'model'}",
            call.text,
            str(call.starts),
            str(call.completions),
            ", ".join(map(str, call.pids)),
            call.recorded,
        )
        for call in report.calls
    ]
    columns = ("call", "what", "started", "completed", "by process", "ledger")
    console.print("\nEach call: counted by the worker processes, and as the ledger has it")
    table(console, columns, rows)
    if report.kill is None:
        console.print("No worker was killed: the task was over before its second model call.")
    else:
        console.print(
            f"Worker {report.kill.pid} was killed in mid-call ({report.kill.during}): that call was"
            " started again by the next worker. Whatever had completed before was read from the"
            " ledger, not executed again."
        )
    repeated = ", ".join(report.repeated) or "none"
    console.print(f"Calls that completed more than once: {repeated}.")
    console.print(f"\n{report.answer}", style="bold")
    verdict = "as it should be" if report.correct else "WRONG"
    console.print(
        f"{report.expression} = {report.expected:g}, worked out apart from model and tools:"
        f" the answer is {verdict}.",
        style="green" if report.correct else "red",
    )
