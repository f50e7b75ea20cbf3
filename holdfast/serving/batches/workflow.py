"""The batches of one account and model: a workflow that collects calls, submits them and looks.

It does one thing after the other. What it does at the provider can be repeated: a batch is known
there by its name.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from holdfast.engine.converter import Opening
from holdfast.serving.batches.hand import ENDS, Ask, Hand, Job, Outcome, Reply, Seen
from holdfast.values.base import Value
from holdfast.workflows.activity_calls import failure_of, time_left

T = TypeVar("T")

QUEUE = "hf-batches-2"
"""Begin of the task queues, and the ids, of these workflows. Where new code could not go on with
the histories of old code, the number grows, and calls that wait are submitted once more: a patch
is better."""

REFUSED = "BatchRefused"
"""Type of the failure of a submission that the provider refuses whenever it is repeated."""

UNTAKEN = "BatchUntaken"
"""Type of the failure of a submission that the provider has not taken, and may take later."""

NO_ROOM = "token_limit_exceeded"
"""The provider's code for a batch for which it has no room now."""

PAUSE = 900.0
"""Seconds until a batch is made again that had no room."""

HEARTBEAT = timedelta(seconds=15)
ATTEMPT = timedelta(minutes=10)
PATIENCE = timedelta(minutes=12)
"""How long one attempt takes at most, and how long it is repeated; then the next job comes."""


class Line(Value):
    """A line of a batch: its id, and whose body it has."""

    id: str
    task: str
    body: str = ""


class Submission(Value):
    """What `batch_submit` gets.

    Attributes:
        name: Names the batch at the provider.
        made: When it was put together, seconds since the epoch.
        again: Whether it may have been submitted before.
        lines: Its lines; none to find out only whether it was.
        ids: Ids of the lines that are waited for, also then.
        size: Number of the lines that it was made of; 0 where that is not known.
        others: The provider's ids of the batches that are under way.
    """

    name: str
    made: float
    again: bool
    lines: tuple[Line, ...]
    ids: tuple[str, ...] = ()
    size: int = 0
    others: tuple[str, ...] = ()


class Look(Value):
    """What `batch_look` gets: a batch, and whether to cancel it."""

    id: str
    cancel: bool = False


class Fetch(Value):
    """What `batch_fetch` gets: files, and the lines that are wanted of them."""

    outputs: tuple[str, ...]
    lines: tuple[Line, ...]


