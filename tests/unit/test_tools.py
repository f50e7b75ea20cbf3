"""Making tools, and running them."""

import asyncio
import contextvars
import dataclasses
import functools
import threading
import time
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    SecretStr,
    field_serializer,
    field_validator,
)

from holdfast.agents.tools.context import Effect, ToolContext
from holdfast.agents.tools.decorator import Tool, ToolArgumentsError, function_tool, to_tool, tool
from holdfast.agents.tools.options import ApprovalPredicate, takes_context
from holdfast.errors import DeclarationError, HoldfastError, InvalidArgumentError, UserError
from holdfast.models.base import ToolSpec
from holdfast.task.data.head import ToolPolicy
from holdfast.values.runs.approval_rules import ApprovalRule

REQUEST = contextvars.ContextVar("REQUEST", default="none")


def add(a: int, b: int = 2) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


def test_the_bare_decorator_makes_a_tool_that_is_still_a_function() -> None:
    @tool
    def double(x: int) -> int:
        """Double."""
        return 2 * x

    assert isinstance(double, Tool)
    assert double(4) == 8
    assert (double.name, double.description, double.effect) == ("double", "Double.", "irreversible")
    assert repr(double) == "<Tool 'double' effect='irreversible'>"


def test_names_of_the_agents_sdk_work_and_ours_win() -> None:
    sdk = function_tool(
        add, name_override="plus", description_override="Sum.", strict_mode=True, timeout=2.5
    )
    assert (sdk.name, sdk.description) == ("plus", "Sum.")
    assert (sdk.strict_json_schema, sdk.timeout_seconds) == (True, 2.5)
    assert sdk.params_json_schema["additionalProperties"] is False
    both = tool(add, name="a", name_override="b", description="c", description_override="d")
    assert (both.name, both.description) == ("a", "c")
    assert tool(add, description="").description == ""


def test_the_spec_is_what_the_model_is_told() -> None:
    assert tool(add).spec() == ToolSpec(
        name="add",
        description="Add two numbers.",
        parameters={
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "The first."},
                "b": {"type": "integer", "description": "The second.", "default": 2},
            },
            "required": ["a"],
            "additionalProperties": False,
        },
    )


def test_what_is_assigned_is_checked() -> None:
    made = tool(add)
    made.name = "plus"
    assert made.spec().name == "plus"
    with pytest.raises(UserError, match="'no name' cannot be a tool's name"):
        made.name = "no name"
    with pytest.raises(TypeError, match="timeout_seconds must be a positive number"):
        made.timeout_seconds = "1"  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError, match="description=5"):
        made.description = 5  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AttributeError):
        made.__wrapped__ = add
    assert (made.name, made.timeout_seconds) == ("plus", None)


@pytest.mark.parametrize("name", ["a b", "x" * 65, "é", "a.b", "a\n"])
def test_bad_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="1 to 64 characters"):
        tool(add, name=name)


def test_the_effect_follows_from_undo() -> None:
    assert tool(add, undo=print_effect).effect == "reversible"
    assert tool(add, undo=print_effect, effect="irreversible").effect == "irreversible"
    assert tool(add).effect == "irreversible"


def print_effect(effect: Effect) -> str:
    return f"undone {effect.tool} {effect.arguments} {effect.result}"


