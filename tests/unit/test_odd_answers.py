"""Some hundred odd answers, streamed and whole, by the rules of both APIs: one outcome of each."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Agent, RunConfig, tool
from holdfast.agents.runs.rules import run_head
from holdfast.errors import ModelError
from holdfast.models import ChatCompletionsModel, ModelAnswer, ModelRequest, ResponsesModel
from holdfast.models.base import Delta, admitted
from holdfast.models.draft import deltas_of, goes_on
from holdfast.models.openai.response_tools import named
from holdfast.task.data.head import TaskHead
from holdfast.values.messages import Message, ToolCall, assistant, user
from holdfast.workers.function_calling import FunctionCallingAgentWorker
from tests.support.bench import Bench
from tests.support.hostile import Bytes, hostile_server
from tests.support.odd_answers import ANSWERS, given
from tests.support.runs import look

MODELS: dict[str, Any] = {"chat": ChatCompletionsModel, "responses": ResponsesModel}
HEADS = {"steps": TaskHead(agent="a"), "run": run_head("a", RunConfig())}
FIRST = ToolCall(id="first", name="look")
BEFORE = (
    user("q"),
    assistant("", calls=(FIRST,)),
    Message(role="tool", call_id="first", content="seen"),
)


@tool(effect="read")
def ping() -> str:
    """Ping."""
    return "pong"


AGENT = Agent(name="a", tools=[look, ping]).snapshot("m")


async def answered(model: Any, *, streamed: bool) -> ModelAnswer | ModelError:
    """Ask a model as the activity does."""
    request = ModelRequest(model="m", messages=BEFORE, tools=AGENT.tools)
    told: list[Delta] = []
    try:
        made = await (model.stream(request, told.append) if streamed else model.respond(request))
        answer = admitted(made, "m")
    except ModelError as error:
        return error
    if streamed:
        assert answer.refusal or goes_on(told, deltas_of(answer))
    return named(answer, request.tools)


async def outcome(answer: ModelAnswer | ModelError, head: TaskHead) -> dict[str, Any]:
    """Return what a step comes to whose model gives this answer, again if it is asked again."""
    if isinstance(answer, ModelError):
        return {"unusable": str(answer)}

    async def respond(_: ModelRequest) -> ModelAnswer:
        return answer

    bench = Bench(FunctionCallingAgentWorker(), respond, AGENT, head=head, transcript=BEFORE)
    got = await bench.run()
    spent = [entry.answer.usage for entry in bench.journal if entry.answer]
    made: dict[str, Any] = {"usage": spent}
    if got.failure is not None:
        return {**made, "failure": (got.failure.type, got.failure.message)}
    result, given = got.result, bench.journal[-1].answer
    assert result is not None
    assert given is not None
    calls = given.message.calls if isinstance(result.calls, str) else result.calls
    return {
        **made,
        "calls": [(call.name, call.arguments) for call in calls],
        "ids": len({call.id for call in calls}),
        "output": given.text if result.echo else result.output,
        "is_last": result.last,
    }


def is_empty(made: dict[str, Any]) -> bool:
    """Whether a task has ended with nothing."""
    return made.get("is_last") is True and not made["output"].strip()


@pytest.mark.parametrize("api", ANSWERS)
async def test_an_odd_answer_has_one_outcome_streamed_or_whole_by_the_rules_of_both_apis(
    api: str,
) -> None:
    found: dict[str, dict[tuple[bool, str], dict[str, Any]]] = {}
    names = iter(ANSWERS[api])
    asked = ""

    def answer(_: str, body: dict[str, Any]) -> Bytes:
        return given(ANSWERS[api][asked], streamed=body.get("stream") is True)

    async with hostile_server(answer) as server:
        model = MODELS[api]("m", base_url=server.base_url, api_key="sk-of-the-tests-1")
        for asked in names:
            for streamed in (False, True):
                made = await answered(model, streamed=streamed)
                for rules, head in HEADS.items():
                    found.setdefault(asked, {})[streamed, rules] = await outcome(made, head)
        await model.close()
    differ = {
        (name, key): (each[False, "steps"], other)
        for name, each in found.items()
        for key, other in each.items()
        if other != each[False, "steps"] and other.get("failure", ("",))[0] != "ModelRefusalError"
    }
    assert differ == {}
    every = (other for each in found.values() for other in each.values())
    nothing = [name for name, each in found.items() if is_empty(each[False, "steps"])]
    assert nothing == []
    closed = {other["failure"][0] for other in every if "failure" in other}
    assert closed == {"UnfitAnswerError", "ModelRefusalError"}
