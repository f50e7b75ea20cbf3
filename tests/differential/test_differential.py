"""The same scripts, run by the OpenAI Agents SDK and by Holdfast: what is observed is equal.

`known.toml` lists the differences that are wanted. A listed difference that is gone fails its test.

A script is about what a run does, whether it is streamed or not. `make test` runs every second one
in one mode, every fourth of these streamed; `make test-all` runs each in both.
"""

import fnmatch
import json
import tomllib
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.testing import FakeOpenAI
from tests.differential import (
    scripts_guardrails,
    scripts_handoffs,
    scripts_hooks,
    scripts_loop,
    scripts_outputs,
    scripts_people,
    scripts_search,
    scripts_settings,
    scripts_tools,
)
from tests.differential.engines import fake_model, observe_holdfast, observe_sdk
from tests.differential.observed import as_list
from tests.differential.script import Group, Script
from tests.support.rig import Engine
from tests.support.scale import EXHAUSTIVE

# The Agents SDK lets pydantic warn of handlers' answers that it has yet to check.
# Answers that are cut off leave generators of the HTTP client in the cycles of their tracebacks;
# where a garbage collection in the fake's thread finds one, its loop's own is just busy.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Pydantic serializer warnings",
    "ignore:Exception ignored in. <async_generator object Response.aiter_raw"
    ":pytest.PytestUnraisableExceptionWarning",
)

MODULES = (
    scripts_loop,
    scripts_tools,
    scripts_outputs,
    scripts_handoffs,
    scripts_guardrails,
    scripts_people,
    scripts_hooks,
    scripts_settings,
    scripts_search,
)
GROUPS = [each for module in MODULES for each in vars(module).values() if isinstance(each, Group)]
KNOWN = tomllib.loads(Path(__file__).with_name("known.toml").read_text(encoding="utf-8"))["known"]
MISSING = "(nothing)"
USUAL, STREAMED = 2, 4
"""Of how many scripts `make test` runs one, and of how many of these one is streamed."""

Case = tuple[str, Script, bool]


def cases(*, exhaustive: bool) -> list[Any]:
    """List the scripts by mode.

    Args:
        exhaustive: Whether each script is listed in every mode that it has.
    """
    found: list[Any] = []
    listed = [(group, script) for group in GROUPS for script in group.scripts.values()]
    for number, (group, script) in enumerate(listed):
        modes = ["plain", "streamed"] if script.streams else ["plain"]
        if not exhaustive:
            modes = [modes[-1] if number % (USUAL * STREAMED) == 0 else modes[0]]
            modes = [] if number % USUAL else modes
        for mode in modes:
            name = f"{group.name}/{script.name}/{mode}"
            found.append(pytest.param(name, script, mode == "streamed", id=name))
    return found


@pytest.fixture(scope="module")
async def fake() -> AsyncGenerator[FakeOpenAI]:
    async with fake_model() as fake:
        yield fake


@pytest.mark.parametrize(("name", "script", "is_streamed"), cases(exhaustive=EXHAUSTIVE))
async def test_both_do_the_same(
    name: str, script: Script, is_streamed: bool, fake: FakeOpenAI, engine: Engine
) -> None:
    theirs = await observe_sdk(script, fake, is_streamed=is_streamed)
    assert_right(script, theirs)
    ours = await observe_holdfast(script, fake, engine, is_streamed=is_streamed)
    found = dict(differences(comparable(theirs), comparable(ours)))
    known = wanted(name)
    shown = "\n".join(
        f"{path}: {left!r:.150} | {right!r:.150}" for path, (left, right) in found.items()
    )
    unknown = [path for path in found if not any(fits(path, each) for each in known)]
    assert not unknown, f"{ours['text']}\n{shown}"
    gone = [each for each in known if not any(fits(path, each) for path in found)]
    assert not gone, f"take these out of known.toml, they are gone: {gone}\n{shown}"


def test_every_known_difference_is_of_a_script() -> None:
    names = {case.id for case in cases(exhaustive=True)}
    both = names | {name.rpartition("/")[0] for name in names}
    assert {script for known in KNOWN for script in known["scripts"]} <= both


def test_scripts_of_every_group_are_run_and_about_a_quarter_of_them_streamed() -> None:
    run = [case.id for case in cases(exhaustive=False)]
    assert {name.partition("/")[0] for name in run} == {group.name for group in GROUPS}
    streamed = sum(name.endswith("/streamed") for name in run)
    assert 0.2 < streamed / len(run) < 0.3


def assert_right(script: Script, observed: dict[str, Any]) -> None:
    """Check that the Agents SDK ended a script as the script says."""
    ended = (observed["raised"], observed["left"])
    assert ended == (script.raises, script.left), observed["text"]
    assert observed["problems"] == []


def wanted(name: str) -> list[str]:
    """List the places in which a script, in its mode, differs as it should."""
    names = {name, name.rpartition("/")[0]}
    return [path for known in KNOWN if names & {*known["scripts"]} for path in known["paths"]]


def comparable(observed: dict[str, Any]) -> dict[str, Any]:
    """Leave out the words of errors, and what is a matter of the fake."""
    data = {key: each for key, each in observed.items() if key not in {"text", "problems"}}
    return cast("dict[str, Any]", json.loads(json.dumps(data, default=repr)))


def differences(theirs: Any, ours: Any, path: str = "") -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Give the places where two observations differ, with what is there in either."""
    match theirs, ours:
        case dict(), dict():
            both = cast("dict[str, Any]", theirs), cast("dict[str, Any]", ours)
            for key in dict.fromkeys([*both[0], *both[1]]):
                place = f"{path}.{key}" if path else key
                yield from differences(both[0].get(key, MISSING), both[1].get(key, MISSING), place)
        case list(), list():
            lists = as_list(theirs), as_list(ours)
            for index in range(max(map(len, lists))):
                left, right = (each[index] if index < len(each) else MISSING for each in lists)
                yield from differences(left, right, f"{path}.{index}")
        case _ if theirs != ours:
            yield path, (theirs, ours)
        case _:
            pass


def fits(path: str, pattern: str) -> bool:
    """Tell whether a place is meant by a pattern, or lies within what is meant."""
    return fnmatch.fnmatchcase(path, pattern) or fnmatch.fnmatchcase(path, f"{pattern}.*")
