"""Every public verb with arguments that do not fit: it succeeds, or refuses with words.

What is drawn is the same in each run; `make test-all` draws more. `make fuzz-verbs CALLS=200`
(`HOLDFAST_FUZZ=200`) makes that many calls of each verb, with others drawn each time.
"""

import asyncio
import functools
import importlib
import inspect
import os
import random
import string
from collections.abc import AsyncGenerator, Callable
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import is_typeddict

from holdfast import Agent, AgentRunner, Image, Runner, RunResultStreaming, RunState, configure
from holdfast.agents_sdk import (
    FuncSchema,
    run_demo_loop,
    set_default_openai_api,
    set_default_openai_client,
    set_default_openai_key,
)
from holdfast.client.agent_runner.sessions import Session
from holdfast.errors import HoldfastError, InvalidArgumentError, TaskNotFoundError, UserError
from holdfast.testing import ScriptedModel
from holdfast.tracing import instrument, set_tracing_disabled
from holdfast.values import messages
from holdfast.workers import StepContext
from tests.support.rig import step_a_task
from tests.support.scale import times

WANTED = int(os.environ.get("HOLDFAST_FUZZ", "0"))
CALLS = WANTED or times(1, 40)
SEED = random.randrange(2**32) if WANTED else 17
PATIENCE = 60
LETTERS = string.ascii_letters + "~:./'\"\\%_ \x00\x1b\n\ud800\udfff\u2028é😀"

STARTS = ("create_task", "chat", "fork", "stream_chat")
ENDS = ("finalize_response", "abandon", "delete_task", "undo_step", "rewind")
NOT_DRAWN = {
    "start", "close", "ensure_agent", "run_to_end", "step_request", "run_request",
    "get_completed_tasks", "change_run",
}  # fmt: skip
"""What has no arguments, or serves `Runner`."""
VERBS = sorted(
    name
    for name, _ in inspect.getmembers(AgentRunner, inspect.isfunction)
    if not name.startswith("_") and name not in NOT_DRAWN
)

PUBLIC = (
    "holdfast", "holdfast.models", "holdfast.workers", "holdfast.testing", "holdfast.tracing",
    "holdfast.agents.tools.decorator", "holdfast.archive.archive",
)  # fmt: skip
MADE_FOR_USERS = (RunResultStreaming, StepContext, FuncSchema)
"""What only Holdfast makes."""

CHANGES_THE_PROCESS = (
    configure, set_tracing_disabled, instrument, set_default_openai_api, set_default_openai_client,
    set_default_openai_key,
)  # fmt: skip
READS_THE_TERMINAL = (run_demo_loop,)
MAKERS = (
    AgentRunner.connect, Image.from_path, Image.from_url, Image.from_bytes, RunState.of,
    RunState.from_json, RunState.from_string, messages.user, messages.assistant, messages.system,
)  # fmt: skip
"""Makers that are methods, or stand in a module that does not name its public ones."""

UNTIL = {"stream_events": {"until": "waiting"}, "step_events": {"until": "answered"}}
"""Else an open task is followed for as long as it is open."""


def deep(levels: int) -> Any:
    found: Any = "end"
    for _ in range(levels):
        found = [found]
    return found


def texts(rng: random.Random) -> str:
    known = ["", " ", "\n", "a\ud800b", "\x00", "\x1b[2J", "~", ":1", "x:1", "'", '"', "a b", "$("]
    drawn = "".join(rng.choices(LETTERS, k=rng.randrange(1, 30)))
    long = rng.choice("aé😀") * rng.choice([199, 201, 256, 1001, 20_000])
    return rng.choice([rng.choice(known), drawn, long])


def containers(rng: random.Random) -> Any:
    levels = rng.choice([3, 70, 300, 5000])
    surrogate, nan = {"a\ud800": 1}, {"a": float("nan")}
    known: list[Any] = [
        deep(levels), {"a": deep(levels)}, {1: 2}, surrogate, nan, {"": None}, {"a": object()},
        {}, [], (), set[int](), [None], [1, "a"], ["a\ud800"], [{}], [[]],
        {"type": "message"}, [{"role": "user"}], [{"role": 1, "content": 2}],
    ]  # fmt: skip
    return rng.choice(known)


