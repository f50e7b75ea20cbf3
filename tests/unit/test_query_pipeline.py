"""QueryPipeline and its components, by LlamaIndex's names."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.errors import InvalidArgumentError
from holdfast.llama_index import FunctionTool, HoldfastLLM, PromptTemplate
from holdfast.llama_index.query_pipeline import (
    ArgPackComponent,
    FnComponent,
    InputComponent,
    KwargPackComponent,
    Link,
    PromptComponent,
    QueryPipeline,
    StatefulFnComponent,
    ToolRunnerComponent,
)
from holdfast.testing import ScriptedModel


class Engine:
    """Answers like a query engine."""

    def query(self, text: str) -> str:
        return f"found {text}"


def size(text: str) -> int:
    return len(text)


def loud(text: str) -> str:
    return text.upper()


def first(a: int, b: int) -> int:
    return a


def is_large(x: int) -> bool:
    return x > 5


def test_a_chain_takes_a_prompt_a_model_an_engine_and_a_function(
    capsys: pytest.CaptureFixture[str],
) -> None:
    prompt = PromptComponent(PromptTemplate("Tell {what} of {who}."), {"what": "much"})
    llm = HoldfastLLM(ScriptedModel(lambda request: f"said: {request.messages[-1].text}"))
    pipeline = QueryPipeline(chain=[prompt, llm, Engine(), loud], verbose=True)
    said = "FOUND SAID: TELL MUCH OF ADA."
    assert pipeline.run(who="Ada") == said
    assert "> Running module 1 with input: \nmessages: Tell much of Ada." in capsys.readouterr().out
    assert pipeline.run("Ada") == asyncio.run(pipeline.arun(who="Ada")) == said
    assert QueryPipeline(chain=[pipeline, size]).run("Ada") == len(said)


def plus(x: int) -> int:
    return x + 1


async def twice(x: int) -> int:
    return 2 * x


def test_links_pick_change_and_withhold_what_they_hand_on() -> None:
    modules = {
        "input": InputComponent(),
        "twice": FnComponent(twice),
        "never": FnComponent(plus),
        "list": ArgPackComponent(),
        "dict": KwargPackComponent(str),
    }
    links = [
        Link("input", "twice", src_key="a"),
        Link("input", "never", src_key="a", condition_fn=is_large),
        Link("input", "list", src_key="a"),
        Link("twice", "list"),
        Link("input", "dict", src_key="b", dest_key="b"),
        Link("twice", "dict", dest_key="t", input_fn=plus),
    ]
    pipeline = QueryPipeline(modules=modules, links=links)
    ends = {"list": {"output": [1, 2]}, "dict": {"output": {"b": "7", "t": "3"}}}
    assert pipeline.run(a=1, b=7) == ends
    beside = QueryPipeline(modules={"one": FnComponent(plus), "two": FnComponent(twice)})
    given = {"one": {"x": 1}, "two": {"x": 5}}
    wanted = {"one": {"output": 2}, "two": {"output": 10}}
    assert beside.run_multi(given) == asyncio.run(beside.arun_multi(given)) == wanted


def test_a_component_runs_a_tool_by_its_name() -> None:
    def multiply(a: int, b: int) -> int:
        return a * b

    runner = ToolRunnerComponent([FunctionTool.from_defaults(fn=multiply)])
    made = runner.run_component(tool_name="multiply", tool_input={"a": 2, "b": 3})
    assert made["output"].raw_output == 6
    with pytest.raises(InvalidArgumentError, match="no tool 'x'; the tools are multiply"):
        runner.run_component(tool_name="x", tool_input={})


def chain(*modules: Any) -> QueryPipeline:
    return QueryPipeline(chain=modules)


@pytest.mark.parametrize(
    ("do", "said"),
    [
        (lambda: chain(plus).add("0", plus), "Module 0 already exists"),
        (lambda: chain(plus).add_link("0", "x"), "Module x does not exist"),
        (lambda: chain(plus, plus).add_link("1", "0"), "from 1 to 0 would form a circle"),
        (lambda: chain(5), "5 cannot be a component"),
        (lambda: chain(plus).run(), "Component 0 lacks its input x"),
        (lambda: chain(plus).run(1, 2), "Name the inputs: x"),
        (lambda: QueryPipeline(modules={"a": plus, "b": plus}).run(x=1), "begins with a, b: use"),
        (lambda: chain(plus, first).run(1), "must name its input with dest_key: .*a, b"),
        (lambda: StatefulFnComponent(plus), "must have 'state' as a parameter"),
    ],
)
def test_a_pipeline_that_cannot_run_says_why(do: Callable[[], Any], said: str) -> None:
    with pytest.raises((ValueError, InvalidArgumentError), match=said):
        do()


def test_a_pipeline_whose_conditions_are_not_met_or_that_has_no_such_output_says_so() -> None:
    links = [Link("0", "1", condition_fn=is_large)]
    pipeline = QueryPipeline(modules={"0": plus, "1": plus}, links=links)
    assert pipeline.run(9) == 11
    with pytest.raises(InvalidArgumentError, match="no condition was met"):
        pipeline.run(1)
    wrong = QueryPipeline(modules={"0": plus, "1": plus}, links=[Link("0", "1", src_key="y")])
    with pytest.raises(InvalidArgumentError, match="Component 0 has no output 'y'"):
        wrong.run(1)
