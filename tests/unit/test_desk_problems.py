"""Statuses of problem details: each error has one, and it agrees with the exit code."""

import asyncio
import importlib
import json
import pkgutil
from collections.abc import AsyncGenerator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
from holdfast.cli.exits import ExitCode, exit_code_of
from holdfast.desk.api import events
from holdfast.desk.identity.problems import problem_of, status_of
from holdfast.desk.identity.tokens import NotAllowedError, NotAuthenticatedError
from holdfast.errors import HoldfastError, TaskExistsError

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


def errors() -> list[type[HoldfastError]]:
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


@pytest.mark.parametrize("kind", errors(), ids=lambda kind: kind.__name__)
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
