"""Odd answers of models, each whole and as a stream: what some server has sent, or may send."""

import json
from collections.abc import Iterator
from typing import Any

from tests.support.hostile import Bytes, chat, message, responses

Body = dict[str, Any]

NAMES: list[Any] = [
    None,
    "functions.look",
    " look ",
    "look\n",
    "Look",
    "lok",
    "",
    "functions.ping",
    " ping ",
    "pay",
]
ARGUMENTS: list[Any] = [
    "{}", "", " ", "null", "[]", "{", '"a"', '{"where": "a"}', {"where": "a"}, {}, [], None, 5,
    '{"where": 5}', '{"where": null}', '{"when": 1}', "```json\n{}\n```", '{"where": "a"}{}',
]  # fmt: skip
CONTENTS: list[Any] = [None, "", " ", "\n\n", [], [{"type": "text", "text": "done"}], {"a": 1}, 5]
FINISHES: list[Any] = [
    "stop", None, "", "tool_calls", "function_call", "length", "content_filter", "odd", 5, [],
]  # fmt: skip
USAGES: list[Any] = [
    None, [], "much", {"prompt_tokens": 2.5, "input_tokens": 2.5},
    {"prompt_tokens": "7", "input_tokens": "7"}, {"prompt_tokens": -1, "input_tokens": -1},
]  # fmt: skip
SAID: list[Body] = [
    {"refusal": {}}, {"refusal": 5, "content": "done"}, {"annotations": "odd", "content": "done"},
    {"reasoning_content": {"a": 1}}, {"reasoning_content": ["hm"], "content": "done"},
    {"tool_calls": {}}, {"tool_calls": [{"id": "c"}]}, {"tool_calls": [{"id": 5, "function": 7}]},
    {"function_call": "look", "content": "done"}, {"audio": {"transcript": "done"}},
]  # fmt: skip
THOUGHT: Body = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "e"}


def call(name: Any = "look", arguments: Any = '{"where": "a"}', id: Any = "c") -> Body:
    """Make a call of the Chat Completions API."""
    function = {"name": name, "arguments": arguments}
    return {"id": id, "type": "function", "function": function}


def chat_answers() -> dict[str, Body]:
    """Make the answers of the Chat Completions API, each with a name."""
    made: dict[str, Body] = {}

    def add(name: str, said: Body, finish: Any = "stop", **more: Any) -> None:
        usage = {"prompt_tokens": 30, "completion_tokens": 5}
        made[name] = chat({"content": None, **said}, finish, **{"usage": usage, **more})

    for finish in FINISHES:
        for content in (None, "", "done"):
            add(f"text {content!r}, {finish}", {"content": content}, finish)
        add(f"a call, {finish}", {"tool_calls": [call()]}, finish)
        add(f"no calls, {finish}", {"tool_calls": []}, finish)
        add(f"reasoning, {finish}", {"content": "", "reasoning_content": "hm"}, finish)
    for content in CONTENTS:
        add(f"content {content!r}", {"content": content})
        add(f"content {content!r} and a call", {"content": content, "tool_calls": [call()]})
    for name in NAMES:
        add(f"name {name!r}", {"tool_calls": [call(name, "{}")]}, "tool_calls")
    for given in ARGUMENTS:
        add(f"look({given!r})", {"tool_calls": [call("look", given)]}, "tool_calls")
        add(f"ping({given!r})", {"tool_calls": [call("ping", given)]}, "tool_calls")
    for used in USAGES:
        add(f"usage {used!r}", {"content": "done"}, usage=used)
        add(f"usage {used!r} of a call", {"tool_calls": [call()]}, "tool_calls", usage=used)
    two = [call("look", '{"where": "a"}', "1"), call("look", '{"where": "b"}', "2")]
    for id_ in ("1", None, ""):
        same = [{**each, "id": id_} for each in two]
        add(f"two calls of id {id_!r}", {"tool_calls": same}, "tool_calls")
        add(f"one call twice, id {id_!r}", {"tool_calls": [same[0]] * 2}, "tool_calls")
    add("the id of the call before", {"tool_calls": [call(id="first")]}, "tool_calls")
    add("two calls of which one is unknown", {"tool_calls": [two[0], call("lok", id="3")]})
    add("refusal", {"refusal": "no"})
    add("refusal and text", {"refusal": "no", "content": "done"})
    add("refusal and a call", {"refusal": "no", "tool_calls": [call()]})
    add("old call", {"function_call": call()["function"]}, "function_call")
    add("old call, stop", {"function_call": call()["function"]})
    both = {"function_call": call()["function"], "tool_calls": [call()]}
    add("old call beside the same", both, "tool_calls")
    add("old call beside another", {**both, "tool_calls": [call("ping", "{}")]}, "tool_calls")
    add("old call without a name", {"function_call": {"arguments": "{}"}}, "function_call")
    add("thinking blocks", {"thinking_blocks": [{"type": "thinking", "thinking": "hm"}]})
    add("reasoning of another name", {"reasoning": "hm"})
    add("null calls", {"tool_calls": None}, "tool_calls")
    for said in SAID:
        add(str(said), said)
    add("a think block", {"content": "<think>hm</think>done"})
    return made


