"""Runner: run an agent to its end, with the semantics of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from temporalio.exceptions import TemporalError

from holdfast import context_object
from holdfast.agent import Agent
from holdfast.client.base import new_id
from holdfast.client.engines import configure, engines
from holdfast.client.results import RunData, RunResult, run_items
from holdfast.client.run_config import (
    ErrorHandler,
    ErrorKind,
    RunConfig,
    as_run_config,
    run_rules,
)
from holdfast.client.runner import AgentRunner
from holdfast.client.sessions import Session
from holdfast.client.streamed_run import RunResultStreaming, direct
from holdfast.engine.loop import shared_loop
from holdfast.errors import AgentsException, HoldfastError, UserError
from holdfast.messages import Message, Usage
from holdfast.models.items import from_response_items
from holdfast.records import RunRules
from holdfast.settings import Budget
from holdfast.stream_events import AgentName
from holdfast.values import Json

__all__ = ["RunConfig", "RunData", "RunResult", "RunResultStreaming", "Runner", "configure"]

DEFAULT_MAX_TURNS = 10

RunInput = str | Sequence[dict[str, Json]]


class Runner:
    """Runs agents end to end. Each run is a task: durable, and readable by its id afterwards."""

    @classmethod
    async def run(
        cls,
        starting_agent: Agent,
        input: RunInput,
        *,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        context: Any = None,
        session: str | Session | None = None,
        run_config: RunConfig | Mapping[str, Any] | None = None,
        error_handlers: Mapping[ErrorKind, ErrorHandler] | None = None,
        runner: AgentRunner | None = None,
        task_id: str | None = None,
    ) -> RunResult:
        """Run an agent to its final output.

        A run that ends with an error leaves no trace in its session: neither its input nor what it
        had answered. Only finished runs are committed, whole. What a failed run had produced is in
        the error's `run_data`, and its task stays readable by its id.

        Args:
            starting_agent: The agent.
            input: A text, or a list of items in the form of the Responses API.
            max_turns: Most model calls; None is no limit.
            context: What tools, instructions, guardrails and hooks get as `ctx.context`: None, a
                dict, a dataclass or a pydantic model. It is recorded with the task, so it must be
                data. When this returns, the object is what the run has made of it.
            session: Session whose history the model sees and that the run is committed to.
            run_config: Settings of the run: a RunConfig, or a dict of its fields.
            error_handlers: Kind of error to what answers in its place.
            runner: The engine; else the one of `configure`, else the cluster of TEMPORAL_ADDRESS,
                else the embedded one.
            task_id: Id of the task; made up by default.

        Raises:
            MaxTurnsExceeded: One more model call would exceed max_turns.
            ModelBehaviorError: The model called a tool that does not exist.
            UserError: The run was asked for in a way that cannot be served.
            StepFailedError: A model call failed for good. The task waits: heal the cause and
                continue it with `AgentRunner.run_task(task_id)`.
            NoWorkerError: No worker process is up. The task waits, and is run by the next one; the
                error names it.
        """
        return await cls._run(
            starting_agent,
            input,
            max_turns=max_turns,
            context=context,
            session=session,
            run_config=run_config,
            error_handlers=error_handlers,
            runner=runner,
            task_id=task_id,
        )

    @classmethod
    async def _run(
        cls,
        starting_agent: Agent,
        input: RunInput,
        *,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        context: Any = None,
        session: str | Session | None = None,
        run_config: RunConfig | Mapping[str, Any] | None = None,
        error_handlers: Mapping[ErrorKind, ErrorHandler] | None = None,
        runner: AgentRunner | None = None,
        task_id: str | None = None,
        streams: bool = False,
    ) -> RunResult:
        config = as_run_config(run_config)
        rules = run_rules(config, context=context, error_handlers=error_handlers or {})
        rules = rules.model_copy(update={"streams": streams})

        async def go(engine: AgentRunner) -> RunResult:
            return await run_agent(
                engine,
                starting_agent,
                input,
                max_turns=max_turns,
                session=session,
                config=config,
                rules=rules,
                context=context,
                task_id=task_id,
            )

        async def find_and_go() -> RunResult:
            return await go(await engines.runner(starting_agent))

        if runner is not None:
            await runner.ensure_agent(starting_agent)
            return await go(runner)
        return await shared_loop().wrap(find_and_go())

    @classmethod
    def run_streamed(
        cls,
        starting_agent: Agent,
        input: RunInput,
        *,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        context: Any = None,
        session: str | Session | None = None,
        run_config: RunConfig | Mapping[str, Any] | None = None,
        error_handlers: Mapping[ErrorKind, ErrorHandler] | None = None,
        runner: AgentRunner | None = None,
        task_id: str | None = None,
    ) -> RunResultStreaming:
        """Start what `run` does and return at once; `stream_events()` tells what happens in it.

        The run goes on whether or not anybody reads, and what goes wrong in it is raised by whoever
        reads to the end. Arguments and errors are those of `run`.

        Raises:
            RuntimeError: No event loop is running in this thread.
        """
        named = task_id or new_id(starting_agent.name)
        agents = {agent.name: agent for agent in (starting_agent, *starting_agent.team())}

        async def find() -> AgentRunner:
            if runner is not None:
                await runner.ensure_agent(starting_agent)
                return runner
            return await engines.runner(starting_agent)

        def run() -> Coroutine[Any, Any, RunResult]:
            return cls._run(
                starting_agent,
                input,
                max_turns=max_turns,
                context=context,
                session=session,
                run_config=run_config,
                error_handlers=error_handlers,
                runner=runner,
                task_id=named,
                streams=True,
            )

        return RunResultStreaming(
            starting_agent,
            input,
            named,
            run=run,
            find_engine=find,
            find_agent=lambda name: agents.get(name) or AgentName(name),
            wrap=direct if runner is not None else shared_loop().wrap,
        )

    @classmethod
    def run_sync(cls, starting_agent: Agent, input: RunInput, **options: Any) -> RunResult:
        """Do what `run` does, and block until it is done.

        Raises:
            RuntimeError: An event loop is running in this thread; use `run` there.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return shared_loop().run(cls.run(starting_agent, input, **options))
        msg = "Runner.run_sync cannot be used inside a running event loop: await Runner.run there."
        raise RuntimeError(msg)


