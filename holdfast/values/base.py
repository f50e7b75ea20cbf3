"""The base of everything that crosses a process boundary: frozen values with a canonical form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from inspect import signature
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from holdfast.errors import InvalidArgumentError
from holdfast.values.text.shown import did_you_mean, misfit, shown

Json = Any
"""Anything that `json.dumps` accepts: the type checkers' recursive JSON types fail on user data."""

_new, _set = object.__new__, object.__setattr__


class Worded(BaseModel):
    """A model that is made or refused with words.

    Validated as data or inside another model, it raises pydantic's own error as usual: pydantic
    needs that to try the members of a union and to tell the place of a value.
    """

    if not TYPE_CHECKING:  # it has no signature: fields are checked by the type checker

        def __init__(self, /, *given: Any, **data: Any) -> None:
            """Make one of its fields.

            Raises:
                InvalidArgumentError: A field is missing, is given what it cannot hold, or is not
                    named.
            """
            if given:
                names = ", ".join(type(self).model_fields)
                raise InvalidArgumentError(
                    f"{type(self).__name__} takes its fields by name ({names}); it was given"
                    f" {shown(given[0])} without one."
                )
            try:
                # as BaseModel.__init__ does, without the call of it: values are made all the time
                self.__pydantic_validator__.validate_python(data, self_instance=self)
            except ValidationError as error:
                raise InvalidArgumentError(misfit(type(self).__name__, error)) from None

        __init__.__signature__ = signature(BaseModel.__init__)
        # Without it pydantic would call this initialiser for nested models, too.
        __init__.__pydantic_base_init__ = True


class Value(Worded):  # noqa: PLW1641  # pydantic makes the hash of a frozen class
    """A frozen value.

    Unknown fields are ignored, so that an older worker reads what a newer one wrote. On the wire,
    fields at their default are left out: a new field needs a default, and history stays small.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    def wire(self) -> dict[str, Json]:
        """Return this value as JSON data, defaults left out."""
        made: dict[str, Json] = self.__pydantic_serializer__.to_python(
            self, mode="json", exclude_defaults=True
        )
        return made

    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self:
        """Copy this value, as pydantic does: a replay makes thousands of copies."""
        if deep or self.__pydantic_private__ is not None or self.__pydantic_extra__ is not None:
            return super().model_copy(update=update, deep=deep)
        copied = _new(type(self))
        fields, given = self.__dict__.copy(), self.__pydantic_fields_set__
        if update:
            fields.update(update)
            # Else the set is shared: what was given, and what was not, is nowhere asked.
            if not given.issuperset(update):
                given = given.union(update)
                if unknown := update.keys() - self.__pydantic_fields__.keys():
                    msg = f"{type(self).__name__} has no field {', '.join(sorted(unknown))}"
                    raise TypeError(msg)
        _set(copied, "__dict__", fields)
        _set(copied, "__pydantic_fields_set__", given)
        _set(copied, "__pydantic_extra__", None)
        _set(copied, "__pydantic_private__", None)
        return copied

    def __eq__(self, other: object) -> bool:
        """Compare the fields, as pydantic does: first what costs least."""
        if self is other:
            return True
        if (
            type(self) is not type(other)
            or self.__pydantic_private__ is not None
            or self.__pydantic_extra__ is not None
        ):
            return super().__eq__(other)
        mine, others = vars(self), vars(other)
        return mine == others or (
            not len(mine) == len(others) == len(self.__pydantic_fields__) and super().__eq__(other)
        )


class Part(Value):
    """A part of a state that its owner changes in place: a field is assigned, and must exist."""

    model_config = ConfigDict(frozen=False)
    __hash__ = None  # type: ignore[assignment]  # what changes is no key


class Strict(Value):
    """A value that people write by hand, so that a misspelt field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Written(Value):
    """A value that people write by hand and that is on the wire as well.

    A misspelt field is an error where the value is made, and ignored where it is read.
    """

    if not TYPE_CHECKING:  # it has no signature: fields are checked by the type checker

        def __new__(cls, *_given: Any, **fields: Any) -> Any:
            """Refuse fields that do not exist; pydantic comes here without any when it reads.

            Raises:
                InvalidArgumentError: There is no such field.
            """
            if not fields.keys() <= cls.model_fields.keys():
                unknown = [name for name in fields if name not in cls.model_fields]
                hint = did_you_mean(unknown[0], cls.model_fields)
                raise InvalidArgumentError(
                    f"{cls.__name__} has no field {unknown[0]!r}.{hint} Its fields:"
                    f" {', '.join(cls.model_fields)}."
                )
            return super().__new__(cls)