def response_answers() -> dict[str, Body]:
    """Make the answers of the Responses API, each with a name."""
    made: dict[str, Body] = {}

    def add(name: str, *items: Body, **more: Any) -> None:
        usage = {"input_tokens": 30, "output_tokens": 5}
        made[name] = responses(*items, **{"usage": usage, **more})

    def asked(name: Any = "look", arguments: Any = '{"where": "a"}', id_: Any = "c") -> Body:
        call = {"type": "function_call", "id": "f", "call_id": id_, "name": name}
        return {**call, "arguments": arguments, "status": "completed"}

    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    filtered = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    for name, status in (("", {}), (", cut", cut), (", filtered", filtered)):
        add(f"nothing{name}", **status)
        add(f"empty text{name}", message(""), **status)
        add(f"blank text{name}", message(" "), **status)
        add(f"text{name}", message("done"), **status)
        add(f"reasoning{name}", THOUGHT, **status)
        add(f"reasoning and empty text{name}", THOUGHT, message(""), **status)
        add(f"a call{name}", asked(), **status)
        add(f"reasoning and a call{name}", THOUGHT, asked(), **status)
    for called in NAMES:
        add(f"name {called!r}", asked(called, "{}"))
    for given in ARGUMENTS:
        add(f"look({given!r})", asked("look", given))
        add(f"ping({given!r})", asked("ping", given))
    for used in USAGES:
        add(f"usage {used!r}", message("done"), usage=used)
    for id_ in ("1", None, ""):
        add(f"two calls of id {id_!r}", asked(id_=id_), asked("look", '{"where": "b"}', id_))
        add(f"one call twice, id {id_!r}", asked(id_=id_), asked(id_=id_))
    add("the id of the call before", asked(id_="first"))
    add("text and a call", message("wait"), asked())
    add("a call and text", asked(), message("wait"))
    add("two texts", message("one"), message("done"))
    add("a text before reasoning", message("done"), THOUGHT)
    refusal = [{"type": "refusal", "refusal": "no"}]
    add("refusal", {**message(""), "content": refusal})
    add("no parts", {**message(""), "content": []})
    for kind in ("odd", "odd_call", "web_search_call", "item_reference", "function_call_output"):
        add(f"an item {kind}", {"type": kind, "id": "x", "call_id": "y", "output": ""})
        add(f"an item {kind} and no text", {"type": kind, "id": "x", "call_id": "y"}, message(" "))
    add("reasoning of another shape", {**THOUGHT, "summary": ["hm"]}, message("done"))
    return made


def given(body: Body, *, streamed: bool) -> Bytes:
    """Write an answer as a server sends it."""
    if not streamed:
        return Bytes(json.dumps(body).encode())
    told = _chunks(body) if "choices" in body else _events(body)
    data = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in told)
    return Bytes(data + b"data: [DONE]\n\n", "text/event-stream")


def _chunks(body: Body) -> Iterator[Body]:
    [choice] = body["choices"]
    said = dict(choice["message"])
    calls = said.pop("tool_calls", None)
    deltas: list[Body] = [said]
    if calls is not None:
        deltas += [{"tool_calls": [{"index": i, **each}]} for i, each in enumerate(calls)]
        deltas += [{"tool_calls": calls}] if not calls else []
    usage = body.get("usage")
    head = {key: body[key] for key in ("id", "model")}
    for delta in deltas:
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    yield {**head, "choices": [], "usage": usage}


def _events(body: Body) -> Iterator[Body]:
    for place, item in enumerate(body["output"]):
        at = {"output_index": place}
        yield {"type": "response.output_item.added", **at, "item": item}
        for part in item.get("content") or ():
            kind = "refusal" if "refusal" in part else "output_text"
            said = part.get("refusal", part.get("text"))
            yield {"type": f"response.{kind}.delta", **at, "delta": said}
        if "arguments" in item:
            told = {"delta": item["arguments"]}
            yield {"type": "response.function_call_arguments.delta", **at, **told}
        yield {"type": "response.output_item.done", "output_index": place, "item": item}
    yield {"type": f"response.{body['status']}", "response": {**body, "output": []}}


ANSWERS = {"chat": chat_answers(), "responses": response_answers()}
"""The answers by their API and name."""
