"""Tracing without a server: ids, the switch, `trace()`, what is written into spans."""

import dataclasses
import functools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace as api
from opentelemetry.sdk.trace import SpanProcessor
from temporalio.testing import ActivityEnvironment

from holdfast import agents_sdk
from holdfast.activities.spans import checked, guardrail, handoff
from holdfast.task.data.calls import Outcome
from holdfast.task.data.head import RunRules, TaskHead
from holdfast.tracing import (
    Trace,
    contents,
    get_current_trace,
    set_tracing_disabled,
    set_tracing_export_api_key,
    switch,
    trace,
)
from holdfast.tracing.export import send
from holdfast.tracing.finished import call_span
from holdfast.tracing.otel import Place
from holdfast.tracing.spans import TaskTrace, TraceRules, below_call, in_trace, trace_digits
from holdfast.values.messages import ImagePart, ImageRef, Message, ToolCall, assistant, user
from tests.support.spans import Spans, assert_joined, tree
from tests.support.there import there

DIGITS = "0123456789abcdef0123456789abcdef"


# Ids


def test_a_task_has_one_trace_and_each_place_in_it_one_span() -> None:
    one, same = TaskTrace.of("default", "t"), TaskTrace.of("default", "t")
    places = [
        one.root,
        one.step(0, 1),
        one.step(0, 2),
        one.step(1, 1),
        one.call("t~0.1.0.0"),
        one.call("t~0.1.0.0.2"),
        one.attempt("chat", "run", "1", 1),
        one.attempt("chat", "run", "1", 2),
        one.attempt("chat", "later run", "1", 1),
        one.attempt("execute_tool", "run", "1", 1),
    ]
    assert len(set(places)) == len(places)
    assert all(re.fullmatch("[0-9a-f]{16}", place) for place in places)
    assert re.fullmatch("[0-9a-f]{32}", one.trace)
    assert (same.trace, same.root, same.step(0, 1)) == (one.trace, one.root, one.step(0, 1))


@pytest.mark.parametrize("given", ["order 7", "trace_7", "0" * 32])
def test_any_other_text_names_a_trace_too(given: str) -> None:
    found = trace_digits(given)
    assert re.fullmatch("[0-9a-f]{32}", found)
    assert int(found, 16)
    assert found == trace_digits(given) != trace_digits(given + "!")


# The switch


def test_the_provider_of_instrument_is_used(spans: Spans) -> None:
    made = there(switch.spans())
    assert switch.spans() is made
    made.start(Place(DIGITS, "00000000000000ab"), "x", attributes={"a": 1, "b": None}).end()
    span = spans.one("x")
    assert (span.trace, span.id, span.parent) == (DIGITS, "00000000000000ab", "")
    assert span.attributes == {"a": 1}


def test_spans_of_others_keep_ids_of_their_own(spans: Spans) -> None:
    assert switch.spans() is not None
    for _ in range(2):
        spans.provider.get_tracer("theirs").start_span("theirs").end()
    one, other = spans.named("theirs")
    assert one.id != other.id
    assert one.trace != other.trace


def test_core_works_where_opentelemetry_is_not_installed() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import holdfast.serving.plugin, holdfast.client.runner.runner\n"
        "from holdfast.tracing import trace, switch\n"
        "with trace('t') as t: print(t.trace_id[:6], switch.spans())\n"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("trace_ None\n", "")


# trace()


def test_a_block_is_the_trace_of_the_tasks_made_inside(spans: Spans) -> None:
    with trace("Two sums", group_id="thread 1", metadata={"a": 1, "b": [2]}) as block:
        assert get_current_trace() is block
        run = in_trace(RunRules())
        later = in_trace(RunRules(workflow_name="mine", group_id="g", trace_metadata={"a": 3}))
    assert get_current_trace() is None
    span = spans.one("invoke_workflow Two sums")
    assert span.trace == run.trace_id == later.trace_id == block.trace_id.removeprefix("trace_")
    assert run.trace_parent == span.id
    assert span["gen_ai.operation.name"] == "invoke_workflow"
    assert span["gen_ai.workflow.name"] == "Two sums"
    assert span["gen_ai.conversation.id"] == "thread 1"
    assert (span["holdfast.metadata.a"], span["holdfast.metadata.b"]) == (1, "[2]")
    assert (run.workflow_name, run.group_id) == ("Two sums", "thread 1")
    assert (later.workflow_name, later.group_id) == ("mine", "g")
    assert run.trace_metadata == {"a": 1, "b": [2]}
    assert later.trace_metadata == {"a": 3, "b": [2]}


