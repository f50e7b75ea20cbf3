"""One run: begun or resumed, up to its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from temporalio.exceptions import TemporalError

from holdfast.agents.agent_base import users_agent
from holdfast.agents.nesting.agent_tool import invocation_of
from holdfast.agents.runs.guardrail_results import with_known
from holdfast.agents.runs.item_helpers import RunInput
from holdfast.agents.runs.results import RunData, RunResult
from holdfast.agents.runs.state import RunState
from holdfast.agents.runs.teams import has_servers, team_of
from holdfast.client.agent_runner.approvals import AGAIN_SECONDS
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.client.caller_sessions.store import CallerStore
from holdfast.client.caller_sessions.turns import write_turn
from holdfast.client.runner.input import (
    RUNNER,
    Given,
    RunCall,
    read_input,
    with_caller_input,
    with_input,
    with_known_input,
)
from holdfast.client.runner.resumed_task import (
    change_of,
    check_resumable,
    checked_decisions,
    give_settings,
    replaced_code,
    send_decision,
)
from holdfast.errors import (
    AgentsException,
    CommandRefusedError,
    GuardrailTripwireTriggered,
    HoldfastError,
    InvalidArgumentError,
    ModelBehaviorError,
    StepFailedError,
    TaskClosedError,
    TaskExistsError,
    UserError,
)
from holdfast.reading.run_hooks import HookFailed, HookNotifier
from holdfast.reading.runs.recorded import Recorded, read_recorded
from holdfast.reading.runs.run_results import (
    add_followed,
    known_guardrails,
    listed,
    run_data,
    run_result_beside,
)
from holdfast.task.data.failures import HANDOFF_MISSING, TOOL_CHANGED, TOOL_MISSING
from holdfast.task.data.head import TaskHead
from holdfast.values.code import raised, user_calls
from holdfast.values.code.code_refs import beginning, hold, refer, release, take_back
from holdfast.values.code.context_data import KEY, initial_state
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.runs.status import CLOSED
from holdfast.values.text.shown import shown

T = TypeVar("T")

Started = Callable[[], None]
"""Called once the server has confirmed that this run created its task, or owns it."""


async def begin(
    engine: AgentRunner, call: RunCall, given: RunInput, started: Started | None = None
) -> RunResult:
    """Run a new task with the Agents SDK's semantics and return its result.

    Raises:
        AgentsException: The run has ended with it; its `run_data` has the items up to then.
        HoldfastError: The task waits, see `Runner.run`.
    """
    rules = call.head.run
    if engine.is_embedded:
        rules = rules.model_copy(update={"agent": refer(call.agent)})
    with beginning(rules.code):
        head, read = await _with_input(
            engine, call, call.head.model_copy(update={"run": rules}), given
        )
        call.context.begins()
        state = initial_state(call.context.object)
    hold(call.task_id, rules.code)
    run = _Run(engine, replace(call, head=head), started=started, context=call.context.object)
    work = engine.run_to_end(
        read.text,
        head,
        task_id=call.task_id,
        budget=call.budget,
        extra_state=state,
        title=read.title,
        started=run.started,
        exist_ok=call.exist_ok,
    )
    return await run.result_of(work)


async def _with_input(
    engine: AgentRunner, call: RunCall, head: TaskHead, given: RunInput
) -> tuple[TaskHead, Given]:
    """Return the head of a new run with its session, and its input."""
    session, config = call.session, call.config
    if not isinstance(session, CallerStore):
        own = None if session is None else engine.session(session)
        read = await read_input(given, own, config, call.invoke)
        return await with_input(head, read, own, engine.archive, task=call.task_id), read
    if call.exist_ok:
        known = await with_known_input(
            head, given, session, config=config, reader=engine.reader, task_id=call.task_id
        )
        if known is not None:
            return known
    return await with_caller_input(
        head,
        given,
        session,
        config=config,
        call=call.invoke,
        archive=engine.archive,
        task=call.task_id,
    )


async def go_on(
    engine: AgentRunner, call: RunCall, state: RunState, started: Started | None = None
) -> RunResult:
    """Send the decisions of a state, run its task on, and return the result.

    Raises:
        UserError: As for `check_resumable`.
        CommandRefusedError: A decision of the state contradicts one that was made elsewhere.
        AgentsException: As for `begin`.
        HoldfastError: As for `begin`.
    """
    call.context.goes_on()
    with beginning(call.head.run.code):
        before = await read_recorded(engine.reader, state.task_id)
        await check_resumable(engine, call, before)
        context = call.context.object
        if call.reviver is not None:  # also to find out here, where nothing has happened yet
            context = await call.reviver.of(before.task.extra_state.get(KEY))
        change = change_of(call, before)
    call = replace(call, change=change)
    run = _Run(engine, call, started=started, context=context)
    run.started()
    if engine.is_embedded:
        user_calls.carry(state.task_id)
    return await run.result_of(_decide_and_go(engine, call, state, before), before=before)


async def _decide_and_go(
    engine: AgentRunner, call: RunCall, state: RunState, before: Recorded
) -> None:
    by = call.by
    if call.change is not None:
        await give_settings(engine, state, call.change, by)
    ready = await checked_decisions(engine, state, by, is_over=before.task.status in CLOSED)
    for request_id, text in state.added_input:  # first: a decision may let the task end
        await _add_input(engine, state.task_id, text, by=by, request_id=request_id)
    for approval, decision in ready:
        await send_decision(engine, approval, decision, by)
    if before.task.paused_by_run:
        with suppress(CommandRefusedError, TaskClosedError):  # resumed or ended meanwhile
            await engine.resume(state.task_id, by=by)
    await engine.run_on(state.task_id)


async def _add_input(
    engine: AgentRunner, task_id: str, text: str, *, by: str, request_id: str
) -> None:
    """Give a task what was added to its state, once.

    Raises:
        TaskClosedError: The task ended without it.
    """
    try:
        await engine.give_feedback(task_id, text, by=by, request_id=request_id)
    except TaskClosedError as error:
        events = [entry.event for entry in await engine.reader.entries(task_id) if entry.event]
        if any(event.body.get("id") == request_id for event in events):
            return  # an earlier run of this state has sent it
        raise TaskClosedError(
            f"Task {task_id!r} has ended, and no model has read what was added to its state:"
            f" {shown(text)}. Runner.run(agent, RunState.of({task_id!r})) returns how it ended. To"
            " go on with this input, add it to that result's to_state()."
        ) from error


class _Run:
    """One call of `Runner.run` on its task."""

    def __init__(
        self, engine: AgentRunner, call: RunCall, *, started: Started | None, context: Any
    ) -> None:
        self._engine = engine
        self._call = call
        self._context = context  # of its hooks
        self._is_abandoned = False
        self._on_start = started
        self._is_started = asyncio.Event()

    def started(self) -> None:
        """Note that the task is this run's own. Until then it is neither read nor stopped."""
        self._is_started.set()
        if self._on_start is not None:
            self._on_start()

    async def result_of(
        self, work: Coroutine[Any, Any, None], before: Recorded | None = None
    ) -> RunResult:
        """Wait for the run, then read its result.

        Args:
            work: Runs the task to its end.
            before: The task as it was, of a resumed run.
        """
        try:
            return await self._result_of(work, before)
        finally:  # not when the task is closed, which may be before its caller has looked
            raised.drop(self._call.task_id)

    async def _result_of(
        self, work: Coroutine[Any, Any, None], before: Recorded | None
    ) -> RunResult:
        try:
            recorded = await self._followed(work, before)
        except HookFailed as failed:
            self._forget(is_over=self._is_abandoned)
            await self._bring_context(failed)
            raise failed.raised from None
        except (AgentsException, StepFailedError) as error:
            shown = _as_raised(error)
            data = await self._explain(shown)
            self._forget(is_over=not isinstance(error, StepFailedError))
            await self._write_turn(data, folds=False)
            causes = (shown.__cause__, error.__cause__, self._cause_of(shown))
            raise shown from next((each for each in causes if each is not None), None)
        except (TaskExistsError, InvalidArgumentError):
            if before is None:  # the task was not created by this run
                take_back(self._call.task_id, self._call.head.run.code)
            raise
        change = self._call.change
        if change is not None and before is not None:
            release(self._call.task_id, replaced_code(change, before, recorded))
        self._forget(is_over=recorded.task.status in CLOSED)
        call = self._call
        result = await run_result_beside(
            recorded, call.agent, given=call.input, context=call.context, config=call.config
        )
        if recorded.head.follows is not None:
            await add_followed(result, recorded, self._engine.reader, call.known_by)
        if call.reviver is not None:
            await call.reviver.complete(result)
        if call.tool_call is not None:
            result.agent_tool_invocation = invocation_of(call.tool_call)
        await self._write_turn(result)
        return result

    def _cause_of(self, error: Exception) -> Exception | None:
        """Return what the tool raised whose error has ended the run, if it ran in this process."""
        is_of_tool = isinstance(error, UserError) and "Error running tool" in str(error)
        return raised.cause_of(self._call.task_id, str(error)) if is_of_tool else None

    async def _write_turn(self, data: RunData, *, folds: bool = True) -> None:
        """Write the turn of a run that has ended to the session of the caller, if it has one.

        Args:
            data: What the run has made.
            folds: Whether the session may fold itself: what a guardrail has stopped is in the
                provider's response, and would come into the session.
        """
        session = self._call.session
        if not isinstance(session, CallerStore):
            return
        session.wrapper = data.context_wrapper
        is_written = await write_turn(session, self._engine.reader, self._call.task_id)
        if is_written and folds and _ends_in_answer(data):
            config = self._call.config
            settings = data.last_agent.model_settings.resolve(config.model_settings)
            shown = data.to_input_list(mode="normalized")
            if config.call_model_input_filter is not None:
                shown = []  # it is not recorded what the filter has left
            await session.compact(data.last_response_id, shown, settings)

    def _forget(self, *, is_over: bool) -> None:
        """Release the code that was registered for the run, once it is over."""
        if is_over:
            release(self._call.task_id)

    async def _followed(self, work: Coroutine[Any, Any, None], before: Recorded | None) -> Recorded:
        """Wait for the run and read it, calling its hooks meanwhile."""
        call = self._call
        if call.hooks is None:
            return await self._until_rest(work)
        given = call.input
        if given is None:
            given = [] if before is None else run_data(before, call.agent).input
        notifier = HookNotifier(
            call.hooks,
            self._engine.reader,
            call.task_id,
            call=call.invoke,
            team=team_of(call.agent, first=before.task.agent if before else ""),
            context=self._context,
            given=given,
        )
        if before is not None:
            await notifier.look(notifies=False)
        return await notifier.notify_during(self._until_rest(work), self._abandon, self._is_started)

    async def _until_rest(self, work: Coroutine[Any, Any, None]) -> Recorded:
        """Wait until the run is over or needs a person, and read it.

        A decision may arrive after the run has returned that it waits: then it goes on.
        """
        await work
        while True:
            recorded = await self._read()
            task = recorded.task
            if task.status == "running" and not task.paused:
                await self._engine.run_on(self._call.task_id)
            elif task.status == "waiting" and not recorded.approvals and not task.error:
                await asyncio.sleep(AGAIN_SECONDS)  # a decision is being applied
            else:
                return recorded

    async def _read(self) -> Recorded:
        call = self._call
        return await read_recorded(
            self._engine.reader, call.task_id, servers=has_servers(call.agent)
        )

    async def _abandon(self, failed: HookFailed) -> bool:
        """Abandon the task of a run whose hook has raised; return whether the task is over."""
        cause = failed.raised
        reason = f"hook {failed} raised {type(cause).__name__}: {cause}"
        try:
            await self._engine.abandon(self._call.task_id, reason[:1000], by=RUNNER)
        except (CommandRefusedError, TaskClosedError):  # it has ended already
            self._is_abandoned = True
        except HoldfastError as trouble:
            cause.add_note(f"Task {self._call.task_id!r} could not be abandoned: {trouble}")
        else:
            self._is_abandoned = True
        return self._is_abandoned

    async def _bring_context(self, failed: HookFailed) -> None:
        """Let the caller's context have what a run has changed that its hook has ended."""
        try:
            recorded = await self._read()
            self._call.context.update(recorded.task.extra_state.get(KEY))
        except (HoldfastError, TemporalError, ValueError) as trouble:
            failed.raised.add_note(
                f"What the run has changed in its context is not known: {trouble}"
            )

    async def _explain(self, error: AgentsException | StepFailedError) -> RunData:
        """Put what the run had made into its error, or a note that it could not be read.

        Returns:
            What it had made, as far as it could be read.
        """
        call = self._call
        try:
            recorded = await self._read()
            data = run_data(
                recorded, call.agent, given=call.input, context=call.context, config=call.config
            )
            await add_followed(data, recorded, self._engine.reader, call.known_by)
            if call.reviver is not None:
                await call.reviver.complete(data)
        except (HoldfastError, TemporalError, ValueError) as trouble:
            error.add_note(f"What the run had produced could not be read: {trouble}")
            data = RunData(
                input=listed([] if call.input is None else call.input),
                last_agent=users_agent(call.agent),
                context_wrapper=RunContextWrapper(self._context, task_id=call.task_id),
                task_id=call.task_id,
            )
        error.run_data = data
        if isinstance(error, GuardrailTripwireTriggered):
            known = known_guardrails(call.agent, call.config)
            found = data.output_guardrail_results
            error.guardrail_result = with_known(error.guardrail_result, known, found)
        return data


def _ends_in_answer(data: RunData) -> bool:
    """Whether nothing came after the last answer of a model, which it would not know.

    An error handler may have given the output instead of the model.
    """
    said = data.raw_responses[-1].output if data.raw_responses else []
    return bool(data.new_items) and data.new_items[-1].raw_item in said


def _as_raised(error: AgentsException | StepFailedError) -> AgentsException | StepFailedError:
    """Return the error of the class that the Agents SDK raises; the task waits in either case."""
    if not isinstance(error, StepFailedError):
        return error
    if error.__cause__ is not None:  # code of the user's raised it in this process
        return error
    if error.cause_type in (TOOL_MISSING, HANDOFF_MISSING, TOOL_CHANGED):
        made = raised.also_of(error, ModelBehaviorError(*error.args))
        made.__cause__ = None
        return made
    if error.cause_type == UserError.__name__:
        return UserError(*error.args, remedy=error.remedy)
    return error
