"""One run: begun or resumed, up to its result."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from temporalio.exceptions import TemporalError

from holdfast.agents.agent import Agent
from holdfast.agents.hooks import RunHooks, check_run_hooks
from holdfast.agents.run_config import RunConfig
from holdfast.agents.runs.guardrail_results import with_known
from holdfast.agents.runs.item_reading import team_of
from holdfast.agents.runs.results import RunData, RunInput, RunResult
from holdfast.agents.runs.state import RunState
from holdfast.client.agent_runner.base import new_id
from holdfast.client.agent_runner.control import AGAIN_SECONDS
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.client.agent_runner.sessions import Session
from holdfast.client.runner.decisions import send_decisions
from holdfast.client.runner.hooks import HookFailed, HookNotifier
from holdfast.client.runner.input import Call, read_input
from holdfast.errors import (
    AgentsException,
    CommandRefusedError,
    GuardrailTripwireTriggered,
    HoldfastError,
    InvalidArgumentError,
    StepFailedError,
    TaskClosedError,
    TaskExistsError,
    UserError,
    remedy_of,
)
from holdfast.reading.recorded import Recorded, read_recorded
from holdfast.reading.run_results import known_guardrails, listed, run_data, run_result
from holdfast.task.data.head import RunRules
from holdfast.values.checks.ids import DEFAULT_APP, check_by, check_known_id, session_id
from holdfast.values.code import context_data as context_object
from holdfast.values.code import user_calls
from holdfast.values.code.code_refs import beginning, forget, refer
from holdfast.values.run_context import RunContextWrapper
from holdfast.values.settings import Budget
from holdfast.values.steps import CLOSED
from holdfast.values.text.shown import shown

T = TypeVar("T")

Started = Callable[[], None]
"""Called once the server has confirmed that this run created its task, or owns it."""

RUNNER = "Runner"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The arguments of a run, checked; see `Runner.run`.

    Attributes:
        max_turns: Most model calls.
        session: Session.
        config: Settings.
        rules: The same, as data.
        context: The caller's context object.
        hooks: Called with what the run does.
        task_id: Id of the task.
        by: Who decides.
        call: Calls the caller's functions.
    """

    max_turns: int | None
    session: str | Session | None
    config: RunConfig
    rules: RunRules
    context: Any
    hooks: RunHooks | None
    task_id: str | None
    by: str
    call: Call

    def check(self, agent: object, *, keeps_elsewhere: bool) -> None:
        """Refuse arguments that cannot be served, before anything is created.

        Raises:
            UserError: The agent is not an Agent, max_turns is negative, the provider is to keep the
                conversation, or a name is not a text.
            TypeError: The hooks are not RunHooks.
        """
        if not isinstance(agent, Agent):
            msg = (
                f"starting_agent must be an Agent; it was {shown(agent)} ({type(agent).__name__})."
            )
            raise UserError(msg)
        turns: object = self.max_turns
        is_count = isinstance(turns, int) and not isinstance(turns, bool) and turns >= 0
        if turns is not None and not is_count:
            msg = f"max_turns must be at least 0, or None for no limit; it was {shown(turns)}."
            raise UserError(msg)
        if keeps_elsewhere:
            msg = (
                "previous_response_id, auto_previous_response_id and conversation_id are not"
                " supported: a task's record must hold the whole conversation to survive a crash,"
                " so the provider cannot keep it. Use session=... to continue a conversation."
            )
            raise UserError(msg)
        try:
            self._check_names()
        except InvalidArgumentError as error:
            raise UserError(*error.args, remedy=remedy_of(error)) from None
        check_run_hooks(self.hooks)

    def _check_names(self) -> None:
        """Refuse names that cannot be used.

        Raises:
            InvalidArgumentError: A name is too long, or not a text.
        """
        if self.task_id is not None:
            check_known_id(self.task_id, "task_id")
        check_by(self.by)
        session = cast("object", self.session)
        if isinstance(session, str):
            session_id(DEFAULT_APP, session)
        elif session is not None and not isinstance(session, Session):
            kind = type(session).__name__
            msg = f"session must be a name or a Session; it was {shown(session)} ({kind})."
            raise InvalidArgumentError(msg)