def test_a_block_works_in_a_process_that_makes_no_spans() -> None:
    with trace("t", trace_id="order 7") as block:
        run, other = in_trace(RunRules()), in_trace(RunRules())
    assert run == other
    assert run.trace_id == trace_digits("order 7") == block.trace_id.removeprefix("trace_")
    assert run.trace_parent == ""  # the task's own span is the root


def test_a_block_without_an_id_joins_the_span_around_it(spans: Spans) -> None:
    tracer = spans.provider.get_tracer("theirs")
    with (
        tracer.start_as_current_span("request"),
        trace("outer"),
        tracer.start_as_current_span("part"),
        trace("inner"),
    ):
        run = in_trace(RunRules())
    assert tree(spans.all) == [
        "request",
        "  invoke_workflow outer",
        "    part",
        "      invoke_workflow inner",
    ]
    assert_joined(spans.all)
    assert run.trace_parent == spans.one("invoke_workflow inner").id


def test_tracing_can_be_disabled_for_the_whole_process(spans: Spans) -> None:
    set_tracing_disabled(True)
    try:
        with trace("t"):
            run = in_trace(RunRules())
    finally:
        set_tracing_disabled(False)
    assert not run.traced
    assert spans.all == []


def test_a_trace_can_be_started_and_finished_by_hand(spans: Spans) -> None:
    made = trace("t")
    assert isinstance(made, Trace)
    made.start(mark_as_current=True)
    run = in_trace(RunRules())
    made.finish(reset_current=True)
    assert run.trace_parent == spans.one("invoke_workflow t").id
    assert get_current_trace() is None
    assert not api.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize(("value", "told"), [("0", False), ("False", False), ("1", True)])
def test_the_environment_says_what_spans_may_tell(
    monkeypatch: pytest.MonkeyPatch, value: str, told: bool
) -> None:
    monkeypatch.setenv("HOLDFAST_TRACE_INCLUDE_SENSITIVE_DATA", value)
    assert in_trace(RunRules()).sensitive is (None if told else False)
    assert in_trace(RunRules(sensitive=True)).sensitive is True


# Blocks in activities


HEAD = TaskHead(agent="first")


def in_activity(body: Callable[[], None]) -> None:
    """Run a function as an activity of task "t"."""
    env = ActivityEnvironment()
    env.info = dataclasses.replace(env.info, workflow_id="t")
    env.run(body)


def test_a_guardrail_and_a_handoff_are_blocks(spans: Spans) -> None:
    def body() -> None:
        with guardrail(HEAD, "no politics", "input", step=(0, 1)) as span:
            checked(span, "first", tripped=True)
        with (
            guardrail(HEAD, "<lambda>", "tool_input"),
            guardrail(HEAD, "<lambda>", "tool_input", i=1),
        ):
            pass
        with guardrail(HEAD, "no politics", "output"):
            pass
        with handoff(HEAD, "first", "second", step=(0, 2)):
            raise KeyError("lost")

    with pytest.raises(KeyError):
        in_activity(body)
    seen, after = spans.named("guardrail no politics")
    assert (seen["holdfast.guardrail.kind"], seen["holdfast.guardrail.tripped"]) == ("input", True)
    passed = spans.one("handoff first to second")
    assert (passed["holdfast.handoff.to"], passed["error.type"]) == ("second", "KeyError")
    trace = TaskTrace.of("default", "t")
    parents = [seen.parent, after.parent, passed.parent]
    assert parents == [trace.step(0, 1), trace.root, trace.step(0, 2)]
    both = [span.id for span in spans.named("guardrail <lambda>")]
    assert len({seen.id, after.id, passed.id, *both}) == 5


class Broken(SpanProcessor):
    def __init__(self, *, starts: bool) -> None:
        self._starts = starts

    def on_start(self, span: object, parent_context: object = None) -> None:
        if not self._starts:
            raise RuntimeError("on_start")

    def on_end(self, span: object) -> None:
        raise RuntimeError("on_end")


