"""What every model's answer must be before anything is done with it, whoever wrote the model."""

from __future__ import annotations

from typing import Any

from holdfast.errors import ModelUnavailableError
from holdfast.models.base import ModelAnswer
from holdfast.values.base import Json
from holdfast.values.checks import gate
from holdfast.values.checks.gate import MOST_CALLS
from holdfast.values.messages import Content, TextPart, ToolCall, clean
from holdfast.values.text.shown import shown

MOST_TOKENS = 2**53
"""Most tokens that an answer may say it cost: more is no count, and not every reader has room."""


def admitted(answer: Any, model: str) -> ModelAnswer:
    """Return an answer that can be kept, sent on and read again; lone surrogates are replaced.

    It is called before anybody remembers the answer, so that one that is refused is asked again.

    Raises:
        ModelUnavailableError: The answer is none, or holds what the history cannot hold.
    """
    if not isinstance(answer, ModelAnswer) or answer.message.role != "assistant":
        raise _malformed(model, f"it is no ModelAnswer of an assistant, but {shown(answer)}")
    made = _cleaned(answer)
    wrong = gate.flaw(_kept(made), "it")
    if len(made.message.calls) > MOST_CALLS:
        wrong = (
            f"it asks for {len(made.message.calls)} tool calls at once; {MOST_CALLS} are the most"
        )
    counts = answer.usage.model_dump().values()
    if not wrong and not all(0 <= count <= MOST_TOKENS for count in counts):
        wrong = "its usage holds a number that is no count of tokens"
    if wrong:
        raise _malformed(model, wrong)
    return made


def _kept(answer: ModelAnswer) -> Json:
    """Return what of an answer stays in the history whatever its size."""
    message = answer.message
    calls = [[call.id, call.name, call.arguments] for call in message.calls]
    about = [answer.model, answer.response_id, answer.finish]
    return {"calls": calls, "items": list(message.items), "about": about}


def _cleaned(answer: ModelAnswer) -> ModelAnswer:
    """Replace lone surrogates in the texts of an answer; provider items stay as they are."""
    message = answer.message
    texts = ("model", "response_id", "finish", "refusal")
    changes: dict[str, Any] = {
        name: clean(text) for name in texts if not gate.is_unicode(text := getattr(answer, name))
    }
    calls = tuple(map(_cleaned_call, message.calls))
    content = _cleaned_content(message.content)
    if calls != message.calls or content != message.content:
        changed: dict[str, object] = {"calls": calls, "content": content}
        changes["message"] = message.model_copy(update=changed)
    return answer.model_copy(update=changes) if changes else answer


def _cleaned_call(call: ToolCall) -> ToolCall:
    if all(map(gate.is_unicode, (call.id, call.name, call.arguments))):
        return call
    return ToolCall(id=clean(call.id), name=clean(call.name), arguments=clean(call.arguments))


def _cleaned_content(content: Content) -> Content:
    if isinstance(content, str):
        return content if gate.is_unicode(content) else clean(content)
    if not isinstance(content, tuple):
        return content
    return tuple(
        part.model_copy(update={"text": clean(part.text)}) if isinstance(part, TextPart) else part
        for part in content
    )


def _malformed(model: str, reason: str) -> ModelUnavailableError:
    return ModelUnavailableError(
        f"Model {model!r} sent an answer that cannot be kept: {reason.rstrip('.')}. It was thrown"
        " away, and the call is repeated later."
    )
