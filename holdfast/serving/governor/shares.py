"""How the workers of a provider share what it allows: the decisions of the `Governor`, pure.

The currency is the provider's time. At its limits a provider works off one second in each second: a
call costs as many seconds as its limits say, for its request or its tokens, whichever is more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import exp

from pydantic import BaseModel, Field

from holdfast.serving.governor.days import KEPT_DAYS, Day, Room, Spending
from holdfast.values.base import Value
from holdfast.values.messages import NOTHING, Dollars, dollars

HORIZON = 3.0
"""Seconds for which a worker's wishes and a usual lease are."""
CALM = 6.0
"""Seconds of a lease while all wishes are met."""
HASTE = 1.0
"""Seconds of a lease of a worker that is new, or is owed more than it got."""
MEMORY = 10.0
"""Seconds in which what a tenant has had is forgotten by two thirds."""
SPARE = 0.25
"""Share that a worker gets beyond its wishes, if it is free: calls that come need not ask."""
BURST = 0.5
"""Seconds of the provider's time, or of a share of it, that may be saved up."""
FULL = 0.98
"""Part of the limits that is used: a provider's count would never recover from a burst at all."""
SLOWER, MUCH_SLOWER = 0.9, 0.7
"""Factor of the pace after a refusal, and after one that follows another within `MEMORY`."""
FASTER, SLOWEST = 0.02, 0.05
"""What the pace regains in each second without a refusal, and its least."""
NOW = 0.05
"""Seconds that do not count: an answer is under way for about as long."""
LONGEST_PAUSE = 60.0
DAY = 86_400


class Limits(Value):
    """What a provider allows for one key; 0 means none.

    Attributes:
        requests: Requests in a minute.
        tokens: Tokens in a minute.
        dollars: US dollars in a day of UTC.
        at_once: Calls at the same time.
        weights: Share of a tenant in relation to others, whose weight is 1.
    """

    requests: float = 0
    tokens: float = 0
    dollars: Dollars = NOTHING
    at_once: int = 0
    weights: dict[str, float] = Field(default_factory=dict[str, float])

    def cost(self, tokens: float) -> float:
        """Return how many seconds of the provider's time a call of so many tokens takes."""
        of_request = 60 / self.requests if self.requests else 0.0
        return max(of_request, tokens * 60 / self.tokens if self.tokens else 0.0)


class Wish(Value):
    """What a worker wants for a tenant's calls of one priority.

    Attributes:
        tenant: The tenant; empty for none.
        priority: 1 is served first, 5 last.
        seconds: Time of the provider for the next `HORIZON`.
    """

    tenant: str = ""
    priority: int = 3
    seconds: float = 0.0


class Ask(Value):
    """What a worker tells and wants.

    Attributes:
        worker: The worker.
        n: Number of this worker's asks: what an ask tells counts once.
        limits: The provider's limits, as the worker knows them.
        wishes: What it wants.
        early: Whether it wants another lease at once, in place of the present one.
        running: Calls that run.
        waiting: Calls that wait.
        may: Calls that may still begin by the lease that it has, where money is limited.
        least: Seconds that the cheapest waiting call costs.
        calls: Calls that were answered since the ask before.
        tokens: Their tokens.
        dollars: Their cost.
        refused: Calls that the provider has refused since then because of a limit.
        pause: Seconds from now on that the provider has asked to wait.
        room: Share of its limits that the provider has left, by its last answers.
        spending: Tenants whose days are counted.
    """

    worker: str
    n: int
    limits: Limits
    wishes: tuple[Wish, ...] = ()
    early: bool = False
    running: int = 0
    waiting: int = 0
    may: int = 0
    least: float = 0.0
    calls: int = 0
    tokens: int = 0
    dollars: Dollars = NOTHING
    refused: int = 0
    pause: float = 0.0
    room: float = 1.0
    spending: dict[str, Spending] = Field(default_factory=dict[str, Spending])