def objects(rng: random.Random) -> Any:
    known: list[Any] = [
        None, True, False, 0, -1, 7, 2**63, 10**400, float("nan"), float("inf"), -0.5, b"",
        b"bytes", bytearray(b"x"), object(), Ellipsis, int, print, Agent(name="other"),
        Exception("x"),
    ]  # fmt: skip
    return rng.choice(known)


def hostile(rng: random.Random) -> Any:
    """Draw a value that most parameters cannot have."""
    return rng.choice([texts, containers, objects])(rng)


def parameters(verb: Any) -> list[inspect.Parameter]:
    """List the named parameters of a verb, `self` aside."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = inspect.signature(verb).parameters.values()
    return [each for each in found if each.kind in named and each.name not in ("self", "cls")]


def arguments(rng: random.Random, verb: Any, good: dict[str, Any]) -> dict[str, Any]:
    """Draw arguments: what is required is there, and at least one is hostile."""
    known = parameters(verb)
    required = [each.name for each in known if each.default is each.empty]
    given = {name: good[name] if name in good else hostile(rng) for name in required}
    for each in rng.sample(known, k=min(len(known), rng.choice([1, 1, 2]))):
        given[each.name] = hostile(rng)
    return given


async def outcome(call: Callable[..., Any], given: dict[str, Any]) -> BaseException | None:
    """Make a call and use up what it gives; return what it raised."""
    try:
        async with asyncio.timeout(PATIENCE):
            found = call(**given)
            if hasattr(found, "__aiter__"):
                async for _ in found:
                    break
            if callable(getattr(found, "result", None)):
                await found.result()
            elif inspect.isawaitable(found):
                await found
    except Exception as error:  # noqa: BLE001  any kind but ours is what is looked for
        return error
    return None


def is_pythons_own(error: BaseException | None) -> bool:
    """Whether an error is the TypeError of a wrong keyword, or of hooks, as they are promised."""
    promised = ("unexpected keyword", "keywords must be strings", "RunHooks", "AgentHooks")
    return isinstance(error, TypeError) and any(each in str(error) for each in promised)


def check(name: str, given: dict[str, Any], error: BaseException | None) -> None:
    """Fail unless a call succeeded, or was refused with words that can be printed."""
    if error is None or isinstance(error, HoldfastError):
        said = "success" if error is None else str(error)
        assert said.strip(), name
        said.encode()
        return
    shown: dict[str, str] = {}
    for key, value in given.items():
        try:
            shown[key] = repr(value)[:100]
        except RecursionError:
            shown[key] = f"a deep {type(value).__name__}"
    msg = f"{name}({shown}) with seed {SEED} raised {type(error).__name__}: {str(error)[:300]}"
    raise AssertionError(msg) from error


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw names of files in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
async def runner() -> AsyncGenerator[AgentRunner]:
    agent = Agent(name="agent", model=ScriptedModel(lambda _: "done"))
    async with AgentRunner.local(agent, data_dir=None) as made:
        yield made


@pytest.fixture(scope="module")
def opened() -> list[str]:
    """Return the id of a task that is open, if there is one."""
    return []


def good_for(task_id: str) -> dict[str, Any]:
    """Return arguments that fit, by name."""
    return {
        "task": task_id,
        "input": "q",
        "message": "q",
        "text": "more",
        "reason": "why",
        "by": "ann",
        "step": "s1",
        "to": "s1",
        "at": "s1",
        "approval": f"{task_id}:1",
        "result": {"a": 1},
        "name": "s1",
        "agent": "agent",
        "part": None,
        "messages": [],
        "items": [],
        "starting_agent": Agent(name="agent", model=ScriptedModel(lambda _: "done")),
    }


async def task_with_a_step(runner: AgentRunner) -> str:
    return (await step_a_task(runner)).task_id


@pytest.mark.parametrize("name", [name for name in VERBS if name not in STARTS])
async def test_a_verb_succeeds_or_refuses_with_words(
    runner: AgentRunner, opened: list[str], name: str
) -> None:
    rng = random.Random(f"{SEED} {name}")
    verb, ends = getattr(runner, name), UNTIL.get(name, {})
    for _ in range(CALLS):
        task_id = opened[0] if opened else await task_with_a_step(runner)
        opened[:] = [task_id]
        given = {**ends, **arguments(rng, verb, good_for(task_id))}
        error = await outcome(verb, given)
        check(name, given, error)
        if error is None and name in ENDS:
            opened.clear()


@pytest.mark.parametrize("name", STARTS)
async def test_a_task_is_started_or_refused_with_words(runner: AgentRunner, name: str) -> None:
    rng = random.Random(f"{SEED} {name}")
    # `stream_chat` takes what `chat` takes.
    verb, drawn = getattr(runner, name), getattr(runner, name.removeprefix("stream_"))
    task_id = await task_with_a_step(runner)
    for number in range(2 * CALLS):
        new = f"{name}-{number}"
        given = {"task_id": new, **arguments(rng, drawn, good_for(task_id))}
        given.pop("started", None)
        error = await outcome(verb, given)
        check(name, given, error)
        if isinstance(error, InvalidArgumentError):
            with pytest.raises(TaskNotFoundError):
                await runner.get_task(new)


@pytest.mark.parametrize("name", ["chat_history", "append", "replace", "get_items", "add_items"])
async def test_a_session_succeeds_or_refuses_with_words(runner: AgentRunner, name: str) -> None:
    rng = random.Random(f"{SEED} {name}")
    for number in range(CALLS):
        session: Session = runner.session(f"{name}-{number}")
        verb = getattr(session, name)
        given = arguments(rng, verb, good_for("t"))
        check(name, given, await outcome(verb, given))


@pytest.mark.parametrize("name", ["run", "run_streamed"])
async def test_a_run_succeeds_or_refuses_with_words(runner: AgentRunner, name: str) -> None:
    rng = random.Random(f"{SEED} {name}")

    def call(**given: Any) -> Any:
        made = getattr(Runner, name)(**given)
        return made.stream_events() if name == "run_streamed" else made

    for number in range(2 * CALLS):
        new = f"{name}-{number}"
        given = {"task_id": new, "runner": runner, **arguments(rng, Runner.run, good_for("t"))}
        given["runner"] = given["runner"] or runner
        error = await outcome(call, given)
        if not is_pythons_own(error):
            check(name, given, error)
        if isinstance(error, InvalidArgumentError | UserError | TypeError):
            with pytest.raises(TaskNotFoundError):
                await runner.get_task(new)


def public(kind: Callable[[Any], bool]) -> list[Any]:
    """List the public classes or functions, by the modules that name what is public in them."""
    modules = [importlib.import_module(name) for name in PUBLIC]
    found = {getattr(module, name) for module in modules for name in module.__all__}
    return sorted((each for each in found if kind(each)), key=lambda each: each.__name__)


def is_made_by_users(kind: Any) -> bool:
    """Whether a user makes objects of a class; errors and results are made for him."""
    if not inspect.isclass(kind) or issubclass(kind, BaseException) or kind in MADE_FOR_USERS:
        return False
    is_shape = getattr(kind, "_is_protocol", False) or is_typeddict(kind) or issubclass(kind, Enum)
    return not (inspect.isabstract(kind) or is_shape)


def is_called_by_users(function: Any) -> bool:
    apart = (*CHANGES_THE_PROCESS, *READS_THE_TERMINAL)
    is_drawn = inspect.isfunction(function) and function not in apart
    return is_drawn and bool(parameters(function))


def example(text: str) -> str:
    """Be made a tool, a guardrail or whatever else a decorator makes of a function."""
    return text


MADE = [*public(is_made_by_users), *public(is_called_by_users), *MAKERS]


@pytest.mark.parametrize("maker", MADE)
async def test_what_is_public_is_made_or_called_or_refuses_with_words(maker: Any) -> None:
    rng = random.Random(f"{SEED} {maker.__qualname__}")

    def call(**given: Any) -> Any:
        made = maker(**given)
        return made(example) if inspect.isfunction(made) else made

    for _ in range(10 * CALLS):
        given = arguments(rng, maker, good_for("t")) if parameters(maker) else {}
        error = await outcome(call, given)
        if not is_pythons_own(error):
            check(maker.__qualname__, given, error)


async def test_an_embedded_runner_is_made_or_refused_with_words() -> None:
    rng = random.Random(f"{SEED} local")
    for _ in range(10 * CALLS):
        given = arguments(rng, AgentRunner, {"agent": "agent"})
        for name in ("agent", "engine", "client", "archive"):
            given.pop(name, None)
        agents = rng.choices([Agent(name="agent"), hostile(rng)], k=2)
        error = await outcome(functools.partial(AgentRunner.local, *agents), given)
        if not is_pythons_own(error):
            check("local", given, error)
