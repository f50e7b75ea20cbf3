"""What the processes run that the crash tests start and kill.

A program runs in a process of its own, gets one picklable job, and tells what it does by lines in
append-only files, because everything else dies with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel
from temporalio import activity, workflow
from temporalio.worker import (
    ActivityInboundInterceptor,
    ActivityOutboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    SignalExternalWorkflowInput,
    StartActivityInput,
    StartLocalActivityInput,
    Worker,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from holdfast import (
    Agent,
    AgentRunner,
    TaskStep,
    TaskStepOutput,
    ToolContext,
    sleep_until,
    tool,
    wait_for_event,
)
from holdfast.agents.guardrails import GuardrailFunctionOutput, InputGuardrail, OutputGuardrail
from holdfast.agents.handoffs.filters import HandoffInputData
from holdfast.agents.handoffs.handoff import handoff
from holdfast.agents.hooks import AgentHooks
from holdfast.agents.tools.decorator import Tool
from holdfast.agents.tools.guardrails import (
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolOutputGuardrail,
)
from holdfast.agents.tools.waiting import AwaitingTool, made_as
from holdfast.archive import Keys
from holdfast.archive.archive import Archive
from holdfast.engine.connect import connect_embedded
from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.serving.names import check_archive
from holdfast.serving.plugin import HoldfastPlugin
from holdfast.serving.worker_process import build_worker
from holdfast.values.messages import ToolCall, assistant, user
from holdfast.values.settings import ModelSettings
from holdfast.workers import AgentWorker, FunctionCallingAgentWorker, StepContext

AGENT = "crash"
KEYS = "keys.txt"
"""A file with master keys in the directory of a test: then all is encrypted."""
HEARTBEAT = 2.0
POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Job:
    """What a program needs to know.

    Attributes:
        server: The Temporal server.
        home: Directory of the test: the event file, the holds and the logs.
        app: Name of the app.
        base_url: The fake model API.
        agent: Which agent to serve.
        make: Makes another one of the job.
        die: Points of the program at which it kills itself, each with how often it is passed.
        mute: Whether its activities show no sign of life, as behind a network that is cut.
        grace: Seconds that running calls get after SIGTERM.
        options: More options of the Temporal worker.
        task_id: The task, for programs that create one.
        input: Its input.
    """

    server: ServerInfo
    home: Path
    app: str
    base_url: str
    agent: str = "plain"
    make: Callable[[Job], Agent] | None = None
    die: tuple[tuple[str, int], ...] = ()
    mute: bool = False
    grace: float = 1.0
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    task_id: str = ""
    input: str = ""

    @property
    def archive(self) -> Archive:
        """The archive of the data directory."""
        assert self.server.data_dir is not None
        keys = self.home / KEYS
        found = Keys.read(str(keys)) if keys.exists() else None
        return Archive(self.server.data_dir / "archive", keys=found)


def note(home: Path, event: str, **facts: object) -> None:
    """Append a line to the event file, safe from a kill in the next moment."""
    line = json.dumps({"event": event, "pid": os.getpid(), "at": time.monotonic(), **facts})
    file = os.open(home / "events.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode() + b"\n")
        os.fsync(file)
    finally:
        os.close(file)


# Tools


def make_tools(job: Job) -> dict[str, Tool]:
    """Make the tools of a test: each tells when it starts and ends, and stops at a hold."""
    home = job.home

    async def act(ctx: ToolContext, thing: str) -> str:
        facts: dict[str, object] = {
            "tool": ctx.tool_name,
            "thing": thing,
            "call": ctx.call_id,
            "key": ctx.idempotency_key,
            "attempt": ctx.attempt,
            "token": ctx.fencing_token,
        }
        note(home, "start", **facts)
        await held(home, ctx.tool_name)
        note(home, "end", **facts)
        return f"{ctx.tool_name}({thing})"

    look = tool(act, name="look", effect="read")
    peek = tool(act, name="peek", effect="read", inline_seconds=30.0)
    book = tool(act, name="book", effect="irreversible", idempotent=True)
    charge = tool(act, name="charge", effect="irreversible")

    @tool(effect="read", inline=False)
    async def nap(ctx: ToolContext, thing: str) -> str:
        await act(ctx, thing)
        return await sleep_until.function(f"{thing} s", f"woke({thing})")

    @tool(completes="later")
    async def order(ctx: ToolContext, thing: str) -> str:
        (job.home / f"token.{thing}").write_text(ctx.completion_token)
        return await act(ctx, thing)

    async def hear(ctx: ToolContext, thing: str) -> str:
        note(home, "start", tool="hear", thing=thing)
        said: str = await wait_for_event.function(ctx, "paid", {"thing": thing})
        return said

    made = Tool.from_function(hear, description="Wait.", idempotent=True)
    known = (look, peek, book, charge, nap, order, made_as(AwaitingTool, made))
    return {each.name: each for each in known}


async def held(home: Path, what: str) -> None:
    """Wait while the test holds this."""
    while (home / f"hold.{what}").exists():
        await asyncio.sleep(POLL_SECONDS)


# Agents


class FanOut(AgentWorker):
    """Makes a branch of each word `tool:thing`: a model call, then the tool; then a last step."""

    max_parallel: ClassVar[int] = 8

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        if step.input is not None:
            ctx.add(user(step.input))
            _, name, *branches = step.input.split()
            things = [branch.split(":")[1] for branch in branches]
            following = [
                TaskStep(step_id=thing, step_state={"name": name, "tool": branch.split(":")[0]})
                for branch, thing in zip(branches, things, strict=True)
            ]
            following.append(TaskStep(step_id="last", prev_steps=tuple(things)))
            return TaskStepOutput(task_step=step, next_steps=tuple(following))
        if step.step_id == "last":
            text = " ".join(str(output) for output in ctx.inputs.values())
            ctx.add(assistant(text))
            return TaskStepOutput(output=text, task_step=step, is_last=True)
        await ctx.call_model([user(f"ask {step.step_state['name']} {step.step_id}")], tools=())
        arguments = json.dumps({"thing": step.step_id})
        call = ToolCall(id=step.step_id, name=step.step_state["tool"], arguments=arguments)
        [result] = await ctx.call_tools([call])
        return TaskStepOutput(output=result.content, task_step=step)


class AskActAsk(AgentWorker):
    """Asks the model, runs the tools that it wants, and asks again, all in one step."""

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        ctx.add(user(step.input or ""))
        wish = await ctx.call_model()
        ctx.add(wish.message)
        for result in await ctx.call_tools(wish.message.calls):
            ctx.add(result.message)
        answer = await ctx.call_model()
        ctx.add(answer.message)
        return TaskStepOutput(output=answer.text, task_step=step, is_last=True)


def make_guardrails(job: Job) -> dict[str, Any]:
    """Make guardrails: each tells when it runs."""
    home = job.home

    def check(name: str) -> Any:
        async def guard(ctx: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
            note(home, "guard", name=name)
            return GuardrailFunctionOutput(None, tripwire_triggered=False)

        return guard

    return {
        "input_guardrails": [
            InputGuardrail(check("blocking"), "blocking", run_in_parallel=False),
            InputGuardrail(check("parallel"), "parallel"),
        ],
        "output_guardrails": [OutputGuardrail(check("final"), "final")],
    }


class Errand(BaseModel):
    """The arguments of the helper: `look-a+charge-b` is two turns."""

    thing: str


class Noting(AgentHooks):
    """Notes the tool calls that it is told of."""

    def __init__(self, home: Path) -> None:
        self.home = home

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        note(self.home, "hook", name=f"start {tool.name}")

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        note(self.home, "hook", name=f"end {tool.name}")


def check_calls(job: Job, helper: Tool) -> Tool:
    """Let guardrails of a tool note what they are asked."""
    home = job.home

    async def before(data: Any) -> ToolGuardrailFunctionOutput:
        note(home, "guard", name="before")
        return ToolGuardrailFunctionOutput.allow("before")

    def after(data: Any) -> ToolGuardrailFunctionOutput:
        note(home, "guard", name="after")
        return ToolGuardrailFunctionOutput.allow("after")

    return replace(
        helper,
        tool_input_guardrails=[ToolInputGuardrail(before)],
        tool_output_guardrails=[ToolOutputGuardrail(after)],
    )


def make_helper(job: Job, tools: dict[str, Tool]) -> Tool:
    """Make a tool that is an agent with these tools."""

    def say(options: dict[str, Any]) -> str:
        turns = options["params"]["thing"].replace("+", " ").replace("-", ":")
        return f"run {job.app} {turns}"

    helper = Agent(name="helper", model="fake-model", tools=list(tools.values()))
    return helper.as_tool(parameters=Errand, input_builder=say)


SETTINGS = {"asking-once": ModelSettings(max_attempts=1)}
"""Settings of agents whose model calls are what is tested."""


def make_agent(job: Job) -> Agent:
    """Make the agent that a job names."""
    tools = make_tools(job)
    more: dict[str, Any] = {}
    worker: AgentWorker = FunctionCallingAgentWorker()
    match job.agent:
        case "plain" | "asking-once":
            pass
        case "ask-act-ask":
            worker = AskActAsk()
        case "fan":
            worker = FanOut()
        case "asking":
            tools = {name: replace(each, needs_approval=True) for name, each in tools.items()}
        case "team" | "filtering-team":
            return _make_team(job, tools)
        case "guarded":
            more = make_guardrails(job)
        case "guarded-nested":
            tools = {"helper": check_calls(job, make_helper(job, tools))}
            more = {"hooks": Noting(job.home)}
        case _:
            msg = f"no agent {job.agent!r}"
            raise ValueError(msg)
    return Agent(
        name=AGENT,
        model="fake-model",
        tools=list(tools.values()),
        worker=worker,
        model_settings=SETTINGS.get(job.agent, ModelSettings(max_attempts=5)),
        **more,
    )


class Thing(BaseModel):
    """What a handoff of the tests is about."""

    thing: str


def _as_it_is(given: HandoffInputData) -> HandoffInputData:
    """Leave the conversation as it is, by way of the archive."""
    return given


def _make_team(job: Job, tools: dict[str, Tool]) -> Agent:
    """Make an agent that only looks, and hands over to one that acts: as is, or with a note."""
    telling = tools["charge"]

    async def on_handoff(ctx: ToolContext, said: Thing) -> None:
        await telling(ctx, said.thing)

    options: dict[str, Any] = {
        "model": "fake-model",
        "model_settings": ModelSettings(max_attempts=5),
    }
    helper = Agent(name="helper", instructions="helper", tools=list(tools.values()), **options)
    view = _as_it_is if job.agent == "filtering-team" else None
    handoffs = [
        handoff(helper, input_filter=view),
        handoff(helper, "tell_helper", on_handoff=on_handoff, input_type=Thing, input_filter=view),
    ]
    return Agent(
        name=AGENT, instructions="first", tools=[tools["look"]], handoffs=handoffs, **options
    )


# Points at which a worker process kills itself, in the finest places


class Deadly(Interceptor):
    """Kills its process at a point of an activity's or a workflow's life.

    The points: "begin:<activity>" before it runs, "end:<activity>" after it ran and before its
    result is reported, "schedule:<activity>" in the workflow, "signal:<name>" and
    "signalled:<name>" before and after it has sent a signal, and "any" for each of them.
    """

    def __init__(self, job: Job) -> None:
        self.home = job.home
        self._left = dict(job.die)
        self.is_mute = job.mute

    def passed(self, place: str, kind: str) -> None:
        for point in (f"{place}:{kind}", "any"):
            if point in self._left:
                self._left[point] -= 1
                if self._left[point] == 0:
                    note(self.home, "die", point=f"{place}:{kind}")
                    os.kill(os.getpid(), signal.SIGKILL)

    def intercept_activity(
        self,
        next: ActivityInboundInterceptor,  # noqa: A002  the engine's name
    ) -> ActivityInboundInterceptor:
        return DeadlyActivity(next, self)

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        def acts(place: str, kind: str) -> None:
            if not workflow.unsafe.is_replaying():
                self.passed(place, kind)

        class Outbound(WorkflowOutboundInterceptor):
            def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
                acts("schedule", input.activity)
                return super().start_activity(input)

            def start_local_activity(
                self, input: StartLocalActivityInput
            ) -> workflow.ActivityHandle[Any]:
                acts("schedule", input.activity)
                return super().start_local_activity(input)

            async def signal_external_workflow(self, input: SignalExternalWorkflowInput) -> None:
                acts("signal", input.signal)
                await super().signal_external_workflow(input)
                acts("signalled", input.signal)

        class Inbound(WorkflowInboundInterceptor):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                super().init(Outbound(outbound))

        return Inbound


class DeadlyActivity(ActivityInboundInterceptor):
    def __init__(self, inner: ActivityInboundInterceptor, deadly: Deadly) -> None:
        super().__init__(inner)
        self._deadly = deadly

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        super().init(Mute(outbound) if self._deadly.is_mute else outbound)

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        kind = activity.info().activity_type
        hold = self._deadly.home / f"hold.begin.{kind}"
        if hold.exists():
            note(self._deadly.home, "held", kind=kind)
        while hold.exists():
            await asyncio.sleep(POLL_SECONDS)
        self._deadly.passed("begin", kind)
        try:
            return await super().execute_activity(input)
        finally:
            self._deadly.passed("end", kind)
            note(self._deadly.home, "left", kind=kind)


class Mute(ActivityOutboundInterceptor):
    def heartbeat(self, *details: Any) -> None:
        """Show no sign of life."""


# Programs


def work(job: Job) -> None:
    """Serve the agent of a job until SIGTERM."""
    log_to(job.home)
    asyncio.run(_work(job))


async def _work(job: Job) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with await _worker(job):
        note(job.home, "serving")
        await stop.wait()
    note(job.home, "stopped")


async def _worker(job: Job) -> Worker:
    """Make the worker of a job."""
    client = await connect_embedded(job.server, plugins=[HoldfastPlugin(archive=job.archive)])
    await check_archive(client, job.archive)
    options: dict[str, Any] = {
        "graceful_shutdown_timeout": timedelta(seconds=job.grace),
        "interceptors": [Deadly(job)],
        "sticky_queue_schedule_to_start_timeout": timedelta(seconds=1),
        **job.options,
    }
    os.environ |= {"OPENAI_BASE_URL": job.base_url, "OPENAI_API_KEY": "fake-key"}
    return build_worker(
        client, [(job.make or make_agent)(job)], app=job.app, archive=job.archive, **options
    )


def create(job: Job) -> None:
    """Create the task of a job, say so, and wait to be killed."""
    log_to(job.home)
    asyncio.run(_create(job))


async def _create(job: Job) -> None:
    await (await make_runner(job)).create_task(job.input, task_id=job.task_id)
    note(job.home, "created")
    await asyncio.Event().wait()


def step(job: Job) -> None:
    """Take the task of a job a step further, as the same lines do each time they are run."""
    log_to(job.home)
    asyncio.run(_step(job))


async def _step(job: Job) -> None:
    async with await make_runner(job) as runner:
        task = await runner.create_task(job.input, task_id=job.task_id, exist_ok=True)
        note(job.home, "asks")
        output = await runner.run_step(task)
        note(job.home, "stepped", sources=[str(source) for source in output.sources])


async def make_runner(job: Job, *, heartbeat: float = HEARTBEAT, **options: Any) -> AgentRunner:
    """Connect a client of its own to the app of a job."""
    client = await connect_embedded(job.server, plugins=[HoldfastPlugin(archive=job.archive)])
    options |= {"agent": AGENT, "app": job.app, "heartbeat": heartbeat}
    return AgentRunner(client=client, archive=job.archive, **options)


def log_to(home: Path) -> None:
    """Write this process's output to a file of the test."""
    file = os.open(home / "worker.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
