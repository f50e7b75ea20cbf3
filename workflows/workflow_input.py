"""Input check of workflows: an unreadable input ends the run at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from holdfast.engine.converter import UNREADABLE


class Opening:
    """A workflow that takes one input of its own type.

    Temporal makes the workflow with whatever a client has sent. An exception here would fail its
    first workflow task again and again; nothing has begun yet, so the run ends instead.
    """

    takes: type[Any] = object

    if not TYPE_CHECKING:  # it has no signature: it sees whatever was sent

        def __new__(cls, *given: object) -> Self:
            """Check the input before `__init__` uses it.

            Raises:
                ApplicationError: It is not one value of the right type.
            """
            if len(given) != 1 or not isinstance(given[0], cls.takes):
                found = ", ".join(type(each).__name__ for each in given) or "nothing"
                _refuse(f"It takes one {cls.takes.__name__}; it was started with: {found}.")
            return super().__new__(cls)


def _refuse(reason: str) -> None:
    kind = workflow.info().workflow_type
    msg = f"{kind} was started by hand with an input that it cannot read. {reason}"
    raise ApplicationError(msg, type=UNREADABLE, non_retryable=True)