async def begin(
    engine: AgentRunner,
    agent: Agent,
    given: RunInput,
    options: RunOptions,
    started: Started | None = None,
) -> RunResult:
    """Run a new task with the Agents SDK's semantics and return its result.

    Raises:
        AgentsException: The run has ended with it; its `run_data` has the items up to then.
        HoldfastError: The task waits, see `Runner.run`.
    """
    if engine.is_embedded:
        rules = options.rules.model_copy(update={"agent": refer(agent)})
        options = dataclasses.replace(options, rules=rules)
    session = None if options.session is None else engine.session(options.session)
    with beginning(options.rules.code):
        read = await read_input(given, session, options.config, options.call)
    task_id = options.task_id or new_id(agent.name)
    model = options.config.model
    turns = options.max_turns
    run = _Run(engine, agent, task_id, given, options, started=started)
    work = engine.run_to_end(
        read.text,
        task_id=task_id,
        agent=agent.name,
        before=read.before,
        session=session,
        session_adds=read.adds,
        reads_session=not read.is_whole,
        budget=None if turns is None else Budget(max_turns=turns, on_exceeded="fail"),
        model=model if isinstance(model, str) else "",
        settings=options.config.model_settings,
        run=options.rules,
        extra_state=context_object.initial_state(options.context),
        started=run.started if started is not None or options.hooks is not None else None,
    )
    return await run.result_of(work)


async def go_on(
    engine: AgentRunner,
    agent: Agent,
    state: RunState,
    options: RunOptions,
    started: Started | None = None,
) -> RunResult:
    """Send the decisions of a state, run its task on, and return the result.

    Raises:
        UserError: Its task began with an agent that the given one does not know, or in another
            session.
        CommandRefusedError: A decision of the state contradicts one that was made elsewhere.
        AgentsException: As for `begin`.
        HoldfastError: As for `begin`.
    """
    forget(options.rules.code)  # the task keeps the code that it began with
    before = await read_recorded(engine.reader, state.task_id)
    _check_same(engine, agent, before, options)
    run = _Run(engine, agent, state.task_id, None, options, started=started)
    run.started()
    if engine.is_embedded:
        user_calls.carry(state.task_id)
    return await run.result_of(_decide_and_go(engine, state, options.by, before), before=before)


def _check_same(engine: AgentRunner, agent: Agent, before: Recorded, options: RunOptions) -> None:
    """Refuse to go on with another task, session or agent than those of the state.

    Raises:
        UserError: One of them differs.
    """
    task = before.task
    if options.task_id not in (None, task.task_id):
        msg = f"The state is of task {task.task_id!r}; it cannot be run as {options.task_id!r}."
        raise UserError(msg)
    ref, given = before.head.session, options.session
    if given is not None and (ref is None or engine.session(given).id != ref.id):
        own = "no session" if ref is None else f"session {ref.name!r}"
        msg = (
            f"Task {task.task_id!r} has {own}, and keeps it: a state cannot be run in session"
            f" {given if isinstance(given, str) else given.name!r}. Leave session= out."
        )
        raise UserError(msg)
    names = [each.name for each in (agent, *agent.team())]
    if task.agent not in names:
        msg = (
            f"Task {task.task_id!r} began with agent {task.agent!r}; {agent.name!r} knows"
            f" {', '.join(map(repr, names))} only. Run the state with the agent it began with."
        )
        raise UserError(msg)


async def _decide_and_go(engine: AgentRunner, state: RunState, by: str, before: Recorded) -> None:
    await send_decisions(engine, state, by, is_over=before.task.status in CLOSED)
    for request_id, text in state.added_input:
        try:
            await engine.give_feedback(state.task_id, text, by=by, request_id=request_id)
        except TaskClosedError:  # the task has ended meanwhile: its outcome follows
            break
    if before.task.paused_by_run:
        with suppress(CommandRefusedError, TaskClosedError):  # resumed or ended meanwhile
            await engine.resume(state.task_id, by=by)
    await engine.run_on(state.task_id)


