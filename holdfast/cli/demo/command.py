"""The demo: a task is answered although its worker process is killed in the middle."""

from __future__ import annotations

import asyncio
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from temporalio.api.enums.v1 import PendingActivityState

from holdfast.archive.bytestore import UMASK, owner_only
from holdfast.cli import output
from holdfast.cli.connection import Engine, embedded_engine, until_stopped
from holdfast.cli.demo.agent import AGENT, APP, choose_model
from holdfast.cli.demo.log import CallCount, CallKind, ExecutionLog, count, in_flight
from holdfast.cli.exits import ExitCode
from holdfast.cli.following.live import LiveView
from holdfast.cli.options import Common
from holdfast.cli.output import table
from holdfast.client.agent_runner.base import new_id
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.errors import EngineError, InvalidArgumentError
from holdfast.models.offline import Expression, Operation, find_question
from holdfast.reading.queries import Presence
from holdfast.task.data.records import StepRecord
from holdfast.values.base import Json, Value
from holdfast.values.checks.ids import queue_of
from holdfast.values.settings import Budget
from holdfast.values.steps import AgentResponse, ToolOutput
from holdfast.values.text.shown import shortened

# The expected answer of the demo, computed without models and tools.

_NUMBER = re.compile(r"[-\u2212]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")


def expected_value(question: str) -> tuple[str, float]:
    """Find the arithmetic in a question and compute it.

    Returns:
        The expression and its value.

    Raises:
        InvalidArgumentError: There is no arithmetic, or it has no value; the text says why.
    """
    found = find_question(question)
    if found is None:
        raise InvalidArgumentError(
            f"There is no arithmetic in {question!r}. Ask something like 'What is (121 * 3) + 42?';"
            " the signs are + - * / ^ and parentheses."
        )
    try:
        math.floor(value := float(_value(found.root)))  # raises if it is not finite
        return found.text, value
    except ZeroDivisionError as cause:
        msg = f"{found.text} divides by zero and has no value. Ask another question."
        raise InvalidArgumentError(msg) from cause
    except (OverflowError, TypeError, ValueError) as cause:  # a root of a negative one is complex
        msg = f"{found.text} is too large, or not a real number. Ask another question."
        raise InvalidArgumentError(msg) from cause


def _value(expression: Expression) -> Any:
    if not isinstance(expression, Operation):
        return float(expression)
    return _OPERATIONS[expression.name](_value(expression.left), _value(expression.right))


_OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": float.__add__,
    "subtract": float.__sub__,
    "multiply": float.__mul__,
    "divide": float.__truediv__,
    "power": float.__pow__,
}


def is_right(answer: str, value: float) -> bool:
    """Whether the last number of an answer is the expected value, to nine digits."""
    numbers = _NUMBER.findall(answer)
    if not numbers:
        return False
    last = float(numbers[-1].replace(",", "").replace("\u2212", "-"))
    return math.isclose(last, value, rel_tol=1e-9, abs_tol=1e-12)


# The demo's last page: the executed calls next to the recorded ones.


class Call(CallCount):
    """One call of the task, from both sides.

    Attributes:
        step: Ordinal of its step.
        name: The model's or the tool's name.
        text: Answer, or arguments and result.
        recorded: How the ledger has it.
    """

    step: int
    name: str
    text: str
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

    def counted(kind: CallKind, key: str) -> dict[str, Any]:
        return dict(counts.get((kind, key)) or CallCount(kind=kind, key=key))

    calls: list[Call] = []
    answered = 0
    for step, results in zip(steps, outputs, strict=True):
        facts: dict[str, Any] = {"step": step.n, "name": model, "recorded": "answered"}
        for _ in range(step.usage.requests):
            answered += 1
            asked = ", ".join(f"{r.tool_name} {r.raw_input}" for r in results)
            said = f"asks for {asked}" if asked else shortened(str(step.output), 60)
            calls.append(Call(**counted("model", str(answered)), **facts, text=said))
        for result in results:
            facts |= {"name": result.tool_name, "recorded": result.status}
            text = f"{result.raw_input} -> {shortened(result.content, 40)}"
            calls.append(Call(**counted("tool", result.call_id), **facts, text=text))
    return tuple(calls)


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


