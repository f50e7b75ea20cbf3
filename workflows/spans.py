"""Spans of steps and of child tasks' calls, exported by the workflow when they are over.

Exporting adds no command to the history, nothing depends on it, and a replay exports nothing. Times
and ids are the task's own, so that a span that is exported twice is the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from temporalio import workflow

from holdfast.task.data.calls import Outcome
from holdfast.task.data.head import RunRules
from holdfast.task.data.records import LeftStep, OpenState, StepRecord
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.step_body import body_of
from holdfast.tracing.export import send_later
from holdfast.tracing.finished import Finished, call_span, step_span
from holdfast.tracing.rules import TraceRules, below_call
from holdfast.values.messages import ToolCall
from holdfast.workflows.activity_calls import Background

LOSS_SECONDS = 60.0
"""How much of its newest spans a worker process may lose when it is killed: exporters wait a few
seconds for more. The worker that takes over replays the task, and exports that much again."""


class StepSpans:
    """Makes and exports the spans of one task, in a process that `may_trace`."""

    def __init__(self, ledger: Ledger, background: Background) -> None:
        """Export spans of this task, in the background."""
        self._head = ledger.given.head
        self._background = background
        self._is_exporting = False
        self._due: list[tuple[float, Callable[[TraceRules], Finished]]] = []

    @functools.cached_property
    def _rules(self) -> TraceRules | None:
        info = workflow.info()
        return TraceRules.of(info.namespace, info.workflow_id, self._head)

    def over(self, record: StepRecord) -> None:
        """Add the span of a completed step."""
        self._add(record.ended, functools.partial(_step_span, record))

    def left(self, opens: Iterable[OpenState], branch: int, at: float) -> None:
        """Add the spans of open steps that an undo has left."""
        for current in opens:
            left = LeftStep(was=current, branch=branch, at=at, why="undone")
            self._add(at, functools.partial(_step_span, left))

    def called(
        self,
        call: ToolCall,
        outcome: Outcome | None,
        *,
        child: str,
        agent: str,
        step: tuple[int, int],
        start: float,
        end: float,
        status: str = "",
    ) -> None:
        """Add the span of a tool call that was a child task; see `call_span`."""
        made = functools.partial(
            call_span,
            call=call,
            outcome=outcome,
            child=child,
            agent=agent,
            step=step,
            start=start,
            end=end,
            status=status,
        )
        self._add(end, made)

    def child(self, run: RunRules, name: str) -> RunRules:
        """Return a child's rules, with the span of its tool call as the parent span."""
        span = self._rules.trace.call(name) if self._rules is not None else ""
        return below_call(run, self._rules, span)

    def _add(self, at: float, made: Callable[[TraceRules], Finished]) -> None:
        """Keep a span until it is exported; in a replay, as long as it may have been lost."""
        if self._rules is not None:
            self._due = [due for due in self._due if due[0] >= at - LOSS_SECONDS]
            self._due.append((at, made))
            if not self._is_exporting:
                self._is_exporting = True
                self._background.keep(self._export())

    async def _export(self) -> None:
        """Export spans as they come, except while the task is replayed."""
        while True:
            await workflow.wait_condition(self._has_news)
            due, self._due = self._due, []
            for _, made in due:
                if self._rules is not None:
                    send_later(self._rules, made)

    def _has_news(self) -> bool:
        return bool(self._due) and not workflow.unsafe.is_replaying()


def _step_span(of: StepRecord | LeftStep, rules: TraceRules) -> Finished:
    return step_span(rules, body_of(of))
