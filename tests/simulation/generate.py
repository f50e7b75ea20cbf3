"""Random schedules: a seed gives one, always the same."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from random import Random
from typing import Any

from tests.simulation.play import FATES, Choice, Schedule

LENGTH = 9
"""Choices of a schedule in `make test`, about."""

ACTIVITIES = ("step", "step", "tool", "tool", "undo", "close", "archive", "nest", "any")
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
    ("steps_done", ['{"n": 1, "events": 3, "done": [], "began": 1}']),
    ("long_call", ['{"id": "x", "branch": 0, "n": 1, "i": 0, "started": 1, "secret": "guessed"}']),
    ("given", ['{"caller": "me"}']),
    ("unheard_of", ["{}"]),
)
"""Signals that a task refuses, or that change nothing."""

STEERING: tuple[tuple[str, dict[str, Any]], ...] = (
    ("pause", {"by": "ann"}),
    ("resume", {"by": "ann"}),
    ("resume", {}),
    ("feedback", {"text": "look again", "by": "ann"}),
    ("feedback", {"text": "and then", "by": "ann", "when": "queued"}),
    ("edit_step", {"step": "s2", "input": "other", "by": "ann"}),
    ("drop_step", {"step": "s2", "by": "ann"}),
    ("revoke", {"rule": 1, "by": "ann"}),
    ("abandon", {"by": "ann"}),
)
"""Commands of people that are no decisions."""

REQUESTS: tuple[dict[str, Any], ...] = (
    {"all": True},
    {"all": True},
    {},
    {},
    {"restart": True},
    {"input": "more"},
    {"round": True},
    {"step": "s2"},
)
"""Fields of requests to run."""


class Author:
    """Writes one schedule."""

    def __init__(self, seed: int, length: int) -> None:
        self._chance = Random(seed)
        self._length = length
        self._ids = 0

    def write(self) -> Schedule:
        """Write the schedule."""
        chance = self._chance
        self._has_child = chance.random() < 0.3
        plan = self._plan(chance.randint(1, 3))
        if self._has_child:
            self._has_child = "helper" in json.dumps(plan)
        options: dict[str, Any] = {"roll_events": 50} if chance.random() < 0.35 else {}
        self._rolls = "roll_events" in options
        if chance.random() < 0.25:
            options["session"] = True
        if chance.random() < 0.15:
            options["max_turns"] = chance.randint(1, 3)
        if chance.random() < 0.2:
            options["finalize"] = True
        if chance.random() < 0.3:
            options["automatic"] = True
        choices = [self._run()] if "automatic" not in options else []
        while len(choices) < self._length:
            choices += self._more()
        choices.append(("home",) if chance.random() < 0.5 else self._last())
        return Schedule(plan=plan, choices=choices, real=chance.random() < 0.25, options=options)

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
        name = chance.choice(("look", "book", "book", "pay", "pay", "send", "mark", "move"))
        value = chance.randint(1, 9)
        known: dict[str, dict[str, Any]] = {
            "look": {"what": str(value)},
            "pay": {"amount": value},
            "send": {"text": str(value)},
            "mark": {"text": str(value)},
        }
        return [name, known.get(name, {"thing": str(value)})]

    # ---- choices

    def _more(self) -> list[Choice]:
        """Write the next choice, after some moves."""
        kinds: list[tuple[int, Callable[[], Choice]]] = [
            (22, self._decide),
            (10, self._run),
            (10, self._undo),
            (8, self._steer),
            (5, self._finalize),
            (3, self._misfit),
            (8, self._evict),
            (3, self._lose),
            (12, self._fate),
            (4, self._trouble),
            (6, self._deploy),
            (2, self._cancel),
            (2, self._terminate),
            (3, self._wait),
            (4, lambda: ("release",)),
        ]
        weights, made = zip(*kinds, strict=True)
        [kind] = self._chance.choices(made, weights)
        return [*self._moves(), kind()]

    def _moves(self) -> list[Choice]:
        chance = self._chance
        how = chance.random()
        if how < 0.35:
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
        body: dict[str, Any] = {"approval": chance.choice((1, 1, 1, 2, 2, 3)), "by": "ann"}
        if verb == "approve" and chance.random() < 0.35:
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

    def _undo(self) -> Choice:
        fields: dict[str, Any] = {"by": "bob"}
        if self._chance.random() < 0.4:
            fields["to"] = self._chance.randint(0, 2)
        if self._chance.random() < 0.6:
            fields["residue"] = "keep"
        return ("undo", self._who(), self._id("u"), fields)

    def _steer(self) -> Choice:
        verb, body = self._chance.choice(STEERING)
        return ("say", self._who(), verb, dict(body))

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
        return ("fate", self._chance.choice(ACTIVITIES), self._chance.choice(list(FATES)))

    def _trouble(self) -> Choice:
        chance = self._chance
        if chance.random() < 0.4:
            return ("trouble", "model", chance.choice(("unavailable", "refuses")))
        tool = chance.choice(("book", "pay", "send", "mark", "undo book", "undo move"))
        return ("trouble", tool, chance.choice(("raises", "unknown")))

    def _deploy(self) -> Choice:
        return ("deploy", self._chance.choice(([], ["pay"], ["pay"], ["book"], ["helper"])))

    def _cancel(self) -> Choice:
        return ("cancel", self._who())

    def _terminate(self) -> Choice:
        # The end of a child is not noticed once its task has continued as new: a known defect.
        return ("terminate", 1 if self._has_child and not self._rolls else 0)

    def _wait(self) -> Choice:
        return ("wait", self._chance.choice((0.5, 5, 30, 4000)))

    def _last(self) -> Choice:
        """Write a last choice: what a task comes to by itself."""
        return ("settle",)


class CalmAuthor(Author):
    """Writes schedules of which a real server decides nothing: each choice is settled."""

    def write(self) -> Schedule:
        written = super().write()
        choices = [each for each in written.choices if each[0] != "home"]
        return dataclasses.replace(written, choices=choices, real=True)

    def _more(self) -> list[Choice]:
        kinds = (self._decide, self._decide, self._decide, self._run, self._run, self._undo)
        others = (self._steer, self._finalize, self._misfit, self._tool_trouble, self._evict)
        return [self._chance.choice((*kinds, *others))(), ("settle",)]

    def _tool_trouble(self) -> Choice:
        tool = self._chance.choice(("book", "pay", "mark", "undo book"))
        return ("trouble", tool, "raises")


def calm_schedule_of(seed: int) -> Schedule:
    """Return the schedule of a seed that a real server can play as well."""
    return CalmAuthor(seed, LENGTH).write()


def schedule_of(seed: int, length: int = LENGTH) -> Schedule:
    """Return the schedule of a seed."""
    return Author(seed, length).write()
