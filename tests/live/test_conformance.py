"""The conformance suite, on the AgentWorkers of this package."""

from __future__ import annotations

import json

from holdfast.testing import AgentWorkerConformance, FakeOpenAI
from holdfast.workers import (
    AgentWorker,
    FunctionCallingAgentWorker,
    PlanAndSolveAgentWorker,
    ReActAgentWorker,
)
from tests.support.workers import Counting


class TestFunctionCalling(AgentWorkerConformance):
    commits = ("user", "assistant", "tool", "assistant")

    def make_worker(self) -> AgentWorker:
        return FunctionCallingAgentWorker()

    def script(self, api: FakeOpenAI, input: str) -> None:
        api.call("note", {"text": input})
        api.reply(f"done: {input}")


class TestReAct(AgentWorkerConformance):
    commits = ("user", "assistant")

    def make_worker(self) -> AgentWorker:
        return ReActAgentWorker()

    def script(self, api: FakeOpenAI, input: str) -> None:
        given = json.dumps({"text": input})
        api.reply(f"Thought: I must write it down.\nAction: note\nAction Input: {given}")
        api.reply(f"Thought: I can answer.\nAnswer: done: {input}")


class TestPlanAndSolve(AgentWorkerConformance):
    commits = ("user", "assistant")
    steps = 4

    def make_worker(self) -> AgentWorker:
        return PlanAndSolveAgentWorker(refine=False)

    def script(self, api: FakeOpenAI, input: str) -> None:
        api.reply(json.dumps({"sub_tasks": PLAN}), match="sub_tasks")
        api.call("note", {"text": input}, match="Write it down.")
        api.reply("written", match="Write it down.")
        api.reply("thought", match="Think about it.")
        api.reply(f"done: {input}", match="Put both together.")


PLAN = [
    {"name": "left", "input": "Write it down.", "expected_output": "a note", "dependencies": []},
    {"name": "right", "input": "Think about it.", "expected_output": "text", "dependencies": []},
    {
        "name": "both",
        "input": "Put both together.",
        "expected_output": "an answer",
        "dependencies": ["left", "right"],
    },
]


class TestCounting(AgentWorkerConformance):
    uses_model = False
    uses_tools = False

    def make_worker(self) -> AgentWorker:
        return Counting(3)
