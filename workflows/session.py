"""The session workflow: an agent's conversational memory, which only finalized tasks extend."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy, SearchAttributeUpdate
from temporalio.exceptions import ActivityError, FailureError

from holdfast.engine.converter import Opening
from holdfast.engine.search_attributes import HF_RULES
from holdfast.task.data.calls import StandingRule
from holdfast.task.data.state import (
    CLAIM,
    COMMIT,
    REVOKE,
    RULE,
    TURN,
    Claim,
    CommitRef,
    SessionState,
)
from holdfast.values.base import Value, extend
from holdfast.values.checks.ids import LONGEST_KNOWN

FEWEST_EVENTS = 10
"""A run that rolled sooner would do nothing but roll."""

RECENT_KEPT = 1000

RULES_KEPT = 100
"""Rules that a session keeps, the newest ones: of what an older one was for, a person is asked. As
many that have ended are kept next to them."""

MOST_IN_LINE = 1000
"""Tasks that have or await their turn. Another one gets in line once one of them has left it."""

INDEX_TIMEOUT = timedelta(minutes=2)
INDEX_ATTEMPTS = 5
WRITES: dict[str, Any] = {
    "start_to_close_timeout": INDEX_TIMEOUT,
    "schedule_to_close_timeout": INDEX_ATTEMPTS * INDEX_TIMEOUT,
    "retry_policy": RetryPolicy(maximum_attempts=INDEX_ATTEMPTS),
}
T = TypeVar("T", bound=Value)
_SHA256 = re.compile(r"([0-9a-f]{64})?")


@workflow.defn(name="Session", sandboxed=False)
class Session(Opening):
    """One session. It keeps references; the messages are in the archive."""

    takes = SessionState

    @workflow.init
    def __init__(self, state: SessionState) -> None:
        """Begin empty, or go on after continue-as-new."""
        self.s = state
        self._used = workflow.time()
        self._next = ""  # the task that is yet to be told that its turn has come

    @workflow.run
    async def run(self, state: SessionState) -> str:
        """Run until it continues as new, or rests; commits arrive as signals.

        Returns:
            Digest of the record with which it rests.
        """
        del state
        rests = workflow.patched("session-rests") and self.s.unused > 0
        sealed = ""
        while not sealed:
            try:
                if rests and await self._is_unused():
                    sealed = await self._rest()
                    continue
                await workflow.wait_condition(self._rolls)
                await self._index()
                # A claim may have come meanwhile: who is being told of their turn is not forgotten.
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(self.s)
            except asyncio.CancelledError:
                workflow.logger.warning("A session is memory and cannot be cancelled; delete it.")
        return sealed

    async def _is_unused(self) -> bool:
        """Wait until the session is unused for long, or False once it rolls.

        A valid rule keeps it open: rules are listed, and revoked, in open sessions. So does a task
        that waits for its turn, and will be told.
        """
        while not self._rolls():
            left = self._used + self.s.unused - workflow.time()
            if left <= 0:
                rules = any(each.stands(workflow.time()) for each in self.s.rules)
                # The first in line waits for no one. For a worker of an older version no one does.
                if not rules and not (self.s.line[1:] and workflow.patched("session-line")):
                    return True
                left = self.s.unused
            with suppress(TimeoutError):
                pause = timedelta(seconds=max(left, 0.001))
                await workflow.wait_condition(self._rolls, timeout=pause)
        return False

    async def _rest(self) -> str:
        """Store the memory in the archive, where the next signal begins from.

        Returns:
            Digest of its record; empty when it was not stored, or a signal came meanwhile.
        """
        kept = self.s
        self._used = workflow.time()  # when the next attempt counts from
        try:
            sealed = await workflow.execute_activity(
                "rest", kept, result_type=str, summary=f"unused for {kept.unused:g} s", **WRITES
            )
        except ActivityError as error:
            workflow.logger.warning("An unused session stays open: %s", error)
            return ""
        # The server takes no end from a workflow task that has not seen all signals.
        return sealed if self.s is kept and workflow.all_handlers_finished() else ""

    async def _index(self) -> None:
        """Move full lists of turns to the archive; if that fails, the next run tries again."""
        while len(self.s.commits) > self.s.index_size:
            full = self.s.commits[: self.s.index_size]
            try:
                sha256 = await workflow.execute_activity(
                    "index", list(full), result_type=str, summary=f"{len(full)} turns", **WRITES
                )
            except ActivityError as error:
                workflow.logger.warning("A session's old turns stay where they are: %s", error)
                return
            # Turns that came during the activity are behind `full`, and stay.
            self._change(
                commits=self.s.commits[len(full) :],
                older=(*self.s.older, sha256),
                base=self.s.base + len(full),
            )

    def _rolls(self) -> bool:
        info = workflow.info()
        long = info.get_current_history_length() >= max(self.s.roll_events, FEWEST_EVENTS)
        # One that is yet to be told of its turn is not forgotten.
        return (long or info.is_continue_as_new_suggested()) and workflow.all_handlers_finished()

    def _change(self, **fields: object) -> None:
        self.s = self.s.model_copy(update=fields)
        self._used = workflow.time()

    @workflow.signal(dynamic=True)
    async def signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Append a task's turn, change the line of tasks, or take or end a rule.

        It never raises, whatever was sent: that would block the session.
        """
        payloads = [arg.payload.data for arg in args]
        rule, claim = read_rule(name, payloads), read_claim(name, payloads)
        if rule is not None:
            self._take(rule, ends=name == REVOKE)
        elif claim is not None:
            self._line_up(claim)
        else:
            self._append(name, payloads)
        while self._next:
            await self._call()

    def _line_up(self, claim: Claim) -> None:
        """Let a task get in line, once, and others leave it.

        A claim may come late, or twice: one whose turn the session has is not in line any more.
        """
        new, line = claim.task, tuple(each for each in self.s.line if each not in claim.gone)
        is_known = not new or new in line or new in self.s.recent
        is_full = len(line) >= (1 if claim.if_free else MOST_IN_LINE)
        self._move(line if is_known or is_full else (*line, new))
        # Most claims say nothing but the task.
        said = self.s.claims | ({new: claim} if claim.beat or claim.callers else {})
        kept = {task: each for task, each in said.items() if task in self.s.line}
        self.s = self.s.model_copy(update={"claims": kept})

    def _move(self, line: tuple[str, ...]) -> None:
        """Change the line, and note whose turn has come that way."""
        if self.s.line and line[:1] != self.s.line[:1]:
            self._next = line[0] if line else ""
        # No use of the session: for a worker of an older version it is none, and a replay of that
        # must come to rest at the same time.
        self.s = self.s.model_copy(update={"line": line})

    async def _call(self) -> None:
        """Tell the next task that its turn has come; one that is not there any more loses it."""
        task, self._next = self._next, ""
        try:
            # A run in which an older worker did not tell a task never does: tasks look themselves.
            if workflow.patched("session-line"):
                await workflow.get_external_workflow_handle(task).signal(TURN, Claim(task=task))
        except FailureError:
            self._move(tuple(each for each in self.s.line if each != task))

    def _take(self, rule: StandingRule, *, ends: bool) -> None:
        """Keep a rule, or note who has ended it; one that was ended does not come back.

        One that is ended before it has arrived is kept as such.
        """
        now = workflow.now().timestamp()
        known = {each.id: each for each in self.s.rules}
        before = known.get(rule.id)
        if before is not None and (before.revoked or not ends):
            return
        if ends:
            ended = {"revoked": rule.revoked or "somebody", "revoked_at": now}
            rule = (before or rule).model_copy(update=ended)
        self._change(rules=kept_rules({**known, rule.id: rule}.values(), now=now))
        count = sum(each.stands(now) for each in self.s.rules)
        updates: list[SearchAttributeUpdate[Any]] = [HF_RULES.value_set(count)]
        workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType]  temporalio's types

    def _append(self, name: str, payloads: list[bytes]) -> None:
        turn = read_commit(name, payloads)
        if turn is None:
            workflow.logger.warning("A signal %r that is not a commit was dropped", name[:80])
            return
        if turn.task in self.s.line:  # its turn is over
            self._move(tuple(each for each in self.s.line if each != turn.task))
        # A close that is repeated commits again. The turn stands in the session once.
        if turn.task and turn.task in self.s.recent:  # it has committed already
            return
        if turn.replaces and turn.after != self.s.base + len(self.s.commits):
            return  # another turn came first; the sender looks, and replaces that one
        recent = (*self.s.recent, turn.task)[-RECENT_KEPT:] if turn.task else self.s.recent
        digest = extend(self.s.digest, (turn,))
        self._change(commits=(*self.s.commits, turn), recent=recent, digest=digest)

    @workflow.query
    def state(self) -> SessionState:
        """Show the turns."""
        return self.s.model_copy(update={"recent": (), "rules": ()})

    @workflow.query(name="standing_rules")
    def standing_rules(self) -> list[StandingRule]:
        """Show the decisions that hold for later calls of the session's tasks, also ended ones."""
        return list(self.s.rules)