@workflow.defn(name="Batches", sandboxed=False)
class Batches(Opening):
    """The batches of one account and model. It ends when no call is left."""

    takes = Hand

    @workflow.init
    def __init__(self, hand: Hand) -> None:
        """Begin empty, or go on after continue-as-new."""
        self._hand = hand
        self._news = True
        if not hand.series:
            hand.series = workflow.uuid4().hex

    @workflow.run
    async def run(self, hand: Hand) -> None:
        """Do what is due until nothing is left, or it continues as new."""
        while True:
            self._news = False
            now = workflow.time()
            hand.expire(now=now)
            due, job = hand.next(now=now)
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(hand)
            if hand.is_empty:
                return
            if due <= now:
                await self._do(job)
                continue
            with suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: self._news, timeout=time_left(due, now=workflow.time())
                )

    @workflow.signal
    def ask(self, ask: Ask) -> None:
        """Take a call."""
        self._hand.take(ask, now=workflow.time())
        self._news = True

    @workflow.signal
    def taken(self, key: str) -> None:
        """Note that a step has its answer."""
        self._hand.taken(key)

    @workflow.query
    def reply(self, key: str) -> Reply:
        """Return the state of a call."""
        return self._hand.reply(key)

    @workflow.query
    def hand(self) -> Hand:
        """Show what is known."""
        return self._hand

    async def _do(self, job: Job) -> None:
        try:
            match job.kind:
                case "collect":
                    keys = await self._still_wait(self._hand.collected())
                    self._hand.make(keys, now=workflow.time())
                case "sweep":
                    await self._still_wait(self._hand.over())
                case "submit":
                    await self._submit(job.n)
                case "look":
                    await self._look(job.n)
                case "tidy":
                    await self._tidy(job.n)
                case "expire":
                    pass  # it has been done before
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            self._failed(job, failure_of(error).message, error.cause)

    def _failed(self, job: Job, why: str, cause: BaseException | None) -> None:
        hand, now = self._hand, workflow.time()
        kind = cause.type if isinstance(cause, ApplicationError) else ""
        if job.kind == "submit" and kind == REFUSED:
            hand.refused(job.n, Seen(why=why), now=now)
        elif job.n in hand.batches:
            hand.looked(job.n, now=now, why=why)
            if kind == UNTAKEN:
                hand.untaken(job.n)
        elif job.kind in ("collect", "sweep"):
            hand.paused = now + PAUSE  # the server did not answer for minutes
            hand.kept(hand.over(), now=now)

    async def _still_wait(self, keys: list[str]) -> list[str]:
        """Return the calls whose steps wait for them, and forget the others."""
        askers = [self._hand.calls[key].asker for key in keys]
        waits: list[bool] = await self._run("batch_waits", askers, list[bool])
        still = [key for key, is_open in zip(keys, waits, strict=True) if is_open]
        gone = [key for key, is_open in zip(keys, waits, strict=True) if not is_open]
        self._hand.forget(gone)  # in order: a set has another one in each process
        self._hand.kept(still, now=workflow.time())
        return still

    async def _submit(self, n: int) -> None:
        hand = self._hand
        batch = hand.batches[n]
        if batch.tries or batch.why:  # the calls were collected long ago
            await self._still_wait(hand.of(n))
        due = hand.deadline(n)
        is_late = bool(batch.tries) and (due is None or workflow.time() >= due)
        lines = self._lines(n)
        given = Submission(
            name=f"holdfast-{hand.series}-{n}",
            made=batch.made,
            again=batch.tries > 0,
            lines=() if is_late else lines,
            ids=tuple(line.id for line in lines),
            size=batch.size,
            others=tuple(each.id for each in hand.batches.values() if each.id),
        )
        id = await self._run("batch_submit", given, str)
        if id:
            hand.submitted(n, id, now=workflow.time())
        else:
            why = f"its batch was not submitted in time: {batch.why}"
            hand.ended(n, (), Seen(why=why), now=workflow.time())

    def _lines(self, n: int) -> tuple[Line, ...]:
        calls = (self._hand.calls[key] for key in self._hand.of(n))
        return tuple(Line(id=c.line, task=c.asker.task, body=c.body) for c in calls)

    async def _look(self, n: int) -> None:
        hand = self._hand
        batch, due = hand.batches[n], hand.deadline(n)
        cancel = not batch.is_cancelled and (due is None or workflow.time() >= due)
        seen = await self._run("batch_look", Look(id=batch.id, cancel=cancel), Seen)
        now = workflow.time()
        if seen.status not in ENDS:
            hand.looked(n, now=now, cancelled=cancel)
        elif seen.status == "failed" and seen.code == NO_ROOM:
            hand.put_off(n, seen, PAUSE, now=now)
        elif seen.status == "failed":
            hand.refused(n, seen, now=now)
        else:
            outcomes: list[Outcome] = []
            if seen.outputs and (lines := self._lines(n)):
                fetch = Fetch(outputs=seen.outputs, lines=lines)
                outcomes = await self._run("batch_fetch", fetch, list[Outcome])
            hand.ended(n, outcomes, seen, now=workflow.time())

    async def _tidy(self, n: int) -> None:
        files = list(self._hand.batches[n].files)
        self._hand.tidied(n)  # at least it is tried: files that stay end by themselves
        if files:
            await self._run("batch_tidy", files, type(None))

    async def _run(self, name: str, given: Any, kind: type[T]) -> T:
        """Run an activity.

        Raises:
            ActivityError: It failed for minutes, or is refused.
        """
        found: T = await workflow.execute_activity(
            name,
            given,
            result_type=kind,
            start_to_close_timeout=ATTEMPT,
            schedule_to_close_timeout=PATIENCE,
            heartbeat_timeout=HEARTBEAT,
            retry_policy=RetryPolicy(
                maximum_interval=timedelta(seconds=30), non_retryable_error_types=[REFUSED]
            ),
        )
        return found
