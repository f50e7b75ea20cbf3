"""Names of code: what they lead to, and what they must never lead to."""

import functools
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast import Agent, UserError, tool
from holdfast.activities.data.registry import Registry
from holdfast.archive.archive import Archive
from holdfast.errors import NotFoundError
from holdfast.task.data.head import RunRules, TaskHead
from holdfast.values.code.code_refs import forget, hold, known, look_up, refer, release, take_back


@dataclass
class Caller:
    name: str


def greet(name: str) -> str:
    return f"hello {name}"


def greet_of(agent: object, ctx: object) -> str:
    return f"{agent} {ctx}"


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    agent = Agent(name="a", tools=[tool(effect="read")(greet)])
    return Registry([agent], Archive(tmp_path))


def test_what_a_module_defines_is_found_by_its_name() -> None:
    ref = refer(greet)
    forget([ref])
    assert ref == f"{__name__}:greet"
    assert look_up(ref, {__name__}) is greet


@pytest.mark.parametrize("name", ["subprocess.getoutput", "subprocess", "OrderedDict", "greet.x"])
def test_what_a_module_only_imports_is_not_found_through_it(name: str) -> None:
    with pytest.raises(NotFoundError, match="lacks"):
        look_up(f"{__name__}:{name}", {__name__})


def test_an_agent_whose_code_is_wrapped_by_the_standard_library_does_not_serve_that(
    tmp_path: Path,
) -> None:
    agent = Agent(name="a", instructions=functools.partial(greet_of, "x"))
    with pytest.raises(NotFoundError, match="serves the modules"):
        Registry([agent], Archive(tmp_path)).code("functools:reduce")


def test_a_context_is_made_by_its_class_and_by_nothing_else(registry: Registry) -> None:
    def head(ref: str) -> TaskHead:
        return TaskHead(agent="a", run=RunRules(context=ref))

    state = {"context": {"name": "ann"}}
    assert registry.context(head(f"{__name__}:Caller"), dict(state)) == Caller("ann")
    with pytest.raises(UserError, match="must be a dataclass"):
        registry.context(head(f"{__name__}:greet"), dict(state))


def test_what_tasks_hold_is_released_once_for_each() -> None:
    def thing() -> None: ...

    refs = [refer(thing), refer(thing), refer(thing)]
    hold("one", refs[:1])
    hold("two", refs[1:2])
    for _ in range(2):
        release("one")
        release("two", ["another"])
        assert known(refs[0]) is thing
    hold("two", refs[2:])
    take_back("two", refs[2:])
    assert known(refs[0]) is thing
    release("two", refs[:1])
    assert known(refs[0]) is None
