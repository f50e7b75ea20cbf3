"""The gate: the one check of all data that enters a task.

Data enters from models (answers, with the provider's own items), from users and programs (commands,
arguments of updates, inputs, contexts, session items) and from tools (results, changes of the
state). Python can write values that no reader accepts: pydantic writes 255 levels and reads 200,
JSON has no NaN, and UTF-8 has no lone surrogates. A value that is in history and cannot be read
blocks the workflow forever, so it must be refused before it is written.

Pure, iterative, and about as fast as copying the data.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, NamedTuple, TypeGuard, TypeVar, cast, get_type_hints
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from holdfast.errors import DeclarationError, InvalidArgumentError, UserError, WrongTypeError
from holdfast.values.base import Json, Value
from holdfast.values.text.redact import redact_long
from holdfast.values.text.shown import did_you_mean, misfit, shown, type_shown

DEEPEST = 64
"""Most levels of lists and objects in one value.

A patch of the state has up to two levels for each level of the state, and Holdfast's own envelopes
have up to fifteen; pydantic reads 200.
"""

LONGEST_KEPT = 2000
"""Characters of a foreign text that a failure keeps."""

ENVELOPE = 16
"""Most levels that Holdfast's own envelopes put around a value."""

LARGEST = 8 * 1024 * 1024
"""Most bytes of JSON in one value, roughly. A workflow must decode it well within two seconds."""

MOST_CALLS = 4000
"""Most tool calls of one answer, or of one `ctx.call_tools`: the task holds all of them at once."""

_LEAST = 8
"""Bytes that each value counts at least, because many small values cost time."""

_WIDEST = 4096
"""Most bits of an integer; far below the 4,300 digits that pydantic reads."""

_SHOWN = 40
"""Most characters of a key in an error's text."""


class _Node(NamedTuple):
    """A list or object that is still to be checked.

    Attributes:
        value: The list or object.
        depth: Its level, from 1; 0 for the tuple that wraps the whole.
        above: The node that contains it.
        place: Its key or index there.
    """

    value: Any
    depth: int = 0
    above: _Node | None = None
    place: str | int = ""

    def path(self, place: Any) -> str:
        """Return the path of a member, from the whole."""
        if self.depth == 0:
            return ""
        above = self.above.path(self.place) if self.above is not None else ""
        return above + (f"[{place}]" if isinstance(place, int) else f".{place[:_SHOWN]}")


def flaw(
    data: Json, where: str = "value", *, deepest: int = DEEPEST, largest: int = LARGEST
) -> str:
    """Return the reason why `data` may not enter a task; empty if it may.

    Args:
        data: The data.
        where: Name of the data in the text, which gives the path of the flaw from there.
        deepest: Most levels of lists and objects.
        largest: Most bytes of JSON, roughly.
    """
    left = largest
    waiting = [_Node((data,))]
    while waiting:
        node = waiting.pop()
        if node.depth > deepest:
            path = node.above.path(node.place) if node.above is not None else ""
            return (
                f"{where} is nested more than {deepest} levels deep (at {where}{path:.200}). Make"
                " it flatter, or write the deep part as a text."
            )
        is_object = isinstance(node.value, dict)
        for place, value in node.value.items() if is_object else enumerate(node.value):
            if is_object and (wrong := _wrong_key(place)):
                above = node.above.path(node.place) if node.above is not None else ""
                return f"{where}{above:.200} {wrong}"
            cost, wrong = _alone(value)
            if wrong:
                return f"{where}{node.path(place):.200} {wrong}"
            left -= cost + (len(place) if isinstance(place, str) else 0)
            if left < 0:
                return (
                    f"{where} is too large: it may take about {largest} bytes as JSON, where each"
                    f" value counts {_LEAST} bytes at least. Keep the rest elsewhere, in a file or"
                    " a database for example, and pass a reference to it."
                )
            if isinstance(value, dict | list | tuple):
                waiting.append(_Node(value, node.depth + 1, node, place))
    return ""


def check(data: Json, where: str = "value") -> None:
    """Refuse data that may not enter a task.

    Args:
        data: The data.
        where: Name of the data in the error's text.

    Raises:
        InvalidArgumentError: It is too deep or too large, or has a value that JSON in UTF-8 cannot
            represent; the text names the place and says what to do.
    """
    if wrong := flaw(data, where):
        raise InvalidArgumentError(wrong)


