"""Answers of a model, and what a fuzzer makes of them: seeded, so that each can be made again."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from holdfast.values.checks.gate import is_array, is_object
from tests.support.hostile import Bytes, chat, events, message, responses

Body = dict[str, Any]

WORDS = [
    "function_call", "message", "reasoning", "computer_call", "output_text", "completed", "failed",
    "incomplete", "in_progress", "tool_calls", "stop", "length", "content_filter", "assistant",
    "user", "tool",
]  # fmt: skip
ARGUMENTS = [
    "{}", "{", "[]", "null", "NaN", '{"where": 1e999}', '{"where": "\\ud800"}', "[" * 50_000,
    '{"where": ' + "9" * 5_000 + "}",
]  # fmt: skip


def _nested(levels: int, *, objects: bool) -> Any:
    data: Any = 1
    for _ in range(levels):
        data = {"a": data} if objects else [data]
    return data


def odd_values(rng: random.Random) -> Any:
    """Make a value that stands in the place of another."""
    depths = [2, 60, 65, 130, 198, 199, 200, 201, 230, 254, 256, 900]
    plain: list[Any] = [
        None, True, "", " ", 0, -1, 1.5, float("nan"), float("inf"), float("-inf"), -0.0,
        "\ud800", "a\udfffb", "\x00\x1b]0;x\x07\u202e",
    ]  # fmt: skip
    makers: list[Callable[[], Any]] = [
        *(partial(copy.copy, each) for each in plain),
        list,
        dict,
        lambda: 10 ** rng.choice([15, 19, 30, 400, 4000]),
        lambda: {"\ud800": 1},
        lambda: {"": 1, "\x00": 2},
        lambda: "x" * rng.choice([100, 20_000, 300_000]),
        lambda: "é😀" * rng.choice([10, 5_000]),
        lambda: _nested(rng.choice(depths), objects=rng.random() < 0.5),
        lambda: [1] * rng.choice([3, 5_000]),
        lambda: {str(k): k for k in range(rng.choice([3, 2_000]))},
        lambda: rng.choice(WORDS),
        lambda: rng.choice(["look", "pay", "unknown", "transfer_to_x", "l" * 300]),
        lambda: rng.choice(ARGUMENTS),
    ]
    return rng.choice(makers)()


def _call(rng: random.Random, name: str = "look") -> Body:
    number = rng.choice(["c1", "c1", "c2", f"c{rng.randrange(10**6)}"])
    arguments = json.dumps({"where": rng.choice(["here", "there"])})
    if name == "pay":
        arguments = json.dumps({"amount": rng.randrange(100)})
    return {
        "type": "function_call",
        "id": "f",
        "call_id": number,
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


def _usage() -> Body:
    return {
        "input_tokens": 5,
        "output_tokens": 7,
        "total_tokens": 12,
        "input_tokens_details": {"cached_tokens": 1},
        "output_tokens_details": {"reasoning_tokens": 2},
    }


def _of_responses(rng: random.Random) -> Body:
    """Make an answer of the Responses API as an honest server does."""
    reasoning = {
        "type": "reasoning",
        "id": "rs",
        "encrypted_content": "abc",
        "summary": [{"type": "summary_text", "text": "thinking"}],
    }
    said = message("done")
    cited = {"type": "url_citation", "url": "https://a.b", "title": "t"}
    said["content"][0]["annotations"] = [{**cited, "start_index": 0, "end_index": 2}]
    logged = message("done")
    other = {"token": "x", "logprob": -2.0, "bytes": [120]}
    told = {"token": "done", "logprob": -0.1, "bytes": [100], "top_logprobs": [other]}
    logged["content"][0]["logprobs"] = [told]
    search = {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"q": "x"}}
    refusal = {"type": "refusal", "refusal": "no"}
    output = rng.choice(
        [
            [message("done")],
            [reasoning, said],
            [logged],
            [search, said],
            [_call(rng)],
            [reasoning, _call(rng), _call(rng)],
            [message("wait"), _call(rng), _call(rng, "pay")],
            [_call(rng, "unknown")],
            [],
            [_call(rng) for _ in range(rng.choice([3, 30]))],
            [{"type": "message", "id": "m", "role": "assistant", "content": [refusal]}],
        ]
    )
    changes = rng.choice(
        [
            {},
            {},
            {},
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            {"status": "failed", "error": {"code": "server_error", "message": "x"}},
        ]
    )
    return responses(*copy.deepcopy(output), usage=_usage(), **changes)


def _of_chat(rng: random.Random) -> Body:
    """Make an answer of Chat Completions as an honest server does."""

    def call(name: str = "look") -> Body:
        made = _call(rng, name)
        return {
            "id": made["call_id"],
            "type": "function",
            "function": {"name": name, "arguments": made["arguments"]},
            "extra_content": {"google": {"thought_signature": "abc"}},
        }

    honest: list[tuple[Body, str]] = [
        ({"content": "done"}, "stop"),
        ({"content": None, "refusal": "no"}, "stop"),
        ({"content": "done", "reasoning_content": "thinking"}, "stop"),
        ({"content": [{"type": "text", "text": "done"}]}, "stop"),
        ({"content": None, "tool_calls": [call()]}, "tool_calls"),
        (
            {"content": "", "tool_calls": [call(), call("pay")], "reasoning_content": "x"},
            "tool_calls",
        ),
        ({"content": None, "tool_calls": [call() for _ in range(rng.choice([2, 30]))]}, "stop"),
        ({"content": None, "tool_calls": [call("unknown")]}, "tool_calls"),
        ({"content": ""}, "length"),
        ({"content": ""}, "content_filter"),
    ]
    said, finish = rng.choice(honest)
    usage = {
        "prompt_tokens": 5,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 1},
    }
    body = chat(said, finish, usage=usage)
    if rng.random() < 0.2:
        body["choices"][0]["logprobs"] = {"content": [{"token": "d", "logprob": -1.0}]}
    return body


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in JSON data: what it stands in, and its key or index there."""
    waiting: list[Any] = [data]
    while waiting:
        node = waiting.pop()
        keys: Any = list(node) if is_object(node) else range(len(node))
        for key in keys:
            yield node, key
            if isinstance(node[key], dict | list):
                waiting.append(node[key])


