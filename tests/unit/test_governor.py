"""Workers, a governor and a provider with limits, in virtual time."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import partial
from math import inf
from random import Random
from zoneinfo import ZoneInfo

import pytest

from holdfast.serving.governor.days import DayLimit, Room, Spending
from holdfast.serving.governor.shares import FULL, HORIZON, Ask, Lease, Limits, Shares, Wish, fair
from holdfast.serving.governor.turns import MOST_WAITING, Call, Turns, room_in

ROUND_TRIP = 0.02


@dataclass
class Job:
    """A task: model calls in a row.

    Attributes:
        tenant: Whose it is.
        calls: Calls that are left.
        begun: When it came.
        ended: When its last call was answered.
    """

    tenant: str = "a"
    calls: int = 3
    priority: int = 3
    begun: float = 0.0
    ended: float = inf


@dataclass
class World:
    """A provider that takes `rate` requests a second and saves a second of them, and workers.

    Attributes:
        limits: What the workers know of the limits.
        rate: What the provider takes.
        answers: Seconds that an answer takes.
        used: Tokens of an answer.
        workers: How many there are.
    """

    limits: Limits = field(default_factory=lambda: Limits(requests=300))
    rate: float = 5.0
    answers: float = 0.1
    used: Callable[[], int] = lambda: 110
    workers: int = 3
    now: float = 1_000_000.0
    taken: list[float] = field(default_factory=list[float])
    refused: list[float] = field(default_factory=list[float])
    asks: int = 0
    running: int = 0
    most_running: int = 0
    tokens: int = 0
    lost: set[int] = field(default_factory=set[int])

    def __post_init__(self) -> None:
        """Begin with nothing."""
        self.start = self.now
        self.shares = Shares()
        self.turns = [Turns(f"w{k}", self.limits, random=Random(2)) for k in range(self.workers)]
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.left, self.left_at = self.rate, self.now
        self.asking: set[int] = set()
        self.random = Random(1)
        self.jobs: dict[Call, tuple[int, Job]] = {}
        self.timers: dict[int, float] = {}

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Do something at a time."""
        heapq.heappush(self.events, (when, next(self.order), do))

    def begin(self, job: Job, after: float = 0.0, worker: int | None = None) -> Job:
        """Let a task come."""
        job.begun = self.now + after
        self.at(job.begun, lambda: self._want(job, worker))
        return job

    def run(self, seconds: float = 600.0) -> None:
        """Let time go by until all is done."""
        end = self.now + seconds
        while self.events and self.events[0][0] <= end:
            self.now, _, do = heapq.heappop(self.events)
            do()

    def kill(self, w: int) -> None:
        """Lose a worker; its calls are made again by others when that is noticed."""
        self.lost.add(w)
        for call, (of, job) in list(self.jobs.items()):
            if of == w:
                del self.jobs[call]
                self.at(self.now + 10, partial(self._want, job, None))

    def _want(self, job: Job, worker: int | None) -> None:
        alive = [k for k in range(len(self.turns)) if k not in self.lost]
        w = self.random.choice(alive) if worker is None or worker in self.lost else worker
        call = Call(size=400, since=self.now, tenant=job.tenant, priority=job.priority)
        self.jobs[call] = w, job
        left = self.turns[w].join(call, self.now)
        if left is not None:
            _, sent_back = self.jobs.pop(left)
            self.at(self.now + 5, lambda: self._want(sent_back, None))
        self._stir(w)

    def _stir(self, w: int) -> None:
        if w in self.lost:
            return
        turns = self.turns[w]
        while (call := turns.pick(self.now)) is not None:
            self._send(w, call)
        due = inf if w in self.asking else turns.due(self.now)
        if due <= self.now:
            self._ask(w)
        when = min(turns.wake(self.now), due if due > self.now else inf)
        self.timers[w] = when
        if when < inf:
            self.at(max(when, self.now + 1e-6), lambda: self._timer(w, when))

    def _timer(self, w: int, when: float) -> None:
        if self.timers[w] == when:
            self._stir(w)

    def _ask(self, w: int) -> None:
        self.asking.add(w)
        ask = self.turns[w].ask(self.now)
        self.asks += 1
        self.at(self.now + ROUND_TRIP / 2, lambda: self._answer(w, ask))

    def _answer(self, w: int, ask: Ask) -> None:
        lease = self.shares.answer(ask, self.now)

        def take() -> None:
            self.asking.discard(w)
            self.turns[w].take(ask, lease, self.now)
            self._stir(w)

        self.at(self.now + ROUND_TRIP / 2, take)

    def _send(self, w: int, call: Call) -> None:
        self.left = min(self.rate, self.left + (self.now - self.left_at) * self.rate)
        self.left_at = self.now
        if self.left < 1:
            self.refused.append(self.now)
            _, job = self.jobs.pop(call)
            self.turns[w].refused(call, 1.0, self.now)
            self.at(self.now + 1, lambda: self._want(job, None))
            return
        self.left -= 1
        self.taken.append(self.now)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.at(self.now + self.answers, lambda: self._done(w, call))

    def _done(self, w: int, call: Call) -> None:
        self.running -= 1
        if call not in self.jobs:
            return
        _, job = self.jobs.pop(call)
        used = self.used()
        self.tokens += used
        self.turns[w].done(call, used, Decimal("0.01"))
        job.calls -= 1
        if job.calls:
            self.at(self.now + 0.05, lambda: self._want(job, None))
        else:
            job.ended = self.now
        self._stir(w)

    def used_part(self, until: int = 6) -> float:
        """Return the part of the rate that was used while there was more to do."""
        busy = self.taken[:-until]
        return (len(busy) - 1) / ((busy[-1] - busy[0]) * self.rate)

    @property
    def refused_part(self) -> float:
        """Return the part of the requests that were refused."""
        return len(self.refused) / (len(self.refused) + len(self.taken))


