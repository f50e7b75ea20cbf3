"""The calls that wait for a batch, and their batches: what to do next, and what a call gets; pure.

Times are seconds since the epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import reduce
from math import inf
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, Field, PrivateAttr

from holdfast.values.base import Value

MOST_CALLS = 5000
"""Calls in hand at the same time: all of them go along when the workflow continues as new."""

MOST_LINES = 2000
"""Calls of one batch: their outcomes must fit into one payload."""

MOST_BYTES = 100_000_000
"""Bytes of one batch. The API takes 200 MB; a process has all of them in memory."""

FIRST_GAP = 15.0
LONGEST_GAP = 1800.0
"""First and longest time between two looks at a batch; each is longer than the one before. Open
workflows replay with these and the others here: see `QUEUE` in the workflow."""

GROWTH = 1.5

GRACE = 1800.0
"""How long after its deadline, and after the first attempt to cancel its batch, a call waits for
what that has answered."""

SWEEP = 2 * LONGEST_GAP
"""Time between two looks whether the steps of calls that are over still need them."""

HASTE = 60.0
"""The same while no call more can be taken."""

MOST_TRIES = 3
"""Batches that a call may join, before it is asked directly."""

_OVER = -1
"""In place of the number of a batch, for calls that are over."""

ENDS = frozenset({"completed", "failed", "expired", "cancelled"})
"""States of a batch in which the provider does nothing more for it."""


def clock(at: float) -> str:
    """Write a time for people."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


class Asker(Value):
    """The activity that waits for a call.

    Attributes:
        task: Workflow id of its task.
        run: Run of that.
        activity: Id of the activity.
    """

    task: str
    run: str
    activity: str


class Ask(Value):
    """A call that a step wants to be made.

    Attributes:
        key: Names it, by its activity and its number there.
        asker: Who waits.
        body: Digest of its body, which is in the archive.
        size: Bytes of the body.
        wait: Seconds until it is asked directly.
        most: Calls of a batch.
        age: Longest time until a call is submitted, in seconds.
        look: Time until a batch is looked at first, in seconds.
        pending: Ids of the activities of the task's run that are open.
    """

    key: str
    asker: Asker
    body: str
    size: int
    wait: float
    most: int
    age: float
    look: float = FIRST_GAP
    pending: tuple[str, ...] = ()


class Call(Value):
    """A call in hand.

    Attributes:
        asker: Who waits.
        line: Its id in batches: the key under which it was asked first.
        body: Digest of its body.
        size: Bytes of the body.
        since: When it came.
        until: When it is asked directly.
        wait: Seconds from one to the other: a batch has calls of one wait.
        batch: Number of its batch; 0 before it has one.
        tries: Batches that it has joined.
        state: Its state.
        answer: Digest of the answer, which is in the archive.
        why: Why no answer came.
        is_good: Whether the provider took the request.
        is_taken: Whether its step has read the answer.
        seen: When it was last found that its step may need it.
    """

    asker: Asker
    line: str
    body: str
    size: int
    since: float
    until: float
    wait: float = 0.0
    batch: int = 0
    tries: int = 0
    state: Literal["waits", "answered", "failed", "direct"] = "waits"
    answer: str = ""
    why: str = ""
    is_good: bool = True
    is_taken: bool = False
    seen: float = 0.0

    @property
    def group(self) -> int:
        """The number of the batch that it waits for."""
        return self.batch if self.state == "waits" else _OVER


class Batch(Value):
    """A batch: once it is made, its calls are always the same.

    Attributes:
        id: The provider's id; empty until it is known to be submitted.
        made: When its calls were put together.
        size: Number of its calls; 0 for one that older code has made.
        submitted: When it was submitted.
        look: When to submit it, or to look at it.
        gap: Seconds between the last two looks.
        why: Why the last attempt to reach the provider failed; empty for none.
        tries: Attempts to submit it that have failed, and may have submitted it all the same.
        late: When it was first reached for after the deadline of one of its calls; 0 for never.
        is_cancelled: Whether the provider was told to end it.
        is_over: Whether its answers were read.
        files: Its files at the provider, which are deleted at the end.
    """

    id: str = ""
    made: float
    size: int = 0
    submitted: float = 0.0
    look: float = 0.0
    gap: float = FIRST_GAP
    why: str = ""
    tries: int = 0
    late: float = 0.0
    is_cancelled: bool = False
    is_over: bool = False
    files: tuple[str, ...] = ()

    @property
    def may_run(self) -> bool:
        """Whether the provider has it, as far as is known."""
        return bool(self.id or self.tries)


class Outcome(Value):
    """What a batch says about one call.

    Attributes:
        line: The call's id in the batch.
        answer: Digest of the answer; empty for none.
        is_good: Whether the provider took the request.
    """

    line: str
    answer: str = ""
    is_good: bool = True


