"""Random schedules: a seed gives one, always the same."""

import dataclasses
import json
from collections.abc import Callable
from random import Random
from typing import Any

from tests.simulation.clock import EPOCH
from tests.simulation.play import FATES, Choice, Schedule

LENGTH = 9
"""Choices of a schedule in `make test`, about."""

ACTIVITIES = (*("tool",) * 5, *("step", "undo") * 2, *("close", "archive", "nest", "check", "any"))
"""Types of activities that something happens to, as often as it does."""

AT_WORK = {"say": ("tool", "tool", "check"), "undo": ("undo",), "finalize": ("close", "commit")}
"""Activities that a choice makes, for a fate of theirs."""

TOOLS = ("look", "book", "pay", "send", "mark", "move", "helper", "order", "sleep_until")
TROUBLES = ("lost", "stalled", "late", "long", *FATES)
"""What happens to them."""

MISFITS: tuple[tuple[str, list[str]], ...] = (
    ("approve", ['{"approval": 7, "by": "ann"}']),
    ("approve", ['{"approval": "t:99", "by": "ann"}']),
    ("approve", ["{", "2"]),
    ("pause", ["[]"]),
    ("resume", []),
    ("feedback", ['{"text": ""}']),
    ("child", ['{"id": "t~0.1.0.0", "secret": "guessed", "status": "answered"}']),
    ("child", ["nonsense"]),
    ("parent", ['{"secret": "guessed", "number": 1, "end": "abandon"}']),
    ("long_call", ['{"id": "x", "branch": 0, "n": 1, "i": 0, "started": 1, "secret": "guessed"}']),
    ("given", ['{"caller": "me"}']),
    ("unheard_of", ["{}"]),
)
"""Signals that a task refuses, or that change nothing."""

STEERING: tuple[tuple[str, dict[str, Any]], ...] = (
    ("pause", {"by": "ann"}),
    ("resume", {"by": "ann"}),
    ("snooze", {"approval": "open", "until": EPOCH + 40, "by": "ann"}),
    ("feedback", {"text": "look again", "by": "ann"}),
    ("feedback", {"text": "and then", "by": "ann", "when": "queued"}),
    ("edit_step", {"step": "s2", "input": "other", "by": "ann"}),
    ("drop_step", {"step": "s2", "by": "ann"}),
    ("edit_step", {"step": "p1", "input": "other", "by": "ann"}),
    ("drop_step", {"step": "p1", "by": "ann"}),
    ("drop_step", {"step": "last", "by": "ann"}),
    ("revoke", {"rule": 1, "by": "ann"}),
    ("abandon", {"by": "ann"}),
)
"""Commands of people that are no decisions."""

OF_WAITS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("complete", {"token": "newest", "result": "delivered"}),
    ("complete", {"token": "oldest", "result": "delivered"}),
    ("complete", {"token": "newest", "error": "sold out"}),
    ("complete", {"token": "newest", "until": EPOCH + 9000}),
    ("wake", {"by": "ann"}),
    ("wake", {"by": "ann", "until": EPOCH + 50}),
)
"""Commands about calls that wait."""

REQUESTS: tuple[dict[str, Any], ...] = (
    *({"all": True},) * 6,
    {},
    {},
    {"restart": True},
    {"input": "more"},
    {"round": True},
    {"step": "s2"},
    {"step": "p1"},
)
"""Fields of requests to run."""


