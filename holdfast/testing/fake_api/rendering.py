"""Write scripted answers as the bodies that the endpoints send."""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast.testing.fake_api.replies import Answer, CallSpec, Refusal
from holdfast.testing.fake_api.requests import FakeRequest
from holdfast.values.base import Json
from holdfast.values.messages import Usage

NextId = Callable[[str], str]
"""Returns the next id for a prefix: "call_" gives call_1, call_2, ..."""


def render(answer: Answer | Refusal, request: FakeRequest, next_id: NextId) -> dict[str, Json]:
    """Write an answer as the body of the request's endpoint."""
    usage = _usage(answer, request)
    if (other := request.dialect) is not None:
        return other.render(answer, model=request.model, usage=usage, next_id=next_id)
    write = _response if request.endpoint == "responses" else _completion
    return write(answer, request, usage, next_id)


def _usage(answer: Answer | Refusal, request: FakeRequest) -> Usage:
    if isinstance(answer, Answer) and answer.usage is not None:
        return answer.usage
    length = len(answer.text)
    if isinstance(answer, Answer):
        length += len(answer.reasoning)
        length += sum(len(call.name) + len(call.argument_text) for call in answer.calls)
    return Usage(input_tokens=len(request.text.encode()) // 4, output_tokens=length // 4 + 1)


def _response(
    answer: Answer | Refusal, request: FakeRequest, usage: Usage, next_id: NextId
) -> dict[str, Json]:
    finish = answer.finish if isinstance(answer, Answer) else ""
    reason = "max_output_tokens" if finish == "length" else finish
    body = request.body
    return {
        "id": next_id("resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "status": "incomplete" if finish else "completed",
        "error": None,
        "incomplete_details": {"reason": reason} if finish else None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": body.get("metadata") or {},
        "model": request.model,
        "output": _output(answer, next_id),
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": None,
        "store": body.get("store", True),
        "temperature": body.get("temperature", 1.0),
        "text": body.get("text", {"format": {"type": "text"}}),
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools", []),
        "top_p": body.get("top_p", 1.0),
        "truncation": "disabled",
        "usage": {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {
                "cached_tokens": usage.cached_tokens,
                "cache_write_tokens": 0,
            },
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.total_tokens,
        },
    }


def _output(answer: Answer | Refusal, next_id: NextId) -> list[Json]:
    if isinstance(answer, Refusal):
        return [_message([{"type": "refusal", "refusal": answer.text}], next_id)]
    output: list[Json] = []
    if answer.reasoning:
        summary = [{"type": "summary_text", "text": answer.reasoning}]
        output.append({"id": next_id("rs_"), "type": "reasoning", "summary": summary})
    for item in answer.items:
        prefix = f"{str(item.get('type', 'item')).removesuffix('_call')}_"
        output.append({"id": item.get("id") or next_id(prefix), **item})
    if answer.text or not (answer.calls or answer.items):
        text: dict[str, Json] = {
            "type": "output_text",
            "text": answer.text,
            "annotations": [],
            "logprobs": [],
        }
        output.append(_message([text], next_id))
    output.extend(
        {
            "id": next_id("fc_"),
            "type": "function_call",
            "status": "completed",
            "call_id": call.id or next_id("call_"),
            "name": call.name,
            "arguments": call.argument_text,
            **({"namespace": call.namespace} if call.namespace else {}),
        }
        for call in answer.calls
    )
    return output


def _message(content: list[dict[str, Json]], next_id: NextId) -> dict[str, Json]:
    return {
        "id": next_id("msg_"),
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": content,
    }


def _completion(
    answer: Answer | Refusal, request: FakeRequest, usage: Usage, next_id: NextId
) -> dict[str, Json]:
    message: dict[str, Json] = {"role": "assistant", "content": None, "refusal": None}
    finish = "stop"
    if isinstance(answer, Refusal):
        message["refusal"] = answer.text
    else:
        message["content"] = None if answer.calls and not answer.text else answer.text
        finish = answer.finish or ("tool_calls" if answer.calls else "stop")
        if answer.calls:
            message["tool_calls"] = [_tool_call(call, next_id) for call in answer.calls]
    return {
        "id": next_id("chatcmpl_"),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        },
    }


def _tool_call(call: CallSpec, next_id: NextId) -> dict[str, Json]:
    return {
        "id": call.id or next_id("call_"),
        "type": "function",
        "function": {"name": call.name, "arguments": call.argument_text},
    }
