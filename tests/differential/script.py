"""Scripts: runs that both libraries can make, with what the model answers in them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.testing import Reply, raw
from holdfast.testing.fake_api.replies import as_reply
from tests.differential.lib import Lib

Play = Callable[[Lib], Awaitable[Any]]
"""Makes the agents with the names of a library and runs them, as its users would."""


@dataclass(frozen=True)
class Script:
    """A run of either library.

    Attributes:
        name: Unique within its group.
        play: What is done.
        replies: What the model answers, in order.
        raises: Name of the exception with which the Agents SDK ends it; empty for none.
        left: Replies that the Agents SDK does not use, because it ends before.
        streams: Whether it makes sense as a stream too.
    """

    name: str
    play: Play
    replies: tuple[Reply, ...]
    raises: str = ""
    left: int = 0
    streams: bool = True


@dataclass(frozen=True)
class Group:
    """The scripts of one feature.

    Attributes:
        name: The feature.
        scripts: Its scripts by name.
    """

    name: str
    scripts: dict[str, Script] = field(default_factory=dict[str, Script])

    def script(
        self, *replies: Reply | str, raises: str = "", left: int = 0, streams: bool = True
    ) -> Callable[[Play], Play]:
        """Make a function a script of this group; for the arguments see Script."""

        def decorate(play: Play) -> Play:
            name = getattr(play, "__name__", "")
            if name in self.scripts:
                msg = f"group {self.name} has two scripts {name}"
                raise ValueError(msg)
            given = tuple(map(as_reply, replies))
            self.scripts[name] = Script(name, play, given, raises, left, streams)
            return play

        return decorate


# Answers of more than one piece


def answer(*output: dict[str, Any], tokens: int = 1, incomplete: str = "") -> Reply:
    """Answer with these output items, in this order; `incomplete` says why there are no more."""
    usage = {
        "input_tokens": tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 2 * tokens,
    }
    body = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "incomplete" if incomplete else "completed",
        "error": None,
        "incomplete_details": {"reason": incomplete} if incomplete else None,
        "instructions": None,
        "metadata": {},
        "model": "gpt-4.1-mini",
        "output": list(output),
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage,
    }
    return raw(body)


def said(text: str, id: str = "msg_a") -> dict[str, Any]:
    """Make a message item."""
    part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return _message(part, id)


def refused(text: str, id: str = "msg_r") -> dict[str, Any]:
    """Make a message item that declines."""
    return _message({"type": "refusal", "refusal": text}, id)


def thought(text: str, id: str = "rs_a") -> dict[str, Any]:
    """Make a reasoning item."""
    summary = [{"type": "summary_text", "text": text}]
    return {"id": id, "type": "reasoning", "summary": summary}


def called(name: str, arguments: str, id: str) -> dict[str, Any]:
    """Make a function call item; the id is that of the call."""
    return {
        "id": f"fc_{id}",
        "type": "function_call",
        "status": "completed",
        "call_id": id,
        "name": name,
        "arguments": arguments,
    }


def hosted(kind: str, **more: Any) -> dict[str, Any]:
    """Make an item of a tool that the provider knows."""
    return {"id": "it_a", "type": kind, "status": "completed", **more}


def _message(part: dict[str, Any], id: str) -> dict[str, Any]:
    return {
        "id": id,
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }
