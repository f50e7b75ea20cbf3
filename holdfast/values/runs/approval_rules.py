"""Rules of approvals that people write: who decides, and for which later calls a decision holds."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from holdfast.values.base import Written
from holdfast.values.text.shown import shown
from holdfast.values.text.terminal import INVISIBLE


def _listed(given: object) -> object:
    return (given,) if isinstance(given, str) else given


if TYPE_CHECKING:
    Names = Sequence[str]  # a name alone is one, too
else:
    Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]

ROLE = "role:"
"""What the name of a role begins with, where people are named."""

MOST_PEOPLE = 100
"""Most people and roles that a rule names: they are listed with each approval."""


_MISSPELT = frozenset({"role", "roles", "group", "groups"})


class ApprovalRule(Written):
    """Who decides about a call, how many of them, and until when. Part of the task's record.

    Attributes:
        by: People, and roles as "role:finance"; empty for anybody.
        quorum: How many distinct people must approve. One rejection rejects.
        not_asker: Whether the person who created the task may not decide.
        expires_seconds: Seconds after which the approval expires to rejected; None for never.
        escalate_after_seconds: Seconds after which `escalate_to` may decide as well.
        escalate_to: People and roles, as in `by`.

    Raises:
        InvalidArgumentError: A field is given what it cannot hold, or two contradict each other.
    """

    by: Names = ()
    quorum: int = Field(default=1, ge=1, le=MOST_PEOPLE)
    not_asker: bool = False
    expires_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    escalate_after_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    escalate_to: Names = ()

    @field_validator("by", "escalate_to")
    @classmethod
    def _are_names(cls, given: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if len(given) > MOST_PEOPLE:
            msg = f"at most {MOST_PEOPLE} people and roles can be named, and these are {len(given)}"
            raise ValueError(msg)
        for name in given:
            if not name.removeprefix(ROLE).strip() or name != name.strip():
                msg = f"{shown(name)} is neither a person's name nor a role as 'role:finance'"
                raise ValueError(msg)
            before, colon, role = name.partition(":")
            is_odd = bool(colon) and before + colon != ROLE and before.casefold() in _MISSPELT
            if is_odd and info.mode == "python":  # a task that has recorded it goes on
                msg = f"{shown(name)} is nobody's name; a role is written {ROLE + role.strip()!r}"
                raise ValueError(msg)
        return given

    @model_validator(mode="after")
    def _fits(self) -> ApprovalRule:
        has_role = any(name.startswith(ROLE) for name in (*self.by, *self.escalate_to))
        people = {_looks(name) for name in (*self.by, *self.escalate_to)}
        after, expires = self.escalate_after_seconds, self.expires_seconds
        if bool(after) != bool(self.escalate_to):
            msg = "escalate_after_seconds and escalate_to need each other"
        elif self.escalate_to and not self.by:
            msg = "escalate_to adds people to by, and without by anybody may decide already"
        elif after and expires and after >= expires:
            msg = "it would expire before it escalates: escalate_after_seconds >= expires_seconds"
        elif self.by and not has_role and self.quorum > len(people):
            msg = f"quorum={self.quorum} cannot be reached by {len(people)} people"
        else:
            return self
        raise ValueError(msg)


LAST_TIME = datetime(9999, 12, 30, tzinfo=UTC).timestamp()
"""Last time, in seconds since the epoch, that can be written in every time zone."""


def _seconds(given: float | datetime) -> float:
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise ValueError("a datetime without a time zone is a different time for each reader")
        given = given.timestamp()
    if not 0 <= given <= LAST_TIME:
        raise ValueError("no time has this number of seconds since the epoch")
    return given


def seconds_of(given: float | datetime) -> float:
    """Return a time that was checked, in seconds since the epoch."""
    return given.timestamp() if isinstance(given, datetime) else given


Until = Annotated[float | datetime, AfterValidator(_seconds)]
"""A time: a datetime with a time zone, or seconds since the epoch, which it becomes."""


class Always(Written):
    """For which later calls of a tool a decision holds as well.

    Attributes:
        same: Names of arguments whose values must be those of the decided call; empty for any.
        until: Until when; a datetime with a time zone, or seconds since the epoch. None is for as
            long as the task, or the session, lasts.
        scope: "task": calls in the task. "session": calls of the same agent in all tasks of the
            task's session, these and later ones.

    Raises:
        InvalidArgumentError: A field is given what it cannot hold.
    """

    same: Names = ()
    until: Until | None = None
    scope: Literal["task", "session"] = "task"


def person_key(name: str) -> str:
    """Return what identifies a person.

    Names that differ in case, in spaces, in what nothing shows or in the way in which Unicode
    writes a letter are one person.
    """
    seen = INVISIBLE.sub("", unicodedata.normalize("NFKC", name)).casefold()
    return " ".join(unicodedata.normalize("NFKC", seen).split())


def are_one(name: str, other: str) -> bool:
    """Whether two names are one person, or look so alike that people would take them for one.

    Who is named by a rule is asked by `person_key`: one that only looks alike is not named.
    """
    return person_key(name) == person_key(other) or _looks(name) == _looks(other)


def _looks(name: str) -> str:
    return person_key(unicodedata.normalize("NFKC", name).translate(_LATIN))


_LATIN = str.maketrans(
    "АВЕЅІЈКМНОРСТУҮХԚԜасԁеһіјӏкорԛѕуүѵԝхΑΒΕΖΗΙΚΜΝΟΡΤΥΧαγεικνορτυχωօոսհցզI1|0\u0131",  # noqa: RUF001
    "ABESIJKMHOPCTYYXQWacdehijlkopqsyyvwxABEZHIKMNOPTYXayeikvoptuxwonuhgqlllOi",
)
"""Letters of Cyrillic, Greek and Armenian, and digits, that look like Latin letters, to these."""
