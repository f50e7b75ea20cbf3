"""The graph of a pipeline: what is refused, the order, and what runs when."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from holdfast.errors import InvalidArgumentError
from holdfast.workers import (
    FunctionComponent,
    Link,
    ModelComponent,
    PipelineAgentWorker,
    PromptComponent,
    StepContext,
    ToolComponent,
    link,
)
from holdfast.workers.pipeline.components import Graph, Slots, Traversal

ONE = Slots(("x",))
TWO = Slots(("x", "y"))
NONE = Slots()


def prompts(*names: str) -> list[PromptComponent]:
    return [PromptComponent(name, "{x}") for name in names]


def fixed(on: bool) -> Callable[[Any], bool]:
    """Make a condition that holds always, or never."""

    def condition(value: Any) -> bool:
        return on

    return condition


def traverse(going: Traversal, make: Callable[[str, dict[str, Any]], Any] | None = None) -> str:
    """Run everything that can run, first come first served; each gives its own name."""
    order: list[str] = []
    while ready := going.ready():
        order.append(ready[0])
        value = make(ready[0], going.inputs(ready[0])) if make else ready[0]
        going.put(ready[0], value)
    return "".join(order)


# ---- what is refused


@pytest.mark.parametrize(
    ("components", "links", "output", "text"),
    [
        (prompts("a", "a"), [link("input", "a")], "a", "Two components are called 'a'"),
        (prompts("input"), [link("previous", "input")], "input", "'input' cannot be the name"),
        (prompts(""), [], "", "'' cannot be the name"),
        (prompts("a"), [], "a", "'a' needs a value for 'x', and no link brings one"),
        (prompts("a"), [link("input", "a")], "b", "The output is 'b', which does not exist"),
        (prompts("a"), [link("q", "a")], "a", "The source of link q -> a is 'q'.*'a', 'input'"),
        (prompts("a"), [link("input", "z")], "a", "The target of link input -> z is 'z'"),
        (prompts("a"), [link("input", "a", to="z")], "a", r"input -> a\.z is 'z'.*There are: 'x'"),
        (
            [PromptComponent("a", "{x}{y}")],
            [link("input", "a")],
            "a",
            "does not say which slot.*one of: 'x', 'y'",
        ),
        ([ToolComponent("a")], [link("input", "a")], "a", "does not say which slot.*any name"),
        (
            prompts("a", "b", "c"),
            [link("a", "b"), link("b", "a"), link("input", "c")],
            "c",
            "cycle, (a -> b -> a|b -> a -> b):",
        ),
        (prompts("a"), [link("a", "a")], "a", "cycle, a -> a:"),
        (
            prompts("a", "b", "c"),
            [link("a", "b"), link("b", "c"), link("c", "a")],
            "c",
            "cycle, (a -> b -> c -> a|b -> c -> a -> b|c -> a -> b -> c):",
        ),
        (
            [PromptComponent("k", "1"), *prompts("a", "b")],
            [link("input", "a"), link("k", "b")],
            "b",
            "No links lead from 'input' to the output 'b'.*'a'",
        ),
    ],
)
def test_a_pipeline_that_could_not_run_is_refused(
    components: Sequence[Any], links: Sequence[Link], output: str, text: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        PipelineAgentWorker(components, links, output=output)


def anything(kind: Any, *given: Any, **named: Any) -> Callable[[], Any]:
    """Call something as a person without a type checker may."""
    return lambda: kind(*given, **named)


A = PromptComponent("a", "{x}")


def _by_position(x: str, /) -> str:
    return x


def _with_ctx(x: str, ctx: StepContext) -> str:
    return x


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: FunctionComponent("f", _by_position), "'f': parameter 'x'.*by position"),
        (lambda: FunctionComponent("f", _with_ctx), "'f' takes `ctx`, but is not async"),
        (lambda: FunctionComponent("f", 7), "'f': 7 is not a function"),  # type: ignore[arg-type]
        (lambda: PromptComponent("p", "a { b"), "'p' has a brace without a partner.*character 2"),
        (lambda: PromptComponent("p", "a } b"), "brace without a partner"),
        (lambda: PromptComponent("p", "{x.__class__}"), "slot 'x.__class__', not a name"),
        (lambda: PromptComponent("p", "{}"), "slot '', not a name"),
        (lambda: PromptComponent("p", "{x!r}"), "slot 'x!r', not a name"),
        (
            anything(ToolComponent, "t", on_error="ignore"),
            "ToolComponent cannot use on_error='ignore'",
        ),
        (anything(ToolComponent, "t", tool=5), "ToolComponent cannot use tool=5"),
        (
            anything(ToolComponent, 5),
            "ToolComponent cannot use name=5: input should be a valid string",
        ),
        (anything(ModelComponent, "m", instructions=5), "ModelComponent cannot use instructions=5"),
        (anything(ModelComponent, "m", conversation="yes"), "cannot use conversation='yes'"),
        (anything(PromptComponent, "p", 5), "PromptComponent cannot use template=5"),
        (anything(FunctionComponent, None, len), "FunctionComponent cannot use name=None"),
        (
            anything(PipelineAgentWorker, [A], [link("input", "a", when="yes")], output="a"),  # type: ignore[arg-type]
            r"Link input -> a: `when` must be a function .* it was 'yes'",
        ),
        (
            anything(PipelineAgentWorker, [A], [("input", "a")], output="a"),
            r"Link 1 is \('input', 'a'\). Write link\(",
        ),
        (
            anything(PipelineAgentWorker, [A], link("input", "a"), output="a"),
            "`links` must be a list",
        ),
        (
            anything(PipelineAgentWorker, [A], [link("input", 5)], output="a"),  # type: ignore[arg-type]
            "Link input -> 5: source, target",
        ),
        (anything(PipelineAgentWorker, A, [], output="a"), "`components` must be a list"),
    ],
)
def test_what_could_not_run_or_is_of_the_wrong_kind_is_refused_by_name(
    make: Callable[[], Any], text: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        make()


# ---- prompts


def test_a_prompt_fills_each_slot_once_and_leaves_braces_of_values_and_text_alone() -> None:
    prompt = PromptComponent("p", 'Say {x} as {{"k": {y}}}, {x}.')
    assert prompt.slots == Slots(("x", "y"))
    assert (
        prompt.fill({"x": "{y} {{z}}", "y": [1, "é"]})
        == 'Say {y} {{z}} as {"k": [1,"é"]}, {y} {{z}}.'
    )


# ---- slots


def test_a_function_gets_by_link_what_has_no_other_source() -> None:
    async def f(a: str, state: dict[str, Any], ctx: StepContext, b: int = 1, *, c: str) -> str:
        return a

    component = FunctionComponent("f", f)
    assert component.slots == Slots(("a", "c"), ("b",))
    assert component.special == {"state", "ctx"}


# ---- order and conditions


def test_a_branch_not_taken_takes_its_descendants_with_it() -> None:
    components = [("a", ONE), ("b", ONE), ("c", ONE), ("d", ONE), ("z", ONE)]
    links = [
        link("input", "a"),
        link("a", "b", when=lambda v: v == "b"),
        link("a", "c", when=lambda v: v == "c"),
        link("b", "d"),
        link("d", "z"),
        link("c", "z"),
    ]
    for branch, ran in (("b", "abdz"), ("c", "acz")):
        going = Traversal(Graph(components, links, "z"), {"input": "q"})
        made = {"a": branch}
        assert traverse(going, lambda name, _: made.get(name, name)) == ran  # noqa: B023  used here
        assert going.skipped == set("abcdz") - set(ran)


def test_a_link_to_no_slot_makes_its_target_wait_and_switches_it() -> None:
    components = [("z", ONE), ("a", NONE)]
    for on in (True, False):
        links = [link("input", "z"), link("a", "z", to=None, when=fixed(on))]
        going = Traversal(Graph(components, links, "z"), {"input": "q"})
        assert going.ready() == ["a"]
        going.put("a", 1)
        assert going.ready() == (["z"] if on else [])
        if on:
            assert going.inputs("z") == {"x": "q"}


def test_a_condition_that_fails_or_gives_no_bool_names_its_link() -> None:
    def raises(value: Any) -> bool:
        raise KeyError(value)

    def echoes(value: Any) -> Any:
        return value

    for when, text in ((raises, "KeyError: 'q'"), (echoes, "gave 'q'; it must give True")):
        graph = Graph([("z", ONE)], [link("input", "z", when=when)], "z")
        with pytest.raises(InvalidArgumentError, match=f"input -> z.x .*{text}"):
            Traversal(graph, {"input": "q"})


# ---- any graph


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Draw a graph without cycles, declared in any order; each link is on or off for good."""
    size = draw(st.integers(1, 7))
    names = [f"n{k}" for k in range(size)]
    slots = {n: draw(st.sampled_from([NONE, ONE, TWO, Slots((), ("x",))])) for n in names}
    links: list[Link] = []
    for k, target in enumerate(names):
        sources = ["input", *names[:k]]
        wanted = [*slots[target].names, *draw(st.lists(st.none(), max_size=1))]
        for slot in wanted:
            for source in draw(st.lists(st.sampled_from(sources), min_size=1, max_size=3)):
                on = draw(st.booleans())
                links.append(link(source, target, to=slot, when=fixed(on)))
    declared = draw(st.permutations(names))
    links = draw(st.permutations(links))
    with suppress(InvalidArgumentError):
        return Graph([(n, slots[n]) for n in declared], list(links), declared[0])
    return reject()  # the output happened to be out of the input's reach


@given(graphs(), st.data())
def test_what_runs_does_not_depend_on_which_of_the_ready_ones_is_taken(
    graph: Graph, data: st.DataObject
) -> None:
    usual, other = Traversal(graph, {"input": 1}), Traversal(graph, {"input": 1})
    traverse(usual)
    while ready := other.ready():
        chosen = data.draw(st.sampled_from(ready))
        assert graph.slots[chosen].required == tuple(
            slot for slot in graph.slots[chosen].required if slot in other.inputs(chosen)
        )
        other.put(chosen, chosen)
    assert usual.values.keys() == other.values.keys()
    assert usual.skipped == other.skipped
    assert usual.values.keys() | usual.skipped == {*graph.order, "input"}
