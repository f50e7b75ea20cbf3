"""Runner: run an agent to its end, with the semantics of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from typing_extensions import Unpack

from holdfast.agents.agent import Agent
from holdfast.agents.agent_base import users_agent
from holdfast.agents.hooks import RunHooksBase
from holdfast.agents.items.run_items import RunItem, ToolApprovalItem
from holdfast.agents.run_config import RunConfig
from holdfast.agents.runs.item_helpers import ItemHelpers, RunInput
from holdfast.agents.runs.results import ModelResponse, RunData, RunResult
from holdfast.agents.runs.rules import ErrorHandler, ErrorKind
from holdfast.agents.runs.state import DEFAULT_MAX_TURNS, RunState
from holdfast.agents.runs.teams import reachable
from holdfast.client import blocking
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.client.agent_runner.sessions import Session
from holdfast.client.caller_sessions.protocol import SessionLike
from holdfast.client.runner.arguments import RunArguments, checked_call
from holdfast.client.runner.engines import configure, engines
from holdfast.client.runner.input import RUNNER, RunCall, check_input
from holdfast.client.runner.one_run import Started, begin, go_on
from holdfast.client.runner.streamed_run import RunResultStreaming
from holdfast.client.streamed import Wrap, direct
from holdfast.engine.loop import shared_loop
from holdfast.engine.tracebacks import without_plumbing
from holdfast.errors import UserError
from holdfast.values.checks.ids import (
    check_new_id,
)
from holdfast.values.code.code_refs import beginning
from holdfast.values.text.shown import shown

__all__ = [
    "ItemHelpers",
    "ModelResponse",
    "RunConfig",
    "RunData",
    "RunItem",
    "RunResult",
    "RunResultStreaming",
    "RunState",
    "Runner",
    "ToolApprovalItem",
    "configure",
]


@without_plumbing
class Runner:
    """Runs agents end to end. Each run is a task: durable, and readable by its id afterwards."""

    @classmethod
    async def run(
        cls,
        starting_agent: Agent,
        input: RunInput | RunState,
        *,
        context: Any = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooksBase[Any, Any] | None = None,
        run_config: RunConfig | Mapping[str, Any] | None = None,
        error_handlers: Mapping[ErrorKind, ErrorHandler] | None = None,
        session: str | Session | blocking.Session | SessionLike | None = None,
        runner: AgentRunner | blocking.AgentRunner | None = None,
        task_id: str | None = None,
        exist_ok: bool = False,
        by: str = RUNNER,
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        auto_previous_response_id: bool = False,
    ) -> RunResult:
        """Run an agent to its final output, or to where a person must decide.

        A run that waits for a person returns, with `interruptions`. Decide on them with `state =
        result.to_state()`, then run the state: the task goes on from there, with the session
        and the limit of turns that it began with. `run_config` and `error_handlers` given with a
        state hold from then on; `docs/runner_reference.md` says which settings may be given.

        Args:
            starting_agent: The agent; for a state, the one with which its run began, or another of
                its team.
            input: A text, a list of items in the form of the Responses API, or the state of a run
                to resume.
            context: The object that tools, instructions, guardrails and hooks get as `ctx.context`:
                None, a dict, a dataclass or a pydantic model, or the context of another run or of a
                call, whose object it is then. It is recorded with the task, so it
                must be data. When this returns or raises, the object has the changes that the run
                has made.
            max_turns: Most model calls; None for no limit.
            hooks: Called in this process with what the run does. A hook that raises ends the run:
                its task is abandoned, and the exception is raised here.
            run_config: Settings of the run: a RunConfig, or a dict of its fields.
            error_handlers: Kind of error to the handler that answers in its place.
            session: Session whose history the model sees and that the run is committed to: a name,
                a Session, or an object of your own with get_items and the like, which this process
                reads when the run begins and writes when it has ended (`docs/sessions.md`).
            runner: The engine, also one of `holdfast.sync`; else the one of `configure`, else the
                cluster of TEMPORAL_ADDRESS, else the embedded one.
            task_id: Id of the task; made up by default.
            exist_ok: Whether a task of this id with the same input, agent and session is gone on
                with, or its result returned: the same lines run twice make one task.
            by: Name recorded with the decisions of a state.
            previous_response_id: Response of the Responses API that the run goes on from: each
                model call sends only what the provider does not have yet.
            conversation_id: Conversation of the Responses API that the run goes on with.
            auto_previous_response_id: Whether each model call goes on from the one before it.

        Raises:
            MaxTurnsExceeded: One more model call would exceed max_turns.
            ModelBehaviorError: The model called a tool that does not exist.
            UserError: An argument cannot be served.
            TypeError: The hooks are not RunHooks.
            StepFailedError: A step failed. The task waits: fix the cause and continue it with
                `Runner.run(agent, RunState.of(error.task_id))`.
            NoWorkerError: No worker process is up. The task waits, and is run by the next one; the
                error names it.
        """
        engine, wrap = _engine_given(runner)
        call = checked_call(
            starting_agent,
            input,
            {
                "context": context,
                "max_turns": max_turns,
                "hooks": hooks,
                "run_config": run_config,
                "error_handlers": error_handlers,
                "session": session,
                "task_id": task_id,
                "exist_ok": exist_ok,
                "by": by,
                "previous_response_id": previous_response_id,
                "conversation_id": conversation_id,
                "auto_previous_response_id": auto_previous_response_id,
            },
        )
        return await wrap(_run(call, engine))

    @classmethod
    def run_streamed(
        cls, starting_agent: Agent, input: RunInput | RunState, **arguments: Unpack[RunArguments]
    ) -> RunResultStreaming:
        """Start a run and return at once; `stream_events()` yields its events.

        The run goes on whether or not its events are read. Its errors are raised at the end of
        `stream_events()` and by `result()`. Arguments and errors are those of `run`. A resumed run
        streams its answers if it was begun by `run_streamed` as well; else each comes whole.

        Raises:
            RuntimeError: No event loop is running in this thread.
        """
        engine, wrap = _engine_given(arguments.get("runner"))
        if not isinstance(input, RunState) or input.is_new:
            check_input(input.original_input if isinstance(input, RunState) else input)
        call = checked_call(starting_agent, input, arguments, streams=True)
        return RunResultStreaming(
            call.agent,
            [] if call.input is None else call.input,
            call.task_id,
            run=lambda started: wrap(_run(call, engine, started)),
            find_engine=lambda: find_engine(call.agent, engine),
            context=call.context,
            reviver=call.reviver,
            by=call.by,
            resumes=call.input is None,
            wrap=wrap,
        )

    @classmethod
    def run_sync(
        cls, starting_agent: Agent, input: RunInput | RunState, **arguments: Unpack[RunArguments]
    ) -> RunResult:
        """Do what `run` does, and block until it is done.

        Raises:
            RuntimeError: An event loop is running in this thread; use `run` there.
        """
        if _is_in_loop():
            msg = "Runner.run_sync cannot be used inside a running event loop: await Runner.run."
            raise RuntimeError(msg)
        engine, _ = _engine_given(arguments.get("runner"))

        async def run() -> RunResult:
            call = checked_call(starting_agent, input, arguments)
            return await shared_loop().wrap(_run(call, engine))

        # The run lives on the shared loop, the caller's functions are called here: one that blocks
        # must not stop heartbeats. A loop made so is not left set in the thread, as by asyncio.run.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as own:
            return own.run(run())


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _engine_given(runner: object) -> tuple[AgentRunner | None, Wrap]:
    """Return the given engine, and a function that awaits in the loop on which it lives.

    Raises:
        UserError: It is not an AgentRunner.
    """
    if isinstance(runner, AgentRunner):
        return runner, direct
    if isinstance(runner, blocking.AgentRunner):
        return runner.twin, shared_loop().wrap
    if runner is None:
        return None, shared_loop().wrap
    msg = f"runner must be an AgentRunner; it was {shown(runner)} ({type(runner).__name__})."
    raise UserError(msg)


async def _run(
    call: RunCall, runner: AgentRunner | None, started: Started | None = None
) -> RunResult:
    given = call.given
    with beginning(call.head.run.code):
        if not isinstance(given, RunState):
            check_new_id(call.task_id)
        engine = await find_engine(call.agent, runner)
    if not engine.is_embedded:  # other processes know their agents by the names these were given
        reachable([users_agent(call.agent)])
    if isinstance(given, RunState):
        return await go_on(engine, call, given, started)
    return await begin(engine, call, given, started)


async def find_engine(agent: Agent, runner: AgentRunner | None) -> AgentRunner:
    """Return the given engine, else the process's own, once it serves the agent."""
    if runner is None:
        return await engines.runner(agent)
    await runner.ensure_agent(agent)
    return runner