def check_value(value: Value, where: str) -> None:
    """Refuse one of Holdfast's own values if its data may not enter a task.

    Raises:
        InvalidArgumentError: As for `check`.
    """
    try:
        data = value.wire()
    except (ValueError, RecursionError):  # pydantic gives up at 255 levels
        msg = f"{where} is nested more than {DEEPEST} levels deep. Make it flatter."
        raise InvalidArgumentError(msg) from None
    check(data, where)


def read(text: str | bytes, where: str = "value", *, deepest: int = DEEPEST) -> Json:
    """Read JSON text from outside, and check it.

    Args:
        text: The JSON.
        where: Name of the data in the error's text.
        deepest: Most levels of lists and objects.

    Raises:
        InvalidArgumentError: It is not JSON, or may not enter a task, as for `check`.
    """
    if len(text) > LARGEST:
        raise InvalidArgumentError(f"{where} has {len(text)} bytes; at most {LARGEST} are read.")
    try:
        data: Json = json.loads(text)
    except RecursionError:
        raise InvalidArgumentError(
            f"{where} is nested more than {deepest} levels deep. Make it flatter."
        ) from None
    except ValueError as cause:  # also for bytes that are not UTF-8, and integers that are too long
        why = str(cause).encode("utf-8", "replace").decode()[:200]
        raise InvalidArgumentError(f"{where} is not JSON: {why}") from None
    if wrong := flaw(data, where, deepest=deepest):
        raise InvalidArgumentError(wrong)
    return data


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can encode a text, that is, the text has no lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def mended(data: Json) -> Json:
    """Return JSON data with the lone surrogates of texts and keys replaced."""
    match data:
        case str():
            return data if is_unicode(data) else clean(data)
        case list():
            return [mended(each) for each in data]  # pyright: ignore[reportUnknownVariableType]
        case dict():
            items = cast("dict[str, Json]", data).items()
            return {mended(key): mended(value) for key, value in items}
        case _:
            return data


