"""What tools have done in the world, compared with what the ledgers of the tasks say."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from holdfast.task.data.calls import Outcome
from holdfast.task.data.records import Entry, EventRecord, OpenState, effect_place
from holdfast.task.step_body import StepBody, StepCall, body_of
from holdfast.values.base import canonical, digest
from tests.simulation.cast import ACTS, World
from tests.simulation.run import ViolationError

REPEATABLE = ("mark", "write")
"""Tools whose calls may take effect more than once, with one key."""


class Place(NamedTuple):
    """A call of a ledger: the task, where it stands there, and the key that its tool was given."""

    task: str
    name: str
    key: str
    call: StepCall


class Effects:
    """Knows what the ledgers say of effects; grows with them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._asked: dict[str, tuple[str, str]] = {}
        self._let: Counter[tuple[str, str]] = Counter()
        self._undos: dict[tuple[str, str], list[EventRecord]] = {}
        self._recorded: dict[str, Place] = {}

    def read(self, task: str, entry: Entry) -> None:
        """Take a new entry of a task's ledger."""
        record = entry.step or entry.left
        if record is not None:
            places = _places_in(task, body_of(record))
            self._recorded |= {place.key: place for place in places}
        event = entry.event
        if event is None:
            return
        body: dict[str, Any] = event.body
        match event.kind:
            case "asked":
                self._asked[body["id"]] = (body["kind"], body["tool"])
            case "command" if body.get("verb") == "approve":
                self._let[self._asked.get(body["arguments"]["approval"], ("", ""))] += 1
            case "effect_undone" | "undo_failed" | "undo_unknown" if "key" in body:
                self._undos.setdefault((task, body["key"]), []).append(event)
            case _:
                pass

    def check_counts(self) -> None:
        """What is done is done once, and undone once at most, unless a person says otherwise.

        Raises:
            ViolationError: It was not.
        """
        for what, counts in (("done", self._world.done), ("undone", self._world.undone)):
            for (tool, key), count in counts.items():
                most = 1 + self._let["unknown" if what == "done" else "undo", tool]
                if count > most and tool not in REPEATABLE:
                    raise ViolationError(f"{tool} ({key}) was {what} {count} times")

    def check(self, tasks: Iterable[tuple[str, Any]]) -> None:
        """What has happened is in a ledger, and what a ledger has did happen.

        Args:
            tasks: Each task, and its state.

        Raises:
            ViolationError: One of them says otherwise.
        """
        known = self._recorded | {place.key: place for each in tasks for place in _open(*each)}
        for tool, key in self._world.done:
            # A person may approve a call of unknown outcome as another one: the ledger has that.
            if key not in known and not self._let["unknown", tool]:
                raise ViolationError(f"{tool} ({key}) was done, and no ledger knows of it")
        for place in known.values():
            if place.call.call.name in ACTS:
                self._check_done(place)
                self._check_undone(place)

    def _check_done(self, place: Place) -> None:
        call, tool = place.call, place.call.call.name
        count = self._world.done[tool, place.key]
        outcome = call.outcome
        if count and _denies(call) and not self._let["unknown", tool] and tool not in REPEATABLE:
            raise ViolationError(f"{tool} was done, and {place.task} says that it was not: {call}")
        is_claimed = outcome is not None and outcome.status == "done" and outcome.attempts > 0
        if is_claimed and outcome is not None and not (count or _is_told(outcome)):
            raise ViolationError(f"{tool} was not done, and {place.task} says that it was: {call}")

    def _check_undone(self, place: Place) -> None:
        tool = place.call.call.name
        count = self._world.undone[tool, place.key]
        said = self._undos.get((place.task, place.name), [])
        if count and not said:
            raise ViolationError(f"{tool} was undone, and {place.task} does not know of it")
        if any(each.text == f"took {tool} back" for each in said) and not count:
            raise ViolationError(f"{tool} was not undone, and {place.task} says that it was")


def _denies(call: StepCall) -> bool:
    """Whether a ledger says that a call has not taken effect."""
    if call.outcome is not None:
        return call.outcome.status == "failed"
    return call.called is None or bool(call.called.error)


def _is_told(outcome: Outcome) -> bool:
    """Whether a person has said how a call has ended."""
    return any(each.status == "responded" for each in outcome.decided)


def _open(task: str, state: Any) -> Iterator[Place]:
    opens: tuple[OpenState, ...] = state.opens
    for each in opens:
        yield from _places_in(task, body_of(each, branch=state.branch))


def _places_in(task: str, body: StepBody) -> Iterator[Place]:
    for call in body.all_calls():
        edited = (call.outcome or call.called or Outcome()).edited
        where = [body.branch, body.key, call.batch, call.i]
        named = [task, where, call.call.name, edited or call.call.arguments]
        name = effect_place(body.branch, body.key, call.batch, call.i)
        yield Place(task, name, digest(canonical(named))[:32], call)
