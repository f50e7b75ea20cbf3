"""The context object of a run's caller: it gets what the run changes, and nothing else."""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from textwrap import dedent
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import pytest
from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer, PrivateAttr

from holdfast.agents.output_type import AgentOutputSchema
from holdfast.errors import ModelBehaviorError, UserError
from holdfast.values import settings
from holdfast.values.code.context_data import CallersContext, dump, load

if TYPE_CHECKING:
    from holdfast.values.settings import Budget


@dataclass
class Item:
    n: int


@dataclass
class Special(Item):
    extra: str = ""


@dataclass
class Plain:
    spent: int = 0
    calls: int = 0
    log: list[str] = field(default_factory=list[str])
    seen: set[str] = field(default_factory=set[str])
    items: list[Item] = field(default_factory=list[Item])


class Model(BaseModel):
    spent: int = Field(default=0, alias="spentSoFar")
    calls: int = 0
    log: list[str] = []
    seen: set[str] = set()


class Child(BaseModel):
    n: int


class OlderChild(Child):
    extra: str = "x"


class Parent(BaseModel):
    children: dict[str, Child] = {}


@dataclass
class Stats:
    name: str = "s"
    hits: int = field(default=0, compare=False)


class Region:
    """Of a class that is data by serializers only."""

    def __init__(self, code: str) -> None:
        self.code = code


class Place(BaseModel, arbitrary_types_allowed=True, extra="allow"):
    region: Annotated[
        Region,
        BeforeValidator(lambda given: given if isinstance(given, Region) else Region(given)),
        PlainSerializer(lambda region: region.code),
    ]
    stats: Stats = Field(default_factory=Stats)
    held: Any = Field(default=None, exclude=True)


def begun(context: Any) -> CallersContext:
    own = CallersContext(context)
    own.begins()
    return own


@pytest.mark.parametrize("kind", [Plain, Model], ids=str)
def test_what_the_run_changes_is_set_and_what_the_caller_changes_meanwhile_stays(kind: Any) -> None:
    context = kind()
    log, seen = context.log, context.seen
    own = begun(context)
    data = {**dump(context), "log": ["a"], "seen": ["b"]}
    data |= {"spentSoFar": 4} if kind is Model else {"spent": 4}
    context.calls += 1
    own.update(data)
    assert (context.spent, context.calls, context.log, context.seen) == (4, 1, ["a"], {"b"})
    assert context.log is log
    assert context.seen is seen


def test_so_it_is_with_a_dict() -> None:
    log: list[str] = []
    when = datetime(2024, 1, 1, tzinfo=UTC)
    context: dict[str, Any] = {"when": when, "log": log, "gone": 1, "calls": 0}
    own = begun(context)
    data = {**dump(context), "log": ["a"], "new": 2}
    del data["gone"]
    context["calls"] += 1
    own.update(data)
    assert context == {"when": when, "log": ["a"], "calls": 1, "new": 2}
    assert context["log"] is log


def test_each_update_counts_from_the_one_before() -> None:
    context = Plain()
    own = begun(context)
    own.update({**dump(context), "spent": 1})
    context.spent = 10
    own.update({**dump(context), "spent": 1, "calls": 2})
    assert (context.spent, context.calls) == (10, 2)
    own.update({**dump(context), "spent": 2, "calls": 2})
    assert context.spent == 2


