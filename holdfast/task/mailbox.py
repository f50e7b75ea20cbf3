"""Events of one name: what its mailbox keeps, and which calls that wait are given which. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import islice
from typing import Annotated, Any

from pydantic import BaseModel, Field, PrivateAttr

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json, Value, canonical
from holdfast.values.checks.gate import as_object
from holdfast.values.checks.ids import DEFAULT_APP, MADE, check_name, is_of_agent, queue_of
from holdfast.values.text.shown import named, shown

MAILBOX = "Mailbox"
"""Type of the workflow."""
WAITS = "wait_for_event"
"""The tool whose calls wait."""

DAY = 86_400.0
LONGEST_KEPT = 30 * DAY
LONGEST_NAME = 100
LARGEST_EVENT = 32 * 1024
"""Most bytes of an event's data, as JSON: a call that it is given to has them in its history."""

MOST_EVENTS = 10_000
MOST_BYTES = 8 * 1024 * 1024
MOST_WAITERS = 10_000
MOST_GIVEN = 20_000
MOST_FIELDS = 20
KEPT_REFUSALS = 100


class Event(Value):
    """Something that has happened elsewhere.

    Attributes:
        id: Tells it apart: sent again with the same id while it is kept, it changes nothing.
        data: What is known of it.
        keep: How long calls that wait later find it, seconds.
        at: When it came, seconds since the epoch.
        size: Bytes of its id and data.
        over: Whether very many calls have had it: none gets it any more, and its data are gone.
    """

    id: str = Field(min_length=1, max_length=200)
    data: dict[str, Json] = Field(default_factory=dict[str, Json])
    keep: Annotated[float, Field(gt=0, le=LONGEST_KEPT, allow_inf_nan=False)] = DAY
    at: float = 0.0
    size: int = 0
    over: bool = False


class Waiter(Value):
    """A call that waits for an event.

    Attributes:
        key: Its idempotency key.
        token: With it, the call is given the event.
        match: Dotted names of fields of the data to what they must be.
        until: When its time is over, seconds since the epoch.
    """

    key: str = Field(min_length=1, max_length=200)
    token: str = Field(max_length=1300)
    match: dict[str, Json] = Field(default_factory=dict[str, Json])
    until: Annotated[float, Field(ge=0, le=4e9, allow_inf_nan=False)] = 0.0

    @property
    def task(self) -> str:
        """Id of its task."""
        return self.token.rpartition(":")[0].rpartition(":")[0]

    def takes(self, data: Mapping[str, Json]) -> bool:
        """Whether the data of an event fit."""
        return all(same(_at(data, name), wanted) for name, wanted in self.match.items())


class Heard(Value):
    """How a mailbox has taken an event, or a call that waits.

    Attributes:
        refused: Why not; empty when it was taken.
        waiters: Of an event, how many calls it has found so far.
    """

    refused: str = ""
    waiters: int = 0


class Delivery(Value):
    """An event that a call gets.

    Attributes:
        name: Name of the event.
        event: The event.
        waiter: The call.
    """

    name: str
    event: Event
    waiter: Waiter