async def run_agent(
    engine: AgentRunner,
    agent: Agent,
    given: RunInput,
    *,
    max_turns: int | None,
    session: str | Session | None,
    config: RunConfig,
    rules: RunRules,
    context: Any,
    task_id: str | None,
) -> RunResult:
    """Run a task in the Agents SDK's dialect and collect its result."""
    if max_turns is not None and max_turns < 0:
        msg = f"max_turns must be at least 0, or None for no limit; it was {max_turns}."
        raise UserError(msg)
    text, before = _split(given)
    task_id = task_id or new_id(agent.name)
    budget = None if max_turns is None else Budget(max_turns=max_turns, on_exceeded="fail")
    try:
        output = await engine.run_to_end(
            text,
            task_id=task_id,
            agent=agent.name,
            before=before,
            session=session,
            budget=budget,
            model=config.model if isinstance(config.model, str) else "",
            settings=config.model_settings,
            run=rules,
            extra_state=context_object.initial_state(context),
        )
    except AgentsException as error:
        error.run_data = await _data_of_failed(engine, agent, task_id, given, error)
        raise
    data = await run_data(engine, task_id, given)
    return RunResult(**vars(data), final_output=output.output, waiting_for=output.waiting_for)


def _split(given: RunInput) -> tuple[str, tuple[Message, ...]]:
    """Split a run's input into the new text and the messages that come before it."""
    if isinstance(given, str):
        return given, ()
    messages = from_response_items(given)
    if not messages:
        msg = "The input list is empty; give at least one item, or a text."
        raise UserError(msg)
    return "", messages


async def _data_of_failed(
    engine: AgentRunner, agent: Agent, task_id: str, given: RunInput, error: AgentsException
) -> RunData:
    """Read what a failed run has produced, as far as it can be read: the error matters more."""
    try:
        return await run_data(engine, task_id, given)
    except (HoldfastError, TemporalError, ValueError) as trouble:
        error.add_note(f"What the run had produced could not be read: {trouble}")
    return RunData(
        input=given if isinstance(given, str) else list(given),
        new_items=[],
        last_agent=agent.name,
        usage=Usage(),
        task_id=task_id,
    )


async def run_data(engine: AgentRunner, task_id: str, given: RunInput) -> RunData:
    """Read what a run has produced, the open step of a failed one included."""
    task = await engine.get_task(task_id)
    messages = await engine.all_messages(task_id)
    is_text = isinstance(given, str) and bool(messages) and messages[0].role == "user"
    own = messages[1:] if is_text else messages
    return RunData(
        input=given if isinstance(given, str) else list(given),
        new_items=run_items(own, task.agent),
        last_agent=task.agent,
        usage=task.usage,
        task_id=task_id,
    )
