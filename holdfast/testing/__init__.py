"""For tests of agents: a model that follows a script, and a fake of the OpenAI HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.testing.replies import (
    Reply,
    call,
    calls,
    cut,
    fail,
    hang,
    malformed,
    raw,
    refuse,
    reply,
    slow,
)
from holdfast.testing.requests import FakeRequest
from holdfast.testing.scripted import ScriptedModel

if TYPE_CHECKING:
    from holdfast.testing.fake_openai import FakeOpenAI

__all__ = [
    "FakeOpenAI",
    "FakeRequest",
    "Reply",
    "ScriptedModel",
    "call",
    "calls",
    "cut",
    "fail",
    "hang",
    "malformed",
    "raw",
    "refuse",
    "reply",
    "slow",
]


def __getattr__(name: str) -> object:
    """Import the fake API when it is asked for: it needs starlette and uvicorn."""
    if name != "FakeOpenAI":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.testing.fake_openai import FakeOpenAI

    return FakeOpenAI
