"""Runner: run an agent to its end, with the semantics of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from holdfast.agent import Agent
from holdfast.client.calling_back import CallerLoop
from holdfast.client.engines import configure, engines
from holdfast.client.items import RunItem, ToolApprovalItem
from holdfast.client.results import ItemHelpers, ModelResponse, RunData, RunInput, RunResult
from holdfast.client.run_config import (
    ErrorHandler,
    ErrorKind,
    RunConfig,
    as_run_config,
    run_rules,
)
from holdfast.client.run_state import RunState
from holdfast.client.runner import AgentRunner
from holdfast.client.running import RunOptions, begin, go_on
from holdfast.client.sessions import Session
from holdfast.engine.loop import shared_loop
from holdfast.hooks import RunHooks

__all__ = [
    "ItemHelpers",
    "ModelResponse",
    "RunConfig",
    "RunData",
    "RunItem",
    "RunResult",
    "RunState",
    "Runner",
    "ToolApprovalItem",
    "configure",
]

DEFAULT_MAX_TURNS = 10


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
        hooks: RunHooks | None = None,
        run_config: RunConfig | Mapping[str, Any] | None = None,
        error_handlers: Mapping[ErrorKind, ErrorHandler] | None = None,
        session: str | Session | None = None,
        runner: AgentRunner | None = None,
        task_id: str | None = None,
        by: str = "Runner",
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
    ) -> RunResult:
        """Run an agent to its final output, or to where a person must decide.

        A run that waits for a person returns, with `interruptions`. Decide on them with
        `state = result.to_state()`, then run the state: the task goes on where it stands. What it
        was begun with stands then too: its turns and their limit, its session, its settings.

        Args:
            starting_agent: The agent; for a state, the one with which its run began or another one
                of its team.
            input: A text, a list of items in the form of the Responses API, or the state of a run
                that is to go on.
            context: What tools, instructions, guardrails and hooks get as `ctx.context`: None, a
                dict, a dataclass or a pydantic model. It is recorded with the task, so it must be
                data. When this returns or raises, the object is what the run has made of it.
            max_turns: Most model calls; None is no limit.
            hooks: Told what the run does, in this process. A hook that raises ends the run: its
                task is abandoned, and what it raised is raised here.
            run_config: Settings of the run: a RunConfig, or a dict of its fields.
            error_handlers: Kind of error to what answers in its place.
            session: Session whose history the model sees and that the run is committed to.
            runner: The engine; else the one of `configure`, else the cluster of TEMPORAL_ADDRESS,
                else the embedded one.
            task_id: Id of the task; made up by default.
            by: Who decided what a state has decisions on.
            previous_response_id: Not supported, nor is the next: a session is the memory of runs.
            conversation_id: As said.

        Raises:
            MaxTurnsExceeded: One more model call would exceed max_turns.
            ModelBehaviorError: The model called a tool that does not exist.
            UserError: The run was asked for in a way that cannot be served.
            TypeError: The hooks are none of a run.
            StepFailedError: A model call failed for good. The task waits: heal the cause and
                continue it with `Runner.run(agent, RunState.of(error.task_id))`.
            NoWorkerError: No worker process is up. The task waits, and is run by the next one; the
                error names it.
        """
        return await cls._run(
            starting_agent,
            input,
            context=context,
            max_turns=max_turns,
            hooks=hooks,
            run_config=run_config,
            error_handlers=error_handlers,
            session=session,
            runner=runner,
            task_id=task_id,
            by=by,
            previous_response_id=previous_response_id,
            conversation_id=conversation_id,
        )

    @classmethod
    async def _run(
        cls,
        starting_agent: Agent,
        input: RunInput | RunState,
        *,
        context: Any = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks | None = None,
        run_config: RunConfig | Mapping[str, Any] | None = None,
        error_handlers: Mapping[ErrorKind, ErrorHandler] | None = None,
        session: str | Session | None = None,
        runner: AgentRunner | None = None,
        task_id: str | None = None,
        by: str = "Runner",
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        streams: bool = False,
    ) -> RunResult:
        config = as_run_config(run_config)
        rules = run_rules(config, context=context, error_handlers=error_handlers or {})
        options = RunOptions(
            max_turns=max_turns,
            session=session,
            config=config,
            rules=rules.model_copy(update={"streams": streams}),
            context=context,
            hooks=hooks,
            task_id=task_id,
            by=by,
            call=CallerLoop().call,
        )
        options.check(starting_agent, previous_response_id or conversation_id)

        async def go(engine: AgentRunner) -> RunResult:
            if isinstance(input, RunState):
                return await go_on(engine, starting_agent, input, options)
            return await begin(engine, starting_agent, input, options)

        return await on_engine(starting_agent, runner, go)

    @classmethod
    def run_sync(
        cls,
        starting_agent: Agent,
        input: RunInput | RunState,
        *,
        context: Any = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks | None = None,
        run_config: RunConfig | Mapping[str, Any] | None = None,
        error_handlers: Mapping[ErrorKind, ErrorHandler] | None = None,
        session: str | Session | None = None,
        runner: AgentRunner | None = None,
        task_id: str | None = None,
        by: str = "Runner",
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
    ) -> RunResult:
        """Do what `run` does, and block until it is done.

        Raises:
            RuntimeError: An event loop is running in this thread; use `run` there.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            run = cls.run(
                starting_agent,
                input,
                context=context,
                max_turns=max_turns,
                hooks=hooks,
                run_config=run_config,
                error_handlers=error_handlers,
                session=session,
                runner=runner,
                task_id=task_id,
                by=by,
                previous_response_id=previous_response_id,
                conversation_id=conversation_id,
            )
            return shared_loop().run(run)
        msg = "Runner.run_sync cannot be used inside a running event loop: await Runner.run there."
        raise RuntimeError(msg)


async def on_engine(
    agent: Agent,
    runner: AgentRunner | None,
    go: Callable[[AgentRunner], Awaitable[RunResult]],
) -> RunResult:
    """Do something with the engine of a run: the one given, else the process's own on its loop."""

    async def find_and_go() -> RunResult:
        return await go(await engines.runner(agent))

    if runner is not None:
        await runner.ensure_agent(agent)
        return await go(runner)
    return await shared_loop().wrap(find_and_go())