class Lease(Value):
    """What a worker may do for some seconds.

    Attributes:
        begins: Seconds until it begins.
        seconds: How long it lasts then.
        share: Part of the provider's time.
        credit: Seconds of it that may be used at once.
        at_once: Most calls at the same time; None for no limit.
        most: Most calls in all, by the money that is left; None for no limit.
        tenants: What of it is meant for which tenant.
        has_more: Whether more is free: an early ask gets it.
        why: Why it has nothing at all; empty otherwise.
        retry: Seconds until that may change.
        rooms: What may be done for which tenant; None where their days are not counted.
    """

    begins: float = 0.0
    seconds: float = HASTE
    share: float = 0.0
    credit: float = 0.0
    at_once: int | None = None
    most: int | None = None
    tenants: dict[str, float] = Field(default_factory=dict[str, float])
    has_more: bool = False
    why: str = ""
    retry: float = 0.0
    rooms: dict[str, Room] | None = None


class Held(BaseModel):
    """What a worker asked for, and the lease that it got.

    Attributes:
        n: Number of the ask.
        begins: When the lease begins.
        ends: When it ends.
        share: Part of the provider's time.
        before: That of the lease before, which ends when this one begins.
        at_once: Most calls at the same time, also running ones.
        most: Calls that money is kept for.
        wishes: What it asked for.
        wants: Calls that it had, running or waiting.
        calls: Calls of each tenant that its day has to pay for.
    """

    n: int
    begins: float
    ends: float
    share: float = 0.0
    before: float = 0.0
    at_once: int = 0
    most: int = 0
    wishes: tuple[Wish, ...] = ()
    wants: int = 0
    calls: dict[str, int] = Field(default_factory=dict[str, int])

    def most_from(self, time: float) -> float:
        """Return the most of the provider's time that it has from then on."""
        return self.share if time > self.begins - NOW else max(self.share, self.before)

    def used(self, since: float, now: float) -> float:
        """Return the seconds of the provider's time that were leased between two times."""
        begins = max(min(self.begins, now), since)
        return self.before * (begins - since) + self.share * max(min(self.ends, now) - begins, 0.0)


