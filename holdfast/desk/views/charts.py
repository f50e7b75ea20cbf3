"""Charts over a day or a week: tasks, what waits, tokens, cost, and the latency of models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from holdfast.desk.views.words import dotted, span
from holdfast.task.data.calls import Approval
from holdfast.task.happenings import Happening
from holdfast.task.people.choices import TITLES
from holdfast.task.shown import bodies_in
from holdfast.values.steps import Task

MOST_MODELS = 4
"""Number of models whose latency is drawn: the most called ones."""


@dataclass(frozen=True, kw_only=True)
class Period:
    """A time up to now, in parts of one length.

    Attributes:
        parts: Number of its parts.
        seconds: Length of a part.
        end: When it ends, seconds since the epoch.
    """

    parts: int
    seconds: float
    end: float

    @property
    def start(self) -> float:
        """When it begins, seconds since the epoch."""
        return self.end - self.parts * self.seconds


PERIODS: Mapping[str, tuple[int, float]] = {"day": (24, 3600.0), "week": (28, 6 * 3600.0)}
"""Number and length of the parts of each."""


def period_of(name: str, now: float) -> Period:
    """Return a period up to now, in whole parts."""
    parts, seconds = PERIODS[name]
    return Period(parts=parts, seconds=seconds, end=(now // seconds + 1) * seconds)


@dataclass(frozen=True, kw_only=True)
class Column:
    """One part of the time: when it begins, and the value of each series."""

    start: float
    values: tuple[tuple[str, float], ...]

    @property
    def height(self) -> float:
        """The sum of its values."""
        return sum(value for _, value in self.values)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A value over a time, in columns.

    Attributes:
        title: What it shows.
        columns: One for each part of the time.
        series: What the columns are made of, with the value of the whole time in words.
        show: Makes words of a value.
    """

    title: str
    columns: tuple[Column, ...]
    series: tuple[tuple[str, str], ...]
    show: Callable[[float], str]

    @property
    def top(self) -> float:
        """The height of the highest column."""
        return max((each.height for each in self.columns), default=0.0)

    @property
    def words(self) -> str:
        """The whole in words, for readers that see no columns."""
        return dotted(self.title, *(f"{name}: {value}" for name, value in self.series))


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One answer of a model: when it came, how long it took, what it used."""

    at: float
    model: str
    took: float
    tokens: int
    dollars: float


def answers_in(found: Iterable[Happening]) -> list[Asked]:
    """List the answers of models in a task."""
    return [
        Asked(
            at=answer.at,
            model=answer.model or "model",
            took=answer.took,
            tokens=answer.usage.total_tokens,
            dollars=float(answer.usage.paid),
        )
        for body in bodies_in(found)
        for part in body.journal
        if (answer := part.answer) is not None
    ]


def charts_of(
    period: Period, tasks: Sequence[Task], waiting: Sequence[Approval], asked: Sequence[Asked]
) -> list[Chart]:
    """Return the charts that have something to show.

    Args:
        period: The time.
        tasks: The tasks that began in it.
        waiting: What waits for a person.
        asked: The answers of models.
    """
    often = Counter(each.model for each in asked).most_common(MOST_MODELS)
    found = [
        _chart("Tasks begun, by state", period, ((t.created, t.status, 1) for t in tasks)),
        _chart("Waits for people, by age", period, ((w.asked, TITLES[w.kind], 1) for w in waiting)),
        _chart("Tokens", period, ((a.at, a.model, a.tokens) for a in asked)),
        _chart("Cost", period, ((a.at, a.model, a.dollars) for a in asked), show=_dollars),
        *(
            _chart(
                f"Latency of {model}, median",
                period,
                ((a.at, model, a.took) for a in asked if a.model == model),
                merge=median,
                show=span,
            )
            for model, _ in often
        ),
    ]
    return [each for each in found if each.top]


def _dollars(value: float) -> str:
    return f"${value:,.4f}".rstrip("0").rstrip(".")


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _chart(
    title: str,
    period: Period,
    points: Iterable[tuple[float, str, float]],
    *,
    merge: Callable[[list[float]], float] = sum,
    show: Callable[[float], str] = _count,
) -> Chart:
    parts: list[dict[str, list[float]]] = [{} for _ in range(period.parts)]
    whole: dict[str, list[float]] = {}
    for at, name, value in points:
        place = int((at - period.start) // period.seconds)
        if 0 <= place < period.parts:
            parts[place].setdefault(name, []).append(value)
            whole.setdefault(name, []).append(value)
    columns = tuple(
        Column(
            start=period.start + k * period.seconds,
            values=tuple((name, merge(part[name])) for name in whole if name in part),
        )
        for k, part in enumerate(parts)
    )
    series = tuple((name, show(merge(values))) for name, values in whole.items())
    return Chart(title=title, columns=columns, series=series, show=show)
