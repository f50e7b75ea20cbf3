"""Methods that run on the shared loop, with the errors that LlamaIndex's programs catch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast

from holdfast.engine.loop import shared_loop
from holdfast.errors import (
    StepFailedError,
    StepNotFoundError,
    TaskNotFoundError,
    message_of,
    with_remedy,
)

P = ParamSpec("P")
T = TypeVar("T")


class UnknownTaskError(TaskNotFoundError, KeyError):
    """No task has this id; a KeyError, as it was in LlamaIndex."""

    def __str__(self) -> str:
        """Return the message, without a KeyError's quotes."""
        return with_remedy(str(self.args[0]), self.remedy)


class UnknownStepError(StepNotFoundError, ValueError):
    """No such step is completed; a ValueError, as it was in LlamaIndex."""


TYPED: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        ArithmeticError,
        AssertionError,
        IndexError,
        KeyError,
        LookupError,
        NotImplementedError,
        RuntimeError,
        TypeError,
        ValueError,
        ZeroDivisionError,
    )
}
"""Errors of step logic that a program can catch by their own class, next to StepFailedError."""


@contextmanager
def known_errors() -> Generator[None]:
    """Raise what LlamaIndex raised: KeyError, ValueError, and a step's own errors."""
    try:
        yield
    except TaskNotFoundError as error:
        raise UnknownTaskError(error.task_id) from error
    except StepNotFoundError as error:
        raise UnknownStepError(*error.args) from error
    except StepFailedError as error:
        kind = TYPED.get(error.cause_type)
        if kind is None or isinstance(error, kind):  # as where it was raised in this process
            raise
        own = {"__str__": StepFailedError.__str__}
        typed = cast("Any", type(f"StepFailedBy{kind.__name__}", (StepFailedError, kind), own))
        raise typed(
            message_of(error),
            task_id=error.task_id,
            step_id=error.step_id,
            cause_type=error.cause_type,
            remedy=error.remedy,
        ) from error


def on_shared_loop(
    method: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Have an async method run on the shared loop, whichever loop awaits it."""

    @functools.wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with known_errors():
            return await shared_loop().wrap(method(*args, **kwargs))

    return call


def blocking(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make a method that runs an async one on the shared loop, and blocks until it is done."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with known_errors():
            return shared_loop().run(method(*args, **kwargs))

    return call
