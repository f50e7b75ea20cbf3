"""Messages of a step that stay in the conversation after a guardrail has blocked its output."""

from __future__ import annotations

from holdfast.task.data.calls import Outcome
from holdfast.task.data.records import OpenState
from holdfast.task.ledger.references import last_round, resolve_adds
from holdfast.values.messages import Message

WITHHELD = "[withheld: an output guardrail has blocked this]"


def after_block(current: OpenState, placeholder: str = "") -> tuple[Message, ...]:
    """Return the messages of a blocked step that may be shown again, oldest first.

    The answer is left out, and so are words and reasoning next to tool calls, which may tell of it;
    a text replaces the results of its tools, because one of them may be the blocked output.
    The input of the user and the tool calls of the model stay: the tools were called.

    Args:
        current: The step, open when the task ended.
        placeholder: That text; empty for the usual one.
    """
    if current.result is None:
        return ()
    kept: list[Message] = []
    adds = resolve_adds(current.result, current)
    for message in adds:
        if message.role == "tool":
            kept.append(message.model_copy(update={"content": placeholder or WITHHELD}))
        elif message.role != "assistant":
            kept.append(message)
        elif message.calls:
            kept.append(Message(role="assistant", calls=message.calls))
    _, said = last_round(adds, current.calls)
    for call in current.calls:
        if call.id not in said and not current.result.quiet:
            told = Outcome(content=placeholder or WITHHELD).message(call)
            kept.append(told)
    return tuple(kept)
