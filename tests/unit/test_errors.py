"""Texts of errors: what happened, however often it was wrapped, and once what to do about it."""

import asyncio
import dataclasses
import importlib
import json
import os
import pickle
import pkgutil
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.client import WorkflowQueryFailedError
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

import holdfast
from holdfast import errors
from holdfast.activities.failures import LoggedError, certain, not_started, text_of, typed_failures
from holdfast.activities.heartbeat import NotOursError
from holdfast.activities.tools.tool import named
from holdfast.cli.exits import ExitCode, exit_code_of
from holdfast.desk.api import events
from holdfast.desk.identity.problems import problem_of, status_of
from holdfast.desk.identity.tokens import NotAllowedError, NotAuthenticatedError
from holdfast.engine.search_attributes import SPLIT
from holdfast.errors import (
    ArchiveError,
    HoldfastError,
    ModelRequestError,
    ModelUnavailableError,
    NoWorkerError,
    StepFailedError,
    TaskExistsError,
    TaskNotFoundError,
    message_of,
)
from holdfast.reading.queries import failure_in, to_error
from holdfast.task.data.failures import CERTAIN, NOT_STARTED, Failure
from holdfast.task.data.head import TaskHead
from holdfast.task.data.state import TaskInput
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.requests.phase import Ending
from holdfast.values.checks.gate import LONGEST_KEPT
from holdfast.values.code.raised import also_of
from holdfast.values.code.user_calls import StoppedError, kept_alive, naming
from holdfast.workflows.activity_calls import failure_of, is_certain
from holdfast.workflows.requests.updates import refusal


def told_tree() -> dict[str, str]:
    """Return each class that the docstring of errors names, and the class above it."""
    above: dict[int, str] = {}
    found: dict[str, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        branch = re.match(r"    ([│├└─ ]*)(\w+)(?: {2,}|$)", line)
        if branch:
            depth = len(branch[1]) // 4
            above[depth] = branch[2]
            found[branch[2]] = above.get(depth - 1, "Exception")
    return found


def test_the_tree_of_errors_names_each_class_under_the_class_that_it_is_made_of() -> None:
    classes = [each for each in vars(errors).values() if isinstance(each, type)]
    made = {
        each.__name__: each.__bases__[0].__name__
        for each in classes
        if each.__module__ == errors.__name__
    }
    assert told_tree() == made


again_at_once = ModelUnavailableError("busy", retry_after=0)
again_at_once.is_repeated = True
FULL = ArchiveError("'/data' cannot be written.", remedy="Free some space.")


def failed_with(error: Exception) -> Failure:
    """Bring an error from an activity into the workflow."""
    with pytest.raises(ApplicationError) as caught, typed_failures():
        raise error
    return failure_of(caught.value)


def test_a_query_that_met_a_part_of_a_workflow_task_is_asked_again_by_its_activity() -> None:
    for text, lasts in ((f"{SPLIT} before its begin.", False), ("no such query", True)):
        with pytest.raises(ApplicationError) as caught, typed_failures():
            raise WorkflowQueryFailedError(text)
        assert caught.value.non_retryable is lasts


@pytest.mark.parametrize(("asked", "wait"), [(0.0, 0.001), (2.5, 2.5), (None, None)])
async def test_a_wait_of_zero_is_the_shortest_that_the_server_has(
    asked: float | None, wait: float | None
) -> None:
    def call() -> None:
        with typed_failures():
            raise ModelUnavailableError("busy", retry_after=asked)

    with pytest.raises(ApplicationError) as caught:
        ActivityEnvironment().run(call)
    delay = caught.value.next_retry_delay
    assert (None if delay is None else delay.total_seconds()) == wait


as_the_provider_says = ModelUnavailableError("busy", retry_after=0), [0.001, 1, 2, 4, 8]
as_a_policy_says = again_at_once, [0.001] * 5


@pytest.mark.parametrize(("error", "waits"), [as_the_provider_says, as_a_policy_says])
def test_a_wait_of_the_provider_does_not_use_up_the_attempts_in_a_moment(
    error: ModelUnavailableError, waits: list[float]
) -> None:
    found: list[float] = []

    def call() -> None:
        with typed_failures():
            raise error

    environment = ActivityEnvironment()
    for attempt in range(1, 6):
        environment.info = dataclasses.replace(environment.info, attempt=attempt)
        with pytest.raises(ApplicationError) as caught:
            environment.run(call)
        assert caught.value.next_retry_delay is not None
        found.append(caught.value.next_retry_delay.total_seconds())
    assert found == waits


class MuteError(Exception):
    """An exception whose text cannot be made."""

    args = property(lambda _: ())

    def __str__(self) -> str:
        """Raise."""
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MuteError(), "it has no text, because its __str__ raised RuntimeError"),
        (
            ExceptionGroup("two", [MuteError(), KeyError("k")]),
            "two .*MuteError: it has no text.*; KeyError: 'k'",
        ),
        (AssertionError(), "^it has no message$"),
    ],
)
def test_an_exception_without_a_text_is_told_all_the_same(error: Exception, said: str) -> None:
    assert re.search(said, failed_with(error).message)