@pytest.mark.parametrize(
    ("context", "lost"),
    [
        (Plain(items=[Item(1), Special(2, "x")]), "context.items[1].extra"),
        (Parent(children={"a": OlderChild(n=1)}), "context.children.a.extra"),
        (Plain(items=[Item(1)], log=["a"], seen={"b"}), ""),
        (Model(), ""),
        ({"any": {"thing": 1}}, ""),
    ],
    ids=repr,
)
def test_members_that_no_tool_would_get_are_told_of(
    context: Any, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    begun(context)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == bool(lost)
    assert lost in "".join(said)


@dataclass
class Uninit:
    count: int = field(init=False, default=0)


@dataclass(slots=True)
class Slotted:
    seed: InitVar[int] = 3
    shared: ClassVar[list[int]] = []
    count: int = field(init=False)
    parts: dict[str, list[Uninit]] = field(init=False, default_factory=lambda: {"a": [Uninit()]})

    def __post_init__(self, seed: int) -> None:
        self.count = seed


@dataclass(frozen=True)
class Numbered:
    count: int = field(init=False, default_factory=iter(range(1000)).__next__)
    when: datetime = field(init=False, default=datetime(2024, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("kind", [Uninit, Slotted, Numbered])
def test_what_init_does_not_take_reaches_tools_and_the_caller(kind: Any) -> None:
    context = kind()
    object.__setattr__(context, "count", 7)
    own = begun(context)
    for count in (7, 8):
        made = load(dump(context), kind)
        assert (made, made.count) == (context, count)
        object.__setattr__(made, "count", count + 1)
        if isinstance(made, Slotted):
            made.parts["a"][0].count = count
        own.update(dump(made))
        assert context == made


@dataclass
class Rising:
    count: int = 0

    def __post_init__(self) -> None:
        self.count += 1


@dataclass
class Seeded:
    seed: InitVar[int]


class Hidden(BaseModel):
    held: str = Field(exclude=True)


@dataclass
class Holder:
    held: Any


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (Rising, r"context\.count is another one then"),
        (lambda: Seeded(1), r"cannot be made again(?s:.*)seed"),
        (lambda: Hidden(held="x"), r"cannot be made again(?s:.*)held"),
        (lambda: Holder(Lock()), "lock"),
        (lambda: Holder(property()), "property"),
        (lambda: Holder({"a": [iter("abc")]}), r"context\.held\.a\[0\] can be read once"),
        (lambda: {"a": (k for k in "abc")}, r"context\.a can be read once"),
        (lambda: Holder(BytesIO(b"all")), r"context\.held can be read once"),
    ],
)
def test_a_context_that_data_cannot_hold_is_refused_when_its_run_begins(
    make: Any, text: str
) -> None:
    context = make()
    before = repr(context)
    with pytest.raises(UserError, match=text):
        begun(context)
    assert repr(context) == before
    held: Any = getattr(context, "held", None)
    assert not isinstance(held, BytesIO) or held.read() == b"all"


class Private(BaseModel):
    count: int = 0
    _seen: list[str] = PrivateAttr(default_factory=list[str])

    def see(self) -> None:
        self._seen.append("x")


def test_what_a_class_keeps_for_itself_is_told_of_if_it_is_data(
    caplog: pytest.LogCaptureFixture,
) -> None:
    context = Private()
    begun(context)
    assert not caplog.records
    context.see()
    begun(context)
    assert "without context._seen" in caplog.text


def test_a_class_of_serializers_gets_nested_and_unnamed_members_too() -> None:
    held = object()
    context = Place(region=Region("eu"), held=held)
    own = begun(context)
    own.update({**dump(context), "region": "us", "stats": {"name": "s", "hits": 2}, "seen": [1]})
    assert (context.region.code, context.stats.hits, context.seen) == ("us", 2, [1])  # type: ignore[attr-defined]
    assert context.held is held
    assert {"region", "stats"} <= context.model_fields_set


def test_a_run_goes_on_from_what_the_object_was_brought_up_to() -> None:
    context = {"who": "x", "spent": 0}
    begun(context).update({"who": "x", "spent": 1})
    context |= {"who": "y", "new": 1}
    further = CallersContext(context, {"who": "x", "spent": 1})
    further.goes_on()
    further.update({"who": "x", "spent": 2})
    assert context == {"who": "y", "spent": 2, "new": 1}


def test_a_run_goes_on_with_an_object_that_is_no_data() -> None:
    context = Region("eu")
    own = CallersContext(context)
    own.goes_on()
    own.update({"code": "us"})
    assert context.code == "eu"
    with pytest.raises(UserError, match="cannot be stored as JSON"):
        own.begins()


@dataclass
class Funded:
    """Its annotation is known to checkers only, as is that of the context that holds it."""

    budget: Budget | None = None


@dataclass
class Account:
    funds: list[Funded] = field(default_factory=list[Funded])


def test_a_class_that_is_imported_for_checkers_only_is_found() -> None:
    account = Account([Funded(settings.Budget(max_tokens=7))])
    assert load(dump(account), Account) == account
    begun(account).update({"funds": [{"budget": {"max_tokens": 8}}]})
    assert account.funds == [Funded(settings.Budget(max_tokens=8))]


def test_an_annotation_that_names_nothing_is_told_when_the_run_begins(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @dataclass
    class Lost:
        names: list[str]

    Lost.__annotations__["names"] = Lost.__dataclass_fields__["names"].type = "list[Nowhere]"
    begun(Lost([]))
    said = "An annotation of .*Lost names 'Nowhere', which cannot be found from there"
    assert re.search(f"Tools cannot get the context of this run: {said}", caplog.text)
    with pytest.raises(UserError, match=said):
        load({"names": []}, Lost)


LATE = """
    @dataclass
    class Late:
        n: int
    """
MODULES = {
    "holder": """
        import {0}_part as part
        if TYPE_CHECKING:
            from {0}_late import Late
            from {0}_late import Late as Other
            import {0}_late as module
            import {0}_late

        @dataclass
        class Plain:
            late: Late | None = None
            more: Other | None = None
            dotted: module.Late | {0}_late.Late | None = None

        @dataclass
        class Nested:
            parts: dict[str, list[part.Part]] | None = None
        """,
    "part": """
        if TYPE_CHECKING:
            from {0}_latest import Late

        @dataclass
        class Part:
            late: Late | None = None
        """,
    **dict.fromkeys(("late", "latest"), LATE),
}
HEAD = """from __future__ import annotations
from dataclasses import dataclass
from typing import TYPE_CHECKING
"""


@pytest.fixture
def holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """Import a module of its own, beside those that it imports for checkers only."""
    prefix = f"checked_{abs(hash(request.node.name))}"
    for name, text in MODULES.items():
        source = HEAD + dedent(text).replace("{0}", prefix)
        (tmp_path / f"{prefix}_{name}.py").write_text(source)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return importlib.import_module(f"{prefix}_holder")


def test_each_form_of_an_import_for_checkers_is_read(holder: Any) -> None:
    made = load({"late": {"n": 1}, "more": {"n": 2}, "dotted": {"n": 3}}, holder.Plain)
    assert type(made.late) is type(made.more) is type(made.dotted)
    assert made.dotted.n == 3


def test_what_a_part_in_another_module_imports_for_checkers_is_found(holder: Any) -> None:
    made = load({"parts": {"a": [{"late": {"n": 1}}]}}, holder.Nested)
    assert type(made.parts["a"][0].late).__module__.endswith("_latest")


# ---- final outputs that are written otherwise than asked for, and what they can only mean


class Order(BaseModel):
    """What a model is asked for."""

    id: int
    notes: list[str] = []


@dataclass
class Point:
    """A type that is wrapped."""

    x: int


MEANT = (
    '```json\n{"id": 3}\n```',
    '```\n{"id": 3}\n```\nThat is all.',
    'Here is the order: {"id": 3}',
    '{"id": 3} I hope that it helps.',
    '<think>An {id} is [1].</think>\n{"id": 3}',
    '{"id": 3,}',
    "{'id': 3}",
    '{"id": 3.0}',
    '[{"id": 3}]',
    '```json\n[{"id": 3.0,},]\n```',
    '{"id": 3, // the id\n}',
)


@pytest.mark.parametrize("text", MEANT)
def test_an_output_is_read_that_can_only_mean_one_thing(text: str) -> None:
    assert AgentOutputSchema(Order).read(text) == {"id": 3}


@pytest.mark.parametrize(
    ("kind", "text", "data"),
    [
        (list[int], "[1, 2]", [1, 2]),
        (list[int], '```json\n{"response": [1, 2.0]}\n```', [1, 2]),
        (list[int], '[{"response": [7]}]', [7]),
        (Point, '{"x": 1}', {"x": 1}),
        (Point, 'The point: {"response": {"x": 1.0}}', {"x": 1}),
        (int, '{"response": 4.0}', 4),
    ],
)
def test_an_output_is_read_with_its_wrapper_and_without(kind: Any, text: str, data: Any) -> None:
    assert AgentOutputSchema(kind).read(text) == data


@pytest.mark.parametrize(
    "text",
    [
        " ",
        "3",
        '{"id": 3} or {"id": 4}',
        '[{"id": 3}, {"id": 4}]',
        '[{"id": 3}, {"id"',
        '{"order": {"id": 3}',
        '{"id": "three"}',
        '{"id": 3.5}',
        '{"id": true}',
        '"{\\"id\\": 3}"',
        "{" * 20_000,
        '{"id": 3} ' + "[" * 20_000,
    ],
)
def test_nothing_is_guessed_of_an_output_that_may_mean_something_else(text: str) -> None:
    with pytest.raises(ModelBehaviorError, match=re.escape(text[:50])):
        AgentOutputSchema(Order).read(text)
