"""Checks of users' arguments, with errors that name the argument, its value and what would fit."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Annotated, Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from holdfast.errors import InvalidArgumentError, UserError, WrongTypeError
from holdfast.values.checks import gate
from holdfast.values.text.shown import did_you_mean, misfit, shown

F = TypeVar("F", bound=Callable[..., Any])

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def check_arguments(function: Callable[..., Any], **given: object) -> None:
    """Check arguments of a public function by its annotations; nothing is converted.

    Use it for arguments that would otherwise fail only after the function has had an effect.

    Args:
        function: The function that was called.
        given: The arguments, by name.

    Raises:
        InvalidArgumentError: One of them does not fit.
    """
    known: Any = function  # as below
    try:
        _model_of(known, tuple(given)).model_validate(given)
    except ValidationError as error:
        name = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
        raise InvalidArgumentError(misfit(name, error)) from None


def check_fields(kind: type[Any], given: object, names: Collection[str]) -> None:
    """Check fields of a dataclass by its annotations; nothing is converted.

    Args:
        kind: The dataclass itself, as a user's subclass may have other annotations.
        given: An object of the dataclass, or of a subclass.
        names: The fields.

    Raises:
        WrongTypeError: One of them does not fit.
    """
    try:
        known: Any = kind  # a type is hashable, which mypy does not see
        _model_of(known, tuple(names)).model_validate(vars(given))
    except ValidationError as error:
        raise WrongTypeError(misfit(kind.__name__, error)) from None


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
    unknown = [name.encode(errors="backslashreplace").decode() for name in names]
    if unknown:
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
    if wrong := gate.flaw(given, name):
        msg = f"{owner} cannot use {name}={shown(given)}: it is stored as JSON, and {wrong}"
        raise UserError(msg)


@functools.cache
def _model_of(kind: Any, names: tuple[str, ...]) -> type[BaseModel]:
    hints = get_type_hints(kind, include_extras=True)
    config = ConfigDict(strict=True, protected_namespaces=(), arbitrary_types_allowed=True)
    fields: dict[str, Any] = {name: (hints[name], ...) for name in names}
    return create_model(kind.__name__, __config__=config, **fields)