@pytest.mark.parametrize("starts", [True, False])
def test_what_a_span_tells_of_is_not_lost_when_the_span_is(
    spans: Spans, starts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    def body() -> None:
        with guardrail(HEAD, "g", "input") as span:
            span.set({"a": 1})
            done.append("paid")

    spans.provider.add_span_processor(Broken(starts=starts))
    in_activity(body)
    assert done == ["paid"]
    assert "could not be recorded" in caplog.text


def test_a_child_task_hangs_below_the_call_that_it_answers(spans: Spans) -> None:
    rules = there(TraceRules.of("default", "t", HEAD))
    run = below_call(RunRules(workflow_name="w"), rules, rules.trace.call("t.c"))
    call = ToolCall(id="c", name="ask")
    outcome = Outcome(content="no", is_error=True, status="failed")
    made = functools.partial(call_span, agent="", step=(0, 1), start=1.0, end=2.5)
    send(rules, made(rules, call, outcome, child="t.c"))
    send(rules, made(rules, call, None, child="t.d", status="undone"))
    child = there(TraceRules.of("default", "t.c", HEAD.model_copy(update={"run": run})))
    span, left = spans.named("execute_tool ask")
    assert (left["holdfast.call.status"], left["holdfast.call.task"]) == ("undone", "t.d")
    assert (left.failed, left.id == span.id) == (False, False)
    assert (child.trace.trace, child.trace.parent) == (span.trace, span.id)
    assert (span.parent, span["error.type"]) == (rules.trace.step(0, 1), "ToolError")
    assert (span.start, span.end) == (1_000_000_000, 2_500_000_000)
    assert span["gen_ai.agent.name"] == "first"
    assert below_call(RunRules(), None, "").traced is False


# Contents


def test_messages_are_written_as_the_conventions_say() -> None:
    picture = ImagePart(kind="image", stored=ImageRef(sha256="ab", size=3, media_type="image/png"))
    messages = [
        user("look", (picture,)),
        assistant("", calls=(ToolCall(id="c1", name="find", arguments='{"q": 1}'),)),
        Message(role="tool", call_id="c1", content="found"),
        assistant("odd", calls=(ToolCall(id="c2", name="find", arguments="{"),)),
    ]
    reference = "holdfast:image/png;size=3;sha256=ab"
    image = {"type": "uri", "modality": "image", "mime_type": "image/png", "uri": reference}
    assert json.loads(contents.input_messages(messages)) == [
        {"role": "user", "parts": [{"type": "text", "content": "look"}, image]},
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c1", "name": "find", "arguments": {"q": 1}}],
        },
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "c1", "response": "found"}],
        },
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "content": "odd"},
                {"type": "tool_call", "id": "c2", "name": "find", "arguments": "{"},
            ],
        },
    ]


def test_the_key_for_traces_of_the_agents_sdk_is_taken_and_not_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO", logger="holdfast.tracing"):
        set_tracing_export_api_key("sk-of-the-tests-1")
    [record] = caplog.records
    assert "the key is not used" in record.getMessage()
    assert "sk-of-the-tests-1" not in record.getMessage()


# Spans of the program's own, by the names of the Agents SDK


@pytest.mark.parametrize(
    ("make", "title", "kind"),
    [
        (lambda: agents_sdk.custom_span("search {x}", {"a": 1}), "search {x}", "custom"),
        (lambda: agents_sdk.agent_span("clerk", tools=["t"]), "invoke_agent clerk", "agent"),
        (lambda: agents_sdk.function_span("f", input="1"), "execute_tool f", "function"),
        (lambda: agents_sdk.generation_span(model="m"), "chat m", "generation"),
        (agents_sdk.generation_span, "chat", "generation"),
        (lambda: agents_sdk.guardrail_span("g", True), "guardrail g", "guardrail"),
        (lambda: agents_sdk.handoff_span("a", "b"), "handoff a to b", "handoff"),
        (lambda: agents_sdk.task_span("t"), "task t", "task"),
        (lambda: agents_sdk.turn_span(1, "a"), "turn 1 a", "turn"),
        (agents_sdk.response_span, "chat", "response"),
        (lambda: agents_sdk.mcp_tools_span("s"), "mcp_tools s", "mcp_tools"),
    ],
)
def test_a_span_of_the_programs_own_is_below_the_block_around_it(
    spans: Spans, make: Callable[[], agents_sdk.Span[Any]], title: str, kind: str
) -> None:
    with trace("The block", trace_id=f"trace_{DIGITS}"), make() as outer:
        assert agents_sdk.get_current_span() is outer
        with agents_sdk.custom_span("inner") as inner:
            inner.set_error({"message": "it broke", "data": None})
    assert agents_sdk.get_current_span() is None
    span, below = spans.one(title), spans.one("inner")
    assert (span.trace, below.trace, below.parent) == (DIGITS, DIGITS, span.id)
    assert span.parent == spans.one("invoke_workflow The block").id
    told = outer.export()
    assert (told["span_data"]["type"], told["trace_id"]) == (kind, f"trace_{DIGITS}")
    assert told["id"][-16:] == span.id
    assert inner.export()["parent_id"] == span.id
