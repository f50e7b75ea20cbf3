"""How failures of calls are marked as certain to hide no effect."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ApplicationError

from holdfast.activities.failures import LoggedError, certain
from holdfast.activities.heartbeat import NotOursError
from holdfast.task.data.failures import CERTAIN, NOT_STARTED
from holdfast.workflows.activity_calls import is_certain


@pytest.mark.parametrize("kind", [ApplicationError, LoggedError, NotOursError])
def test_a_failure_of_each_kind_says_the_same_when_it_is_marked_as_certain(
    kind: type[ApplicationError],
) -> None:
    with pytest.raises(kind, match="nobody can say") as caught, certain():
        raise kind("nobody can say", "a fact", type=NOT_STARTED, non_retryable=True)
    assert is_certain(caught.value)
    assert (caught.value.type, caught.value.non_retryable) == (NOT_STARTED, True)
    assert caught.value.details == ("a fact", CERTAIN)
