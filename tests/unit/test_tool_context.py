"""What a tool is told about its call."""

from __future__ import annotations

import threading
from typing import Any

import pydantic
import pytest

from holdfast.agents.tools.context import Effect, ToolContext


def test_the_agents_sdk_s_names_are_read_too() -> None:
    ctx = ToolContext[Any, dict[str, Any]](tool_call_id="c1", tool_arguments='{"a": 1}')
    assert (ctx.tool_call_id, ctx.tool_arguments) == ("c1", '{"a": 1}')


def test_looking_at_it_does_not_make_the_context_object() -> None:
    def load(_data: Any) -> Any:
        pytest.fail("it was made")

    assert repr(ToolContext(tool_call_id="c1", tool_name="pay", load_context=load)) == (
        "<ToolContext of call 'c1' of tool 'pay'>"
    )


def test_cancelling_from_another_thread_is_seen() -> None:
    ctx = ToolContext()
    assert not ctx.is_cancelled
    thread = threading.Thread(target=ctx.cancel)
    thread.start()
    thread.join()
    assert ctx.is_cancelled


def test_an_effect_is_frozen_and_small_on_the_wire() -> None:
    effect = Effect(tool="book", result={"id": 7}, status="done")
    assert effect.wire() == {"tool": "book", "result": {"id": 7}, "status": "done"}
    with pytest.raises(pydantic.ValidationError):
        effect.status = "undone"  # type: ignore[misc]
