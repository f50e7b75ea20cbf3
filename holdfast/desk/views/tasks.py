"""Rows of the list of tasks, and its filters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast, get_args

from holdfast.task.data.calls import Approval, asked_for
from holdfast.values.messages import Usage
from holdfast.values.runs.status import TaskStatus
from holdfast.values.steps import ListedTask, Task
from holdfast.values.text.redact import redact
from holdfast.values.text.shown import age, shortened

STATUSES = cast("tuple[TaskStatus, ...]", get_args(TaskStatus))
COLOURS: Mapping[str, str] = {
    "running": "primary",
    "waiting": "warning",
    "paused": "grey",
    "needs_attention": "negative",
    "answered": "positive",
    "finished": "positive",
    "failed": "negative",
    "abandoned": "grey",
}
"""Colour of each status, in the words of the pages' library."""

MEANING: Mapping[str, str] = {
    "running": "A step is in progress or queued.",
    "waiting": "A person must decide.",
    "paused": "A person has paused it.",
    "needs_attention": "A step has failed and can be run again.",
    "answered": "It has its answer. Undo and feedback still work. Finalize closes it for good.",
    "finished": "It is closed with its answer.",
    "failed": "It is closed without an answer.",
    "abandoned": "It was given up.",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A task in the list.

    Attributes:
        task_id: Its id.
        status: Its status.
        agent: Its agent.
        input: What was asked, cut for one line.
        session: Its session.
        age: How long ago.
        steps: Completed steps; None when only lists were read.
        usage: What its model calls cost; None likewise.
        waits_for: What it waits for, in words.
    """

    task_id: str
    status: str
    agent: str
    input: str = ""
    session: str = ""
    age: str = ""
    steps: int | None = None
    usage: Usage | None = None
    waits_for: str = ""

    @property
    def colour(self) -> str:
        """Colour of its status."""
        return COLOURS.get(self.status, "grey")


def row_of(task: ListedTask, approvals: Iterable[Approval] = (), *, now: float) -> Row:
    """Return the row of a task.

    Args:
        task: The task.
        approvals: Its open approvals.
        now: Time, seconds since the epoch.
    """
    read = task if isinstance(task, Task) else None
    return Row(
        task_id=task.task_id,
        status=task.status,
        agent=task.agent,
        input=redact(shortened(task.input, 120)),
        session=read.session if read else "",
        age=age(now - task.created),
        steps=read.steps if read else None,
        usage=read.usage if read else None,
        waits_for=waits_for(task, list(approvals)),
    )


def waits_for(task: ListedTask, approvals: list[Approval]) -> str:
    """Return what a task waits for, in words; empty when it waits for nothing."""
    if approvals:
        more = len(approvals) - 1
        what = asked_for(approvals[0].kind, approvals[0].tool)
        return what + (f" and {more} more" if more else "")
    known = task if isinstance(task, Task) else Task(task_id=task.task_id)
    paused, error = known.paused, known.error
    match task.status:
        case "paused":
            return redact(shortened(f"resume: paused by {paused}" if paused else "resume"))
        case "needs_attention":
            return redact(shortened(error or "another run of its step"))
        case "answered":
            return "finalize"
        case _:
            return redact(shortened(task.blocked_by or known.waits))


MOST_SEARCHED = 5_000
"""Most tasks that a search looks at, from the page where it begins."""


@dataclass(frozen=True, kw_only=True)
class TaskFilter:
    """Which tasks are listed; the query of the list's URL.

    Attributes:
        status: Only with this status.
        agent: Only of this agent.
        text: Only with this text in id, input or agent.
        page: Number of the page, from 1.
        after: Token of the page before; a search has its pages at once.
    """

    status: TaskStatus | None = None
    agent: str = ""
    text: str = ""
    page: int = 1
    after: str = ""

    @classmethod
    def read(cls, query: Mapping[str, str]) -> TaskFilter:
        """Read the query of a URL; what does not fit is left out."""
        status = query.get("status")
        page, after, text = (query.get(name, "") for name in ("page", "after", "q"))
        is_page = page.isdecimal() and len(page) < 7 and (after or text)  # noqa: PLR2004
        return cls(
            status=status if status in STATUSES else None,
            agent=query.get("agent", ""),
            text=text,
            page=max(int(page), 1) if is_page else 1,
            after=after,
        )

    @property
    def query(self) -> dict[str, str]:
        """The query of the URL, without what is not filtered."""
        page = str(self.page) if self.page > 1 else ""
        names = {"status": self.status or "", "agent": self.agent, "q": self.text, "page": page}
        names["after"] = self.after
        return {name: value for name, value in names.items() if value}

    def takes(self, task: ListedTask) -> bool:
        """Whether a task has the searched text; status and agent are asked of the server."""
        wanted = self.text.casefold()
        return any(wanted in each.casefold() for each in (task.task_id, task.input, task.agent))
