"""The branches of a task: each undo ends one and begins the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from holdfast.task.happenings import Happening, Noted, StepEnded, StepsUndone
from holdfast.values.steps import Task
from holdfast.values.text.redact import redact


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A branch of the ledger.

    Attributes:
        number: Its number.
        after: Number of the last step that it shares with the branch before it.
        steps: Numbers of the steps that were completed on it.
        is_present: Whether the task goes on with it.
        by: Who undid steps, so that it ended.
        reason: Why.
        at: When it ended; 0 for the present one.
        remains: Effects that the undo could not take back.
    """

    number: int
    after: int = 0
    steps: tuple[int, ...] = ()
    is_present: bool = True
    by: str = ""
    reason: str = ""
    at: float = 0.0
    remains: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The task and step that a task was forked from."""

    task_id: str
    n: int
    by: str = ""


@dataclass(frozen=True, kw_only=True)
class ForkedTask:
    """A task that was forked from another one.

    Attributes:
        task: What lists know of it.
        n: Number of the last step that both share.
    """

    task: Task
    n: int


def branches_of(found: Sequence[Happening]) -> list[Branch]:
    """List the branches of a task, oldest first."""
    done: list[Branch] = []
    number, after, steps = 0, 0, list[int]()
    for each in found:
        if isinstance(each, StepEnded):
            number = each.body.branch
            steps.append(each.body.n)
        elif isinstance(each, StepsUndone):
            number = each.branch
            remains = cast("list[object]", each.event.body.get("remains") or [])
            done.append(
                Branch(
                    number=number,
                    after=after,
                    steps=tuple(steps),
                    is_present=False,
                    by=each.event.by,
                    reason=redact(each.event.text),
                    at=each.at,
                    remains=tuple(redact(str(text)) for text in remains),
                )
            )
            number, after, steps = number + 1, each.first - 1, []
    return [*done, Branch(number=number, after=after, steps=tuple(steps))]


def origin_of(found: Sequence[Happening]) -> Origin | None:
    """Return where a task was forked from; the nearest, of a fork of a fork."""
    forks = [
        each.event for each in found if isinstance(each, Noted) and each.event.kind == "forked"
    ]
    if not forks:
        return None
    event = forks[-1]
    at = event.body.get("at")
    return Origin(
        task_id=str(event.body.get("from", "")), n=at if isinstance(at, int) else 0, by=event.by
    )
