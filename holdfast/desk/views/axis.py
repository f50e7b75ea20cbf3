"""The axis of a timeline: bars of what took time, and long pauses drawn shorter."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from holdfast.desk.views.words import span
from holdfast.task.shown import CallState, StepState

BarKind = Literal["step", "model", "tool", "wait"]
BarState = CallState | StepState

GAP_SHARE = 0.12
"""Part of the axis that a compressed gap takes."""

GAP_FACTOR = 0.6
"""A pause longer than this part of the time in which something ran is compressed."""

MOST_TICKS = 6
TICK_ROOM = 9.0
"""Part of the axis, of 100, that the words of a tick take."""

_STEPS = (
    *(size * k for size in (0.001, 0.01, 0.1, 1.0) for k in (1, 2, 5)),
    *(60.0 * k for k in (0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 360, 720, 1440)),
)

LEAST_GAP_SECONDS = 5.0
"""A shorter pause is drawn as long as it was."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """Something that took time.

    Attributes:
        kind: "wait" for a person's decision.
        label: What it was.
        detail: Arguments, answer or decision, in one line.
        result: What a tool gave, in one line.
        start: When it began, seconds since the epoch.
        end: When it ended; the present for what runs.
        state: How it ended; "undone" or "restarted" also of what was done in a step that was left.
        n: Number of the step.
        branch: Branch of the step.
        attempts: How often it was started.
        cost: What its model calls cost, in words; empty when no price is known.
    """

    kind: BarKind
    label: str
    start: float
    end: float
    state: BarState = "done"
    detail: str = ""
    result: str = ""
    n: int = 0
    branch: int = 0
    attempts: int = 1
    cost: str = ""

    @property
    def took(self) -> str:
        """How long it took, in words."""
        return span(self.end - self.start)

    @property
    def words(self) -> str:
        """All of it in a sentence, for readers that see no bars."""
        often = f", started {self.attempts} times" if self.attempts > 1 else ""
        cost = f", {self.cost}" if self.cost else ""
        return f"{self.label}: {self.state}, {self.took}{often}{cost}"


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A time in which nothing ran, drawn shorter than it was."""

    start: float
    end: float
    left: float
    width: float

    @property
    def took(self) -> str:
        """How long it was."""
        return span(self.end - self.start)

    @property
    def words(self) -> str:
        """How long it was, in a sentence."""
        return f"nothing ran for {self.took}"


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Maps times to places from 0 to 100; long gaps are compressed.

    Attributes:
        knots: Pairs of a time and its place, growing.
        gaps: The compressed gaps.
    """

    knots: tuple[tuple[float, float], ...]
    gaps: tuple[Gap, ...] = ()

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Places of some round times since the begin, and these in words; none within a gap."""
        begins = {gap.start for gap in self.gaps}
        pairs = zip(self.knots, self.knots[1:], strict=False)
        parts = [(early[0], late[0]) for early, late in pairs if early[0] not in begins]
        rest = sum(late - early for early, late in parts)
        step = next((each for each in _STEPS if each * MOST_TICKS >= rest), rest / MOST_TICKS)
        found: list[tuple[float, str]] = []
        for early, late in parts:
            since, until = early - self.knots[0][0], late - self.knots[0][0]
            free = 0.0 if since == 0 else self.place(early) + TICK_ROOM / 2
            for k in range(math.ceil(since / step), math.floor(until / step) + 1):
                place = self.place(self.knots[0][0] + k * step)
                if free <= place <= 100 - TICK_ROOM / 2:
                    found.append((place, span(k * step) if k else "0"))
                    free = place + TICK_ROOM
        return tuple(found)

    def breaks(self, bar: Bar) -> tuple[Gap, ...]:
        """Return the gaps that a bar crosses: it is drawn shorter there than it was."""
        return tuple(gap for gap in self.gaps if bar.start < gap.end and bar.end > gap.start)

    def place(self, at: float) -> float:
        """Return the place of a time."""
        for (early, left), (late, right) in zip(self.knots, self.knots[1:], strict=False):
            if at <= late:
                share = (at - early) / (late - early) if late > early else 0.0
                return left + max(share, 0.0) * (right - left)
        return 100.0


def axis_of(busy: Sequence[Bar], shown: Sequence[Bar]) -> Axis:
    """Return the axis for some bars.

    Args:
        busy: The bars in which something ran: times without one are gaps.
        shown: All bars.
    """
    if not shown:
        return Axis(knots=())
    first, last = min(bar.start for bar in shown), max(bar.end for bar in shown)
    spans = _joined([(bar.start, bar.end) for bar in busy])
    pauses = [
        (early, late)
        for early, late in _between(first, last, spans)
        if late - early
        > max(GAP_FACTOR * sum(end - start for start, end in spans), LEAST_GAP_SECONDS)
    ]
    share = min(GAP_SHARE, 0.5 / len(pauses)) if pauses else 0.0
    idle = sum(late - early for early, late in pauses)
    rest = max(last - first - idle, 1e-9)
    per_second = (1 - share * len(pauses)) / rest
    knots, gaps, place = [(first, 0.0)], list[Gap](), 0.0
    for early, late in pauses:
        place += 100 * per_second * (early - knots[-1][0])
        knots.append((early, place))
        gaps.append(Gap(start=early, end=late, left=place, width=100 * share))
        place += 100 * share
        knots.append((late, place))
    knots.append((last, 100.0))
    return Axis(knots=tuple(knots), gaps=tuple(gaps))


def _joined(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    joined: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def _between(
    first: float, last: float, spans: Sequence[tuple[float, float]]
) -> Iterator[tuple[float, float]]:
    at = first
    for start, end in spans:
        if start > at:
            yield at, start
        at = max(at, end)
    if last > at:
        yield at, last
