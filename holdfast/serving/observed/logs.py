"""The logs of a process: lines for people, or with `HOLDFAST_LOG=json` a JSON object a line.

Where a record was made says which task it is about: Temporal's context, and that of our activities.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from temporalio import activity, workflow

from holdfast.activities.user_loop import called, working
from holdfast.errors import InvalidArgumentError
from holdfast.task.data.head import TaskHead
from holdfast.task.data.wire import AdvanceInput, GuardInput, ToolInput, ToolsInput
from holdfast.tracing.spans import TraceRules
from holdfast.values.text.redact import redact_long

VARIABLE = "HOLDFAST_LOG"
QUIET = ("httpx", "httpx2", "temporalio")
"""Loggers that write a line for each request, and for each poller."""


def begin_logging(level: int) -> None:
    """Log on stderr, in the form that `HOLDFAST_LOG` names.

    Args:
        level: Least level of what is logged.

    Raises:
        InvalidArgumentError: There is no such form.
    """
    form = os.environ.get(VARIABLE) or "text"
    if form not in {"text", "json"}:
        msg = f"{VARIABLE} is {form!r}; the forms of logs are json, and text, the default."
        raise InvalidArgumentError(msg)
    logging.basicConfig(level=level, format="%(asctime)s %(name)s %(message)s")
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    if form == "json":
        for handler in logging.root.handlers:
            handler.setFormatter(JsonLines())
        # The fields say it.
        activity.logger.activity_info_on_message = False
        workflow.logger.workflow_info_on_message = False


class JsonLines(logging.Formatter):
    """Writes a record as a JSON object, without secrets; fields that are not known are left out."""

    is_json = True
    """For `say`: what is for people must not be among the lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        trace = record.exc_text
        if trace is None and record.exc_info:
            trace = self.formatException(record.exc_info)
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact_long(record.getMessage()),
            **_of_sdk(record),
            **_here(),
            "exception": redact_long(trace) if trace else None,
        }
        return json.dumps({name: value for name, value in line.items() if value})


def _of_sdk(record: logging.LogRecord) -> dict[str, Any]:
    """Return the task of a record that Temporal's SDK has made, outside of the task's context."""
    for name in ("temporal_activity", "temporal_workflow"):
        known: Mapping[str, Any] | None = getattr(record, name, None)
        if known is not None:
            return {"task": known.get("workflow_id"), "attempt": known.get("attempt")}
    return {}


def _here() -> dict[str, Any]:
    """Return what is known of the task whose code runs here."""
    if workflow.in_workflow():
        info = workflow.info()
        core = getattr(workflow.instance(), "core", None)  # a session has none
        head = None if core is None else core.ledger.head
        return {"task": info.workflow_id, **_of_head(info.namespace, info.workflow_id, head)}
    if not activity.in_activity():
        return {}
    done, work = activity.info(), working.get()
    task = done.workflow_id or ""
    found: dict[str, Any] = {"task": task, "activity": done.activity_type, "attempt": done.attempt}
    if work is None:
        return found
    found |= _of_head(done.namespace, task, work.head) | _of_given(work.given)
    owner, call = called.get()
    return {**found, "call": call} if owner is work else found


def _of_given(given: object) -> dict[str, Any]:
    """Return what the input of an activity says of the step, and of its agent."""
    match given:
        case GuardInput():
            return _of_given(given.step)
        case AdvanceInput() if given.digest:  # the step is too large to be sent
            return {"step": given.n, "agent": None}
        case AdvanceInput():
            agent = "" if given.open is None else given.open.step.agent
        case ToolInput() | ToolsInput():
            agent = given.agent
        case _:
            return {}
    return {"step": given.n, "agent": agent} if agent else {"step": given.n}


def _of_head(namespace: str, task: str, head: TaskHead | None) -> dict[str, Any]:
    if head is None:
        return {}
    rules = TraceRules.of(namespace, task, head)
    return {
        "agent": head.agent,
        "tenant": getattr(head, "tenant", None),
        "trace": None if rules is None else rules.trace.trace,
    }