class _Run:
    """One call of `Runner.run` on its task."""

    def __init__(
        self,
        engine: AgentRunner,
        agent: Agent,
        task_id: str,
        given: RunInput | None,
        options: RunOptions,
        *,
        started: Started | None,
    ) -> None:
        self._engine = engine
        self._agent = agent
        self._task_id = task_id
        self._given = given
        self._options = options
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
            recorded = await self._followed(work, before)
        except HookFailed as failed:
            self._forget(before, is_over=self._is_abandoned)
            raise (failed.__cause__ or failed) from None
        except (AgentsException, StepFailedError) as error:
            raised = _as_raised(error)
            await self._explain(raised)
            self._forget(before, is_over=not isinstance(error, StepFailedError))
            raise raised from error.__cause__
        except (TaskExistsError, InvalidArgumentError):
            self._forget(before, is_over=before is None)  # the task was not created by this run
            raise
        self._forget(before, is_over=recorded.task.status in CLOSED)
        context = self._options.context
        config = self._options.config
        return run_result(recorded, self._agent, given=self._given, context=context, config=config)

    def _forget(self, before: Recorded | None, *, is_over: bool) -> None:
        """Release the code that was registered for the run when it began, once it is over."""
        if is_over and before is None:
            forget(self._options.rules.code)
        elif is_over and before is not None and before.task.status not in CLOSED:
            forget(before.head.run.code)

    async def _followed(self, work: Coroutine[Any, Any, None], before: Recorded | None) -> Recorded:
        """Wait for the run and read it, calling its hooks meanwhile."""
        hooks = self._options.hooks
        if hooks is None:
            return await self._until_rest(work)
        given = self._given
        if given is None:
            given = [] if before is None else run_data(before, self._agent).input
        notifier = HookNotifier(
            hooks,
            self._engine.reader,
            self._task_id,
            call=self._options.call,
            team=team_of(self._agent, first=before.task.agent if before else ""),
            context=self._options.context,
            given=given,
        )
        if before is not None:
            await notifier.look(notifies=False)
        running = self._until_rest(work)
        return await notifier.notify_during(running, self._abandon, self._is_started)

    async def _until_rest(self, work: Coroutine[Any, Any, None]) -> Recorded:
        """Wait until the run is over or needs a person, and read it.

        A decision may arrive after the run has returned that it waits: then it goes on.
        """
        await work
        while True:
            recorded = await read_recorded(self._engine.reader, self._task_id)
            task = recorded.task
            if task.status == "running" and not task.paused:
                await self._engine.run_on(self._task_id)
            elif task.status == "waiting" and not recorded.approvals and not task.error:
                await asyncio.sleep(AGAIN_SECONDS)  # a decision is being applied
            else:
                return recorded

    async def _abandon(self, failed: HookFailed) -> bool:
        """Abandon the task of a run whose hook has raised; return whether the task is over."""
        cause = failed.__cause__ or failed
        reason = f"hook {failed} raised {type(cause).__name__}: {cause}"
        try:
            await self._engine.abandon(self._task_id, reason[:1000], by=RUNNER)
        except (CommandRefusedError, TaskClosedError):  # it has ended already
            self._is_abandoned = True
        except HoldfastError as trouble:
            cause.add_note(f"Task {self._task_id!r} could not be abandoned: {trouble}")
        else:
            self._is_abandoned = True
        return self._is_abandoned

    async def _explain(self, error: AgentsException | StepFailedError) -> None:
        """Put what the run had made into its error, or a note that it could not be read."""
        try:
            data = await self._data()
        except (HoldfastError, TemporalError, ValueError) as trouble:
            error.add_note(f"What the run had produced could not be read: {trouble}")
            data = RunData(
                input=listed([] if self._given is None else self._given),
                last_agent=self._agent,
                context_wrapper=RunContextWrapper(self._options.context, task_id=self._task_id),
                task_id=self._task_id,
            )
        if isinstance(error, AgentsException):
            error.run_data = data
        if isinstance(error, GuardrailTripwireTriggered):
            known = known_guardrails(self._agent, self._options.config)
            error.guardrail_result = with_known(error.guardrail_result, known)

    async def _data(self) -> RunData:
        recorded = await read_recorded(self._engine.reader, self._task_id)
        context = self._options.context
        config = self._options.config
        return run_data(recorded, self._agent, given=self._given, context=context, config=config)


def _as_raised(error: AgentsException | StepFailedError) -> AgentsException | StepFailedError:
    """Return the error of the class that the Agents SDK raises; the task waits in either case."""
    if isinstance(error, StepFailedError) and error.cause_type == UserError.__name__:
        return UserError(*error.args, remedy=error.remedy)
    return error