def test_the_failure_of_an_exception_whose_class_cannot_be_filled_has_it_as_its_cause() -> None:
    failure, cause = StepFailedError("it failed", task_id="t", step_id="s1"), MuteError()
    assert also_of(failure, cause) is failure
    assert failure.__cause__ is cause


def as_client(failure: Failure) -> Exception:
    """Bring a failure with which a task waits from the workflow to a client."""
    found = failure_in(refusal(failure, parked=True))
    assert found is not None
    return to_error(found, task_id="t", step_id="s1", parked=True)


def test_an_error_that_wraps_none_says_what_happened_and_what_to_do() -> None:
    assert str(FULL) == "'/data' cannot be written. Free some space."
    assert str(TaskNotFoundError("t")) == (
        "No task 't' is known here. Ids are shown by `holdfast tasks`; a task of another server,"
        " namespace or archive is not visible from this one."
    )
    assert str(NoWorkerError("q", task_id="t")) == (
        "No worker process serves queue 'q'. The task 't' waits and nothing is lost. Start yours,"
        " made with HoldfastPlugin, then ask again."
    )


def test_a_sentence_that_ends_with_the_text_of_another_error_has_one_full_stop() -> None:
    said = "'t' cannot answer. The worker failed: a bug.. Not yet... `cd .. && ls`"
    assert str(HoldfastError(said, remedy="Wait.")) == (
        "'t' cannot answer. The worker failed: a bug. Not yet... `cd .. && ls` Wait."
    )
    inner = HoldfastError("Nothing is served.")
    assert message_of(HoldfastError(f"It waits: {inner}.")) == "It waits: Nothing is served."


def test_a_failure_is_of_the_class_of_its_cause_also_if_that_counts_as_false() -> None:
    class EmptyError(RuntimeError):
        def __len__(self) -> int:
            return 0

    error = ModelRequestError("No API key.")
    error.__cause__ = EmptyError("none")
    failure = as_client(failed_with(error))
    assert isinstance(failure, StepFailedError)
    assert isinstance(also_of(failure, error), EmptyError)


def test_the_remedy_of_the_cause_takes_the_place_of_the_general_one() -> None:
    cause = ModelRequestError("No API key.", remedy="Set OPENAI_API_KEY, then run the step again.")
    error = as_client(failed_with(cause))
    assert isinstance(error, StepFailedError)
    assert str(error) == (
        "Step 's1' of task 't' failed: ModelRequestError: No API key.\n"
        "The step stays first in the queue and nothing it had done is lost. Set OPENAI_API_KEY,"
        " then run the step again. To run the step: run_step(task),"
        " Runner.run(agent, RunState.of('t')), or holdfast step."
    )


