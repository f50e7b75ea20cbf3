"""The calls of one process that wait for their turn at a provider: who is next, and when; pure.

Time is given, in seconds of any clock that does not jump.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import exp, inf
from random import Random
from typing import Any

from holdfast.serving.governor.days import DayLimit, Room, Spending
from holdfast.serving.governor.shares import BURST, HORIZON, MEMORY, Ask, Lease, Limits, Wish
from holdfast.values.messages import NOTHING

MOST_WAITING = 50
"""Calls that wait in a process: each takes a place among its activities. Others come again."""

LEAD = 0.5
"""Seconds before the end of a lease at which the next one is asked for."""

SOON = 0.5
"""Shortest time between two asks."""

USUAL_TOKENS = 300.0
"""Tokens of an answer, until some are known."""

LEARNS = 0.1
"""Weight of the newest answer in what is known of their tokens."""


@dataclass(eq=False)
class Call:
    """A call that waits or runs.

    Attributes:
        size: Bytes of its request.
        since: When it was wanted first, by the server's clock: older calls come first.
        tenant: Whose it is; empty for no one's.
        priority: 1 comes first, 5 last.
        tokens: The tokens that it is expected to use.
        cost: Seconds of the provider's time that are reserved for it.
        is_past: Whether a person lets it go past its tenant's day.
    """

    size: int = 0
    since: float = 0.0
    tenant: str = ""
    priority: int = 3
    tokens: float = 0.0
    cost: float = 0.0
    is_past: bool = False


@dataclass
class Told:
    """What the governor is to know: counts since the ask before."""

    calls: int = 0
    tokens: int = 0
    refused: int = 0
    dollars: Decimal = NOTHING


class Turns:
    """The calls of one provider and key in this process.

    Attributes:
        limits: The provider's limits.
        waiting: The calls that wait.
        running: The calls that run.
        lease: What may be used now, or will be; None when nothing was leased.
    """

    def __init__(
        self,
        worker: str,
        limits: Limits,
        *,
        days: Callable[[str], DayLimit] | None = None,
        random: Random | None = None,
    ) -> None:
        """Begin with nothing.

        Args:
            worker: Names this process to the governor.
            limits: The provider's limits.
            days: Says what a tenant may use in a day, where that is counted here.
            random: Spreads the first calls of processes that begin at once.
        """
        self.limits = limits
        self._days = days
        self.waiting: list[Call] = []
        self.running: set[Call] = set()
        self.lease: Lease | None = None
        self._worker = worker
        self._random = random or Random()  # noqa: S311  no secret
        self._next: Lease | None = None
        self._begins = self._ends = 0.0
        self._next_begins = 0.0
        self._level = 0.0
        self._at = 0.0
        self._had: dict[str, float] = defaultdict(float)
        self._recent: dict[tuple[str, int], float] = defaultdict(float)
        self._started = 0
        self._asks = 0
        self._asked = -inf
        self._news = False
        self._paused = -inf
        self._room = 1.0
        self._ratio = 1.0
        self._told = Told()
        self._told_of: dict[str, Told] = defaultdict(Told)
        self._began = Counter[str]()

    def join(self, call: Call, now: float) -> Call | None:
        """Let a call wait; return one that must come again later, as too many wait."""
        call.tokens = (call.size / 4 + USUAL_TOKENS) * self._ratio
        call.cost = self.limits.cost(call.tokens)
        self._pass(now)
        self._news = self._news or call.tenant not in self._had
        self.waiting.append(call)
        if len(self.waiting) <= MOST_WAITING:
            return None
        last = max(each.priority for each in self.waiting)
        counts = Counter(each.tenant for each in self.waiting if each.priority == last)
        [(most, _)] = counts.most_common(1)
        ranked = (each for each in self.waiting if (each.priority, each.tenant) == (last, most))
        left = max(ranked, key=lambda each: each.since)
        self.waiting.remove(left)
        return left

    def pick(self, now: float) -> Call | None:
        """Let the next call begin, if one may."""
        call = self._first(now)
        if call is None or self._time_for(call) > 1e-9:  # noqa: PLR2004  no time
            return None
        self.waiting.remove(call)
        self.running.add(call)
        self._level -= call.cost
        self._had[call.tenant] += call.cost or 1.0
        self._recent[call.tenant, call.priority] += 1
        self._started += 1
        self._began[call.tenant] += 1
        return call

    def wake(self, now: float) -> float:
        """Return when to look again who is next; `inf` for not before something happens."""
        call = self._first(now)
        begins = inf if self._next is None else self._next_begins
        if call is not None:
            return min(now + self._time_for(call), begins)
        if self.waiting and self._paused > now:
            return min(self._paused, begins)
        return begins

    def leave(self, call: Call) -> None:
        """Give up a call that was not made, and give back what was reserved for it."""
        if call in self.running:
            self.running.discard(call)
            self._level += call.cost
            self._started -= 1
            self._began[call.tenant] -= 1
            self._had[call.tenant] -= call.cost or 1.0
        elif call in self.waiting:
            self.waiting.remove(call)

    def done(self, call: Call, tokens: int, dollars: Decimal = NOTHING) -> None:
        """Settle a call that was made by what it has used; by nothing if it has failed."""
        if call not in self.running:
            return
        self.running.discard(call)
        self._level += call.cost - self.limits.cost(tokens)
        told = (self._told, self._told_of[call.tenant]) if self._days else (self._told,)
        for each in told:
            each.calls += 1
            each.tokens += tokens
            each.dollars += dollars
        if tokens:
            ratio = tokens / (call.size / 4 + USUAL_TOKENS)
            self._ratio += (ratio - self._ratio) * LEARNS

    def refused(self, call: Call, pause: float, now: float) -> None:
        """Settle a call that the provider has refused because of a limit."""
        if call in self.running:
            self.running.discard(call)
            self._told.refused += 1
            self._paused = max(self._paused, now + pause)

    def heard(self, headers: Mapping[str, str]) -> None:
        """Take what the provider says of its limits."""
        self._room = min(self._room, room_in(headers, self.limits))

    def ask(self, now: float) -> Ask:
        """Make the ask for the next lease."""
        self._pass(now)
        self._asks += 1
        self._asked = now
        early = self.lease is not None and now < self._ends - LEAD
        wanted = defaultdict(float, self._recent)
        for each in self.waiting:
            wanted[each.tenant, each.priority] += 2
        for each in self.running:
            wanted[each.tenant, each.priority] += 1
        known = [each.cost for each in (*self.waiting, *self.running)]
        cost = sum(known) / len(known) if known else self.limits.cost(USUAL_TOKENS * self._ratio)
        told, most = self._told, self.lease.most if self.lease is not None else None
        return Ask(
            worker=self._worker,
            n=self._asks,
            limits=self.limits,
            wishes=tuple(
                Wish(tenant=tenant, priority=priority, seconds=count * (cost or HORIZON / 10))
                for (tenant, priority), count in sorted(wanted.items())
            ),
            early=early,
            running=len(self.running),
            waiting=len(self.waiting),
            may=0 if most is None else max(most - self._started, 0),
            least=min(known, default=cost),
            calls=told.calls,
            tokens=told.tokens,
            dollars=told.dollars,
            refused=told.refused,
            pause=max(self._paused - now, 0.0),
            room=self._room,
            spending={} if self._days is None else self._spending(self._days),
        )

    def _spending(self, days: Callable[[str], DayLimit]) -> dict[str, Spending]:
        """Return what the governor learns of tenants whose calls wait, run, or were answered."""
        running = Counter(each.tenant for each in self.running)
        waiting = Counter(each.tenant for each in self.waiting)
        found: dict[str, Spending] = {}
        for tenant in sorted({*running, *waiting, *self._told_of}):
            told, room = self._told_of.get(tenant, Told()), self._room_of(tenant)
            found[tenant] = Spending(
                limit=days(tenant),
                running=running[tenant],
                waiting=waiting[tenant],
                may=0 if room is None else max(room.calls - self._began[tenant], 0),
                calls=told.calls,
                tokens=told.tokens,
                dollars=told.dollars,
            )
        return found

    def take(self, ask: Ask, lease: Lease, now: float) -> None:
        """Take the answer to an ask."""
        self._pass(now)
        told = self._told
        self._told = Told(
            told.calls - ask.calls,
            told.tokens - ask.tokens,
            told.refused - ask.refused,
            told.dollars - ask.dollars,
        )
        for tenant, each in ask.spending.items():
            left = self._told_of.pop(tenant, Told())
            if left.calls > each.calls:  # answered since
                left.calls -= each.calls
                left.tokens -= each.tokens
                left.dollars -= each.dollars
                self._told_of[tenant] = left
        self._room, self._news = 1.0, False
        self._next, self._next_begins = lease, now + lease.begins
        if not lease.begins:
            self._begin(now)

    def due(self, now: float) -> float:
        """Return when to ask again; `inf` for not before another call comes."""
        self._pass(now)
        if self._next is not None:
            return inf
        # A call that runs keeps what it reserves by the asks of its process.
        keeps = self.running and (self.limits.at_once or self._days)
        wants = bool(self.waiting or keeps)
        lease = self.lease
        if lease is None:
            unsaid = not self.running and (self._told.refused or self._told.calls)
            return max(now, self._asked + SOON) if wants or unsaid else inf
        if lease.why:
            return min(now + lease.retry, self._ends) if wants else inf
        lead = min(LEAD, 0.4 * lease.seconds)
        due = self._ends - lead if wants or self._started else inf
        is_new = lease.rooms is not None and any(
            each.tenant not in lease.rooms for each in self.waiting
        )
        may_gain = self._news or is_new or (lease.has_more and self.wake(now) > now + SOON / 2)
        if self.waiting and may_gain:
            due = min(due, max(now, self._asked + SOON))
        return max(due, now)

    def words(self, call: Call) -> str:
        """Say for a person what a call waits for."""
        if self.lease is not None and self.lease.why:
            return self.lease.why
        if self._days is not None:
            return "calls under way may use what is left of it"
        before = sum(each.since < call.since for each in self.waiting)
        return f"{len(self.running)} calls run in this process, and {before} came before it"

    def used_up(self, call: Call) -> Room | None:
        """Return the day of a call's tenant, if that is used up and the call may not go past it."""
        room = self._room_of(call.tenant)
        return None if room is None or not room.used or call.is_past else room

    @property
    def is_owing(self) -> bool:
        """Whether calls were answered that the governor does not know of yet."""
        return bool(self._told.calls)

    def _room_of(self, tenant: str) -> Room | None:
        return ((self.lease and self.lease.rooms) or {}).get(tenant)

    def _has_room(self, call: Call) -> bool:
        """Whether the day of a call's tenant lets it begin, where days are counted."""
        if self._days is None or call.is_past:
            return True
        room = self._room_of(call.tenant)
        return room is not None and self._began[call.tenant] < room.calls

    @property
    def is_held_up(self) -> bool:
        """Whether nothing may begin now, whatever waits."""
        return self._paused > self._at or (self.lease is not None and bool(self.lease.why))

    @property
    def pause(self) -> float:
        """Seconds until the waiting calls have had their turns, by the present share."""
        share = self.lease.share if self.lease is not None else 0.0
        return sum(each.cost for each in self.waiting) / max(share, 0.01)

    def _first(self, now: float) -> Call | None:
        """Return the call whose turn is next; None if none may begin now."""
        self._pass(now)
        lease = self.lease
        if not self.waiting or lease is None or lease.why or now < self._paused:
            return None
        if lease.at_once is not None and len(self.running) >= lease.at_once:
            return None
        if lease.most is not None and self._started >= lease.most:
            return None
        waiting = [each for each in self.waiting if self._has_room(each)]
        if not waiting:
            return None
        known = lease.tenants
        usual = max(known.values(), default=1.0)

        def rank(call: Call) -> tuple[int, float, float]:
            part = max(known.get(call.tenant, usual), usual / 1000, 1e-6)
            return call.priority, self._had[call.tenant] / part, call.since

        return min(waiting, key=rank)

    def _time_for(self, call: Call) -> float:
        """Return the seconds until there is time for a call."""
        missing = call.cost - self._level
        if missing <= 0 or self.lease is None:
            return 0.0
        return missing / self.lease.share if self.lease.share else inf

    def _begin(self, at: float) -> None:
        lease, self._next = self._next, None
        if lease is None:
            return
        if self.lease is None:
            self._level, self._started = 0.0, 0
            if lease.share < 0.9:  # noqa: PLR2004  others began at the same time
                each = [call.cost for call in self.waiting]
                self._level -= self._random.random() * min(each, default=0.0)
        self._level += lease.credit
        self.lease, self._begins, self._ends = lease, at, at + lease.seconds
        self._started = 0
        self._began.clear()

    def _pass(self, now: float) -> None:
        """Let time go by: what may be used grows, leases end and begin."""
        if self._next is not None and self._next_begins <= now:
            self._grow(self._next_begins)
            self._begin(self._next_begins)
        self._grow(now)
        if self.lease is not None and self._ends <= now and self._next is None:
            self.lease = None

    def _grow(self, now: float) -> None:
        since = now - self._at
        if since <= 0:
            return
        if self.lease is not None:
            share = self.lease.share
            time = max(min(now, self._ends) - max(self._at, self._begins), 0.0)
            most = max(BURST * share, max((each.cost for each in self.waiting), default=0.0))
            self._level = max(min(self._level + share * time, most), self._level)  # keeps credit
        _fade(self._had, exp(-since / MEMORY))
        _fade(self._recent, exp(-since / HORIZON))
        self._at = now


def _fade(counts: dict[Any, float], by: float) -> None:
    for key in list(counts):
        counts[key] *= by
        if counts[key] < 0.01:  # noqa: PLR2004  nothing
            del counts[key]


def room_in(headers: Mapping[str, str], limits: Limits) -> float:
    """Return the part of the limits that a provider has left, by the headers of an answer.

    What it takes within the next seconds is what remains, and what grows again until then.
    """
    room = 1.0
    for kind, ours in (("requests", limits.requests), ("tokens", limits.tokens)):
        names = (f"x-ratelimit-{part}-{kind}" for part in ("limit", "remaining", "reset"))
        most, left, reset = (_number(headers.get(name, "")) for name in names)
        if not ours or most is None or left is None or not reset or most <= left:
            continue
        takes = left + HORIZON * (most - left) / reset
        room = min(room, takes / (HORIZON * ours / 60))
    return max(room, 0.01)


_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|)")


def _number(text: str) -> float | None:
    """Read a number, or a time such as "6m0s" or "120ms"; None for anything else."""
    parts = _PARTS.findall(text)
    if not parts or "".join(map("".join, parts)) != text.strip():
        return None
    return sum(float(count) * _UNITS[unit] for count, unit in parts)