class Seen(Value):
    """What was seen of a batch at the provider.

    Attributes:
        status: The batch's status; empty for one that is not there.
        outputs: Files with answers and errors.
        files: All of its files.
        why: What the provider says is wrong, if it has failed.
        code: Its code for that.
        lines: The lines that are wrong, where it says which.
    """

    status: str = ""
    outputs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    why: str = ""
    code: str = ""
    lines: tuple[str, ...] = ()


class Reply(Value):
    """What a step gets that asks for its call.

    Attributes:
        state: "unknown" if the call has to be asked (once more).
        why: What it waits for, or why there is no answer.
        again: When to ask again.
        answer: Digest of the answer.
    """

    state: Literal["unknown", "waits", "answered", "failed", "direct"]
    why: str = ""
    again: float = 0.0
    answer: str = ""


class Sum(NamedTuple):
    """What `next` must know of the calls of one batch, or of all calls that are over.

    Attributes:
        until: When the first one is asked directly.
        since: When the first one came.
        seen: When it was last found that the step of a call may need it, the oldest time.
        size: Bytes of all bodies.
    """

    until: float = inf
    since: float = inf
    seen: float = inf
    size: int = 0

    def plus(self, call: Call) -> Sum:
        """Return the sum with one call more."""
        until, since, seen = map(min, self[:3], (call.until, call.since, call.seen))
        return Sum(until, since, seen, self.size + call.size)


class Job(NamedTuple):
    """The next job: of a batch, or of the calls without one."""

    kind: Literal["submit", "look", "tidy", "collect", "sweep", "expire"]
    n: int = 0