def pow3(a: int, b: int, c: int) -> int:
    return a * b * c


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"effect": "reversible"}, "needs undo="),
        ({"effect": "read", "undo": print_effect}, "nothing to do"),
        ({"undo_idempotent": True}, "there is none"),
        ({"undo_needs_approval": True}, "undo_needs_approval=True says how undo= is called"),
        ({"effect": "write"}, "'read', 'reversible' or 'irreversible'"),
        ({"timeout_seconds": 0}, "timeout_seconds=0"),
        ({"timeout_seconds": float("nan")}, "timeout_seconds=nan"),
        ({"approval_seconds": -1}, "approval_seconds=-1"),
        ({"approval_seconds": float("nan")}, "approval_seconds=nan"),
        ({"inline_seconds": float("inf")}, "inline_seconds=inf"),
        ({"timeout_behavior": "explode"}, "'error_as_result'"),
        ({"max_attempts": 0}, "max_attempts=0"),
        ({"retry_on": (ValueError,)}, "max_attempts="),
        ({"max_output_bytes": 0}, "max_output_bytes=0"),
        ({"undo": lambda: None}, r"undo= of tool 'add' must be a function \(ctx, effect\)"),
        ({"probe": pow3}, "probe= of tool 'add'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: Any, named: str) -> None:
    with pytest.raises(InvalidArgumentError, match=named):
        tool(add, **options)


def test_to_tool_takes_tools_and_functions_only() -> None:
    made = tool(add)
    assert to_tool(made) is made
    assert to_tool(add).name == "add"
    nothing: Any = "add"
    with pytest.raises(DeclarationError, match="neither a tool nor a function"):
        to_tool(nothing)


# Arguments


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"a": 1', ["Invalid JSON", "line 1"]),
        ("[1]", ["expected a JSON object"]),
        ('"text"', ["expected a JSON object"]),
        ("{}", ["a: required, but missing"]),
        ('{"a": "x"}', ["a: Input should be a valid integer"]),
        ('{"a": 1, "c": 2}', ["c: no such parameter; the parameters are: a, b"]),
        ('{"b": []}', ["a: required", "b: Input should be a valid integer"]),
    ],
)
def test_the_text_for_the_model_says_what_is_wrong(arguments: str, words: list[str]) -> None:
    with pytest.raises(ToolArgumentsError) as caught:
        tool(add).parse(arguments)
    for word in ["tool add:", arguments, *words]:
        assert word in str(caught.value)
    assert caught.value.tool == "add"
    assert isinstance(caught.value, HoldfastError)


# Running


async def test_sync_functions_run_in_a_thread_with_the_context_variables() -> None:
    @tool
    def where() -> tuple[bool, str]:
        return threading.current_thread() is threading.main_thread(), REQUEST.get()

    REQUEST.set("mine")
    assert await where.run(ToolContext(), "{}") == (False, "mine")


async def test_methods_partials_and_callable_objects_run() -> None:
    class Desk:
        def book(self, city: str) -> str:
            return f"{self.__class__.__name__} {city}"

        async def __call__(self, city: str) -> str:
            return f"called {city}"

    ctx = ToolContext()
    assert await tool(Desk().book).run(ctx, '{"city": "Oslo"}') == "Desk Oslo"
    assert await tool(Desk()).run(ctx, '{"city": "Oslo"}') == "called Oslo"
    assert await tool(functools.partial(add, b=5)).run(ctx, '{"a": 1}') == 6
    assert await tool(functools.partial(Desk(), "Rome"), name="x").run(ctx, "") == "called Rome"


async def test_a_stop_iteration_in_a_thread_is_an_error_and_no_hang() -> None:
    @tool
    def first() -> int:
        return next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(first.run(ToolContext(), "{}"), 100)


async def test_a_cancelled_sync_tool_can_see_it() -> None:
    begun, seen = threading.Event(), threading.Event()

    @tool
    def work(ctx: ToolContext) -> None:
        begun.set()
        deadline = time.monotonic() + 100
        while not ctx.is_cancelled and time.monotonic() < deadline:
            time.sleep(0.001)
        seen.set()

    ctx = ToolContext()
    running = asyncio.create_task(work.run(ctx, "{}"))
    assert await asyncio.to_thread(begun.wait, 100)
    running.cancel()
    ctx.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.to_thread(seen.wait, 100)


async def test_a_tool_made_by_hand_gets_context_and_arguments() -> None:
    async def forward(ctx: ToolContext, arguments: str) -> str:
        return f"{ctx.call_id} {arguments}"

    made = Tool("remote", "", {"type": "object"}, forward, strict_json_schema=False)
    assert made.effect == "irreversible"
    assert made.spec().parameters == {"type": "object"}
    assert await made.run(ToolContext(tool_call_id="c"), '{"any": [1]}') == 'c {"any": [1]}'
    for broken in ("[1]", "{", '{"a": NaN}'):
        with pytest.raises(ToolArgumentsError, match="tool remote"):
            made.parse(broken)