class Shares(BaseModel):
    """All that is known of one provider and key. Times are seconds since the epoch.

    Attributes:
        held: What workers hold, or held within the last minute.
        had: Seconds that each tenant has had; they are forgotten with time.
        at: Up to when time was counted.
        bank: Seconds that were not leased, and may be used at once.
        pace: Part of the limits that is used: less after refusals.
        slowed: Until when refusals are of calls from before, and the pace does not grow.
        paused: Until when the provider has asked to wait.
        day: Day of UTC that `dollars` are of.
        dollars: What calls have cost on that day.
        each: What a call costs, in US dollars.
        calls: Answered calls, ever.
        tokens: Their tokens.
        refused: Calls that were refused because of a limit, ever.
        asks: Asks that were answered, ever.
        days: What each tenant has used on its day.
    """

    held: dict[str, Held] = Field(default_factory=dict[str, Held])
    had: dict[str, float] = Field(default_factory=dict[str, float])
    at: float = 0.0
    bank: float = 0.0
    pace: float = FULL
    slowed: float = 0.0
    paused: float = 0.0
    day: int = 0
    dollars: Dollars = NOTHING
    each: float = 0.0
    calls: int = 0
    tokens: int = 0
    refused: int = 0
    asks: int = 0
    days: dict[str, Day] = Field(default_factory=dict[str, Day])

    def answer(self, ask: Ask, now: float) -> Lease:
        """Book what a worker tells, and lease it what it may have.

        Args:
            ask: What it tells and wants.
            now: The time.
        """
        self._pass(ask, now)
        known = self.held.get(ask.worker)
        if known is None or ask.n > known.n:  # an ask that is sent twice tells nothing new
            self._book(ask, now)
        others = {k: each for k, each in self.held.items() if k != ask.worker and each.ends > now}
        begins = now if known is None or ask.early else max(known.ends, now)
        begins = max(begins, self.paused)
        total = self.pace * min(ask.room, 1.0)
        wished = {**{k: each.wishes for k, each in others.items()}, ask.worker: ask.wishes}
        targets = fair(total * HORIZON, wished, self.had, ask.limits.weights)
        due = {k: sum(each.values()) / HORIZON for k, each in targets.items()}
        free = max(total - sum(each.most_from(begins) for each in others.values()), 0.0)
        wants = sum(wish.seconds for wish in ask.wishes) / HORIZON
        owed = sum(max(due.get(k, 0.0) - each.share, 0.0) for k, each in others.items())
        mine = due.get(ask.worker, 0.0)
        share = min(free, max(mine, min(free - owed, max(wants, SPARE))))
        if not ask.wishes:  # it only tells
            share = 0.0
        is_short = share < mine * 0.8
        is_calm = sum(due.values()) < total * 0.98
        usual = CALM if is_calm else HORIZON
        most = self._most(ask, others)
        lease = Lease(
            begins=begins - now,
            seconds=HASTE if known is None or is_short or not share else usual,
            share=share,
            at_once=self._at_once(ask, others),
            most=most,
            tenants=targets.get(ask.worker, {}),
            has_more=most != 0 and (is_short or free - share > SPARE / 2),
            credit=min(self.bank, wants * HORIZON) if most != 0 else 0.0,
        )
        if most == 0 and self.dollars >= ask.limits.dollars:
            midnight = (self.day + 1) * DAY - now
            why = f"the {dollars(ask.limits.dollars)} of the day (UTC) are used up"
            lease = lease.model_copy(update={"why": why, "retry": midnight})
        calls: dict[str, int] = {}
        if ask.spending:
            lease = self._with_rooms(lease, ask, others, now)
            rooms = (lease.rooms or {}).items()
            told = ask.spending
            calls = {k: room.calls + told[k].running + told[k].may for k, room in rooms}
        self.bank -= lease.credit
        for tenant, seconds in lease.tenants.items():
            part = seconds / (mine * HORIZON) if mine else 0.0
            had = share * lease.seconds * part
            self.had[tenant] = self.had.get(tenant, 0.0) + had
        still = known.share if known is not None and now < known.ends <= begins else 0.0
        self.held[ask.worker] = Held(
            n=ask.n,
            begins=begins,
            ends=begins + lease.seconds,
            share=share,
            before=still,
            at_once=max(lease.at_once or 0, ask.running),
            most=most or 0,
            wishes=ask.wishes,
            wants=ask.running + ask.waiting,
            calls=calls,
        )
        return lease

    def _with_rooms(self, lease: Lease, ask: Ask, others: Mapping[str, Held], now: float) -> Lease:
        """Return a lease with what may be done for each tenant; short if that may change soon."""
        rooms: dict[str, Room] = {}
        seconds = CALM
        for tenant, told in ask.spending.items():
            kept = sum(each.calls.get(tenant, 0) for each in others.values())
            room = rooms[tenant] = self.days.setdefault(tenant, Day()).room(told, kept, now)
            if room.used:
                seconds = min(seconds, room.ends - now)
            elif room.calls < told.waiting:
                seconds = min(seconds, HASTE)
        return lease.model_copy(update={"rooms": rooms, "seconds": max(seconds, NOW)})

    def forget_days(self, now: float) -> None:
        """Forget the days that are over in every time zone."""
        oldest = int(now // DAY) - KEPT_DAYS
        self.days = {k: each for k, each in self.days.items() if each.date >= oldest}

    def _pass(self, ask: Ask, now: float) -> None:
        """Let the time since the ask before go by."""
        if self.at == 0.0:  # nothing was ever asked: all is free
            self.at = now - max(ask.least, BURST)
        if now < self.at - CALM:  # the clock was set back: leases and pauses would end too late
            self.held, self.slowed, self.paused = {}, now, now
        since = max(now - self.at, 0.0)
        used = sum(each.used(self.at, now) for each in self.held.values())
        free = max(self.pace * since - used, 0.0)
        self.bank = min(self.bank + free, max(ask.least, BURST) if since > 0 else self.bank)
        self.had = {
            tenant: left
            for tenant, had in self.had.items()
            if (left := had * exp(-since / MEMORY)) > 0.001  # noqa: PLR2004  nothing
        }
        if now >= self.slowed:
            self.pace = min(self.pace + FASTER * since, FULL)
        self.held = {k: each for k, each in self.held.items() if each.ends > now - FORGOTTEN}
        self.at = now

    def _book(self, ask: Ask, now: float) -> None:
        day = int(now // DAY)
        if self.day - day not in (0, 1):  # 1: the clock was set back over midnight
            self.day, self.dollars = day, NOTHING
        self.asks += 1
        self.dollars += ask.dollars
        self.calls += ask.calls
        self.tokens += ask.tokens
        self.refused += ask.refused
        for tenant, told in ask.spending.items():
            self.days.setdefault(tenant, Day()).book(told, now)
        if ask.calls:
            each = float(ask.dollars) / ask.calls
            self.each = each if not self.each else (3 * self.each + each) / 4
        if ask.pause:
            self.paused = max(self.paused, now + min(ask.pause, LONGEST_PAUSE))
        if ask.refused and now >= self.slowed:
            again = now < self.slowed + MEMORY
            self.pace = max(self.pace * (MUCH_SLOWER if again else SLOWER), SLOWEST)
            self.slowed = now + HORIZON  # until then calls of leases from before may be refused

    def _at_once(self, ask: Ask, others: Mapping[str, Held]) -> int | None:
        """Say how many calls may run at once in this worker."""
        most = ask.limits.at_once
        if not most:
            return None
        free = max(most - sum(each.at_once for each in others.values()), 0)
        wants = {k: each.wants for k, each in others.items()}
        wants[ask.worker] = ask.running + ask.waiting
        held = {k: each.at_once for k, each in others.items()} | {ask.worker: ask.running}
        fairs = dict.fromkeys(wants, 0)
        left = most
        while left and (hungry := [k for k in sorted(wants) if fairs[k] < wants[k]]):
            # Who has least comes first; of equals, who holds none now: so few places go round.
            one = min(hungry, key=lambda k: (fairs[k], held[k]))
            fairs[one] += 1
            left -= 1
        owed = sum(max(fairs[k] - held[k], 0) for k in others)
        return min(free, max(fairs[ask.worker], free - owed))

    def _most(self, ask: Ask, others: Mapping[str, Held]) -> int | None:
        """Say how many calls the money of the day pays for, as far as this worker has a use."""
        if not ask.limits.dollars:
            return None
        left = float(ask.limits.dollars - self.dollars)
        if left <= 0:
            return 0
        useful = 2 * (ask.running + ask.waiting) + 5
        if not self.each:
            return useful
        kept = sum(each.most for each in others.values()) + ask.running + ask.may
        room = int(left / self.each) - kept
        return max(min(room, useful), 0 if kept else 1)


FORGOTTEN = 3600.0
"""Seconds after which it is forgotten what a worker has told that does not ask any more: an ask
that is sent again after an outage counts once until then."""


def fair(
    seconds: float,
    wished: Mapping[str, Iterable[Wish]],
    had: Mapping[str, float],
    weights: Mapping[str, float],
) -> dict[str, dict[str, float]]:
    """Share time among tenants, and each tenant's among the workers that have its calls.

    Lower numbers of priority come first. Of one priority, those come first that have had least in
    the last seconds for their weight.

    Args:
        seconds: The time to share.
        wished: The wishes of each worker.
        had: What each tenant has had.
        weights: The weights of tenants.

    Returns:
        The time of each worker by tenant.
    """
    given: dict[str, dict[str, float]] = defaultdict(dict)
    had, left = defaultdict(float, had), seconds
    every = [(worker, wish) for worker, wishes in wished.items() for wish in wishes]
    for priority in sorted({wish.priority for _, wish in every}):
        now = [(worker, wish) for worker, wish in every if wish.priority == priority]
        wants: dict[str, float] = defaultdict(float)
        for _, wish in now:
            wants[wish.tenant] += wish.seconds
        got = level(left, wants, had, weights)
        for tenant, part in got.items():
            had[tenant] += part
            left -= part
        for worker, wish in now:
            if wants[wish.tenant]:
                part = got[wish.tenant] * wish.seconds / wants[wish.tenant]
                given[worker][wish.tenant] = given[worker].get(wish.tenant, 0.0) + part
    return given


def level(
    seconds: float,
    wants: Mapping[str, float],
    had: Mapping[str, float],
    weights: Mapping[str, float],
) -> dict[str, float]:
    """Give each tenant at most what it wants, so that all come to one level for their weights."""
    if sum(wants.values()) <= seconds:
        return dict(wants)

    def at(height: float) -> dict[str, float]:
        return {
            each: min(max(height * weights.get(each, 1.0) - had[each], 0.0), wanted)
            for each, wanted in wants.items()
        }

    low, high = 0.0, max((had[k] + wants[k]) / weights.get(k, 1.0) for k in wants)
    for _ in range(50):
        middle = (low + high) / 2
        if sum(at(middle).values()) > seconds:
            high = middle
        else:
            low = middle
    return at(low)