class Hand(BaseModel):
    """All that is known of the calls of one account and model.

    Attributes:
        series: Names these batches: no other workflow has it.
        made: Number of the newest batch.
        calls: The calls by key, oldest first.
        batches: The batches by number.
        most: Calls of a batch.
        room: Calls of a batch for which the provider has room, as far as is known.
        age: Longest time until a call is submitted.
        look: Time until a batch is looked at first.
        paused: Until when no batch is made.
    """

    series: str = ""
    made: int = 0
    calls: dict[str, Call] = Field(default_factory=dict[str, Call])
    batches: dict[int, Batch] = Field(default_factory=dict[int, Batch])
    most: int = 1
    room: int = MOST_LINES
    age: float = 0.0
    look: float = FIRST_GAP
    paused: float = 0.0
    _like: defaultdict[tuple[str, str], list[str]] = PrivateAttr(
        default_factory=lambda: defaultdict[tuple[str, str], list[str]](list)
    )
    _of: defaultdict[int, dict[str, None]] = PrivateAttr(
        default_factory=lambda: defaultdict[int, dict[str, None]](dict)
    )
    _sums: dict[int, Sum] = PrivateAttr(default_factory=dict[int, Sum])

    def model_post_init(self, context: Any, /) -> None:
        """Find calls by their tasks, bodies and batches."""
        del context
        for key, call in self.calls.items():
            self._put(key, call)

    def take(self, ask: Ask, *, now: float) -> None:
        """Take a call, unless it is known.

        A step whose worker was lost goes on with another activity. It takes over the call of the
        one before, which no one else waits for.
        """
        self.most, self.age, self.look = min(ask.most, self.room), ask.age, ask.look
        if ask.key in self.calls:
            return
        same = self._like.get((ask.asker.task, ask.body), [])
        if any(self.calls[key].line == ask.key for key in same):
            return  # another activity has its call: a batch with one line twice is refused
        left = [key for key in same if self._is_left(self.calls[key], ask)]
        if left:
            call = self._drop(left[0]).model_copy(update={"asker": ask.asker})
        elif len(self.calls) >= MOST_CALLS:
            return  # it comes again
        else:
            named = ask.model_dump(include={*Call.model_fields})
            call = Call(line=ask.key, since=now, until=now + ask.wait, **named)
        self._put(ask.key, call)

    def taken(self, key: str) -> None:
        """Note that a step has read its answer; it may read it again, if its worker is lost."""
        if key in self.calls:
            self._change(key, is_taken=True)

    def forget(self, keys: Iterable[str]) -> None:
        """Forget calls that no step waits for."""
        for key in keys:
            if key in self.calls:
                self._drop(key)

    def reply(self, key: str) -> Reply:
        """Return the state of a call."""
        call = self.calls.get(key)
        if call is None:
            full = len(self.calls) >= MOST_CALLS
            why = f"{MOST_CALLS} calls wait for batches, which are the most" if full else ""
            return Reply(state="unknown", why=why)
        if call.state != "waits":
            return Reply(state=call.state, why=call.why, answer=call.answer)
        latest = f"at the latest {clock(call.until)}"
        batch = self.batches.get(call.batch)
        if batch is None:
            before = [each.look for each in self.batches.values() if not each.id]
            again = max(call.since + self.age, self.paused, *before) + self.look
            why = f"a batch to be full, {latest}"
            return Reply(state="waits", why=why, again=min(again, call.until))
        trouble = f" ({batch.why})" if batch.why else ""
        if not batch.id:
            why = f"its batch to be submitted{trouble}, {latest}"
        else:
            said = "cancelled at its deadline" if batch.is_cancelled else latest
            why = f"batch {batch.id}, submitted {clock(batch.submitted)}, {said}{trouble}"
        again = batch.look if batch.late else min(batch.look, call.until)
        return Reply(state="waits", why=why, again=again)

    def expire(self, *, now: float) -> None:
        """Give up calls whose time is over, and forget batches that the provider never got."""
        for n in (0, *self.batches):
            is_late = now >= self._late_at(n, self._sum(n).until)
            for key in self.of(n) if is_late else ():
                if now >= self._late_at(n, until := self.calls[key].until):
                    why = f"there was no answer by {clock(until)}"
                    self._change(key, state="direct", why=why, seen=now)
        for n, batch in list(self.batches.items()):
            if not batch.may_run and not self.of(n):
                self.tidied(n)

    def next(self, *, now: float) -> tuple[float, Job]:
        """Return what to do next, and when, from sums: a replay does this thousands of times."""
        found = [self._of_batch(n, batch, now) for n, batch in self.batches.items()]
        waits, count = self._sum(0), len(self._of[0])
        if count and all(batch.id for batch in self.batches.values()):
            is_full = count >= self.most or waits.size >= MOST_BYTES
            at = 0.0 if is_full else waits.since + self.age
            found.append((max(at, self.paused), Job("collect")))
        late = min(self._late_at(n, self._sum(n).until) for n in (0, *self.batches))
        pause = HASTE if len(self.calls) >= MOST_CALLS else SWEEP
        found += [(late, Job("expire")), (self._sum(_OVER).seen + pause, Job("sweep"))]
        return min(found)

    def _of_batch(self, n: int, batch: Batch, now: float) -> tuple[float, Job]:
        due = self.deadline(n)
        if batch.is_over:
            return now, Job("tidy", n)
        is_awaited = batch.may_run and not batch.late
        at = min(batch.look, due) if due is not None and is_awaited else batch.look
        return at, Job("look" if batch.id else "submit", n)

    def deadline(self, n: int) -> float | None:
        """Return when the first call of a batch is asked directly; None if no one waits."""
        return self._sum(n).until if self._of.get(n) else None

    def of(self, n: int) -> list[str]:
        """Return the calls of a batch that wait for it; 0 is for those without one."""
        return list(self._of.get(n, ()))

    def collected(self) -> list[str]:
        """Return the calls of the next batch, of one wait: the first deadline ends it for all."""
        waits = [(key, self.calls[key]) for key in self.of(0)]
        chosen, size = list[str](), 0
        for key, call in waits:
            if call.wait == waits[0][1].wait:
                size += call.size
                if chosen and (size > MOST_BYTES or len(chosen) >= self.most):
                    break
                chosen.append(key)
        return chosen

    def over(self) -> list[str]:
        """Return the calls that may be forgotten once their steps are."""
        return [key for key, call in self.calls.items() if call.state != "waits"]

    def kept(self, keys: Iterable[str], *, now: float) -> None:
        """Note that the steps of these calls may still need them."""
        for key in keys:
            if key in self.calls:
                self._change(key, seen=now)

    def make(self, keys: Sequence[str], *, now: float) -> None:
        """Make a batch of calls."""
        known = [key for key in keys if key in self.calls]
        if not known:
            return
        self.made += 1
        self.batches[self.made] = Batch(made=now, look=now, size=len(known))
        for key in known:
            self._change(key, batch=self.made, tries=self.calls[key].tries + 1)

    def submitted(self, n: int, id: str, *, now: float) -> None:
        """Note that a batch is submitted."""
        note = {"look": now + self.look, "gap": self.look, "why": "", "late": 0.0}
        self._note(n, id=id, submitted=now, **note)

    def looked(self, n: int, *, now: float, cancelled: bool = False, why: str = "") -> None:
        """Look again later, also after the provider could not be reached."""
        batch, due = self.batches[n], self.deadline(n)
        late = batch.late or (now if batch.may_run and due is not None and now >= due else 0.0)
        gap = min(batch.gap * GROWTH, LONGEST_GAP) if late == batch.late else FIRST_GAP
        note = {"late": late, "gap": gap, "look": now + gap, "why": why}
        is_cancelled = batch.is_cancelled or cancelled
        self._note(n, is_cancelled=is_cancelled, tries=batch.tries + (not batch.id), **note)

    def untaken(self, n: int) -> None:
        """Note that the last attempt has submitted nothing; one before it may have."""
        self._note(n, tries=self.batches[n].tries - 1)

    def ended(self, n: int, outcomes: Iterable[Outcome], seen: Seen, *, now: float) -> None:
        """Give the calls of a batch their answers; those without one go on."""
        batch = self.batches[n]
        why = f"batch {batch.id} has {seen.status} without its answer" if batch.id else seen.why
        # Of two lines for one call that of an answer counts.
        said = {each.line: each for each in sorted(outcomes, key=lambda each: each.is_good)}
        for key in self.of(n):
            if (found := said.get(self.calls[key].line)) is not None:
                good = found.is_good
                self._change(key, state="answered", answer=found.answer, is_good=good, seen=now)
            else:
                self._again(key, now=now, why=why, is_tried=not batch.is_cancelled)
        self.room = min(2 * self.room, MOST_LINES)
        self._note(n, is_over=True, files=seen.files)

    def put_off(self, n: int, seen: Seen, seconds: float, *, now: float) -> None:
        """Collect the calls of a batch once more, after a pause: the provider had no room.

        Fewer of them at once: it may never have room for so many.
        """
        self.paused = now + seconds
        self.most = self.room = max(len(self.of(n)) // 2, 1)
        for key in self.of(n):
            self._again(key, now=now, why=seen.why, is_tried=False)
        self._note(n, is_over=True, files=seen.files)

    def refused(self, n: int, seen: Seen, *, now: float) -> None:
        """Fail the calls of a batch that the provider does not take.

        If it names the lines that are wrong, these are asked directly: each step learns there what
        is wrong with its own. The others go on.
        """
        for key in self.of(n):
            if not seen.lines:
                self._change(key, state="failed", why=seen.why, is_good=False, seen=now)
            elif self.calls[key].line in seen.lines:
                self._change(key, state="direct", why=seen.why, seen=now)
            else:
                self._again(key, now=now, why=seen.why)
        self._note(n, is_over=True, files=seen.files)

    def tidied(self, n: int) -> None:
        """Forget a batch whose files are deleted."""
        del self.batches[n]
        self._of.pop(n, None)
        self._sums.pop(n, None)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits, and nothing is left to do."""
        return not self.calls and not self.batches

    def _late_at(self, n: int, until: float) -> float:
        """Return when a call is given up; what the provider may have is reached for first."""
        batch = self.batches.get(n)
        if batch is None or not batch.may_run:
            return until
        return max(batch.late, until) + GRACE if batch.late else inf

    def _sum(self, n: int) -> Sum:
        """Return the sum of calls: all are added up once one has gone."""
        if n not in self._sums:
            self._sums[n] = reduce(Sum.plus, map(self.calls.__getitem__, self.of(n)), Sum())
        return self._sums[n]

    def _again(self, key: str, *, now: float, why: str, is_tried: bool = True) -> None:
        call = self.calls[key]
        if now < call.until and call.tries < MOST_TRIES + (not is_tried):
            self._change(key, batch=0, tries=call.tries - (not is_tried))
        else:
            self._change(key, state="direct", why=why, seen=now)

    @staticmethod
    def _is_left(call: Call, ask: Ask) -> bool:
        """Whether no activity waits for a call any more whose answer no step has."""
        is_open = call.asker.run == ask.asker.run and call.asker.activity in ask.pending
        return call.is_good and not call.is_taken and not is_open

    def _put(self, key: str, call: Call) -> None:
        self.calls[key] = call
        self._like[call.asker.task, call.body].append(key)
        self._enter(key, call)

    def _drop(self, key: str) -> Call:
        call = self.calls.pop(key)
        like = self._like[call.asker.task, call.body]
        like.remove(key)
        if not like:
            del self._like[call.asker.task, call.body]
        self._leave(key, call)
        return call

    def _change(self, key: str, **changes: Any) -> None:
        before = self.calls[key]
        call = self.calls[key] = before.model_copy(update=changes)
        if call.group != before.group:
            self._leave(key, before)
            self._enter(key, call)
        elif call.seen != before.seen:
            self._sums.pop(call.group, None)

    def _enter(self, key: str, call: Call) -> None:
        self._sums[call.group] = self._sum(call.group).plus(call)
        self._of[call.group][key] = None

    def _leave(self, key: str, call: Call) -> None:
        del self._of[call.group][key]
        self._sums.pop(call.group, None)

    def _note(self, n: int, **changes: Any) -> None:
        self.batches[n] = self.batches[n].model_copy(update=changes)
