"""Context variables of runs: tools see those of the caller that began their own run."""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextvars import Context, ContextVar, copy_context
from typing import Any

MOST_KEPT = 10_000
"""Tasks whose variables are kept; tools of those begun before see none."""

_lock = threading.Lock()
_kept: OrderedDict[str, Context] = OrderedDict()
_roots: OrderedDict[str, str] = OrderedDict()


def carry(task_id: str) -> None:
    """Keep the caller's context variables for the tools of a task that this process runs itself."""
    with _lock:
        _kept[task_id] = copy_context()
        _trim(_kept)


def share(task_id: str, root: str) -> None:
    """Give a task that is a tool call of another task's run the variables of that run."""
    with _lock:
        _roots[task_id] = root
        _trim(_roots)


def release(task_id: str) -> None:
    """Let go of the variables of a task that is closed."""
    with _lock:
        _kept.pop(task_id, None)
        _roots.pop(task_id, None)


def context_of(task_id: str) -> Context:
    """Return a context for an activity of a task: the run's variables, under the activity's own.

    In another process than the caller's, or in a later one, the run has none.
    """
    with _lock:
        known = _kept.get(_roots.get(task_id, task_id))
        made = Context() if known is None else known.copy()
    for variable, value in copy_context().items():
        made.run(_set, variable, value)
    return made


def _set(variable: ContextVar[Any], value: Any) -> None:
    variable.set(value)


def _trim(kept: OrderedDict[str, Any]) -> None:
    while len(kept) > MOST_KEPT:
        kept.popitem(last=False)