class Mailbox(BaseModel):
    """The events of one name, and the calls that wait for them.

    Attributes:
        events: What is kept, by id, oldest first.
        waiters: The calls, by key, oldest first.
        due: Key of a call to the id of the event that it gets.
        given: Id of a kept event to the keys of the calls that have it, and their tasks.
        left: The same of calls that had it and were undone, the newest: only `erase` looks there.
        refusals: Why an event or a call was refused, by its id or key; the newest ones.
        size: Bytes of all ids and data.
    """

    events: dict[str, Event] = Field(default_factory=dict[str, Event])
    waiters: dict[str, Waiter] = Field(default_factory=dict[str, Waiter])
    due: dict[str, str] = Field(default_factory=dict[str, str])
    given: dict[str, dict[str, str]] = Field(default_factory=dict[str, dict[str, str]])
    left: dict[str, dict[str, str]] = Field(default_factory=dict[str, dict[str, str]])
    refusals: dict[str, str] = Field(default_factory=dict[str, str])
    size: int = 0
    _count: int = PrivateAttr(0)

    def model_post_init(self, _: object, /) -> None:
        """Count the calls in `given`; from here on their number is kept."""
        self._count = sum(map(len, self.given.values()))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept, and no call waits."""
        return not self.events and not self.waiters

    def heard(self, key: str) -> Heard:
        """Say how an event or a call was taken.

        Args:
            key: Id of the event, or key of the call.
        """
        finds = {each for each, event in self.due.items() if event == key}
        finds.update(self.given.get(key, ()))
        return Heard(refused=self.refusals.get(key, ""), waiters=len(finds))

    def take_event(self, event: Event, *, now: float) -> None:
        """Keep an event, for calls that wait now or later; or note why not."""
        data = canonical(event.data)
        size = len(event.id) + len(data)
        kept, why = self.events.get(event.id), ""
        if kept is not None and not kept.over and canonical(kept.data) != data:
            why = (
                "An event with this id is kept that has other data. Send another id for another"
                " event."
            )
        elif len(data) > LARGEST_EVENT:
            why = f"Its data have {len(data):,} bytes; an event may have {LARGEST_EVENT:,}."
        elif kept is None and (len(self.events) >= MOST_EVENTS or self.size + size > MOST_BYTES):
            why = (
                f"{len(self.events):,} events of this name with {self.size:,} bytes are kept; there"
                f" may be {MOST_EVENTS:,} with {MOST_BYTES:,}. Keep them for a shorter time, or"
                " spread them over several names, as order.paid.eu."
            )
        if why:
            self.refuse(event.id, why)
            return
        self.refusals.pop(event.id, None)
        if kept is not None:
            return
        self.events[event.id] = event.model_copy(update={"at": now, "size": size, "over": False})
        self.size += size
        for key, waiter in self.waiters.items():
            if key not in self.due and waiter.takes(event.data):
                self.due[key] = event.id

    def take_waiter(self, waiter: Waiter) -> None:
        """Let a call wait, or have the oldest event that its task has not had; or note why not.

        Of an attempt that is made again, the newest token and time hold. A call that has had its
        event has it sent again: its task may have been reset, and takes nothing twice.
        """
        if waiter.key in self.waiters:
            self.waiters[waiter.key] = waiter
            return
        again = next((id for id, keys in self.given.items() if waiter.key in keys), None)
        if again is None and len(self.waiters) >= MOST_WAITERS:
            why = f"{MOST_WAITERS:,} calls wait for events of this name; there may be no more."
            self.refuse(waiter.key, why)
            return
        self.refusals.pop(waiter.key, None)
        self.waiters[waiter.key] = waiter
        if again is None:
            self._look(waiter)
        else:
            self.due[waiter.key] = again

    def _look(self, waiter: Waiter) -> None:
        """Give a call the oldest event that fits, and that its task has not had."""
        had = {id for id, keys in self.given.items() if waiter.task in keys.values()}
        had |= {id for key, id in self.due.items() if self.waiters[key].task == waiter.task}
        for event in self.events.values():
            if not event.over and event.id not in had and waiter.takes(event.data):
                self.due[waiter.key] = event.id
                return

    def leave(self, key: str) -> None:
        """Forget a call that was undone: of an event that it had, its task may have it again."""
        self.waiters.pop(key, None)
        self.due.pop(key, None)
        for id, keys in self.given.items():
            if key in keys:
                self._count -= 1
                self._note_left(id, key, keys.pop(key))

    def _note_left(self, id: str, key: str, task: str) -> None:
        self.left.setdefault(id, {})[key] = task
        while sum(map(len, self.left.values())) > MOST_GIVEN:
            del self.left[next(iter(self.left))]

    def delivered(self, sent: Delivery, *, taken: bool) -> None:
        """Note that a call was sent an event.

        Args:
            sent: The event and the call.
            taken: Whether the call has it; else it waits no longer.
        """
        key, id, task = sent.waiter.key, sent.event.id, sent.waiter.task
        waits = self.waiters.get(key)
        if waits is None:  # it was undone meanwhile
            if taken and id in self.events:
                self._note_left(id, key, task)
            return
        if not taken and waits.token != sent.waiter.token:  # a newer attempt is sent it next
            return
        del self.waiters[key]
        self.due.pop(key, None)
        if taken and id in self.events:
            keys = self.given.setdefault(id, {})
            self._count += key not in keys
            keys[key] = task
            self._forget_given()
        elif not taken:
            for each in self.waiters.values():
                if each.task == task and each.key not in self.due:
                    self._look(each)

    def _forget_given(self) -> None:
        """Keep only the id of the event that most calls have had, once these are too many."""
        if self._count <= MOST_GIVEN:
            return
        going = {*self.due.values()}
        free = [id for id in self.given if id not in going]
        if free:
            self._empty(max(free, key=lambda id: len(self.given[id])))

    def _empty(self, id: str) -> None:
        """Keep only the id of an event."""
        self._count -= len(self.given.pop(id, ()))
        self.left.pop(id, None)
        event, size = self.events[id], len(id) + len(canonical({}))
        self.size += size - event.size
        self.events[id] = event.model_copy(update={"data": {}, "size": size, "over": True})

    def erase(self, tasks: Container[str]) -> None:
        """Forget the calls of erased tasks, and the data of events that no other task has had.

        What they had before an undo goes as well.
        """
        for key in [key for key, each in self.waiters.items() if each.task in tasks]:
            del self.waiters[key]  # what it has had is looked at below: it may wait again
            self.due.pop(key, None)
        going = {*self.due.values()}
        for id in self.events:
            given, left = self.given.get(id, {}), self.left.get(id, {})
            had = [key for key, task in (*given.items(), *left.items()) if task in tasks]
            for key in had:
                self._count -= given.pop(key, None) is not None
                left.pop(key, None)
            if had and not given and not left and id not in going:
                self._empty(id)

    def put_off(self, key: str) -> None:
        """Let other calls be sent theirs before one."""
        if (id := self.due.pop(key, None)) is not None:
            self.due[key] = id

    def deliveries(self, name: str, but: Container[str], most: int) -> list[Delivery]:
        """List what must be delivered.

        Args:
            name: Name of the events.
            but: Keys of calls that are being sent theirs.
            most: How many at most.
        """
        due = (each for each in self.due.items() if each[0] not in but)
        return [
            Delivery(name=name, event=self.events[id], waiter=self.waiters[key])
            for key, id in islice(due, most)
        ]

    def next_end(self) -> float:
        """Return when the time of the next event or call is over; 0 for never."""
        ends = [event.at + event.keep for event in self._free_events()]
        ends += [each.until for key, each in self.waiters.items() if key not in self.due]
        return min(ends, default=0.0)

    def expire(self, *, now: float, but: Container[str] = ()) -> None:
        """Forget events and calls whose time is over.

        Args:
            now: Time, seconds since the epoch.
            but: Keys of calls that are being sent theirs: they stay, and their events.
        """
        for key in [key for key, each in self.waiters.items() if each.until <= now]:
            if key not in but:
                del self.waiters[key]
                self.due.pop(key, None)
        for event in [each for each in self._free_events() if each.at + each.keep <= now]:
            del self.events[event.id]
            self.size -= event.size
            self._count -= len(self.given.pop(event.id, ()))
            self.left.pop(event.id, None)

    def _free_events(self) -> list[Event]:
        going = {*self.due.values()}
        return [each for each in self.events.values() if each.id not in going]

    def refuse(self, key: str, why: str) -> None:
        """Note why an event or a call was refused."""
        self.refusals[key] = why
        while len(self.refusals) > KEPT_REFUSALS:
            del self.refusals[next(iter(self.refusals))]


def same(found: Json, wanted: Json) -> bool:
    """Whether two plain values are equal; 1 and true are not, 1 and 1.0 are."""
    return isinstance(found, bool) == isinstance(wanted, bool) and found == wanted


_MISSING: Any = object()


def _at(data: Json, name: str) -> Json:
    """Return the field of a dotted name; nothing equals one that is missing."""
    found = data
    for part in name.split("."):
        found = as_object(found).get(part, _MISSING)
    return found


def mailbox_id(queue: str, name: str) -> str:
    """Return the workflow id of the mailbox of an event's name.

    Args:
        queue: Task queue of the app; for one of an agent, that of the default app.
        name: Name of the event.

    Raises:
        InvalidArgumentError: No event can have the name.
    """
    checked = check_name("The name of an event", name, LONGEST_NAME)
    if MADE in checked:
        msg = f"The name of an event may not have the character {MADE!r}; it was {shown(name)}."
        raise InvalidArgumentError(msg)
    own = queue_of(DEFAULT_APP) if is_of_agent(queue) else queue
    return f"{own}{MADE}event{MADE}{checked}"


def event_name(workflow_id: str) -> str:
    """Return the name of a mailbox's events."""
    return workflow_id.rpartition(MADE)[2]


def check_match(match: Mapping[str, Json]) -> dict[str, Json]:
    """Return what an event's data must have, checked.

    Raises:
        InvalidArgumentError: A value is not plain, a name has an empty part, or there are too many.
    """
    if len(match) > MOST_FIELDS:
        raise InvalidArgumentError(f"match may name {MOST_FIELDS} fields; it names {len(match)}.")
    for name, wanted in match.items():
        if not all(name.split(".")):
            msg = f"match names fields as 'order.id'; {shown(name)} has an empty part."
            raise InvalidArgumentError(msg)
        if not isinstance(wanted, str | int | float | bool | None):
            raise InvalidArgumentError(
                f"match compares plain values; for {name!r} there is {shown(wanted)}. Name fields"
                f" within it, as {named([f'{name}.id'])}, or leave it out."
            )
    return dict(match)
