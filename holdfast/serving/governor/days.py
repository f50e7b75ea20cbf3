"""What tenants may use in a day, over all providers: how the governor counts it; pure.

A worker is leased a number of calls of each tenant, by what the tenant's last calls have used. What
these use is in the worker's next ask.
"""

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from holdfast.values.base import Value
from holdfast.values.messages import NOTHING, Dollars

EPOCH = datetime(1970, 1, 1).toordinal()  # noqa: DTZ001  a date
KEPT_DAYS = 2
"""Days after which a day is forgotten: by then it is over in every time zone."""


class DayLimit(Value):
    """What a tenant may use in a day; 0 means any.

    Attributes:
        dollars: US dollars.
        tokens: Tokens, read and written.
        zone: IANA name of the time zone whose midnight begins the day.
    """

    dollars: Dollars = NOTHING
    tokens: int = 0
    zone: str = "UTC"


class Spending(Value):
    """What a worker tells of a tenant.

    Attributes:
        limit: What the tenant may use in a day, as the worker knows it.
        running: Calls that run.
        waiting: Calls that wait.
        may: Calls that may still begin by the lease that the worker has.
        calls: Calls that were answered since the ask before.
        tokens: Their tokens.
        dollars: Their cost.
    """

    limit: DayLimit
    running: int = 0
    waiting: int = 0
    may: int = 0
    calls: int = 0
    tokens: int = 0
    dollars: Dollars = NOTHING


class Room(Value):
    """What a worker may do for a tenant during a lease.

    Attributes:
        calls: How many calls may begin.
        used: What of the day is used up; empty while there is something left.
        ends: When the tenant's day ends, seconds since the epoch.
    """

    calls: int = 0
    used: Literal["", "dollars", "tokens"] = ""
    ends: float = 0.0


class Day(BaseModel):
    """What a tenant has used on a day.

    Attributes:
        date: The day in the tenant's time zone, days since the epoch.
        dollars: What calls have cost, in US dollars.
        tokens: Their tokens.
        each_dollars: What a call of the tenant costs, by the last ones.
        each_tokens: The tokens that it uses, by the last ones; 0 before any was answered.
    """

    date: int = 0
    dollars: Dollars = NOTHING
    tokens: int = 0
    each_dollars: float = 0.0
    each_tokens: float = 0.0

    def book(self, told: Spending, now: float) -> None:
        """Count what calls have used since the ask before."""
        self._begin(told.limit, now)
        self.dollars += told.dollars
        self.tokens += told.tokens
        if told.calls:
            weight = 0.25 if self.each_tokens else 1.0
            self.each_dollars += weight * (float(told.dollars) / told.calls - self.each_dollars)
            self.each_tokens += weight * (told.tokens / told.calls - self.each_tokens)

    def room(self, told: Spending, others: int, now: float) -> Room:
        """Say how many calls a worker may begin.

        Args:
            told: What the worker tells of the tenant.
            others: Calls that are reserved for other workers.
            now: The time.
        """
        limit, ends = told.limit, self._begin(told.limit, now)
        if limit.dollars and self.dollars >= limit.dollars:
            return Room(used="dollars", ends=ends)
        if limit.tokens and self.tokens >= limit.tokens:
            return Room(used="tokens", ends=ends)
        kept = others + told.running + told.may
        most: float = 2 * (told.running + told.waiting) + 5 + kept
        if not self.each_tokens:  # the first one shows what they use
            most = 1
        if limit.dollars and self.each_dollars:
            most = min(most, float(limit.dollars - self.dollars) / self.each_dollars)
        if limit.tokens and self.each_tokens:
            most = min(most, (limit.tokens - self.tokens) / self.each_tokens)
        return Room(calls=max(int(most) - kept, 0 if kept else 1), ends=ends)

    def _begin(self, limit: DayLimit, now: float) -> float:
        """Begin the next day, if the last one is over; return when the present one ends."""
        today, ends = day_of(now, limit.zone)
        if self.date - today not in (0, 1):  # 1: the clock was set back over midnight
            self.date, self.dollars, self.tokens = today, NOTHING, 0
        return ends


def day_of(now: float, zone: str) -> tuple[int, float]:
    """Return the number of the day in a time zone, since the epoch, and when it ends."""
    here = datetime.fromtimestamp(now, ZoneInfo(zone))
    following = datetime.combine(here.date() + timedelta(days=1), time(), here.tzinfo)
    return here.toordinal() - EPOCH, following.timestamp()