def late_tenant(*, others: int, seed: int) -> tuple[World, list[float]]:
    """Let five tasks of tenant b come, after so many of tenant a; return how long b's take."""
    world = World()
    world.random = Random(seed)
    for _ in range(others):
        world.begin(Job("a"))
    late = [world.begin(Job("b"), after=10.0) for _ in range(5)]
    world.run()
    return world, sorted(job.ended - job.begun for job in late)


@pytest.mark.parametrize("seed", range(4))
def test_three_workers_keep_the_limit_and_use_it_and_a_late_tenant_is_not_last(seed: int) -> None:
    world, late = late_tenant(others=50, seed=seed)
    _, alone = late_tenant(others=0, seed=seed)
    assert len(world.taken) == 55 * 3
    assert world.refused_part <= 0.03
    assert world.used_part() >= 0.95
    assert late[-1] <= 2 * alone[-1]
    assert world.asks <= 34 * 3  # at most one each second and worker, while it changes as well


def test_a_worker_asks_each_three_seconds_and_one_without_calls_does_not_ask() -> None:
    world = World()
    for _ in range(30):
        world.begin(Job(calls=10_000))
    world.run(60)
    before = world.asks
    world.run(60)
    assert world.asks - before <= 3 * 60 / 3 + 3
    world = World(workers=1)
    world.begin(Job(calls=1))
    world.run()
    assert world.asks <= 3
    assert world.events == []  # nothing comes any more


@pytest.mark.parametrize("seed", range(4))
def test_a_worker_that_is_killed_costs_at_most_five_seconds_of_its_share(seed: int) -> None:
    world = World()
    world.random = Random(seed)
    for _ in range(60):
        world.begin(Job(calls=100))
    world.run(20 + seed / 2)
    killed = world.now
    world.kill(0)
    world.run(20)
    got = len([when for when in world.taken if killed < when <= killed + 20])
    lost = 20 * world.rate * FULL - got
    assert lost <= 5 * world.rate / 3 + 1
    assert world.refused_part <= 0.03


def test_a_limit_that_is_too_high_is_found_out() -> None:
    world = World(rate=2.0)
    for _ in range(30):
        world.begin(Job(calls=1000))
    world.run(120)
    before = len(world.refused), len(world.taken)
    world.run(120)
    refused, taken = len(world.refused) - before[0], len(world.taken) - before[1]
    assert taken >= 0.6 * 2.0 * 120
    assert refused <= 0.2 * taken  # without: 60 %


