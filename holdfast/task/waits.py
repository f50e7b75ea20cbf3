"""Calls that have begun and wait for a time, or for an outcome from outside their task. Pure.

Such a call is in `OpenState.waiting`, with the outcome that it has if its time comes first.
By its token, which is of the call alone, others give it another one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterator
from typing import cast

from holdfast.task.data.calls import LONG_CALL, Outcome, Wait
from holdfast.task.data.children import is_secret, secret_of_child
from holdfast.task.data.commands import Command
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import approvals
from holdfast.values.messages import Content, ToolCall
from holdfast.values.text.shown import named

_PLACE = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){3}")

LARGEST_RESULT = 64 * 1024
"""Most characters of a result from outside: it stays in the task's history."""


_OF_TOOL = ("patch", "guards", "worker", "attempts", "artifacts")
"""What is known of the tool that has begun a wait: it stays whatever the outcome."""


def token_of(secret: str, task: str, place: tuple[int, int, int, int], call: ToolCall) -> str:
    """Return the token of a call.

    Args:
        secret: What the task shares with its activities.
        task: Id of the task.
        place: Branch, step, batch and position of the call.
        call: The call.
    """
    at = ".".join(map(str, place))
    made = hmac.new(secret.encode(), f"{task} {at} {call.id}".encode(), hashlib.sha256)
    return f"{task}:{at}:{made.hexdigest()[:32]}"


def begin(ledger: Ledger, n: int, i: int, over: Outcome) -> None:
    """Let a call wait, unless its outcome has come before.

    Args:
        ledger: The task.
        n: The step.
        i: Position of the call.
        over: Its outcome once its time is over; `asks` is the wait.
    """
    early = ledger.at(n).waiting.get(i)
    if early is None:
        ledger.calls.wait(n, i, over)
    else:
        kept = {name: getattr(over, name) for name in _OF_TOOL}
        _end(ledger, n, i, early.model_copy(update=kept), now=early.ended)


def waiting(ledger: Ledger) -> Iterator[tuple[int, int, Wait, Outcome]]:
    """Yield the calls that wait: step, position, wait, outcome once its time is over."""
    for current in ledger.s.opens:
        for i, over in current.waiting.items():
            if isinstance(over.asks, Wait):
                yield current.n, i, over.asks, over


def next_end(ledger: Ledger) -> float:
    """Return when the time of the next of them is over; 0 for never."""
    return min((wait.until for _, _, wait, _ in waiting(ledger) if wait.until), default=0.0)


def end_due(ledger: Ledger, *, now: float) -> None:
    """End the waits whose time is over."""
    for n, i, wait, over in [*waiting(ledger)]:
        if 0 < wait.until <= now:
            _end(ledger, n, i, _in_vain(over, over.content), now=now)


def leave(ledger: Ledger, n: int, i: int, *, now: float) -> None:
    """End the wait of a call whose task ends."""
    _end(ledger, n, i, _in_vain(ledger.at(n).waiting[i]), now=now)


def _in_vain(over: Outcome, text: Content = "") -> Outcome:
    """Return the outcome of a call whose wait is over; the text is for one without an answer."""
    waits = over.asks.waits if isinstance(over.asks, Wait) else ""
    if waits in ("", "sleep"):
        return over
    # What its tool has begun outside may still take effect.
    status = "failed" if waits == "event" else "unknown"
    text = text or "The wait for its outcome was ended before there was one."
    return over.model_copy(update={"is_error": True, "status": status, "content": text})


def _end(ledger: Ledger, n: int, i: int, outcome: Outcome, *, now: float) -> None:
    ledger.calls.settled(n, i, outcome.model_copy(update={"asks": None}), now=now)


def obey(ledger: Ledger, command: Command, *, now: float) -> str:
    """Apply a command about a call that waits; return why not, or empty."""
    act = _wake if command.verb == "wake" else _complete
    return act(ledger, command, now=now)