_canonical = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
).encode


_in_order = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def in_order(data: Json) -> bytes:
    """Encode JSON data compactly; members keep the order in which a user's code made them."""
    return _in_order(data).encode("utf-8", "surrogatepass")


def canonical(data: Json) -> bytes:
    """Encode JSON data in its one canonical form: sorted keys, no white space, UTF-8."""
    return _canonical(data).encode("utf-8", "surrogatepass")


def sense(arguments: str) -> str:
    """Write JSON arguments in their canonical form, so that spaces and member order do not matter.

    A text that is not JSON stays as it is.
    """
    try:
        return canonical(json.loads(arguments)).decode()
    except (ValueError, RecursionError):
        return arguments


def as_text(data: Json) -> str:
    """Write JSON data for people: text as it is, None as no text, the rest as JSON."""
    if data is None or isinstance(data, str):
        return data or ""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str)


def digest(data: bytes) -> str:
    """Return the SHA-256 of `data` as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def same_json(left: str, right: str) -> bool:
    """Whether two texts hold the same JSON data."""
    try:
        return left == right or canonical(json.loads(left)) == canonical(json.loads(right))
    except (ValueError, RecursionError):
        return False


EMPTY = ""
DIGEST_LENGTH = 32


def extend(digest: str, values: Iterable[Value]) -> str:
    """Return the digest of a chain that ended in `digest` after appending `values`."""
    return extend_json(digest, map(Value.wire, values))


def extend_json(digest: str, values: Iterable[Json]) -> str:
    """Return the digest of a chain that ended in `digest` after appending values as JSON data."""
    for value in values:
        digest = hashlib.sha256(digest.encode() + canonical(value)).hexdigest()[:DIGEST_LENGTH]
    return digest


class ChainRef(NamedTuple):
    """Names a list of values by its length and the digest of its chain.

    A tuple, because it is in the input of every activity.
    """

    length: int = 0
    digest: str = EMPTY


# Growing pauses between attempts.
#
# Nothing here reads a clock or is random: workflow code has the same pauses when it is replayed.


def pauses(
    first: float, longest: float, factor: float = 2.0, total: float | None = None
) -> Iterator[float]:
    """Return the pauses between attempts, in seconds: `pause_of` attempt 0, 1, 2 and so on.

    Args:
        first: The pause after the first attempt.
        longest: No pause is longer.
        factor: How many times as long as the one before each pause is.
        total: No pause follows once their sum has reached this; None means pauses without end.

    Raises:
        ValueError: The arguments make no growing pauses.
    """
    _check_pauses(first, longest, factor)
    if total is not None and not total >= 0:
        raise ValueError(f"total={total!r} is below 0. Give None for pauses without end.")
    return _each_pause(first, longest, factor, total)


def pause_of(attempt: int, first: float, longest: float, factor: float = 2.0) -> float:
    """Return the pause after an attempt, in seconds: `first * factor**attempt`, or `longest`.

    Args:
        attempt: Number of the attempt, from 0.
        first: The pause after attempt 0.
        longest: No pause is longer.
        factor: How many times as long as the one before each pause is.

    Raises:
        ValueError: The arguments make no growing pauses, or `attempt` is below 0.
    """
    _check_pauses(first, longest, factor)
    if attempt < 0:
        raise ValueError(f"attempt={attempt!r} is below 0. Attempts count from 0.")
    try:
        return min(first * factor**attempt, longest)
    except OverflowError:  # the power has no float: far above any longest pause
        return longest


def _check_pauses(first: float, longest: float, factor: float) -> None:
    """Check that attempts are never made without a pause, and pauses do not shrink.

    A number that is not one compares as false, so it is refused as well.
    """
    if not (first > 0 and longest > 0):
        msg = f"first={first!r} and longest={longest!r} must be above 0: attempts need a pause."
        raise ValueError(msg)
    if not factor >= 1:
        raise ValueError(f"factor={factor!r} is below 1. Pauses grow; 1 keeps them equal.")


def _each_pause(
    first: float, longest: float, factor: float, total: float | None
) -> Iterator[float]:
    spent = 0.0
    for attempt in count():
        if total is not None and spent >= total:
            return
        pause = pause_of(attempt, first, longest, factor)
        yield pause
        spent += pause
