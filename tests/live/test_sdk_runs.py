"""Runs of programs that were written for the Agents SDK: errors, retries, prompts, nested runs."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from openai import APIConnectionError, AuthenticationError

from holdfast import (
    Agent,
    GuardrailFunctionOutput,
    ModelSettings,
    RunHooks,
    Runner,
    RunState,
    StepFailedError,
    ToolContext,
    Usage,
    output_guardrail,
)
from holdfast.agents_sdk import (
    AgentToolInvocation,
    AgentToolStreamEvent,
    ItemHelpers,
    Model,
    ModelResponse,
    ModelRetryBackoffSettings,
    ModelRetrySettings,
    RetryPolicy,
    RetryPolicyContext,
    Tool,
    TResponseInputItem,
    function_tool,
    retry_policies,
)
from holdfast.errors import ModelRequestError, UserError
from holdfast.models import ModelAnswer, ModelRequest
from holdfast.testing import FakeOpenAI, ScriptedModel
from holdfast.values.messages import ToolCall
from tests.support.rig import Rig, as_embedded

OK = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}


class BookedOutError(ValueError):
    """An error of a program, with a member of its own."""

    def __init__(self, seats: int) -> None:
        self.seats = seats
        super().__init__(f"{seats} seats are left")


class Broken(Model):
    """Raises what it is given, then answers."""

    def __init__(self, *errors: Exception, usage: Usage | None = None) -> None:
        self.errors = list(errors)
        self.usage = usage or Usage()
        self.asked = 0

    async def get_response(self, *_given: Any, **_more: Any) -> ModelResponse:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        return ModelResponse([OK], self.usage, None)

    def stream_response(self, *_given: Any, **_more: Any) -> AsyncIterator[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise NotImplementedError


def lost() -> APIConnectionError:
    request: Any = httpx.Request("POST", "https://example.com")
    return APIConnectionError(message="lost", request=request)


@pytest.fixture(autouse=True)
def _embedded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs on the test's own worker go as on an embedded engine."""
    if {"rig", "run"} & set(request.fixturenames):
        as_embedded(request.getfixturevalue("rig"), monkeypatch)


@pytest.fixture
def run(rig: Rig) -> Any:
    """Run an agent on the test's own worker."""

    async def run(agent: Agent, given: Any = "Go.", **options: Any) -> Any:
        return await Runner.run(agent, given, runner=await rig.serving(agent), **options)

    return run


# ---- errors of the caller's own


class TicketError(OSError):
    """An error with members in C, arguments, and an attribute named like one of ours."""

    def __init__(self, task_id: int) -> None:
        self.task_id = task_id
        super().__init__(2, "no such ticket", "tickets.txt")


async def test_an_error_keeps_its_arguments_and_attributes_and_not_its_frames(run: Any) -> None:
    @output_guardrail
    def tickets(_ctx: Any, _agent: Any, _output: Any) -> GuardrailFunctionOutput:
        raise TicketError(7)

    agent = Agent(name="a", model=ScriptedModel(["x"]), output_guardrails=[tickets])
    with pytest.raises(TicketError) as caught:
        await run(agent)
    error: Any = caught.value
    cause = error.__cause__
    assert (error.errno, error.strerror, error.filename) == (2, "no such ticket", "tickets.txt")
    assert (error.args, error.task_id) == ((2, "no such ticket"), 7)
    assert "no such ticket" in str(error)
    assert "run the step again" in str(error)
    assert cause is not None
    assert cause.__traceback__ is None
    assert isinstance(error, StepFailedError)


@pytest.mark.parametrize("streamed", [False, True])
async def test_what_a_tool_raised_that_ends_its_run_is_the_cause(
    rig: Rig, run: Any, *, streamed: bool
) -> None:
    @function_tool(failure_error_function=None)
    def book(seats: int) -> str:
        raise BookedOutError(seats)

    call = ToolCall(id="c1", name="book", arguments='{"seats": 2}')
    agent = Agent(name="a", model=ScriptedModel([call]), tools=[book])

    async def streamed_run() -> Any:
        return await Runner.run_streamed(agent, "Go.", runner=await rig.serving(agent)).result()

    with pytest.raises(UserError, match="Error running tool book: 2 seats are left") as caught:
        await (streamed_run() if streamed else run(agent))
    cause = caught.value.__cause__
    assert type(cause) is BookedOutError
    assert (cause.seats, cause.__traceback__) == (2, None)


async def test_a_run_whose_own_error_was_caught_goes_on(rig: Rig) -> None:
    model = Broken(RuntimeError("no luck"))
    agent = Agent(name="a", model=model)
    runner = await rig.serving(agent)
    with pytest.raises(RuntimeError, match="no luck") as caught:
        await Runner.run(agent, "Go.", runner=runner)
    assert isinstance(caught.value, StepFailedError)
    assert isinstance(caught.value, ModelRequestError)
    result = await Runner.run(agent, RunState.of(caught.value.task_id), runner=runner)
    assert (result.final_output, model.asked) == ("ok", 2)