async def test_what_is_sent_of_a_tool_follows_its_attributes() -> None:
    made = tool(add)
    assert [*made.spec().parameters["properties"]] == ["a", "b"]
    made.params_json_schema = {"properties": {"c": {"default": 1}}}
    assert [*made.spec().parameters["properties"]] == ["c"]
    made.strict_json_schema = False
    assert not made.spec().strict
    assert made.policy().defaults["properties"]["c"] == {"default": 1}


# Hooks

EFFECT = Effect(tool="book", arguments={"city": "Oslo"}, result=7, status="done")


async def both(ctx: ToolContext, effect: Effect) -> str:
    return f"{ctx.call_id} {effect.result}"


def only_effect(effect: Effect) -> str:
    return f"only {effect.result}"


def with_option(effect: Effect, *, verbose: bool = False) -> str:
    return f"{verbose} {effect.result}"


@pytest.mark.parametrize(
    ("hook", "result"),
    [
        (both, "c 7"),
        (only_effect, "only 7"),
        (with_option, "False 7"),
        (tool(both, name="b"), "c 7"),
        (tool(only_effect, name="o"), "only 7"),
        (mock.Mock(return_value="mocked"), "mocked"),
        (str, str(EFFECT)),
    ],
)
async def test_undo_and_probe_take_the_effect_and_the_context_if_they_want_it(
    hook: Callable[..., Any], result: str
) -> None:
    made = tool(add, undo=hook, probe=hook)
    ctx = ToolContext(tool_call_id="c") if takes_context(hook) else None
    assert (ctx is None) == (result in ("only 7", "False 7", str(EFFECT)))
    assert await made.run_undo(ctx, EFFECT) == result
    assert await made.run_probe(ToolContext(tool_call_id="c"), EFFECT) == result


def test_every_option_that_a_task_needs_is_in_the_policy_and_a_plain_tool_costs_no_bytes() -> None:
    assert (tool(pow3).policy(), tool(pow3).policy().wire()) == (ToolPolicy(), {})
    same: dict[str, Any] = {
        "idempotent": True,
        "timeout_seconds": 2.5,
        "timeout_behavior": "raise_exception",
        "max_attempts": 3,
        "return_direct": True,
        "max_output_bytes": 10,
    }
    full = tool(pow3, undo=only_effect, probe=only_effect, needs_approval=by_arguments, **same)
    told = {"effect": "reversible", "has_undo": True, "has_probe": True, "needs_approval": "ask"}
    assert full.policy().wire() == {**same, **told}


def by_arguments(arguments: dict[str, Any]) -> bool:
    return bool(arguments["a"] > 10)


def by_context(ctx: ToolContext, arguments: dict[str, Any]) -> bool:
    return ctx.call_id == "c" and by_arguments(arguments)


def by_call_id(ctx: ToolContext, arguments: dict[str, Any], call_id: str) -> bool:
    return ctx.call_id == call_id and by_arguments(arguments)


async def async_above(ctx: ToolContext, arguments: dict[str, Any]) -> bool:
    return by_context(ctx, arguments)


@pytest.mark.parametrize("predicate", [by_arguments, by_context, by_call_id, async_above])
async def test_an_approval_predicate_decides_per_call(predicate: ApprovalPredicate) -> None:
    made = tool(add, needs_approval=predicate)
    ctx = ToolContext(tool_call_id="c")
    assert await made.asks_approval(ctx, '{"a": 11, "b": 2}') is True
    assert await made.asks_approval(ctx, '{"a": 9, "b": 2}') is False


class Order(BaseModel):
    model_config = ConfigDict(str_strip_whitespace=True)

    what: str
    count: int = 1


def buy(order: Order, euros: float, *, urgent: bool = False) -> None:
    """Buy."""