def clean(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode and so no history can store."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def safe_text(text: str) -> str:
    """Return what a failure keeps of a foreign text: its beginning, without secrets."""
    return clean(redact_long(text))[:LONGEST_KEPT]


def _alone(value: Any) -> tuple[int, str]:
    """Return the size of a value without its members, and its flaw, or an empty text."""
    match value:
        case str():
            wrong = "" if is_unicode(value) else "holds a lone surrogate, which is not text."
            return max(len(value), _LEAST), wrong
        case None | bool() | dict() | list() | tuple():
            return _LEAST, ""
        case int():
            bits = value.bit_length()
            wrong = f"is an integer of {bits} bits; at most {_WIDEST} are kept."
            return max(bits // 3, _LEAST), wrong if bits > _WIDEST else ""
        case float():
            wrong = f"is {value!r}; numbers must be finite. Write it as null or as a text."
            return _LEAST, "" if math.isfinite(value) else wrong
        case _:
            return 0, f"is of type {type_shown(value)}, which JSON cannot say."


def _wrong_key(key: Any) -> str:
    if not isinstance(key, str):
        return f"has the key {shown(key, 40)} of type {type(key).__name__}; keys are texts."
    if not is_unicode(key):
        return f"has a key with a lone surrogate, which is not text: {key!a:.60}."
    return ""


# Type guards for JSON data of unknown shape: `isinstance` alone loses the element types.

DEEPEST_SCHEMA = 64
"""Most levels of a schema whose defaults are looked at, with those of what it refers to."""

LONGEST_INDEX = 9
"""Digits of an index in a JSON Pointer; of thousands, Python makes no number."""


def is_object(value: object) -> TypeGuard[dict[str, Json]]:
    """Whether `value` is a JSON object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Json]]:
    """Whether `value` is a JSON array."""
    return isinstance(value, list)


def as_object(value: object) -> dict[str, Json]:
    """Return `value` when it is a JSON object, else an empty one."""
    return value if is_object(value) else {}


def as_array(value: object) -> list[Json]:
    """Return `value` when it is a JSON array, else an empty one."""
    return value if is_array(value) else []


def data_of(text: str) -> Json:
    """Return the data of a JSON text; the text itself when it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def as_text(value: object) -> str:
    """Return `value` when it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def defaulted(schema: Json) -> dict[str, Json]:
    """Return what a JSON Schema says of values that are left out, without the rest of it.

    A type may contain itself, so references stay; "$defs" has what they refer to, by reference.

    Args:
        schema: The schema.
    """
    root, defs = as_object(schema), dict[str, Json]()
    defaults = 0

    def kept(part: Json, deepest: int) -> dict[str, Json]:
        nonlocal defaults
        given, found = as_object(part), dict[str, Json]()
        if not given or not deepest:
            return found
        if "default" in given:
            found["default"], defaults = given["default"], defaults + 1
        inner = as_object(given.get("properties")).items()
        if named := {name: each for name, of in inner if (each := kept(of, deepest - 1))}:
            found["properties"] = named
        if items := kept(given.get("items"), deepest - 1):
            found["items"] = items
        options = as_array(given.get("anyOf"))
        if some := [each for of in options if (each := kept(of, deepest - 1))]:
            found["anyOf"] = list[Json](some)
        if reference := as_text(given.get("$ref")):
            found["$ref"] = reference
            if reference not in defs:
                defs[reference] = {}  # it may refer to itself
                defs[reference] = kept(pointed_at(root, reference), deepest - 1)
        return found

    found = kept(root, DEEPEST_SCHEMA)
    return {**found, "$defs": defs} if defaults and defs else found if defaults else {}


def filled_in(arguments: str, schema: Json) -> dict[str, Json]:
    """Return the values that are filled in for what the arguments of a call leave out.

    Args:
        arguments: The arguments, as JSON; for others nothing is filled in.
        schema: What `defaulted` has returned.
    """
    try:
        return left_out(json.loads(arguments or "{}"), schema)
    except (ValueError, RecursionError):
        return {}


def left_out(
    value: Json, schema: Json, at: str = "", defs: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    """Return the values that are filled in where some are left out, by their places: "to.city".

    Args:
        value: The value.
        schema: What `defaulted` has returned, or a part of it.
        at: Place of the value; empty for the whole.
        defs: What references refer to; "$defs" of the schema by default.
    """
    found = dict[str, Json]()
    defs = as_object(as_object(schema).get("$defs")) if defs is None else defs
    for part in _alternatives(as_object(schema), defs):
        named = as_object(part.get("properties")) if is_object(value) else {}
        for name, inner in named.items():
            if name in as_object(value):
                found |= left_out(as_object(value)[name], inner, f"{at}{name}.", defs)
            elif "default" in as_object(inner):
                found[f"{at}{name}"] = as_object(inner)["default"]
        for k, each in enumerate(as_array(value) if "items" in part else ()):
            found |= left_out(each, part["items"], f"{at}{k}.", defs)
    return found


def _alternatives(schema: dict[str, Json], defs: Mapping[str, Json]) -> list[dict[str, Json]]:
    """List a schema with all that its options and references are, each once."""
    found = [schema]
    for part in found:  # it grows while it is read
        meant = (*as_array(part.get("anyOf")), defs.get(as_text(part.get("$ref"))))
        found += [each for each in map(as_object, meant) if each and each not in found]
    return found


def pointed_at(root: Mapping[str, Json], reference: object) -> Json:
    """Return what a `$ref` within a JSON Schema refers to; None for nothing, or another document.

    Args:
        root: The schema.
        reference: "#", or "#/" and a JSON Pointer, percent-encoded as in a URI (RFC 6901).
    """
    if reference == "#":
        return root
    if not (isinstance(reference, str) and reference.startswith("#/")):
        return None
    at: Json = root
    for part in unquote(reference[2:]).split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if is_array(at):
            is_index = name.isdecimal() and len(name) <= LONGEST_INDEX and int(name) < len(at)
            at = at[int(name)] if is_index else None
        else:
            at = as_object(at).get(name)
    return at


# Checks of users' arguments, with errors that name the argument, its value and what would fit.

F = TypeVar("F", bound=Callable[..., Any])

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SecondsOrNone = Annotated[float, Field(ge=0, allow_inf_nan=False)] | None
"""0 means none as well."""

_OF_RANGE = ("greater_than", "less_than", "finite_number")
"""How the kinds of misfits begin that are of the right type."""


def check_arguments(function: Callable[..., Any], **given: object) -> None:
    """Check arguments of a public function by its annotations; nothing is converted.

    Use it for arguments that would otherwise fail only after the function has had an effect.

    Args:
        function: The function that was called.
        given: The arguments, by name.

    Raises:
        InvalidArgumentError: One of them does not fit.
    """
    try:
        _model_of(cast("Any", function), tuple(given)).model_validate(given)
    except ValidationError as error:
        name = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
        raise InvalidArgumentError(misfit(name, error)) from None


def check_fields(kind: type[Any], given: object, names: Collection[str], owner: str = "") -> None:
    """Check fields of a dataclass by its annotations; nothing is converted.

    Args:
        kind: The dataclass itself, as a user's subclass may have other annotations.
        given: An object of the dataclass, or of a subclass.
        names: The fields.
        owner: Whose they are, for the error; the name of the dataclass by default.

    Raises:
        WrongTypeError: One of them is of a wrong type.
        DeclarationError: One is out of range.
    """
    try:
        _model_of(cast("Any", kind), tuple(names)).model_validate(vars(given))
    except ValidationError as error:
        first = error.errors()[0]
        fits = first["type"] == "literal_error" and isinstance(first["input"], str)
        made = DeclarationError if fits or first["type"].startswith(_OF_RANGE) else WrongTypeError
        raise made(misfit(owner or kind.__name__, error)) from None


def check_known(what: str, given: Collection[object], known: Collection[str]) -> None:
    """Refuse a dict that has fields of no meaning.

    Args:
        what: What the dict is, in the plural, as "model settings".
        given: Its keys.
        known: The fields that there are.

    Raises:
        WrongTypeError: There is such a field.
    """
    names = [str(name) for name in given if name not in known]
    if unknown := [name.encode(errors="backslashreplace").decode() for name in names]:
        hint = did_you_mean(unknown[0], known)
        msg = f"Unknown {what}: {', '.join(unknown)}.{hint} There are: {', '.join(known)}."
        raise WrongTypeError(msg)


def misfit_call(
    error: TypeError, name: str, function: Callable[..., Any], given: Collection[str]
) -> WrongTypeError | None:
    """Return the error of a call that does not fit its function, in the caller's words.

    Args:
        error: What the call raised.
        name: What the caller knows the function as.
        function: The function.
        given: Names of the arguments that were given by name.

    Returns:
        The error; None if the function has begun, and has raised its own.
    """
    at = error.__traceback__
    if at is None or at.tb_next is not None:
        return None
    taken = inspect.signature(function).parameters.items()
    known = [each for each, how in taken if each not in ("self", "cls") and "*" not in str(how)]
    try:
        check_known(f"arguments of {name}", given, known)
    except WrongTypeError as wrong:
        return wrong
    return WrongTypeError(str(error).replace(f"{function.__qualname__}()", f"{name}()"))


def known_as(name: str) -> Callable[[F], F]:
    """Make a function or class refuse calls that do not fit it, and say which argument was meant.

    Args:
        name: What callers know it as: a class that only holds the function for us is left out.
    """

    def named(function: Any) -> Any:
        if isinstance(function, type):
            made: Any = function
            made.__init__ = named(made.__init__)
            return made

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            try:
                return function(*args, **options)
            except TypeError as error:
                if (wrong := misfit_call(error, name, function, options)) is None:
                    raise
                raise wrong from None

        return call

    return named


def check_data(owner: str, name: str, given: object) -> None:
    """Refuse data that cannot be stored as JSON.

    Raises:
        UserError: It cannot be stored; the text names the place in it.
    """
    if wrong := flaw(given, name):
        msg = f"{owner} cannot use {name}={shown(given)}: it is stored as JSON, and {wrong}"
        raise UserError(msg)


@functools.cache
def _model_of(kind: Any, names: tuple[str, ...]) -> type[BaseModel]:
    hints = get_type_hints(kind, include_extras=True)
    config = ConfigDict(strict=True, protected_namespaces=(), arbitrary_types_allowed=True)
    fields: dict[str, Any] = {name: (hints[name], ...) for name in names}
    return create_model(kind.__name__, __config__=config, **fields)
