"""Some hundred odd answers, streamed and whole, by the rules of both APIs: one outcome of each."""

import json
from typing import Any

import pytest

from holdfast import Agent, RunConfig, tool
from holdfast.agents.runs.teams import run_head
from holdfast.errors import ModelError, ModelRequestError, ModelUnavailableError
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


async def said_by(sent: Bytes, api: str, *, streamed: bool = True) -> ModelAnswer | ModelError:
    """Ask a model of this API whose server sends this."""
    async with hostile_server(lambda *_: sent) as server:
        model = MODELS[api]("m", base_url=server.base_url, api_key="sk-of-the-tests-1")
        made = await answered(model, streamed=streamed)
        await model.close()
    return made


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


END = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'
DONE = b'data: {"choices": [{"delta": {"content": "done"}}]}\n\n' + END
LATE = b'data: {"choices": [{"delta": {"content": " twice"}}]}\n\n'
STREAM = "text/event-stream"
WHOLE = b'{"choices": [{"message": {"content": "done"}}]}'
SENT: dict[str, tuple[Bytes, str]] = {
    "a mark of the order of bytes": (Bytes(b"\xef\xbb\xbf" + DONE, STREAM), "done"),
    "a mark before JSON": (Bytes(b"\xef\xbb\xbf" + WHOLE), "done"),
    "lines that end in returns": (Bytes(DONE.replace(b"\n", b"\r"), STREAM), "done"),
    "what follows the last word": (Bytes(DONE + b"data: [DONE]\n\n" + LATE, STREAM), "done"),
    "data without a word": (Bytes(b": hi\n\ndata:\n\n" + DONE, STREAM), "done"),
    "a stream of another type": (Bytes(DONE, "text/plain"), "done"),
    "JSON of another type": (Bytes(WHOLE, STREAM), "done"),
    "another number of the choice": (
        Bytes(DONE.replace(b'{"delta"', b'{"index": 1, "delta"'), STREAM),
        "done",
    ),
    "no choice": (Bytes(b'data: {"choices": []}\n\ndata: [DONE]\n\n', STREAM), "asked again"),
    "no stream": (Bytes(b"<html>log in</html>", "text/html"), "asked again"),
    "another encoding": (Bytes(DONE, STREAM, headers={"content-encoding": "gzip"}), "asked again"),
    "a stream that is cut": (Bytes(DONE.removesuffix(END), STREAM), "later"),
}


@pytest.mark.parametrize(("sent", "expected"), SENT.values(), ids=SENT)
async def test_what_a_server_may_send_of_a_stream(sent: Bytes, expected: str) -> None:
    made = await said_by(sent, "chat")
    match made:
        case ModelAnswer():
            assert made.text == expected
        case ModelUnavailableError():
            assert expected == ("later" if made.usage is None else "asked again")
        case _:
            raise made


ERRORS: list[tuple[Any, str]] = [
    ({"message": "m", "code": "insufficient_quota"}, "person"),
    ({"message": "m", "type": "authentication_error"}, "person"),
    ({"message": "m", "code": 401}, "person"),
    ({"message": "m", "code": "rate_limit_exceeded"}, "limit"),
    ({"message": "m", "code": 529}, "limit"),
    ({"message": "m", "type": "server_error"}, "later"),
    ("m", "later"),
]


@pytest.mark.parametrize(("error", "expected"), ERRORS)
@pytest.mark.parametrize("streamed", [False, True])
async def test_an_error_with_a_status_of_success_is_an_error(
    error: Any, expected: str, *, streamed: bool
) -> None:
    body = json.dumps({"error": error}).encode()
    sent = Bytes(b"data: " + body + b"\n\n", STREAM) if streamed else Bytes(body)
    made = await said_by(sent, "chat", streamed=streamed)
    assert isinstance(made, ModelRequestError if expected == "person" else ModelUnavailableError)
    assert getattr(made, "is_limit", False) == (expected == "limit")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("api", MODELS)
@pytest.mark.parametrize(
    "body",
    [
        {"detail": "the pump is closed"},
        {"detail": [{"loc": ["body"], "msg": "the pump is closed"}]},
        {"object": "error", "message": "the pump is closed", "type": "BadRequestError"},
        {"success": False, "errors": [{"code": 7, "message": "the pump is closed"}]},
        {"code": 1301, "msg": "the pump is closed"},
        {"object": "error", "message": "the pump is closed", "code": 400},
        "the pump is closed",
    ],
)
async def test_what_a_server_says_in_place_of_an_answer_is_told(
    body: Any, api: str, *, streamed: bool
) -> None:
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    sent = Bytes(b"data: " + data + b"\n\n", STREAM) if streamed else Bytes(data)
    made = await said_by(sent, api, streamed=streamed)
    assert isinstance(made, ModelError)
    assert "the pump is closed" in str(made)


