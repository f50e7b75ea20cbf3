"""Failures of calls: how they are marked as certain to hide no effect, and what models read."""

import os
from contextlib import suppress

import pytest
from temporalio.exceptions import ApplicationError

from holdfast.activities.failures import LoggedError, certain
from holdfast.activities.heartbeat import NotOursError
from holdfast.activities.tools.tool import named
from holdfast.task.data.failures import CERTAIN, NOT_STARTED
from holdfast.values.checks.gate import LONGEST_KEPT
from holdfast.values.code.user_calls import StoppedError, kept_alive
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


def test_a_model_reads_no_secret_of_a_tool_that_ends_with_a_text() -> None:
    with pytest.raises(StoppedError) as caught, kept_alive():
        raise SystemExit("no answer of postgres://bob:hunter22@db/x " + "x" * LONGEST_KEPT)
    text = named(caught.value)
    assert text.startswith("Code raised what would end the process (SystemExit: no answer of")
    assert ("hunter22" in text, len(text)) == (False, LONGEST_KEPT)


def test_a_group_of_errors_says_what_each_is() -> None:
    inner = ExceptionGroup("inner", [KeyError("b")])
    error = ExceptionGroup(
        "unhandled errors in a TaskGroup", [ValueError("no rate for PLN"), inner]
    )
    assert "ValueError: no rate for PLN" in named(error)
    assert "KeyError: 'b'" in named(error)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_in_code_ends_when_the_code_ends_it() -> None:
    here = os.getpid()
    with suppress(StoppedError), kept_alive():
        pid = os.fork()
        raise SystemExit(3)
    if os.getpid() != here:
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