class Author:
    """Writes one schedule."""

    waits: tuple[str, ...] = ()
    """Further tools, whose calls wait for a time, or for an outcome from outside."""

    def __init__(self, seed: int, length: int) -> None:
        self._chance = Random(seed)
        self._length = length
        self._ids = 0

    def write(self) -> Schedule:
        """Write the schedule."""
        chance = self._chance
        self._has_child = chance.random() < 0.35
        plan = self._plan(chance.randint(1, 3))
        text = json.dumps(plan)
        self._tools = [name for name in TOOLS if name in text] or ["pay"]
        self._has_child = "helper" in self._tools
        rolls = chance.random() < (0.6 if self._has_child else 0.3)
        options: dict[str, Any] = {"roll_events": 50} if rolls else {}
        if chance.random() < 0.25:
            options["session"] = True
        if chance.random() < 0.15:
            options["max_turns"] = chance.randint(1, 3)
        if chance.random() < 0.2:
            options["finalize"] = True
        if chance.random() < 0.3:
            options["automatic"] = True
        choices: list[Choice] = [self._run()] if "automatic" not in options else []
        if chance.random() < 0.12:
            options |= {"run_request": "r0", "automatic": True}
            choices = [("run", 0, "r0", {"all": True})]
        while len(choices) < self._length:
            choices += self._more()
        choices.append(("home",) if chance.random() < 0.5 else ("settle",))
        agent = "crowd" if chance.random() < 0.15 else "boss"
        is_real = chance.random() < 0.2
        return Schedule(plan=plan, choices=choices, agent=agent, real=is_real, options=options)

    def _plan(self, turns: int, *, nested: bool = False) -> list[Any]:
        chance = self._chance
        plan: list[Any] = [
            [self._call(nested=nested) for _ in range(chance.choice((1, 1, 2)))]
            for _ in range(turns)
        ]
        return [*plan, "done"]

    def _call(self, *, nested: bool) -> list[Any]:
        chance = self._chance
        if self._has_child and not nested and chance.random() < 0.5:
            return ["helper", {"input": json.dumps(self._plan(1, nested=True))}]
        name = chance.choice(
            ("look", "mark", "send", *("book", "move") * 2, *("pay",) * 3, *self.waits)
        )
        value = chance.randint(1, 9)
        known: dict[str, dict[str, Any]] = {
            "look": {"what": str(value)},
            "pay": {"amount": value},
            "send": {"text": str(value)},
            "mark": {"text": str(value)},
            "sleep_until": {"when": f"{10**value % 10007} s", "note": "look again"},
        }
        return [name, known.get(name, {"thing": str(value)})]

    # ---- choices

    def _more(self) -> list[Choice]:
        """Write the next choices, after some moves."""
        kinds: list[tuple[int, Callable[[], Choice | list[Choice]]]] = [
            (30, self._decide),
            (10, self._run),
            (9, self._undo),
            (7, self._steer),
            (5, self._finalize),
            (3, self._misfit),
            (8, self._evict),
            (3, self._lose),
            (10, self._fate),
            (4, self._trouble),
            (4, self._deploy),
            (2, self._cancel),
            (9 if self._has_child else 2, self._terminate),
            (3, self._wait),
            (4, lambda: ("release",)),
            (3, self._blind_edit),
            (6, self._unclear_undo),
            (3, self._hard_end),
            *([(12, self._end_wait)] if self.waits else []),
        ]
        weights, made = zip(*kinds, strict=True)
        [kind] = self._chance.choices(made, weights)
        made = kind()
        found: list[Choice] = [made] if isinstance(made, tuple) else made
        kinds_of = AT_WORK.get(found[0][0], ())
        if kinds_of and self._chance.random() < 0.3:
            fate = ("fate", self._chance.choice(kinds_of), self._chance.choice(TROUBLES))
            found = [fate, *found]
        return [*self._moves(), *found]

    def _blind_edit(self) -> list[Choice]:
        """A person edits a call whose tool is gone meanwhile."""
        edit = {"approval": "open", "by": "ann", "arguments": {"amount": 6}}
        found = [("settle",), ("deploy", ["pay"]), ("say", 0, "approve", edit)]
        return [*found, *self._moves()]

    def _unclear_undo(self) -> list[Choice]:
        """An undo ends without its end being known, or with a question; another one follows."""
        chance = self._chance
        tool = chance.choice(("undo book", "undo move"))
        first = ("trouble", tool, chance.choice(("unknown", "raises")))
        asked = {"approval": "open", "by": "ann", "result": "as a person says"}
        verb = chance.choice(("approve", "reject", "respond"))
        known = asked if verb == "respond" else {"approval": "open", "by": "ann"}
        undo = [self._undo(keep=True), ("settle",), ("say", 0, verb, known)]
        return [("settle",), first, *undo, *self._moves(), self._undo(keep=True)]

    def _hard_end(self) -> list[Choice]:
        """An end whose record cannot be written, and what people do meanwhile."""
        chance = self._chance
        end = ("say", 0, "abandon", {"by": "ann"})
        fails = [
            ("fate", "close", chance.choice(("fails", "breaks", "late", "lost"))) for _ in "12"
        ]
        later = (self._run(), self._undo(), self._steer(), self._finalize(), ("wait", 4000))
        found = [*fails, chance.choice((end, self._finalize())), ("settle",)]
        return [*found, chance.choice(later), *self._moves()]

    def _moves(self) -> list[Choice]:
        chance = self._chance
        how = chance.random()
        if how < 0.5:
            return [("settle",)]
        if how < 0.9:
            return [("go", *(chance.choice((0, 0, 0, 1, 2)) for _ in range(chance.randint(1, 6))))]
        return []

    def _who(self) -> int:
        return self._chance.choice((0, 0, 1)) if self._has_child else 0

    def _id(self, kind: str) -> str:
        """Return the id of a request: sometimes one that was used before."""
        if self._ids and self._chance.random() < 0.15:
            return f"{kind}{self._chance.randint(1, self._ids)}"
        self._ids += 1
        return f"{kind}{self._ids}"

    def _decide(self) -> Choice:
        chance = self._chance
        verb = chance.choice(("approve", "approve", "approve", "reject", "respond"))
        approval = chance.choice(("open", "open", "open", "open", 1, 1, 2, 3))
        body: dict[str, Any] = {"approval": approval, "by": "ann"}
        if verb == "approve" and chance.random() < 0.25:
            body["arguments"] = {"amount": 5}
        if verb == "approve" and chance.random() < 0.1:
            body["always"] = True
        if verb == "respond":
            body["result"] = "as a person says"
        if chance.random() < 0.1:
            body["id"] = f"k{chance.randint(1, 2)}"
        return ("say", self._who(), verb, body)

    def _run(self) -> Choice:
        fields = self._chance.choice(REQUESTS)
        return ("run", self._who(), self._id("r"), dict(fields))

    def _undo(self, *, keep: bool = False) -> Choice:
        fields: dict[str, Any] = {"by": "bob"}
        if self._chance.random() < 0.3:
            fields["to"] = self._chance.choice((0, 0, 1, 2))
        if keep or self._chance.random() < 0.8:
            fields["residue"] = "keep"
        return ("undo", self._who(), self._id("u"), fields)

    def _steer(self) -> Choice:
        verb, body = self._chance.choice(STEERING)
        return ("say", self._who(), verb, dict(body))

    def _end_wait(self) -> Choice:
        verb, body = self._chance.choice(OF_WAITS)
        return ("say", self._who() if verb == "wake" else "token", verb, dict(body))

    def _finalize(self) -> Choice:
        return ("finalize", 0, self._id("f"))

    def _misfit(self) -> Choice:
        name, texts = self._chance.choice(MISFITS)
        return ("raw", self._who(), name, list(texts))

    def _evict(self) -> Choice:
        return ("evict", self._who())

    def _lose(self) -> Choice:
        return ("lose", self._who())

    def _fate(self) -> Choice:
        return ("fate", self._chance.choice(ACTIVITIES), self._chance.choice(TROUBLES))

    def _trouble(self) -> Choice:
        chance = self._chance
        if chance.random() < 0.3:
            return ("trouble", "model", chance.choice(("unavailable", "refuses")))
        tool = chance.choice([*self._tools, "undo book", "undo move"])
        return ("trouble", tool, chance.choice(("raises", "unknown")))

    def _deploy(self) -> Choice:
        return ("deploy", self._chance.choice(([], [self._chance.choice(self._tools)])))

    def _cancel(self) -> Choice:
        return ("cancel", self._who())

    def _terminate(self) -> list[Choice]:
        who = self._chance.choice((0, 1, 1, 1)) if self._has_child else 0
        return [("settle",), ("terminate", who), ("settle",)]

    def _wait(self) -> Choice:
        return ("wait", self._chance.choice((0.5, 5, 30, 4000)))


