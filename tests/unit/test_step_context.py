"""A step against its journal: paid answers are kept, interruptions end it, budgets hold."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Agent, KeywordToolRetriever, TaskStep, tool
from holdfast.agents.tools.retriever import ask_retriever, words_in
from holdfast.errors import InvalidArgumentError, ModelBehaviorError, StepCodeChangedError
from holdfast.models.base import ModelAnswer, ModelRequest, ToolSpec
from holdfast.task.data.head import AGENTS_SDK, RunRules, TaskHead
from holdfast.task.data.records import JournalEntry, OpenStep
from holdfast.testing import ScriptedModel
from holdfast.values.messages import Message, ToolCall, assistant, system, user
from holdfast.values.steps import Task, TaskStepOutput
from holdfast.workers import AgentWorker, FunctionCallingAgentWorker, StepContext, driver
from holdfast.workers.context.journal import LAST_CALL
from tests.support.bench import Bench
from tests.support.runs import look
from tests.support.there import there
from tests.support.workers import Body, Doing, ends

CALL = ToolCall(id="c1", name="look")


async def quick(request: ModelRequest) -> Message:
    return assistant(f"re {request.messages[-1].text}" if request.messages else "hi")


async def slow(request: ModelRequest) -> Message:
    await asyncio.sleep(0.05)
    return await quick(request)


def bench(body: Body, answers: Callable[[ModelRequest], Awaitable[Message]] = quick) -> Bench:
    async def answer(request: ModelRequest) -> ModelAnswer:
        return ModelAnswer(message=await answers(request))

    return Bench(Doing(body), answer)


# ---- answers that are paid for


@pytest.mark.parametrize(
    "output",
    [
        ends(TaskStep(), {"score": float("nan")}),
        ends(TaskStep(), object()),
        TaskStepOutput(next_steps=(TaskStep(step_state={"score": float("inf")}),)),
        TaskStepOutput(next_steps=(TaskStep(step_state={"what": object()}),)),
    ],
)
async def test_an_output_that_cannot_be_recorded_keeps_the_answer(output: TaskStepOutput) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        await ctx.call_model()
        return output

    advanced = await bench(body).advance()
    assert advanced.answer
    assert advanced.request
    assert there(advanced.failure).type == "InvalidArgumentError"
    assert advanced.result is None


async def test_a_failing_sibling_waits_for_the_answer_in_flight() -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        async def bad() -> None:
            raise ValueError("bug")

        await asyncio.gather(ctx.call_model(), bad())
        return ends(step)

    work = bench(body, slow)
    advanced = await work.advance()
    assert advanced.answer
    assert there(advanced.failure).message == "bug"
    with pytest.raises(ValueError, match="bug"):
        await work.advance()
    assert len(work.paid) == 1


async def test_two_calls_at_once_are_answered_one_after_the_other() -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        one, two = await asyncio.gather(
            ctx.call_model([user("one")]), ctx.call_model([user("two")])
        )
        return ends(step, one.text + two.text)

    work = bench(body, slow)
    assert (await work.advance()).result is None
    result = there((await work.advance()).result)
    assert (result.output, len(work.paid)) == ("re onere two", 2)


async def test_an_answer_that_did_not_reach_the_task_is_not_paid_again() -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        return ends(step, (await ctx.call_model([user("q")])).text)

    kept: list[JournalEntry] = []
    work = bench(body)
    await work.advance(keep=kept.append)
    work.journal.clear()
    answer = there((await work.advance(unrecorded=kept[0])).answer)
    assert (answer.text, len(work.paid)) == ("re q", 1)


# ---- interruptions


async def test_a_finally_that_never_ends_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(driver, "STOP_SECONDS", 0.05)
    released = asyncio.Event()

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        try:
            await ctx.call_tools([CALL])
        finally:
            await released.wait()
        return ends(step)

    async with asyncio.timeout(100):
        advanced = await bench(body).advance()
    assert advanced.calls == (CALL,)
    assert "did not stop" in caplog.text
    released.set()
    await asyncio.sleep(0)


async def test_after_a_timeout_of_its_own_a_worker_may_call_again() -> None:
    waits = [10.0, 0.0]

    async def answers(request: ModelRequest) -> Message:
        await asyncio.sleep(waits.pop(0))
        return await quick(request)

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        try:
            async with asyncio.timeout(0.02):
                answer = await ctx.call_model([user("q")])
        except TimeoutError:
            answer = await ctx.call_model([user("q")])
        return ends(step, answer.text)

    advanced = await bench(body, answers).advance()
    assert advanced.answer
    assert there(advanced.result).echo


# ---- the last call of a budget


async def insatiable(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    """Call the model and tools without end."""
    while True:
        ctx.add((await ctx.call_model()).message)
        await ctx.call_tools([CALL])


async def asks_twice(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    one = await ctx.call_model([user("one")])
    two = await ctx.call_model([user("two")])
    return TaskStepOutput(output=one.text + two.text, next_steps=(step.get_next_step(),))


async def test_a_worker_that_wants_more_after_the_last_call_ends_with_its_answer() -> None:
    work = bench(insatiable)
    result = there((await work.advance(limit="finish")).result)
    assert (result.echo, result.last, result.next, result.calls) == (True, True, (), ())
    assert ([m.role for m in work.paid[0].messages], len(work.paid)) == (["system"], 1)


async def test_the_last_call_is_made_in_the_middle_of_a_step() -> None:
    work = bench(asks_twice)
    assert (await work.advance()).answer
    assert (await work.advance(limit="stop")).limit
    result = there((await work.advance(limit="finish")).result)
    assert (result.last, result.output) == (True, "re onere " + LAST_CALL.text)
    assert work.paid[1].tool_choice == "none"
    assert work.paid[1].messages == (user("two"), LAST_CALL)


# ---- echoes


@pytest.mark.parametrize(("output", "echo"), [("hi", True), ("other", False), ({"a": 1}, False)])
async def test_only_the_answers_own_text_is_an_echo(output: Any, echo: bool) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        await ctx.call_model([])
        return ends(step, output)

    assert there((await bench(body).advance()).result).echo is echo


# ---- what a worker gives that cannot be used


async def test_dicts_are_messages_and_tool_choices_of_a_model_call() -> None:
    tools = (ToolSpec(name="look", description="", parameters={}),)

    async def plain(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        await ctx.call_model([system("Be short."), user("hello")], tools, "look")
        return ends(step)

    async def dicts(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        note = {"role": "system", "content": "Be short."}
        choice = {"type": "function", "function": {"name": "look"}}
        await ctx.call_model([note, {"role": "user", "content": "hello"}], tools, choice)
        return ends(step)

    of_messages, of_dicts = bench(plain), bench(dicts)
    await of_messages.advance()
    await of_dicts.advance()
    assert (of_dicts.paid, of_dicts.paid[0].tool_choice) == (of_messages.paid, "look")


USES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda ctx: ctx.add("hello"), r"ctx.add takes a Message; it got 'hello' \(str\)"),
    (lambda ctx: ctx.call_model("hello"), r"takes a list of Messages; it got 'hello' \(str\)"),
    (lambda ctx: ctx.call_model(user("hello")), r"list of Messages; it got Message\("),
    (lambda ctx: ctx.call_model(["hello"]), r"it got a list with 'hello' \(str\)"),
    (lambda ctx: ctx.call_model([{"role": "nobody"}]), r"nobody"),
    (lambda ctx: ctx.call_model({"role": "user"}), r"takes a list of Messages; it got \{"),
    (lambda ctx: ctx.call_model(tool_choice={"name": "look"}), r"tool_choice is \"auto\", "),
    (lambda ctx: ctx.call_tools(CALL), r"list of ToolCalls; it got ToolCall\("),
    (lambda ctx: ctx.call_tools(["look"]), r"it got a list with 'look' \(str\)"),
]


@pytest.mark.parametrize(("use", "text"), USES)
async def test_what_is_no_message_or_call_is_refused(use: Callable[[Any], Any], text: str) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        made = use(ctx)
        if made is not None:
            await made
        return ends(step)

    with pytest.raises(InvalidArgumentError, match=text):
        await bench(body).advance()


# ---- FunctionCallingAgentWorker and the driver, without a server


@tool(return_direct=True)
def direct() -> str:
    """Answer directly."""
    return "direct"


def bench_of_calls(worker: AgentWorker, model: ScriptedModel, *tools: Any, **given: Any) -> Bench:
    agent = Agent(name="a", model=model, tools=tools).snapshot("m")
    opened = OpenStep(step=TaskStep(step_id="s1", input="q"))
    return Bench(worker, model.respond, agent, opened, **given)


def call(name: str = "look", **arguments: Any) -> ToolCall:
    import json

    return ToolCall(id="", name=name, arguments=json.dumps(arguments))


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("limit", ["", "finish"])
async def test_an_answer_that_a_worker_makes_anew_is_said_once_whatever_its_ids(
    limit: str, again: bool
) -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        answer = await ctx.call_model()
        ctx.add(assistant(answer.text, calls=answer.message.calls))
        return ends(step) if not (again and limit) else await body(step, ctx)

    calls = (call(),) if limit else ()
    said = assistant("hello", calls=calls).model_copy(update={"item_ids": ("msg_1",)})
    model = ScriptedModel([ModelAnswer(message=said)])
    got = await bench_of_calls(Doing(body), model, limit=limit).run()
    adds = there(got.result).adds
    answers = [add for add in adds if add == "j0" or as_role(add) == "assistant"]
    assert answers == ([assistant("hello")] if limit else ["j0"])


def as_role(added: Message | str) -> str:
    return added.role if isinstance(added, Message) else ""


async def test_calls_end_the_step_and_are_named_not_repeated() -> None:
    model = ScriptedModel([(call(), call())])
    result = there((await bench_of_calls(FunctionCallingAgentWorker(), model, look).run()).result)
    assert (result.last, result.calls, len(result.next)) == (False, "j0", 1)


async def test_refused_calls_get_a_result_in_the_next_step() -> None:
    worker = FunctionCallingAgentWorker(max_function_calls=1)
    got = await bench_of_calls(worker, ScriptedModel([(call(), call())]), look).run()
    result, model = there(got.result), ScriptedModel(["enough"])
    assert [c.id for c in result.calls if not isinstance(c, str)] == ["call_1"]
    [following] = result.next
    last = await bench_of_calls(worker, model, look, n=2).advance(OpenStep(step=following))
    assert there(last.result).last
    refused = model.requests[0].messages[-1]
    assert (refused.role, refused.call_id, refused.is_error) == ("tool", "call_2", True)
    assert model.requests[0].tool_choice == "none"


async def test_a_forbidden_model_call_is_reported_and_not_made() -> None:
    model = ScriptedModel(["never"])
    got = await bench_of_calls(FunctionCallingAgentWorker(), model, limit="stop").advance()
    assert (got.limit, model.calls) == (True, 0)


async def test_a_direct_result_is_the_answer() -> None:
    model = ScriptedModel([call("direct")])
    got = await bench_of_calls(FunctionCallingAgentWorker(), model, direct).run()
    result = there(got.result)
    assert (result.output, result.last) == ("result of direct", True)
    assert result.adds == ("input", "j0", "j1.0", assistant("result of direct"))


@pytest.mark.parametrize("change", ["messages", "tools", "choice", "kind"])
async def test_a_changed_request_in_mid_step_is_noticed(change: str) -> None:
    changed = False

    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        if changed and change == "kind":
            await ctx.call_tools([ToolCall(id="1", name="look")])
        text = "new" if changed and change == "messages" else "old"
        tools = () if changed and change == "tools" else None
        choice = "required" if changed and change == "choice" else None
        await ctx.call_model([user(text)], tools=tools, tool_choice=choice)
        await ctx.call_model([user("second")])
        return ends(step)

    work = bench_of_calls(Doing(body), ScriptedModel(["a", "b"]), look)
    await work.advance()
    changed = True
    with pytest.raises(StepCodeChangedError, match="mid-step"):
        await work.advance()
    changed = False
    assert (await work.run()).result


async def test_the_state_that_a_step_changes_comes_back_as_a_patch() -> None:
    async def body(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        ctx.state["list"].append(3)
        ctx.state["new"] = True
        return ends(step)

    opened = OpenStep(step=TaskStep(step_id="s1"), state={"list": [1, 2]})
    got = await bench_of_calls(Doing(body), ScriptedModel([])).advance(opened)
    patch = there(got.result).patch
    assert patch == {"set": {"new": True}, "splice": {"list": [2, 0, [3]]}}
    assert opened.state == {"list": [1, 2]}


# ---- choosing tools for a step: the keyword retriever, what retrievers may return, agents with one


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