def test_what_a_provider_asks_to_wait_holds_for_all_workers() -> None:
    shares, limits = Shares(), Limits(requests=300)
    wishes = (Wish(seconds=3.0),)
    shares.answer(Ask(worker="a", n=1, limits=limits, wishes=wishes, refused=1, pause=20.0), 100.0)
    lease = shares.answer(Ask(worker="b", n=1, limits=limits, wishes=wishes), 101.0)
    assert lease.begins == pytest.approx(19.0)
    assert shares.pace < FULL


def test_a_clock_that_is_set_back_holds_no_call_back() -> None:
    shares, ask = Shares(), Ask(worker="a", n=1, limits=Limits(requests=60), waiting=1)
    wished = ask.model_copy(update={"wishes": (Wish(seconds=1.0),), "pause": 30.0, "refused": 1})
    for worker in ("a", "b"):
        shares.answer(wished.model_copy(update={"worker": worker}), 10_000.0)
    for n in (2, 3):
        again = wished.model_copy(update={"n": n, "pause": 0.0, "refused": 0})
        lease = shares.answer(again, 6_400.0 + n)
        assert (lease.begins < HORIZON, lease.share > 0) == (True, True)


def test_a_clock_that_is_set_back_over_midnight_gives_no_money_twice() -> None:
    shares, limits = Shares(), Limits(requests=60, dollars=Decimal(1))
    asks = [
        Ask(worker="a", n=n, limits=limits, waiting=1, calls=1, dollars=Decimal(spent))
        for n, spent in enumerate(["0.4", "0.6", "0", "0"], start=1)
    ]
    days = 10 + 1 / 8_640, 10 - 1 / 43_200, 10 + 1 / 4_320, 11 + 1 / 86_400
    leases = [shares.answer(ask, 86_400.0 * day) for ask, day in zip(asks, days, strict=True)]
    assert [bool(lease.why) for lease in leases[2:]] == [True, False]


def test_an_ask_that_is_sent_again_after_an_outage_counts_once() -> None:
    shares = Shares()
    ask = Ask(worker="a", n=1, limits=Limits(requests=60), calls=3, tokens=30, dollars=Decimal(1))
    for now in (100.0, 100.0, 1000.0):
        shares.answer(ask, now)
    assert (shares.calls, shares.tokens, shares.dollars) == (3, 30, Decimal(1))


def test_tokens_are_reserved_by_estimate_and_settled_by_use() -> None:
    random = Random(3)
    limits = Limits(tokens=60_000)
    world = World(limits=limits, rate=1000.0, used=lambda: random.randrange(100, 5_000))
    for _ in range(60):
        world.begin(Job(calls=1000))
    world.run(60)  # what calls use is not known at the beginning
    before, told = world.tokens, world.shares.tokens
    world.run(300)
    assert world.tokens - before == pytest.approx(60_000 * FULL * 5, rel=0.02)
    assert world.shares.tokens - told == pytest.approx(world.tokens - before, rel=0.02)


def test_the_money_of_a_day_is_kept_and_the_next_day_has_its_own() -> None:
    world = World(limits=Limits(requests=300, dollars=Decimal(1)), now=86_400.0 * 10 + 100)
    for _ in range(20):
        world.begin(Job(calls=100))
    world.run(1000)
    assert len(world.taken) == pytest.approx(100, abs=2)  # of a cent each
    assert {turns.lease.why for turns in world.turns if turns.lease} == {
        "the $1.00 of the day (UTC) are used up"
    }
    lease = world.shares.answer(
        Ask(worker="w0", n=10_000, limits=world.limits, wishes=(Wish(seconds=1.0),)),
        86_400.0 * 11 + 1,
    )
    assert not lease.why
    assert lease.share


def test_money_that_others_keep_and_may_not_use_delays_no_call_to_the_next_day() -> None:
    limits, shares = Limits(requests=6000, dollars=Decimal(10)), Shares()
    a, b = (Ask(worker=name, n=1, limits=limits, waiting=1) for name in ("a", "b"))
    spent = {"n": 2, "calls": 5, "dollars": Decimal(5)}
    shares.answer(a.model_copy(update=spent), 86_400.0 * 10)
    lease = shares.answer(b, 86_400.0 * 10 + 0.1)
    assert (lease.most, lease.why) == (0, "")
    assert shares.answer(b.model_copy(update={"n": 2}), 86_400.0 * 10 + 30).most