def _change(rng: random.Random, body: Body) -> None:
    """Change one place of a body."""
    node, key = rng.choice(list(_places(body)))
    kind = rng.randrange(10)
    if kind < 6:
        node[key] = odd_values(rng)
    elif kind == 6:
        del node[key]
    elif kind == 7 and is_array(node):
        node.insert(key, copy.deepcopy(node[key]))
    elif kind == 8 and is_array(node):
        rng.shuffle(node)
    elif is_object(node):
        node[rng.choice(["type", "id", "call_id", "odd", "\ud800", "error", "code"])] = odd_values(
            rng
        )


def _written(rng: random.Random, body: Body, *, streamed: bool) -> bytes:
    if not streamed:
        return json.dumps(body).encode()
    try:
        told = events(body) if rng.random() < 0.8 else events(_told_in_pieces(body))
    except (KeyError, TypeError, ValueError, AttributeError):  # it is no answer any more
        told = b"data: " + json.dumps(body).encode() + b"\n\n"
    lines = told.split(b"\n\n")
    kind = rng.randrange(8)
    if kind == 0:
        rng.shuffle(lines)
    elif kind == 1:
        lines.append(rng.choice(lines))
    elif kind == 2 and len(lines) > 1:
        lines.pop(rng.randrange(len(lines)))
    elif kind == 3:
        odd = json.dumps({key: odd_values(rng) for key in ("type", "choices", "error", "delta")})
        lines.insert(0, b"data: " + odd.encode())
    return b"\n\n".join(lines)


def _told_in_pieces(body: Body) -> Body:
    return {**body, "id": "again"}


def _broken(rng: random.Random, data: bytes) -> bytes:
    """Break bytes."""
    made = bytearray(data)
    for _ in range(rng.choice([1, 1, 5])):
        at = rng.randrange(len(made) or 1)
        kind = rng.randrange(4)
        if kind == 0:
            made = made[:at]
        elif kind == 1 and made:
            made[at % len(made)] = rng.randrange(256)
        elif kind == 2:
            made[at:at] = bytes(rng.randrange(256) for _ in range(rng.choice([1, 20])))
        else:
            made[at:at] = made[: rng.choice([10, 200])]
    return bytes(made)


def mutated(seed: str, *, api: str, streamed: bool) -> Bytes:
    """Make the answer of a seed."""
    rng = random.Random(seed)
    body = _of_chat(rng) if api == "chat" else _of_responses(rng)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 5])):
        _change(rng, body)
    data = _written(rng, body, streamed=streamed)
    kind = "text/event-stream" if streamed else "application/json"
    odd = rng.random()
    if odd < 0.12:
        data = _broken(rng, data)
    elif odd < 0.15:
        return Bytes(data, kind, missing=50)
    elif odd < 0.18:
        return Bytes(data, kind, headers={"content-encoding": rng.choice(["gzip", "br", "x"])})
    elif odd < 0.22:
        status = rng.choice([400, 401, 404, 408, 409, 418, 429, 500, 503, 529])
        wait = {"retry-after": rng.choice(["1e12", "-1", "nan", "1763827200", "x"])}
        return Bytes(data, "application/json", status=status, headers=wait)
    elif odd < 0.24:
        kind = rng.choice(["text/html", "text/event-stream", "application/json", ""])
    return Bytes(data, kind)


def good(*, api: str, streamed: bool) -> Bytes:
    """Make an honest answer that ends a task."""
    body = chat({"content": "done"}) if api == "chat" else responses(message("done"))
    data = events(body) if streamed else json.dumps(body).encode()
    return Bytes(data, "text/event-stream" if streamed else "application/json")