LOOK = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
SHELL = {"type": "shell_call", "call_id": "s", "action": {"commands": ["ls"]}}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "m"}]}


def streaming(events: Any) -> Bytes:
    data = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    return Bytes(data + b"data: [DONE]\n\n", STREAM)


@pytest.mark.parametrize(
    ("told", "whole", "expected"),
    [
        ([SAID, LOOK], None, ["c"]),
        ([LOOK], [], ["c"]),
        ([LOOK], [SAID], ["c"]),
        ([SAID, LOOK], [SAID], ["c"]),
        ([LOOK], [{**LOOK, "id": "another"}], ["c"]),
        ([LOOK, {**LOOK, "call_id": "d"}], [LOOK], ["c", "d"]),
        ([LOOK, SHELL], [LOOK], ["c", "s"]),
        ([], [LOOK], ["c"]),
        ([SAID], [LOOK], ["c"]),
    ],
)
async def test_a_stream_has_the_calls_of_its_events_and_those_of_its_body(
    told: list[Any], whole: list[Any] | None, expected: list[str]
) -> None:
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.done", "output_index": i, "item": item}
        for i, item in enumerate(told)
    ]
    if whole is not None:  # else the server says "[DONE]" alone
        ended = {"output": whole, "status": "completed"}
        events.append({"type": "response.completed", "response": ended})
    made = await said_by(streaming(events), "responses")
    assert isinstance(made, ModelAnswer)
    assert [call.id for call in made.message.calls] == expected
    assert made.text == ("m" if SAID in [*told, *(whole or [])] else "")


@pytest.mark.parametrize("end", ["body", "done"])
@pytest.mark.parametrize(
    ("item", "pieces", "said"),
    [
        ({**LOOK, "arguments": ""}, ["function_call_arguments", '{"a"', ": 1}"], '{"a": 1}'),
        ({**LOOK, "arguments": "{}"}, ["function_call_arguments"], "{}"),
        ({**SAID, "content": []}, ["output_text", "some ", "words"], "some words"),
        (None, ["output_text", "some ", "words"], "some words"),
        ({**SAID, "content": []}, ["refusal", "not ", "that"], "not that"),
    ],
)
async def test_an_item_that_a_stream_has_in_pieces_alone_is_taken(
    item: dict[str, Any] | None, pieces: list[str], said: str, end: str
) -> None:
    kind, *deltas = pieces
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": 1, "item": item}
    ][: item is not None]
    events += [{"type": f"response.{kind}.delta", "output_index": 1, "delta": d} for d in deltas]
    if end == "body":
        events.append({"type": "response.completed", "response": {"status": "completed"}})
    made = await said_by(streaming(events), "responses")
    assert isinstance(made, ModelAnswer)
    assert [made.text, *[call.arguments for call in made.message.calls]] == (
        ["", said] if item and "name" in item else [said]
    )


@pytest.mark.parametrize(
    "change",
    [{"arguments": {}}, {"arguments": None}, {"call_id": None}, {"call_id": ""}, {"id": None}],
)
async def test_an_odd_call_of_the_responses_api_is_taken(change: dict[str, Any]) -> None:
    silent = {"type": "message", "role": "assistant", "content": None}
    body = {"status": "completed", "output": [silent, {**LOOK, "id": "f", **change}]}
    for streamed in (False, True):
        made = await said_by(given(body, streamed=streamed), "responses", streamed=streamed)
        assert isinstance(made, ModelAnswer)
        [call] = made.message.calls
        assert (call.name, call.arguments or "{}", bool(call.id)) == ("look", "{}", True)


async def test_a_failed_stream_says_why_though_its_response_has_no_output() -> None:
    failed = {"status": "failed", "error": {"code": "server_error", "message": "the pump is shut"}}
    event = json.dumps({"type": "response.failed", "response": failed}).encode()
    made = await said_by(Bytes(b"data: " + event + b"\n\n", STREAM), "responses")
    assert isinstance(made, ModelUnavailableError)
    assert "the pump is shut" in str(made)


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