@pytest.mark.parametrize("most", [1, 7])
def test_calls_at_once_are_held_over_all_workers_and_places_go_round(most: int) -> None:
    world = World(limits=Limits(at_once=most), rate=1000.0, answers=0.5)
    jobs = [world.begin(Job(calls=4), worker=k % 3) for k in range(30)]
    world.run()
    assert world.most_running == most
    assert all(job.ended < inf for job in jobs)


def test_a_call_of_a_higher_priority_is_first_and_one_of_a_lower_is_last() -> None:
    world = World(workers=1)
    jobs = {
        priority: [world.begin(Job(calls=1, priority=priority)) for _ in range(10)]
        for priority in (5, 3, 1)
    }
    world.run()
    ends = {priority: [job.ended for job in each] for priority, each in jobs.items()}
    assert max(ends[1]) < min(ends[3])
    assert max(ends[3]) < min(ends[5])


def test_weights_divide_what_tenants_get() -> None:
    world = World(limits=Limits(requests=300, weights={"big": 3.0}), workers=2)
    jobs = [world.begin(Job(tenant, calls=1000)) for tenant in ("big", "small") for _ in range(20)]
    world.run(120)
    used = {k: sum(1000 - job.calls for job in jobs if job.tenant == k) for k in ("big", "small")}
    assert used["big"] / used["small"] == pytest.approx(3, rel=0.1)


def test_time_is_shared_so_that_who_has_had_less_comes_first() -> None:
    wished = {
        "w1": (Wish(tenant="a", seconds=9), Wish(tenant="b", seconds=2)),
        "w2": (Wish(tenant="a", seconds=3),),
    }
    given = fair(3.0, wished, {"a": 10.0}, {})
    assert given["w1"]["b"] == pytest.approx(2)  # all that it wants
    assert given["w1"]["a"] == pytest.approx(0.75)  # three of four parts of the rest
    assert given["w2"]["a"] == pytest.approx(0.25)


def test_a_call_that_is_not_made_gives_its_turn_back() -> None:
    turns = Turns("w", Limits(requests=60))
    first, second = Call(since=1.0), Call(since=2.0)
    for call in (first, second):
        turns.join(call, 0.0)
    turns.take(turns.ask(0.0), Lease(seconds=10, share=1.0, credit=1.0), 0.0)
    assert turns.pick(0.0) is first
    assert turns.pick(0.0) is None
    turns.leave(first)
    assert turns.pick(0.0) is second


def test_no_more_wait_here_than_have_places_and_the_newest_of_the_largest_tenant_goes() -> None:
    turns = Turns("w", Limits(requests=60))
    for k in range(MOST_WAITING - 1):
        assert turns.join(Call(since=float(k), tenant="a"), 0.0) is None
    assert turns.join(Call(since=0.5, tenant="b"), 0.0) is None
    left = turns.join(Call(since=0.7, tenant="b"), 0.0)
    assert left is not None
    assert (left.tenant, left.since) == ("a", MOST_WAITING - 2)


@pytest.mark.parametrize(
    ("headers", "room"),
    [
        ({}, 1.0),
        ({"limit-requests": "300", "remaining-requests": "299", "reset-requests": "200ms"}, 1.0),
        # Nothing is left, and 100 come again in a minute where ours are 300.
        ({"limit-requests": "100", "remaining-requests": "0", "reset-requests": "1m0s"}, 1 / 3),
        ({"limit-requests": "100", "remaining-requests": "0", "reset-requests": "6m0s"}, 1 / 18),
        ({"limit-requests": "?", "remaining-requests": "-", "reset-requests": "soon"}, 1.0),
    ],
    ids=["nothing", "much", "a third", "little", "nonsense"],
)
def test_room_is_what_remains_and_comes_again(headers: dict[str, str], room: float) -> None:
    named = {f"x-ratelimit-{name}": text for name, text in headers.items()}
    assert room_in(named, Limits(requests=300)) == pytest.approx(room)


