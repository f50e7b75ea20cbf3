"""Tracing: each task is one tree of spans, whoever runs it and whatever happens to it."""

import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace as api

from holdfast import RunConfig, Runner, StepFailedError, ToolContext, Usage, tool
from holdfast.agents.guardrails import GuardrailFunctionOutput, InputGuardrail, OutputGuardrail
from holdfast.agents.tools.decorator import Tool
from holdfast.agents.tools.guardrails import (
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolOutputGuardrail,
)
from holdfast.testing import call, calls, fail
from holdfast.tracing import trace
from holdfast.tracing.spans import TaskTrace, trace_digits
from tests.support.cli import make_cli
from tests.support.rig import Rig, event_types, step_a_task
from tests.support.runs import look, pay
from tests.support.spans import Spans, assert_joined, tree

TRACED = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from my_agents import agents

exporter = ConsoleSpanExporter(out=open("spans", "w"), formatter=lambda span: span.name + "\\n")
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=600_000))
trace.set_tracer_provider(provider)
"""


async def run(rig: Rig, *tools: Any, **options: Any) -> Any:
    """Run an agent of tools to its end."""
    agent = rig.agent(*tools)
    await rig.serve(agent)
    return await Runner.run(agent, options.pop("input", "q"), runner=rig.runner(), **options)


async def test_a_turn_with_a_tool_is_a_tree(rig: Rig, spans: Spans) -> None:
    rig.model.call("look", {"where": "up"})
    rig.model.reply("blue", usage=Usage(input_tokens=20, output_tokens=3, cached_tokens=5))
    result = await run(rig, look, session="alice")
    assert tree(spans.all) == [
        "invoke_agent agent",
        "  step s1",
        "    chat gpt-5-mini",
        "    execute_tool look",
        "  step s2",
        "    chat gpt-5-mini",
    ]
    assert_joined(spans.all)
    assert spans.all[0].trace == TaskTrace.of("default", result.task_id).trace
    assert len(spans.all) == 6
    assert all(span["gen_ai.conversation.id"] == "alice" for span in spans.all)
    assert all(span["gen_ai.agent.name"] == "agent" for span in spans.all)
    assert not any(span.failed for span in spans.all)

    task = spans.one("invoke_agent agent")
    assert task["gen_ai.operation.name"] == "invoke_agent"
    assert task["gen_ai.workflow.name"] == "Agent workflow"
    assert task["gen_ai.usage.input_tokens"] == result.usage.input_tokens
    assert (task["holdfast.task.status"], task["holdfast.task.steps"]) == ("finished", 2)
    assert json.loads(task["gen_ai.output.messages"])[0]["parts"][0]["content"] == "blue"

    called = spans.one("execute_tool look")
    assert called["gen_ai.operation.name"] == "execute_tool"
    assert (called["gen_ai.tool.name"], called["gen_ai.tool.type"]) == ("look", "function")
    assert called["gen_ai.tool.description"] == "Look somewhere."
    assert json.loads(called["gen_ai.tool.call.arguments"]) == {"where": "up"}
    assert called["gen_ai.tool.call.result"] == "seen up"

    first, second = spans.named("chat gpt-5-mini")
    assert first["gen_ai.operation.name"] == "chat"
    assert first["gen_ai.provider.name"] == "openai"
    assert first["gen_ai.request.model"] == first["gen_ai.response.model"] == "gpt-5-mini"
    assert first["gen_ai.response.finish_reasons"] == ["tool_call"]
    assert second["gen_ai.response.finish_reasons"] == ["stop"]
    assert (second["gen_ai.usage.input_tokens"], second["gen_ai.usage.output_tokens"]) == (20, 3)
    assert second["gen_ai.usage.cache_read.input_tokens"] == 5
    assert second["gen_ai.response.id"] != first["gen_ai.response.id"]
    assert called["gen_ai.tool.call.id"] in second["gen_ai.input.messages"]
    assert task.start <= first.start <= second.end <= task.end
    await rig.assert_replays()
    assert len(spans.all) == 6  # a replay is silent


async def test_an_error_of_a_model_is_where_it_happened(rig: Rig, spans: Spans) -> None:
    runner = await rig.make()
    rig.model.add(fail(503), fail(401, message="bad key"), "hello")
    task = await runner.create_task("q")
    with pytest.raises(StepFailedError):
        await runner.run_step(task)
    await runner.run_step(task)
    await runner.finalize_response(task)
    assert tree(spans.all) == [
        "invoke_agent agent",
        "  step s1",
        "    chat gpt-5-mini",
        "    chat gpt-5-mini",
        "    chat gpt-5-mini",
    ]
    assert_joined(spans.all)
    busy, refused, answered = spans.named("chat gpt-5-mini")
    assert (busy["error.type"], busy.failed) == ("ModelUnavailableError", True)
    assert (refused["error.type"], refused.failed) == ("ModelRequestError", True)
    assert "bad key" in refused.text
    assert refused["holdfast.attempt"] == 2
    assert busy.events[0]["attributes"]["exception.type"] == "ModelUnavailableError"
    assert not answered.failed
    assert not spans.one("step s1").failed
    assert not spans.one("invoke_agent agent").failed


async def test_a_run_without_tracing_records_nothing(rig: Rig, spans: Spans) -> None:
    rig.model.add(call("look"), "done")
    await run(rig, look, run_config=RunConfig(tracing_disabled=True))
    rig.model.reply("done")
    with trace("t", disabled=True):
        await run(rig, look)
    assert spans.all == []


async def test_a_run_can_name_its_trace_and_calls_of_one_answer_have_a_span_each(
    rig: Rig, spans: Spans
) -> None:
    rig.model.add(calls([("look", {"where": "left"}), ("look", {"where": "right"})]), "one")
    config = RunConfig(
        workflow_name="Ask", trace_id="order 7", group_id="g", trace_metadata={"a": [1]}
    )
    await run(rig, look, run_config=config)
    assert_joined(spans.all)
    left, right = spans.named("execute_tool look")
    assert left.id != right.id
    assert left.parent == right.parent == spans.one("step s1").id
    task = spans.one("invoke_agent agent")
    assert task.trace == trace_digits("order 7")
    assert task["holdfast.group.id"] == task["gen_ai.conversation.id"] == "g"
    assert (task["gen_ai.workflow.name"], task["holdfast.metadata.a"]) == ("Ask", "[1]")


async def test_what_a_tool_records_hangs_below_its_call(rig: Rig, spans: Spans) -> None:
    inner = rig.runner()

    @tool(effect="read")
    async def delegate(ctx: ToolContext) -> str:
        """Run a task of its own, inside a span of its own."""
        with spans.provider.get_tracer("mine").start_as_current_span("work"):
            made = await inner.create_task("inner")
            return str(await inner.run_task(made))

    rig.model.add(call("delegate"), "inner answer", "outer answer")
    outer = spans.provider.get_tracer("mine")
    with outer.start_as_current_span("request"):
        await run(rig, delegate)
    for task_id in rig.ids:
        if (await inner.get_task(task_id)).status == "answered":
            await inner.finalize_response(task_id)
    assert tree(spans.all) == [
        "request",
        "  invoke_agent agent",
        "    step s1",
        "      chat gpt-5-mini",
        "      execute_tool delegate",
        "        work",
        "          invoke_agent agent",
        "            step s1",
        "              chat gpt-5-mini",
        "    step s2",
        "      chat gpt-5-mini",
    ]
    assert_joined(spans.all)
    assert not api.get_current_span().get_span_context().is_valid


async def test_a_resumed_task_keeps_its_trace_over_workers_and_rollovers(
    rig: Rig, spans: Spans
) -> None:
    agent = rig.agent(look)
    runner = await rig.serving(agent, roll_events=1)
    rig.model.add(*[call("look")] * 8, "done")
    task = await runner.create_task("q")
    for _ in range(3):
        await runner.run_step(task)
    runner = await rig.serving(agent, roll_events=1)
    with trace("somebody else's"):
        await runner.run_task(task)
    await runner.finalize_response(task)
    own = [span for span in spans.all if span.attributes.get("holdfast.task.id") == task.task_id]
    assert_joined(own)
    assert tree(own).count("  step s1") == 1
    assert len([line for line in tree(own) if line.startswith("  step")]) == 9
    assert len(spans.named("execute_tool look")) == 8
    assert (await event_types(runner.client, task.task_id)).count("WORKFLOW_EXECUTION_STARTED") > 1


def test_a_command_hands_over_its_spans_before_it_ends(tmp_path: Path) -> None:
    cli = make_cli(tmp_path)
    (tmp_path / "traced.py").write_text(TRACED, encoding="utf-8")
    cli("run", "calc", "What is 1 + 1?", "--agents", "traced:agents")
    names = (tmp_path / "spans").read_text(encoding="utf-8").split("\n")
    assert names[-2:] == ["invoke_agent calc", ""]
    assert {"chat offline", "step s1", "execute_tool add", "step s2"} < set(names)


async def test_what_was_undone_has_spans_of_its_own(rig: Rig, spans: Spans, book: Tool) -> None:
    runner = await rig.make(book, pay)
    rig.model.add(call("book", {"city": "rome"}), call("pay"))
    task = await step_a_task(runner)
    await runner.run_step(task)  # waits for approval
    await runner.undo_step(task)
    await runner.undo_step(task)
    rig.model.reply("done")
    await runner.run_step(task)
    await runner.finalize_response(task)
    assert_joined(spans.all)
    first, again = spans.named("step s1")
    left = spans.one("step s2")
    assert first.id != again.id
    assert again["holdfast.step.branch"] == 2
    assert left["holdfast.step.status"] == "undone"
    assert spans.one("undo book").parent == spans.one("invoke_agent agent").id


# ---- guardrails, handoffs, agents as tools


def polite(*_: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(None, tripwire_triggered=False)


def harmless(_data: Any) -> ToolGuardrailFunctionOutput:
    return ToolGuardrailFunctionOutput.allow()


def kept_back(_data: Any) -> ToolGuardrailFunctionOutput:
    return ToolGuardrailFunctionOutput.reject_content("hidden")


@tool(
    effect="read",
    tool_input_guardrails=[ToolInputGuardrail(harmless)],
    tool_output_guardrails=[ToolOutputGuardrail(kept_back)],
)
def search(what: str) -> str:
    """Search."""
    return "found"


async def test_guardrails_handoffs_and_nested_agents_are_one_tree(rig: Rig, spans: Spans) -> None:
    low = rig.agent(search, name="low")
    helper = rig.agent(low.as_tool(), name="helper")
    bob = rig.agent(name="bob", output_guardrails=[OutputGuardrail(polite, "of the output")])
    guard = InputGuardrail(polite, "of the input")
    agent = rig.agent(helper.as_tool(), handoffs=[bob], input_guardrails=[guard])
    await rig.serve(agent)
    rig.model.add(call("helper", {"input": "q"}), call("low", {"input": "q"}))
    rig.model.add(call("search", {"what": "q"}), "found", "helped", call("transfer_to_bob"), "done")
    await Runner.run(agent, "q", runner=rig.runner())
    await spans.until("invoke_agent helper")
    await spans.until("invoke_agent low")
    assert_joined(spans.all)
    first = spans.one("guardrail of the input")  # beside the model call, so in no certain order
    assert tree([span for span in spans.all if span != first]) == [
        "invoke_agent agent",
        "  step s1",
        "    chat gpt-5-mini",
        "    execute_tool helper",
        "      invoke_agent helper",
        "        step s1",
        "          chat gpt-5-mini",
        "          execute_tool low",
        "            invoke_agent low",
        "              step s1",
        "                chat gpt-5-mini",
        "                guardrail harmless",
        "                execute_tool search",
        "                guardrail kept_back",
        "              step s2",
        "                chat gpt-5-mini",
        "        step s2",
        "          chat gpt-5-mini",
        "  step s2",
        "    chat gpt-5-mini",
        "    handoff agent to bob",
        "  step s3",
        "    chat gpt-5-mini",
        "    guardrail of the output",
    ]
    last = spans.one("guardrail of the output")
    steps = {span.id: span["gen_ai.agent.name"] for span in spans.all if span.name[:4] == "step"}
    assert (steps[first.parent], steps[last.parent]) == ("agent", "bob")
    assert (first["gen_ai.agent.name"], last["gen_ai.agent.name"]) == ("agent", "bob")
    assert first["holdfast.guardrail.tripped"] is last["holdfast.guardrail.tripped"] is False
    assert spans.one("guardrail harmless")["holdfast.guardrail.behavior"] == "allow"
    assert spans.one("guardrail kept_back")["holdfast.guardrail.behavior"] == "reject_content"
    passed = spans.one("handoff agent to bob")
    assert (passed["holdfast.handoff.from"], passed["holdfast.handoff.to"]) == ("agent", "bob")
    called = spans.one("execute_tool helper")
    assert called["gen_ai.tool.call.result"] == "helped"
    assert called["holdfast.call.task"] == spans.one("invoke_agent helper")["holdfast.task.id"]
    assert not any(span.failed for span in spans.all)