# ---- retries


def says_x(context: RetryPolicyContext) -> bool:
    return "x" in str(context.error)


@pytest.mark.parametrize(
    ("errors", "policy", "asked"),
    [([lost(), lost()], retry_policies.network_error(), 3), ([RuntimeError("x")], says_x, 2)],
)
async def test_failed_model_call_is_made_again_as_the_policy_says(
    run: Any, errors: list[Exception], policy: RetryPolicy, asked: int
) -> None:
    model = Broken(*errors)
    backoff = ModelRetryBackoffSettings(initial_delay=0.01, jitter=False)
    retry = ModelRetrySettings(max_retries=2, backoff=backoff, policy=policy)
    agent = Agent(name="a", model=model, model_settings=ModelSettings(retry=retry))
    assert (await run(agent)).final_output == "ok"
    assert model.asked == asked


class OwnModel:  # what Holdfast asks of a model
    """Raises an error of its own."""

    name = "own"

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        raise BookedOutError(0)


@pytest.mark.parametrize("most", [None, 1])
async def test_error_of_a_model_that_was_asked_again_reaches_the_caller(
    run: Any, most: int | None
) -> None:
    backoff = ModelRetryBackoffSettings(initial_delay=0, jitter=False)
    told: list[int] = []

    def again(context: RetryPolicyContext) -> bool:
        told.append(context.max_retries)
        return True

    retry = ModelRetrySettings(max_retries=most, backoff=backoff, policy=again)
    settings = ModelSettings(retry=retry, max_attempts=2)
    with pytest.raises(BookedOutError) as caught:
        await run(Agent(name="a", model=OwnModel(), model_settings=settings))
    error: Any = caught.value
    assert (error.seats, told) == (0, [1])


# ---- agents as tools


class Watching(RunHooks[Any]):
    """Remembers agents that began, and calls of tools."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def on_agent_start(self, _context: Any, agent: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.seen.append(agent.name)

    async def on_tool_start(self, context: Any, _agent: Any, tool: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        assert isinstance(context, ToolContext)
        self.seen.append((tool.name, context.tool_call_id, context.tool_arguments))


def asking(hooks: RunHooks[Any], told: list[AgentToolStreamEvent], seen: list[Any]) -> Tool:
    inner = Agent(name="inner", model=ScriptedModel(["deep"]))

    def extract(result: Any) -> str:
        seen.append(result.agent_tool_invocation)
        return str(result.final_output)

    return inner.as_tool("ask", "Ask.", extract, on_stream=told.append, hooks=hooks)


async def test_nested_run_in_a_task_is_watched_by_the_options_of_its_tool(run: Any) -> None:
    hooks, told, seen = Watching(), list[AgentToolStreamEvent](), list[Any]()
    call = ToolCall(id="c1", name="ask", arguments='{"input": "q"}')
    outer = Agent(
        name="outer", model=ScriptedModel([call, "done"]), tools=[asking(hooks, told, seen)]
    )
    result = await run(outer)
    assert result.final_output == "done"
    assert hooks.seen == ["inner"]
    assert seen == [AgentToolInvocation("ask", "c1", '{"input": "q"}')]
    assert told[0]["event"].type == "agent_updated_stream_event"
    assert {each["agent"].name for each in told} == {"inner"}
    assert {each["tool_call"].call_id for each in told} == {"c1"}
    assert told[-1]["event"].item.type == "message_output_item"


async def test_an_app_that_is_typed_with_the_sdks_names_is_typed_here(run: Any, rig: Rig) -> None:
    agent = Agent(name="a", model=ScriptedModel(["hi", "well"]))
    items: list[TResponseInputItem] = [{"role": "user", "content": "Hello"}]
    result = await Runner.run(agent, items, runner=await rig.serving(agent))
    texts = [
        ItemHelpers.text_message_output(item)
        for item in result.new_items
        if item.type == "message_output_item"
    ]
    items = result.to_input_list()
    items.append({"role": "user", "content": "And?"})
    assert [*texts, (await run(agent, items)).final_output] == ["hi", "well"]


@pytest.mark.parametrize("name", ["gpt-5-mini", "chat:gpt-5-mini"])
async def test_error_of_openais_api_is_of_the_clients_class_and_has_no_key(
    run: Any, api: FakeOpenAI, name: str
) -> None:
    api.fail(401, message="Wrong key sk-of-the-tests-1.", code="invalid_api_key")
    with pytest.raises(AuthenticationError) as caught:
        await run(Agent(name="a", model=name))
    error = caught.value
    assert (error.status_code, error.code) == (401, "invalid_api_key")
    assert isinstance(error, StepFailedError)
    assert "sk-of-the-tests-1" not in f"{error} {error.args} {error.body} {vars(error)}"