def test_the_headers_of_one_worker_slow_all() -> None:
    shares, limits = Shares(), Limits(requests=300)
    shares.answer(
        Ask(worker="a", n=1, limits=limits, wishes=(Wish(seconds=9.0),), room=0.25), 100.0
    )
    assert sum(each.share for each in shares.held.values()) <= 0.25


def spent(shares: Shares, worker: str, n: int, now: float, limit: DayLimit, **told: object) -> Room:
    """Let a worker tell of tenant a, and return what it may do for it."""
    spending = {"a": Spending.model_validate({"limit": limit, **told})}
    lease = shares.answer(Ask(worker=worker, n=n, limits=Limits(), spending=spending), now)
    assert lease.rooms is not None
    return lease.rooms["a"]


NOON = 20_000 * 86_400.0 + 43_200


def test_a_tenant_begins_with_one_call_and_then_gets_as_many_as_its_day_pays_for() -> None:
    shares, limit = Shares(), DayLimit(dollars=Decimal(1))
    assert spent(shares, "w", 1, NOON, limit, waiting=9).calls == 1
    assert spent(shares, "v", 1, NOON, limit, waiting=9).calls == 0  # w has the first
    told = {"calls": 1, "tokens": 10, "dollars": Decimal("0.1")}
    assert spent(shares, "w", 2, NOON + 1, limit, waiting=3, **told).calls == 9
    # What others may use is kept for them, as long as their lease lasts.
    assert spent(shares, "v", 2, NOON + 1.1, limit, waiting=3).calls == 0
    told = {"calls": 9, "tokens": 90, "dollars": Decimal("0.9")}
    room = spent(shares, "w", 3, NOON + 2, limit, **told)
    assert (room.calls, room.used, room.ends) == (0, "dollars", 20_001 * 86_400)
    assert spent(shares, "w", 3, NOON + 2, limit, **told) == room  # sent twice
    assert shares.days["a"].dollars == Decimal(1)
    assert spent(shares, "w", 4, 20_001 * 86_400.0, limit, waiting=1).calls == 7


def test_a_day_of_tokens_ends_at_midnight_of_its_time_zone_also_when_that_is_moved() -> None:
    shares, limit = Shares(), DayLimit(tokens=100, zone="Europe/Berlin")
    before = datetime(2026, 3, 28, 22, tzinfo=ZoneInfo("UTC")).timestamp()  # 23:00 there
    room = spent(shares, "w", 1, before, limit, calls=1, tokens=100)
    assert (room.used, room.ends - before) == ("tokens", 3600)
    following = spent(shares, "w", 2, before + 3600, limit, waiting=1)
    assert (following.used, following.ends - before) == ("", 3600 + 23 * 3600)
    shares.forget_days(before + 5 * 86_400)
    assert shares.days == {}


def test_a_process_keeps_to_what_it_may_do_for_a_tenant_unless_a_person_lets_it() -> None:
    turns = Turns("w", Limits(), days=lambda tenant: DayLimit(tokens=len(tenant)))
    first, second, third = (Call(since=float(k), tenant="a") for k in range(3))
    other, past = Call(tenant="b"), Call(tenant="b", is_past=True)
    for call in (first, second, third, other, past):
        turns.join(call, 0.0)
    ask = turns.ask(0.0)
    assert ask.spending["a"] == Spending(limit=DayLimit(tokens=1), waiting=3)
    rooms = {"a": Room(calls=2), "b": Room(used="tokens", ends=9.0)}
    turns.take(ask, Lease(seconds=10, share=1.0, rooms=rooms), 0.0)
    assert {turns.pick(0.0) for _ in range(4)} == {first, second, past, None}
    assert turns.used_up(other) == rooms["b"]
    assert turns.used_up(third) is None
    turns.done(first, 30, Decimal(2))
    ask = turns.ask(1.0)
    told = {"waiting": 1, "running": 1, "calls": 1, "tokens": 30, "dollars": Decimal(2)}
    assert ask.spending["a"] == Spending.model_validate({"limit": DayLimit(tokens=1), **told})
    turns.done(second, 12, Decimal(1))  # while the ask is under way
    turns.take(ask, Lease(seconds=10, share=1.0, rooms={"a": Room()}), 1.0)
    assert turns.ask(2.0).spending["a"].tokens == 12