class PatientAuthor(Author):
    """Writes schedules in which calls wait."""

    waits = ("order", "sleep_until")


class CalmAuthor(Author):
    """Writes schedules of which a real server decides nothing: each choice is settled."""

    def write(self) -> Schedule:
        written = super().write()
        kept = [each for each in written.choices if each[0] not in ("home", "settle")]
        settled = [choice for each in kept for choice in (each, ("settle",))]
        # A server counts some events otherwise, so a task would continue as new at another moment.
        options = {k: v for k, v in written.options.items() if k != "roll_events"}
        return dataclasses.replace(
            written, choices=[("settle",), *settled], agent="boss", real=True, options=options
        )

    def _more(self) -> list[Choice]:
        kinds = (self._decide, self._decide, self._decide, self._run, self._run, self._undo)
        others = (self._steer, self._finalize, self._misfit, self._tool_trouble, self._evict)
        return [self._chance.choice((*kinds, *others))()]

    def _steer(self) -> Choice:
        kind, who, verb, body = super()._steer()
        later = {"until": 4_000_000_000} if "until" in body else {}  # a server has another clock
        return (kind, who, verb, {**body, **later})

    def _tool_trouble(self) -> Choice:
        tool = self._chance.choice(("book", "pay", "mark", "undo book"))
        return ("trouble", tool, "raises")


def calm_schedule_of(seed: int) -> Schedule:
    """Return the schedule of a seed that a real server can play as well."""
    return CalmAuthor(seed, LENGTH).write()


def schedule_of(seed: int, length: int = LENGTH) -> Schedule:
    """Return the schedule of a seed; in each eighth, calls may wait."""
    author = PatientAuthor if seed % 8 == 5 else Author
    return author(seed, length).write()