WHOLE = '{"euros": 5, "order": {"what": "tea", "count": 1}, "urgent": false}'


@pytest.mark.parametrize(
    ("written", "asks"),
    [
        (WHOLE, False),  # a whole number is a float as it is
        (WHOLE.replace(', "count": 1', ""), True),
        (WHOLE.replace(', "urgent": false', ""), True),
        (WHOLE.replace("5", '"5"'), True),
        (WHOLE.replace('"count": 1', '"count": true'), True),
        (WHOLE.replace("false", "0"), True),
        (WHOLE.replace("tea", " tea"), True),
    ],
)
async def test_a_predicate_decides_only_by_the_arguments_that_the_function_gets(
    written: str, *, asks: bool
) -> None:
    made = tool(buy, needs_approval=lambda arguments: False)
    assert await made.asks_approval(ToolContext(), written) is asks


class Kind(Enum):
    FAST = "fast"


class Hidden(BaseModel):
    x: int
    limit: int = Field(default=3, exclude=True)


class Cents(BaseModel):
    """Looks as it was written, and is something else."""

    cents: int = Field(alias="euros")

    @field_validator("cents", mode="before")
    @classmethod
    def read(cls, value: str) -> int:
        """Count in cents."""
        return int(value) * 100

    @field_serializer("cents")
    def write(self, value: int) -> str:
        """Count in euros."""
        return str(value // 100)


class Named(BaseModel):
    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True, extra="allow")

    from_: str = Field(alias="from")


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Points(RootModel[list[Point]]):
    """Points."""


SAME = "ebc63c8a-4bd1-4a63-9bf7-ea6b9c7bd0c1"


@pytest.mark.parametrize(
    ("kind", "written", "asks"),
    [
        (Decimal, '"5000"', True),  # the predicate would see a text in the place of a number
        (Decimal, "5000", True),
        (Decimal | int, "5000", False),
        (timedelta, '"PT1H"', True),
        (complex, '"1+2j"', True),
        (bytes, '"x"', True),
        (SecretStr, '"**********"', True),
        (list[Decimal], '["5"]', True),
        (dict[int, int], '{"1": 2}', True),
        (date, '"2026-01-31"', False),
        (datetime, '"2026-01-31T10:00:00Z"', False),
        (datetime, '"2026-01-31T10:00:00+00:00"', True),
        (UUID, f'"{SAME}"', False),
        (UUID, f'"{SAME.upper()}"', True),
        (Path, '"a/b"', False),
        (Kind, '"fast"', False),
        (set[str], '["b", "a"]', False),
        (set[str], '["a", "a"]', True),
        (tuple[int, str], '[1, "a"]', False),
        (dict[str, float], '{"a": 2}', False),
        (Point, '{"x": 1, "y": 2}', False),
        (Point, '{"x": 1}', True),
        (Points, '[{"x": 1, "y": 2}]', False),
        (Named, '{"from": "a"}', False),
        (Named, '{"from_": "a", "more": 1}', False),
        (Hidden, '{"x": 1}', True),  # a field that is never written has a default
        (Hidden, '{"x": 1, "limit": 3}', False),
        (Cents, '{"euros": "5"}', True),
        (Any, '{"a": [1, null, "x", true]}', False),
        (Any, '{"a": 9007199254740993}', False),
        (float, "9007199254740993", True),
    ],
)
async def test_a_predicate_decides_only_by_values_of_the_kind_that_the_function_gets(
    kind: Any, written: str, *, asks: bool
) -> None:
    def take(it: Any) -> None:
        """Take."""

    take.__annotations__["it"] = kind
    made = tool(take, strict=False, needs_approval=lambda arguments: False)
    assert await made.asks_approval(ToolContext(), f'{{"it": {written}}}') is asks


@pytest.mark.parametrize("unreadable", ["{", '{"a": "x"}', "[]", "{}"])
async def test_arguments_that_do_not_fit_always_ask(unreadable: str) -> None:
    made = tool(add, needs_approval=lambda arguments: False)
    assert await made.asks_approval(ToolContext(), unreadable)


