"""What a tool is told about its call."""

from __future__ import annotations

import threading
from typing import Any

import pydantic
import pytest

from holdfast.agents.tools.context import Effect, ToolContext
from holdfast.values.messages import Usage
from holdfast.values.runs.run_context import RunContextWrapper


def test_a_unit_test_needs_no_arguments() -> None:
    ctx = ToolContext()
    assert (ctx.task_id, ctx.attempt, ctx.state, ctx.arguments) == ("", 1, {}, "{}")
    ctx.heartbeat("alive")


def test_the_agents_sdk_s_names_are_read_too() -> None:
    ctx = ToolContext[Any, dict[str, Any]](tool_call_id="c1", tool_arguments='{"a": 1}')
    assert (ctx.tool_call_id, ctx.tool_arguments) == ("c1", '{"a": 1}')


def test_it_is_a_run_context() -> None:
    ctx = ToolContext[Any, dict[str, Any]](
        state={"context": {"a": 1}}, tool_call_id="c1", tool_name="pay"
    )
    assert isinstance(ctx, RunContextWrapper)
    assert (ctx.context, ctx.usage) == ({"a": 1}, Usage())
    assert {ctx: "hashable"}[ctx] == "hashable"


def test_looking_at_it_does_not_make_the_context_object() -> None:
    def load(_data: Any) -> Any:
        pytest.fail("it was made")

    assert repr(ToolContext(tool_call_id="c1", tool_name="pay", load_context=load)) == (
        "<ToolContext of call 'c1' of tool 'pay'>"
    )


def test_two_contexts_do_not_share_their_state() -> None:
    ToolContext().state["a"] = 1
    assert ToolContext().state == {}


def test_an_empty_state_given_is_the_state_used() -> None:
    state: dict[str, Any] = {}
    ToolContext(state=state).state["a"] = 1
    assert state == {"a": 1}


def test_heartbeats_reach_the_function_given() -> None:
    heard: list[tuple[Any, ...]] = []
    ToolContext(heartbeat=lambda *details: heard.append(details)).heartbeat(3, "of 7")
    assert heard == [(3, "of 7")]


def test_cancelling_from_another_thread_is_seen() -> None:
    ctx = ToolContext()
    assert not ctx.is_cancelled
    thread = threading.Thread(target=ctx.cancel)
    thread.start()
    thread.join()
    assert ctx.is_cancelled


def test_a_context_can_name_the_type_of_its_state() -> None:
    assert ToolContext[Any, dict[str, int]](state={"a": 1}).state == {"a": 1}


def test_an_effect_is_frozen_and_small_on_the_wire() -> None:
    effect = Effect(tool="book", result={"id": 7}, status="done")
    assert effect.wire() == {"tool": "book", "result": {"id": 7}, "status": "done"}
    with pytest.raises(pydantic.ValidationError):
        effect.status = "undone"  # type: ignore[misc]