def _wake(ledger: Ledger, command: Command, *, now: float) -> str:
    """End a wait before its time, or change its time; return why not, or empty."""
    found, wanted = [*waiting(ledger)], command.body.get("call", "")
    ids = [ledger.at(n).calls[i].id for n, i, _, _ in found]
    if wanted == "" and len(found) > 1:
        return f"Several calls wait; say which one by its call: {named(ids)}."
    at = next((k for k, id in enumerate(ids) if wanted in ("", id)), None)
    if at is None:
        return f"No such call waits for a time or from outside. These do: {named(ids)}."
    n, i, _, over = found[at]
    if command.body.get("until") is None:
        _end(ledger, n, i, _in_vain(over), now=now)
        return ""
    return _extend(ledger, n, i, over, command, now=now)


def _extend(ledger: Ledger, n: int, i: int, over: Outcome, command: Command, *, now: float) -> str:
    until, refused = approvals.time_to_come(command.body["until"], now=now)
    wait = cast("Wait", over.asks)
    if wait.waits == "event":  # where the event comes in has its time
        refused = "The time of a wait for an event is fixed. End the wait, without a time."
    if not refused:
        wait = wait.model_copy(update={"until": until})
        ledger.calls.wait(n, i, over.model_copy(update={"asks": wait}))
    return refused


def _complete(ledger: Ledger, command: Command, *, now: float) -> str:
    """Give a call that waits its outcome, or more time; return why not, or empty."""
    body = command.body
    given = [name for name in ("result", "error", "until") if body.get(name) not in (None, "")]
    if len(given) != 1:
        return f"Give one of result, error and until; there was {named(given) or 'none'}."
    place = _place(ledger, body.get("token"))
    if isinstance(place, str):
        return place
    n, i = place
    current = ledger.at(n)
    over, done = current.waiting.get(i), current.outcomes.get(i)
    if done is not None or (over is not None and over.asks is None):
        return "The call has its outcome already; this one changes nothing."
    if "until" in given:
        if over is None:
            return "The call does not wait yet: say how long it may take once its tool has ended."
        return _extend(ledger, n, i, over, command, now=now)
    said = body[given[0]]
    text = said if isinstance(said, str) else json.dumps(said)
    if len(text) > LARGEST_RESULT:
        return f"A result may have {LARGEST_RESULT} characters; this one has {len(text)}."
    failed = given[0] == "error"
    known = Outcome(content=text, is_error=failed, status="failed" if failed else "done", ended=now)
    asked = approvals.latest(ledger, n, i)
    if asked is not None and asked.kind == "unknown" and asked.status == "open":
        # Its worker was lost after it had given the token.
        ledger.calls.settled(n, i, known, now=now)
        approvals.settle(ledger, n, i, now=now)
    elif over is not None or i in current.called:
        ledger.calls.wait(n, i, known)  # where its tool has not ended yet
        if over is not None:
            begin(ledger, n, i, over)
    else:
        return "The call is not being made: it waits for a person, or was given up."
    return ""


def _place(ledger: Ledger, token: object) -> tuple[int, int] | str:
    """Return step and position of an open call by its token, or why there is no such call."""
    parts = str(token).rpartition(":")[0].rpartition(":")[2].split(".")
    # Whatever was sent must not raise here: that would block the task.
    if not isinstance(token, str) or not _PLACE.fullmatch(".".join(parts)):
        return "It is no token of a call: <task id>:<place>:<digits>."
    branch, n, batch, i = map(int, parts)
    current = ledger.find(n)
    is_open = current is not None and branch == ledger.s.branch and batch == current.batch
    if current is None or not is_open or i >= len(current.calls):
        return "Its step is over, or was undone: the call needs no outcome any more."
    secret = secret_of_child(ledger.given.secret, LONG_CALL)
    expected = token_of(secret, ledger.task_id, (branch, n, batch, i), current.calls[i])
    if not (ledger.given.secret and is_secret(token, expected)):
        return "It is the token of no call of this task."
    return n, i