def kept_rules(rules: Iterable[StandingRule], *, now: float) -> tuple[StandingRule, ...]:
    """Return the rules that a session keeps: ended ones take no room from valid ones.

    Args:
        rules: Its rules, oldest first.
        now: Time, seconds since the epoch.
    """
    given = tuple(rules)
    ended = [each for each in given if not each.stands(now)][-RULES_KEPT:]
    standing = [each for each in given if each.stands(now)][-RULES_KEPT:]
    kept = {each.id for each in (*ended, *standing)}
    return tuple(each for each in given if each.id in kept)


def read_rule(name: str, payloads: Sequence[bytes]) -> StandingRule | None:
    """Read a signal as a rule, or return None for anything else; never raises."""
    rule = _read(StandingRule, payloads) if name in (RULE, REVOKE) else None
    return rule if rule and rule.id and rule.tool and rule.by else None


def read_claim(name: str, payloads: Sequence[bytes]) -> Claim | None:
    """Read a signal as a change of the line, or return None for anything else; never raises."""
    claim = _read(Claim, payloads) if name == CLAIM else None
    return claim if claim and len(claim.task) <= LONGEST_KNOWN else None


def read_commit(name: str, payloads: Sequence[bytes]) -> CommitRef | None:
    """Read a signal as a turn, or return None for anything else; never raises."""
    turn = _read(CommitRef, payloads) if name == COMMIT else None
    return turn if turn and _SHA256.fullmatch(turn.sha256) else None


def _read(kind: type[T], payloads: Sequence[bytes]) -> T | None:
    with suppress(ValueError):
        [data] = payloads
        return kind.model_validate_json(data)
    return None
