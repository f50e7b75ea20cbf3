"""The script of a fake API and the record of its requests, shared by threads."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from holdfast.testing.fake_api.replies import Reply, as_reply
from holdfast.testing.fake_api.requests import Dialect, FakeRequest

Responder = Callable[[FakeRequest], Reply | str | None]


@dataclass
class _Rule:
    condition: Callable[[FakeRequest], bool]
    reply: Reply
    left: int | None


@dataclass(frozen=True)
class Place:
    """How far a script is: the replies that are left, and how often each rule still answers."""

    queue: tuple[Reply, ...]
    rules: tuple[int | None, ...]


class Script:
    """Rules, then a queue of replies, then a responder; the first that fits answers.

    Attributes:
        changed: Notified whenever a request arrives, is held or is released.
        dialects: Other APIs that are answered from it.
    """

    def __init__(
        self, responder: Responder | None = None, dialects: Sequence[Dialect] = ()
    ) -> None:
        """Begin with an empty queue."""
        self.changed = threading.Condition()
        self.dialects = dialects
        self.responder = responder
        self._queue: deque[Reply] = deque()
        self._rules: list[_Rule] = []
        self._requests: list[FakeRequest] = []
        self._problems: list[str] = []
        self._ids: Counter[str] = Counter()
        self._held = 0

    def add(self, replies: Iterable[Reply | str]) -> None:
        """Append to the queue."""
        with self.changed:
            self._queue.extend(map(as_reply, replies))

    def add_rule(
        self, condition: Callable[[FakeRequest], bool], reply: Reply, times: int | None
    ) -> None:
        """Answer with `reply` whenever `condition` holds, at most `times` times."""
        with self.changed:
            self._rules.append(_Rule(condition, reply, times))

    def record(self, make: Callable[[int], FakeRequest]) -> FakeRequest:
        """Record a request under its number."""
        with self.changed:
            request = make(len(self._requests) + 1)
            self._requests.append(request)
            self.changed.notify_all()
            return request

    def record_problem(self, request: FakeRequest, problem: str) -> None:
        """Record a problem: a request without a reply, or one that the API would refuse."""
        with self.changed:
            self._problems.append(f"request {request.number} to {request.path}: {problem}")

    def choose(self, request: FakeRequest) -> Reply | None:
        """Take the reply for a request; None without one."""
        with self.changed:
            for rule in self._rules:
                if rule.left != 0 and rule.condition(request):
                    rule.left = None if rule.left is None else rule.left - 1
                    return rule.reply
            for index, reply in enumerate(self._queue):
                if not reply.match or request.holds(reply.match):
                    del self._queue[index]
                    return reply
        # Outside the lock: a responder may look at the requests, or wait.
        given = self.responder(request) if self.responder else None
        return None if given is None else as_reply(given)

    def next_id(self, prefix: str) -> str:
        """Return the next id of this prefix: call_1, call_2, ..."""
        with self.changed:
            self._ids[prefix] += 1
            return f"{prefix}{self._ids[prefix]}"

    def hold(self, change: int) -> None:
        """Count a request that is held (1) or released (-1)."""
        with self.changed:
            self._held += change
            self.changed.notify_all()

    def place(self) -> Place:
        """Return the position in the script."""
        with self.changed:
            return Place(tuple(self._queue), tuple(rule.left for rule in self._rules))

    def go_to(self, place: Place) -> None:
        """Go back to a position in the script; rules added since then stay as they are."""
        with self.changed:
            self._queue = deque(place.queue)
            for rule, left in zip(self._rules, place.rules, strict=False):
                rule.left = left

    def reset(self) -> None:
        """Clear replies, rules, requests and problems; ids go on, so that none is used twice."""
        with self.changed:
            self._queue.clear()
            self._rules.clear()
            self._requests.clear()
            self._problems.clear()
            self.responder = None

    @property
    def requests(self) -> list[FakeRequest]:
        """The requests so far, oldest first."""
        with self.changed:
            return list(self._requests)

    @property
    def problems(self) -> list[str]:
        """Requests that found the script exhausted or that the real API would refuse."""
        with self.changed:
            return list(self._problems)

    @property
    def left(self) -> int:
        """Replies not yet used."""
        with self.changed:
            return len(self._queue)

    @property
    def held(self) -> int:
        """Requests being held now."""
        with self.changed:
            return self._held

    def wait_until(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        """Block until `condition` holds.

        Raises:
            TimeoutError: It did not within `timeout` seconds.
        """
        with self.changed:
            if not self.changed.wait_for(condition, timeout):
                raise TimeoutError(
                    f"Waited {timeout:g} s for {what}; the fake API got {len(self._requests)}"
                    f" requests and holds {self._held}."
                )
