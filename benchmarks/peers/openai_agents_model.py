"""The models of the two stacks that run the OpenAI Agents SDK."""

from __future__ import annotations

import json
from typing import Any

from agents import Model, ModelResponse, OpenAIResponsesModel, Usage
from openai import AsyncOpenAI
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from benchmarks.shared import ANSWER, API_KEY, MODEL, TOOL, arguments, done_with, id_of, turns_in


def _wanted(items: Any) -> tuple[int, int]:
    """Return the turns that an input asks for, and those that it holds the results of."""
    if isinstance(items, str):
        return turns_in(items), 0
    wanted = next(turns_in(str(each["content"])) for each in items if each.get("role") == "user")
    newest = items[-1]
    is_result = newest.get("type") == "function_call_output"
    return wanted, done_with(newest["call_id"] if is_result else None)


class FreeModel(Model):
    """Answers at once, from its input alone."""

    async def get_response(
        self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any
    ) -> ModelResponse:
        del system_instructions, args, kwargs
        wanted, done = _wanted(input)
        usage = Usage(requests=1, input_tokens=10, output_tokens=10, total_tokens=20)
        output: Any
        if done < wanted:
            output = ResponseFunctionToolCall(
                id=f"fc_{done}",
                call_id=id_of(done),
                name=TOOL,
                arguments=json.dumps(arguments(done)),
                type="function_call",
                status="completed",
            )
        else:
            text = ResponseOutputText(text=ANSWER, annotations=[], type="output_text")
            output = ResponseOutputMessage(
                id="msg_1", role="assistant", status="completed", type="message", content=[text]
            )
        return ModelResponse(output=[output], usage=usage, response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def http_model(url: str) -> Model:
    """Make the SDK's own model for the Responses API at this address."""
    return OpenAIResponsesModel(MODEL, AsyncOpenAI(base_url=url, api_key=API_KEY))