def test_a_remedy_stands_once_at_the_end_however_often_its_error_was_wrapped() -> None:
    with pytest.raises(ApplicationError) as caught, not_started("tool"):
        raise FULL
    failure = failure_of(caught.value)
    ledger = Ledger(TaskInput(head=TaskHead(agent="a"), input="q"), task_id="t", now=1.0)
    ledger.s.failure = failure
    assert ledger.task().error.endswith(
        "NotStarted: The tool was not started: '/data' cannot be written. Free some space."
    )
    ending = Ending(ledger)
    ending.begin("finished")
    again = ending.failed(ending.failed(failure, now=2.0, pause=1.0), now=3.0, pause=1.0)
    text = str(as_client(again))
    assert text.count("Free some space.") == 1
    assert text.endswith("Free some space.")
    assert "'/data' cannot be written." in text


def test_the_place_of_an_error_stands_before_its_remedy() -> None:
    def fails() -> None:
        raise ArchiveError("Full.", remedy="Free some space.")

    with pytest.raises(ArchiveError) as caught, naming("hook", fails):
        fails()
    first, second = text_of(caught.value).split("\n")
    assert first == "Full."
    assert second.startswith("Raised by hook: ")
    assert second.endswith(" Free some space.")


def test_a_remedy_outlasts_a_process() -> None:
    again = pickle.loads(pickle.dumps(FULL))
    assert (str(again), again.remedy) == (str(FULL), FULL.remedy)


# ---- failures of calls: how they are marked as certain to hide no effect, and what models read


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


# ---- statuses of problem details: each error has one, and it agrees with the exit code

STATUSES = {
    ExitCode.USAGE: 422,
    ExitCode.NOT_FOUND: 404,
    ExitCode.ENGINE: 503,
    ExitCode.FAILED: 409,
}
OWN: dict[type[HoldfastError], int] = {
    NotAuthenticatedError: 401,
    NotAllowedError: 403,
    TaskExistsError: 409,  # what was asked for is in the way, as with other refusals
}
"""Errors that HTTP has more words for than exit codes."""


def all_errors() -> list[type[HoldfastError]]:
    """List every error of the package, those of modules that few import included."""
    for package in ("holdfast.client", "holdfast.desk", "holdfast.engine", "holdfast.reading"):
        found = importlib.import_module(package)
        for module in pkgutil.walk_packages(found.__path__, f"{package}."):
            importlib.import_module(module.name)
    return sorted(below(HoldfastError), key=lambda each: each.__name__)


def below(error: type[HoldfastError]) -> Iterator[type[HoldfastError]]:
    yield error
    for each in error.__subclasses__():
        if each.__module__.startswith(f"{holdfast.__name__}."):
            yield from below(each)


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_each_error_has_the_status_of_its_exit_code(kind: type[HoldfastError]) -> None:
    error = kind.__new__(kind)  # whatever its arguments are
    HoldfastError.__init__(error, "It was refused, with sk-proj-0123456789abcdefghijklmnop.")
    expected = OWN.get(kind) or STATUSES[exit_code_of(error)]
    assert status_of(error) == expected
    answer = problem_of(error)
    said = json.loads(bytes(answer.body))
    assert (answer.media_type, said["status"]) == ("application/problem+json", expected)
    assert said["type"] == f"urn:holdfast:error:{kind.__name__.removesuffix('Error')}"
    assert said["detail"].startswith("It was refused")
    assert "sk-proj" not in said["detail"]


async def test_a_stream_whose_next_event_cannot_be_made_breaks_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "KEEP_ALIVE_SECONDS", 0.5)

    async def sent() -> AsyncGenerator[str]:
        yield "id: 1\n\n"
        asked.reads = ["b"]
        raise ValueError("odd")

    async def check(reads: list[str]) -> None:
        got.append(reads)

    asked: Any = SimpleNamespace(reads=["a"], check=check)
    got: list[Any] = []

    async def read() -> None:
        async with asyncio.timeout(5):
            async for each in events.streamed(asked, sent()).body_iterator:
                got.append(each)  # noqa: PERF401  what came before the error

    with pytest.raises(ValueError, match="odd"):
        await read()
    assert got[1:] == [["a"], "id: 1\n\n"]  # and no comment that it is still there
