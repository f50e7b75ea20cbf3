"""Choosing tools for a step: the keyword retriever, what retrievers may return, agents with one."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Agent, KeywordToolRetriever, Message, TaskStep, tool
from holdfast.agents.tools.retriever import ask_retriever, words_in
from holdfast.errors import InvalidArgumentError, ModelBehaviorError
from holdfast.models.base import ModelAnswer, ModelRequest
from holdfast.task.data.head import AGENTS_SDK, RunRules, TaskHead
from holdfast.values.messages import ToolCall, assistant, user
from holdfast.values.steps import Task, TaskStepOutput
from holdfast.workers import StepContext
from tests.support.bench import Bench
from tests.support.there import there
from tests.support.workers import Body, Doing, ends


@tool(effect="read")
def search_flights(origin: str, destination: str) -> str:
    """Find flights between two cities."""
    return f"{origin} to {destination}"


@tool
def book_hotel(city: str, nights: int) -> str:
    """Book a hotel room."""
    return f"{city} {nights}"


def convert_currency(amount: float, to: str) -> str:
    """Say what money is worth elsewhere."""
    return f"{amount} {to}"


@tool(effect="read")
def weather(city: str) -> str:
    """Forecast rain and sun."""
    return city


CATALOGUE: tuple[Any, ...] = (search_flights, book_hotel, convert_currency, weather)
NAMES = ["search_flights", "book_hotel", "convert_currency", "weather"]


class Fixed:
    """Returns what it was given, and counts how often it was asked."""

    def __init__(self, *names: str, tools: Sequence[Any] = CATALOGUE) -> None:
        self.tools = tools
        self.names = names
        self.queries: list[str] = []

    async def retrieve(self, query: str) -> Sequence[str]:
        self.queries.append(query)
        await asyncio.sleep(0)
        return self.names


# ---- the keyword retriever


def test_the_tool_whose_words_are_asked_for_comes_first() -> None:
    retriever = KeywordToolRetriever(CATALOGUE, top_k=1)
    assert retriever.retrieve("I need a hotel in Rome") == ["book_hotel"]
    assert retriever.retrieve("Is there a flight?") == ["search_flights"]
    assert retriever.retrieve("how much money is that") == ["convert_currency"]
    assert retriever.retrieve("to what amount") == ["convert_currency"]  # a parameter's name


def test_a_word_that_fewer_tools_have_weighs_more() -> None:
    retriever = KeywordToolRetriever(CATALOGUE, top_k=2)
    assert retriever.retrieve("city rain") == ["weather", "book_hotel"]

    def common_words() -> None:
        """Alpha alpha beta."""

    def a_rare_word() -> None:
        """Gamma delta beta."""

    def others() -> None:
        """Alpha epsilon beta."""

    rare = KeywordToolRetriever([common_words, others, a_rare_word], top_k=1)
    assert rare.retrieve("alpha gamma") == ["a_rare_word"]


@given(st.text(max_size=80))
def test_any_query_gets_top_k_different_tools_and_always_the_same(query: str) -> None:
    retriever = KeywordToolRetriever(CATALOGUE, top_k=3)
    found = retriever.retrieve(query)
    assert len(found) == len(set(found)) == 3
    assert found == KeywordToolRetriever(CATALOGUE, top_k=3).retrieve(query)


@pytest.mark.parametrize(
    ("tools", "top_k", "text"),
    [
        ([], 5, "catalogue is empty"),
        (weather, 5, "Pass a list of tools"),
        (CATALOGUE, "2", "top_k='2'"),
        (CATALOGUE, True, "top_k=True"),
        (CATALOGUE, 0, "would offer no tool"),
    ],
)
def test_a_catalogue_or_number_of_no_use_is_refused(tools: Any, top_k: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        KeywordToolRetriever(tools, top_k)


def test_words_are_found_where_no_spaces_divide_them() -> None:
    @tool(name="send", description="发送邮件")
    def send() -> str:
        return ""

    @tool(name="forecast", description="查询城市的天气预报")
    def forecast() -> str:
        return ""

    retriever = KeywordToolRetriever([send, forecast], top_k=1)
    assert retriever.retrieve("北京今天的天气怎么样") == ["forecast"]
    assert retriever.retrieve("发邮件给他") == ["send"]
    assert words_in("東京でgetWeather") == ["東", "京", "で", "東京", "京で", "get", "weather"]


# ---- agents


def test_a_task_knows_the_whole_catalogue() -> None:
    agent = Agent(name="a", tool_retriever=Fixed())
    snapshot = agent.snapshot("m")
    assert ([spec.name for spec in snapshot.tools], list(snapshot.policies)) == (NAMES, NAMES)
    assert snapshot.policies["weather"].effect == "read"
    assert snapshot.retriever == f"{__name__}.Fixed"
    assert agent.tool("convert_currency") is not None
    assert agent.clone(instructions="x").made_tools[0] is search_flights


# ---- what a retriever returns


async def test_a_name_that_the_catalogue_lacks_is_an_error_that_says_so() -> None:
    with pytest.raises(InvalidArgumentError, match=r"Fixed.retrieve named 'swim'"):
        await ask_retriever(Fixed("weather", "swim"), NAMES, "q")


@pytest.mark.parametrize("returned", ["weather", None, [weather], {"weather": 1}])
async def test_something_else_than_names_is_an_error_that_says_so(returned: Any) -> None:
    class Odd(Fixed):
        async def retrieve(self, query: str) -> Sequence[str]:
            found: Sequence[str] = returned
            return found

    with pytest.raises(InvalidArgumentError, match="must return a list of tool names"):
        await ask_retriever(Odd(), NAMES, "q")


# ---- a step


class Chosen(Bench):
    """A step of an agent with a retriever."""

    def __init__(self, body: Body, retriever: Fixed, said: Message | None = None) -> None:
        async def answers(_: ModelRequest) -> ModelAnswer:
            return ModelAnswer(message=said or assistant("hi"))

        async def retrieve(query: str) -> Sequence[str]:
            return await ask_retriever(retriever, NAMES, query)

        async def ask_task() -> Task:
            return Task(task_id="t", input="the task")

        self.retriever = retriever
        agent = Agent(name="a", tool_retriever=retriever).snapshot("m")
        super().__init__(Doing(body), answers, agent, ask_task=ask_task, retrieve=retrieve)


def offered(request: ModelRequest) -> list[str]:
    return [spec.name for spec in request.tools]


async def asks(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    answer = await ctx.call_model()
    ctx.add(answer.message)
    return TaskStepOutput(output=answer.text, calls=answer.message.calls, task_step=step)


async def test_a_step_that_is_run_again_offers_the_same_tools_without_asking() -> None:
    async def twice(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        await asyncio.gather(ctx.offered_tools(), ctx.offered_tools())
        one, two = await asyncio.gather(ctx.call_model(), ctx.call_model([user("x")]))
        names = [spec.name for spec in await ctx.offered_tools()]
        return ends(step, [one.text, two.text, *names])

    bench = Chosen(twice, Fixed("weather"))
    assert (await bench.advance()).result is None
    bench.retriever.names = ("book_hotel",)
    assert there((await bench.advance()).result).output == ["hi", "hi", "weather"]
    assert [offered(request) for request in bench.paid] == [["weather"], ["weather"]]
    assert bench.retriever.queries == ["the task"]


async def test_a_tool_that_is_not_on_offer_is_not_run_and_the_model_is_told() -> None:
    calls = (ToolCall(id="1", name="weather"), ToolCall(id="2", name="book_hotel"))
    bench = Chosen(asks, Fixed("weather"), assistant("", calls=calls))
    got = await bench.advance()
    [(i, told)] = got.told.items()
    assert (i, told.is_error, told.attempts) == (1, True, 0)
    assert "'book_hotel' is not on offer" in str(told.content)
    assert "weather" in str(told.content)


async def test_by_the_agents_sdks_verdict_it_ends_the_run_and_the_answer_is_kept() -> None:
    said = assistant("", calls=(ToolCall(id="1", name="book_hotel"),))
    bench = Chosen(asks, Fixed("weather"), said)
    rules = RunRules(tool_not_found="raise_error")
    got = await bench.advance(head=TaskHead(agent="a", dialect=AGENTS_SDK, run=rules))
    failure = there(got.failure)
    assert failure.type == ModelBehaviorError.__name__
    assert failure.message == "Tool book_hotel not found in agent a"
    assert got.answer


async def test_the_last_call_of_a_budget_is_seen_behind_the_record_of_the_offer() -> None:
    limits: list[bool] = []

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        limits.append(ctx.limit_reached)
        await ctx.call_model()
        return ends(step)

    bench = Chosen(body, Fixed("weather"))
    await bench.advance(limit="finish")
    await bench.advance()
    assert limits == [True, True]