HEARTBEAT_SECONDS = 3.0
"""Short, so that the demo goes on soon after the kill; 20 s are usual."""

WATCH_SECONDS = 0.02
START_SECONDS = 60.0
END_SECONDS = 15.0
VICTIM_CALL = "2"
"""The worker is killed inside the second model call: by then a model call and a tool call are
done, which must not happen again."""

MAX_TURNS = 60


class WorkerProcesses:
    """The demo's worker processes: one at a time."""

    def __init__(self, data_dir: Path, log: Path) -> None:
        """Start none yet."""
        self._data_dir = data_dir
        self._log = log
        self.pids: list[int] = []
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> int:
        """Start a worker process; return its pid."""
        command = [sys.executable, "-m", "holdfast.cli.demo.worker"]
        log = self._data_dir / "demo-worker.log"
        with open(log, "ab", opener=owner_only) as said:
            self._running = subprocess.Popen(
                [*command, str(self._data_dir), str(self._log)],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                # Ctrl-C goes to the demo alone, which then ends its worker.
                start_new_session=True,
                umask=UMASK,
            )
        self.pids.append(self._running.pid)
        return self._running.pid

    def kill(self) -> None:
        """Kill the worker process with SIGKILL: it cannot clean up."""
        if self._running is not None:
            self._running.kill()
            self._finish(self._running)

    def end(self) -> None:
        """End the worker process in good order."""
        if self._running is None:
            return
        self._running.terminate()
        try:
            self._running.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._running.kill()
        self._finish(self._running)

    def check(self) -> None:
        """Check that the worker process lives.

        Raises:
            EngineError: It has ended on its own; the text has its last output.
        """
        if self._running is None or self._running.poll() is None:
            return
        said = (self._data_dir / "demo-worker.log").read_text(errors="replace").strip()
        last = said.splitlines()[-1] if said else "nothing"
        msg = f"The demo's worker process ended on its own. The last thing it said: {last}"
        raise EngineError(msg)

    def _finish(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        self._running = None


async def demo_command(common: Common, question: str) -> ExitCode:
    """Run the demo; the exit code is 0 only when the answer is right."""
    if common.embedded is None and common.address:
        raise InvalidArgumentError("The demo brings its own server: leave --address out.")
    expression, expected = expected_value(question)
    console = output.err() if common.json else output.out()
    with _directory(common.data_dir) as data_dir:
        report = await until_stopped(_demo(data_dir, question, expression, expected, console))
    if common.json:
        output.emit(report.page())
    else:
        print_report(report, console)
    return ExitCode.OK if report.correct else ExitCode.FAILED


@contextmanager
def _directory(given: Path | None) -> Generator[Path]:
    """Use the directory given, or one that is deleted afterwards."""
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as made:
        yield Path(made)


async def _demo(
    data_dir: Path, question: str, expression: str, expected: float, console: Console
) -> DemoReport:
    model, which = choose_model()
    console.print(f"Question: {question}", style="bold")
    console.print(f"Model:    {which}")
    console.print(
        "Tools:    add, subtract, multiply, divide, power; declared effect='read', because"
        " arithmetic changes nothing in the world.\n"
        "          Such a call may be started again when its worker is lost. One that changes the"
        " world would wait for a person.\n"
    )
    console.print("Starting an embedded Temporal server ...", style="dim")
    async with embedded_engine(data_dir) as engine:
        task_id = new_id(AGENT)
        file = data_dir / f"executions-{task_id}.jsonl"
        runner = engine.runner(AGENT, app=APP, heartbeat=HEARTBEAT_SECONDS)
        workers = WorkerProcesses(data_dir, file)
        stage = Stage(engine, runner, task_id, ExecutionLog(file), workers, console)
        try:
            pid = workers.start()
            console.print(f"Server at {engine.address}; worker process {pid}\n", style="dim")
            response, kill = await stage.play(question)
        finally:
            await asyncio.to_thread(workers.end)
        ledger = await runner.ledger(task_id)
        steps = [entry.step for entry in ledger if entry.step is not None]
        outputs = [step.sources for step in await runner.get_completed_steps(task_id)]
    counts = count(stage.log.read())
    return DemoReport(
        question=question,
        expression=expression,
        expected=expected,
        answer=response.response,
        correct=is_right(response.response, expected),
        model=model.name,
        task_id=task_id,
        kill=kill,
        workers=tuple(workers.pids),
        calls=join_calls(model.name, steps, outputs, counts),
        repeated=tuple(f"{c.kind} {c.key}" for c in counts.values() if c.completions > 1),
    )


@dataclass(frozen=True)
class Stage:
    """One demo in progress.

    Attributes:
        engine: The embedded engine.
        runner: Runs the task.
        task_id: The task.
        log: What the worker processes execute.
        workers: Those processes.
        console: Where to print.
    """

    engine: Engine
    runner: AgentRunner
    task_id: str
    log: ExecutionLog
    workers: WorkerProcesses
    console: Console

    async def play(self, question: str) -> tuple[AgentResponse, Kill | None]:
        """Run the task to its end, and kill its worker process on the way."""
        await self.runner.create_task(
            question, task_id=self.task_id, budget=Budget(max_turns=MAX_TURNS, on_exceeded="finish")
        )
        view = LiveView(self.runner, self.task_id, self.console)
        watching = asyncio.create_task(view.follow())
        running = asyncio.create_task(self._run())
        killing = asyncio.create_task(self._kill_in_mid_call(view))
        try:
            while not running.done():
                await asyncio.wait({running}, timeout=1.0)
                self.workers.check()
            await running
            kill = killing.result() if killing.done() else None
            response = await self.runner.finalize_response(self.task_id)
        finally:
            for each in (watching, running, killing):
                each.cancel()
            await asyncio.gather(watching, running, killing, return_exceptions=True)
            await view.catch_up()
        return response, kill

    async def _kill_in_mid_call(self, view: LiveView) -> Kill:
        """Kill the worker process while it is inside the call, and start the next one."""
        pid = self.workers.pids[-1]
        during = await self._caught(pid)
        await view.catch_up()  # what has come before the kill stands above it
        self.workers.kill()
        self.console.print(
            f"\n   >>>  kill -9 {pid}: the worker process is gone, in the middle of {during}",
            style="bold red",
        )
        again = self.workers.start()
        self.console.print(f"   >>>  worker process {again} is started", style="bold")
        self.console.print(
            f"   >>>  within {HEARTBEAT_SECONDS:.0f} s the task notices that the call's worker is"
            " gone, and goes on\n",
            style="dim",
        )
        return Kill(pid=pid, during=during)

    async def _run(self) -> None:
        """Run the task once the worker process, which has just been started, is up."""
        presence = Presence(self.engine.client)
        await presence.expect(queue_of(APP), task_id=self.task_id, seconds=START_SECONDS)
        await self.runner.run_task(self.task_id)

    async def _caught(self, pid: int) -> str:
        """Wait until the worker process is inside the call, by its own log and by the server."""
        while True:
            if in_flight(self.log.read(), "model", VICTIM_CALL, pid):
                during = await self._pending_call()
                if during:
                    return during
            await asyncio.sleep(WATCH_SECONDS)

    async def _pending_call(self) -> str:
        """Return the id of the call that the server shows as started, or an empty text."""
        found = await self.engine.client.get_workflow_handle(self.task_id).describe()
        started = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
        for pending in found.raw_description.pending_activities:
            if pending.state == started and pending.activity_type.name == "step":
                return f"model call {VICTIM_CALL}, attempt {pending.attempt}"
        return ""