async def test_a_tool_can_be_offered_or_not() -> None:
    assert await tool(add).is_offered(None, None)
    assert not await tool(add, is_enabled=False).is_offered(None, None)
    assert not await tool(add, is_enabled=lambda: False).is_offered(None, None)
    assert await tool(add, is_enabled=lambda ctx: bool(ctx == "ctx")).is_offered("ctx", None)
    assert await tool(add, is_enabled=lambda ctx, agent: bool(agent == 1)).is_offered("ctx", 1)


def test_only_errors_that_the_tool_names_are_worth_repeating() -> None:
    once = tool(add)
    named = tool(add, max_attempts=2, retry_on=(TimeoutError,))
    every = tool(add, max_attempts=2)
    tools = (once, named, every)
    wrong = ToolArgumentsError("add", (), "")
    assert [t.is_worth_repeating(TimeoutError()) for t in tools] == [False, True, True]
    assert [t.is_worth_repeating(ValueError()) for t in tools] == [False, False, True]
    assert not any(t.is_worth_repeating(wrong) for t in tools)
    assert not every.is_worth_repeating(asyncio.CancelledError())


def test_a_long_list_of_problems_is_cut() -> None:
    def take(numbers: list[int]) -> None: ...

    with pytest.raises(ToolArgumentsError, match="and 90 more") as caught:
        tool(take).parse(f'{{"numbers": {["x"] * 100}}}'.replace("'", '"'))
    assert len(caught.value.problems) == 100


FINANCE = ApprovalRule(by=["role:finance"], quorum=2)


def lost_return(arguments: dict[str, Any]) -> None:
    arguments["a"] > 10  # noqa: B015  what people forget


@pytest.mark.parametrize(
    ("predicate", "said"),
    [
        (lost_return, r"lost_return returned None \(did you forget return\?\)"),
        (lambda arguments: "role:finance", "returned 'role:finance'"),
        (lambda arguments: 1, "returned 1"),
        (lambda arguments: [FINANCE], r"returned \[ApprovalRule"),
        (lambda arguments: ApprovalRule, "returned <class"),
    ],
)
async def test_what_is_no_answer_of_an_approval_predicate_is_refused(
    predicate: Any, said: str
) -> None:
    made = tool(add, needs_approval=predicate)
    with pytest.raises(UserError, match=said) as raised:
        await made.asks_approval(ToolContext(), '{"a": 11, "b": 2}')
    assert "must return True, False or an ApprovalRule" in str(raised.value)


async def test_the_rule_of_a_predicate_counts_also_for_values_that_the_function_gets() -> None:
    def pay(euros: int, note: str = "") -> None:
        """Pay."""

    def rule(arguments: dict[str, Any]) -> bool | ApprovalRule:
        return FINANCE if arguments["euros"] > 100 else False

    made = tool(pay, needs_approval=rule, strict=False)
    found = [
        await made.asks_approval(ToolContext(), each)
        for each in (
            '{"euros": 101, "note": ""}',
            '{"euros": 100, "note": ""}',
            '{"euros": 101}',
            '{"euros": "101"}',
            '{"euros": 100}',
            '{"euros": "many"}',
        )
    ]
    assert found == [FINANCE, False, FINANCE, FINANCE, True, True]


@pytest.mark.parametrize("said", [None, "yes", 1, ["a"]])
async def test_a_predicate_that_offers_a_tool_says_true_or_false(said: Any) -> None:
    made = tool(add, is_enabled=lambda ctx: said)
    with pytest.raises(UserError, match="it must return True or False"):
        await made.is_offered("ctx", None)


@pytest.mark.parametrize("said", [True, False])
async def test_a_probe_says_what_the_result_was(said: bool) -> None:
    made = tool(add, probe=lambda effect: said)
    with pytest.raises(UserError, match=f"returned {said}; it must return the call's result"):
        await made.run_probe(ToolContext(), EFFECT)
