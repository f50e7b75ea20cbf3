"""Runner: run an agent to its end, with the semantics of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, cast

from typing_extensions import Unpack

from holdfast.agents.agent import Agent
from holdfast.agents.agent_base import users_agent
from holdfast.agents.hooks import RunHooksBase, check_run_hooks
from holdfast.agents.items.run_items import RunItem, ToolApprovalItem
from holdfast.agents.nesting.agent_tool import AgentTool
from holdfast.agents.run_config import RunConfig, as_run_config
from holdfast.agents.runs.item_helpers import ItemHelpers, RunInput
from holdfast.agents.runs.results import ModelResponse, RunData, RunResult
from holdfast.agents.runs.state import DEFAULT_MAX_TURNS, RunState
from holdfast.agents.runs.teams import (
    ErrorHandler,
    ErrorKind,
    check_agents,
    check_handlers,
    members,
    reachable,
    run_budget,
    run_head,
    team_of,
)
from holdfast.agents.tools.context import ToolContext
from holdfast.client import blocking
from holdfast.client.agent_runner.base import new_id
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.client.agent_runner.sessions import Session
from holdfast.client.agent_runner.turns import Turn
from holdfast.client.caller_sessions.protocol import SessionLike, check_session
from holdfast.client.caller_sessions.store import CallerStore, Invoke
from holdfast.client.runner.engines import configure, engines
from holdfast.client.runner.input import RUNNER, RunCall, check_input, reviver_of
from holdfast.client.runner.one_run import Started, begin, go_on
from holdfast.client.runner.resumed_task import settings_given
from holdfast.client.runner.streamed_run import RunResultStreaming
from holdfast.client.streamed import Wrap, direct
from holdfast.engine.converter import without_plumbing
from holdfast.engine.loop import shared_loop
from holdfast.errors import InvalidArgumentError, UserError, remedy_of
from holdfast.models.base import KEPT_BY_ONE
from holdfast.task.data.head import FollowedRun, KeptConversation
from holdfast.values.base import Json
from holdfast.values.checks.gate import check_known
from holdfast.values.checks.ids import (
    DEFAULT_APP,
    check_by,
    check_known_id,
    check_new_id,
    session_id,
)
from holdfast.values.code.code_refs import beginning
from holdfast.values.code.context_data import CallersContext
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.runs.status import OnBusy
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown


class CallerLoop:
    """Calls functions in the event loop in which this was made."""

    def __init__(self) -> None:
        """Remember the running loop."""
        self._loop = asyncio.get_running_loop()

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function, async or not, and return its result.

        Raises:
            Exception: Whatever the function raises.
        """
        if asyncio.get_running_loop() is self._loop:
            return await _called(function, args)
        sent = asyncio.run_coroutine_threadsafe(_called(function, args), self._loop)
        return await asyncio.wrap_future(sent)


async def _called(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    result = function(*args)
    return await result if inspect.isawaitable(result) else result


IDS = ("conversation_id", "previous_response_id")


def kept_conversation(
    agent: Agent, config: RunConfig, given: Mapping[str, Any], *, has_session: bool, begins: bool
) -> KeptConversation | None:
    """Return where the provider keeps the conversation of a run; None when it does not.

    Args:
        agent: The agent that the run starts with.
        config: The run's settings.
        given: The arguments of the run.
        has_session: Whether the run has a session.
        begins: Whether it begins; one that goes on does so with what it began with.

    Raises:
        UserError: An argument is not text, or the run has a session,
            a handoff filter or a guardrail of its output, which would need the conversation to be
            here. An agent as a tool whose conversation is kept has such a guardrail.
    """
    if begins:
        _check_tools(agent, config)
    ids = {name: given.get(name) or "" for name in IDS}
    for name, value in ids.items():
        if not isinstance(value, str):
            msg = f"{name} must be a text, as the provider gave it; it was {shown(value)}."
            raise UserError(msg)
    named = [name for name in (*ids, "auto_previous_response_id") if given.get(name)]
    if not named:
        return None
    if ids["conversation_id"] and ids["previous_response_id"]:
        text = "%s is not used: the run goes on with conversation %r, which has its own order"
        log.warning(text, named[1], ids["conversation_id"])
        ids["previous_response_id"] = ""
    if has_session:
        raise UserError(
            f"Session persistence and {named[0]} exclude each other: either the session gives the"
            " model what was said before, or the provider does. Leave one of them out."
        )
    if begins:
        _refuse_output_guardrails(agent, config, named[0])
    team = (agent, *agent.team())
    if any(isinstance(each, tuple) for each in (config.model, *(of.model for of in team))):
        raise UserError(KEPT_BY_ONE)
    handoffs = [each for member in team for each in member.made_handoffs]
    if config.handoff_input_filter or any(each.input_filter for each in handoffs):
        raise UserError(
            "Server-managed conversations do not support handoff input filters: with"
            f" {named[0]} the provider has the conversation already, so no filter can take anything"
            " out of it."
        )
    if config.nest_handoff_history or any(each.nest_handoff_history for each in handoffs):
        log.warning(
            "Runs with %s do not support nest_handoff_history, which is ignored: the provider has"
            " the conversation already.",
            named[0],
        )
    return KeptConversation(**ids)


def _refuse_output_guardrails(agent: Agent, config: RunConfig, name: str) -> None:
    """Refuse guardrails of an output that the provider would keep, whatever they say of it.

    Args:
        agent: The agent that the run starts with. The others that it may end with are checked as
            well, before anything is paid for.
        config: The run's settings.
        name: The argument by which the provider keeps the conversation.

    Raises:
        UserError: There is one.
    """
    guarded = [each.name for each in (agent, *agent.team()) if each.output_guardrails]
    if config.output_guardrails:
        whose = "RunConfig(output_guardrails=)"
    elif guarded:
        whose = f"the output_guardrails of agent {guarded[0]!r}"
    else:
        return
    msg = (
        f"Output guardrails cannot be combined with {name}: an output that they stop stays in the"
        f" server-managed conversation history, where the model reads it in the next turn. This run"
        f" has {whose}."
    )
    remedy = f"Leave them out, or {name}: with session= in its place Holdfast keeps the history."
    raise UserError(msg, remedy=remedy)


def _check_tools(agent: Agent, config: RunConfig) -> None:
    """Refuse the same of agents as tools, whose runs have the settings of this one by default."""
    tools = (tool for each in reachable([agent]) for tool in each.made_tools)
    for tool in tools:
        if not isinstance(tool, AgentTool) or not isinstance(tool.agent, Agent):
            continue
        named = next((name for name in IDS if tool.options.get(name)), None)
        if named is not None:
            _refuse_output_guardrails(tool.agent, tool.run_config or config, f"as_tool({named}=)")


class RunArguments(TypedDict, total=False):
    """The keyword arguments of `Runner.run`, which documents them."""

    context: Any
    max_turns: int | None
    hooks: RunHooksBase[Any, Any] | None
    run_config: RunConfig | Mapping[str, Any] | None
    error_handlers: Mapping[ErrorKind, ErrorHandler] | None
    session: str | Session | blocking.Session | SessionLike | None
    runner: AgentRunner | blocking.AgentRunner | None
    task_id: str | None
    exist_ok: bool
    by: str
    previous_response_id: str | None
    conversation_id: str | None
    auto_previous_response_id: bool
    on_busy: OnBusy


def checked_call(
    agent: Agent, input: RunInput | RunState, given: RunArguments, *, streams: bool = False
) -> RunCall:
    """Check the arguments of a run and give them their defaults.

    Raises:
        UserError: A value cannot be served, or two agents that the run may reach have one name.
        TypeError: The hooks or the config are of a wrong type, or there is no such argument.
    """
    check_known("arguments of Runner", given, RunArguments.__annotations__)
    follows, known_by = _followed(input, given), agent
    if isinstance(input, RunState):
        if input.after is not None:
            agent = _next_agent(agent, input.agent_name)
        input, given = _with_state(agent, input, given)
    config = as_run_config(given.get("run_config"))
    handlers = check_handlers(given.get("error_handlers"))
    _check(agent, given)
    agent = members(agent)
    check_agents(reachable([agent]), config.tool_name_collision_policy)
    context, session = given.get("context"), given.get("session")
    call = cast("Any", context) if isinstance(context, ToolContext) else None
    begins = not isinstance(input, RunState)
    if isinstance(context, RunContextWrapper):
        context = cast("Any", context).context
    invoke = CallerLoop().call
    known = input.task_id if isinstance(input, RunState) else new_id(agent.name)
    task_id = given.get("task_id") or known
    return RunCall(
        agent=agent,
        known_by=agent if follows is None else members(known_by),
        given=input,
        task_id=task_id,
        exist_ok=given.get("exist_ok", False),
        head=run_head(
            agent.name,
            config,
            context=context,
            error_handlers=handlers,
            streams=streams,
            kept=kept_conversation(
                agent, config, given, has_session=session is not None, begins=begins
            ),
            follows=follows,
        ),
        budget=run_budget(given.get("max_turns", DEFAULT_MAX_TURNS), config.max_dollars),
        config=config,
        context=CallersContext(context, _known(input, context)),
        session=_session(session, invoke, RunContextWrapper(context, task_id=task_id)),
        hooks=given.get("hooks"),
        by=given.get("by", RUNNER),
        invoke=invoke,
        tool_call=call,
        reviver=reviver_of(input, context, invoke),
        settings=() if begins else settings_given(given),
        on_busy=given.get("on_busy", "queue"),
    )


def _known(given: RunInput | RunState, context: Any) -> Json:
    """Return the data to which the result of a state has brought the context object."""
    wrapper = given.context if isinstance(given, RunState) else None
    if wrapper is None or wrapper.context is not context or wrapper.origin is None:
        return None
    return wrapper.origin.data


def _followed(given: RunInput | RunState, arguments: RunArguments) -> FollowedRun | None:
    """Return the run that a run goes on from; none in a session, which has what was said before."""
    if not isinstance(given, RunState) or given.after is None or arguments.get("session"):
        return None
    added = len(given.pending_input)
    return FollowedRun(task_id=given.task_id, agent=given.agent_name, added=added)


def _next_agent(given: Agent, name: str) -> Agent:
    """Return the agent with which a state goes on whose run has its answer.

    Raises:
        UserError: The given agent and its team have no agent of this name.
    """
    team = team_of(given)
    if name and not team.has(name):
        raise UserError(
            f"Run state agent not found in agent map: the run of the state ended with agent"
            f" {name!r}, which {given.name!r} and its team do not know. Pass that agent, or one"
            " that can hand over to it."
        )
    return users_agent(team.of(name))


def _with_state(
    agent: Agent, state: RunState, given: RunArguments
) -> tuple[RunInput | RunState, RunArguments]:
    """Return the input of a run with a state, and its arguments with those of the state.

    Raises:
        UserError: The run has not begun, and there are decisions already.
    """
    added: Any = {}
    goes_on = state.after is None and not state.is_new
    if given.get("context") is None and state.context is not None:
        origin = state.context.origin
        if not goes_on or origin is None or origin.deserializer is None:  # else it is made again
            added["context"] = state.context.context
    if state.after is not None:
        added |= {"exist_ok": True}
        if not state.pending_input:  # nothing new is asked, so the count of turns goes on
            added["max_turns"] = state.max_turns
        if given.get("task_id") is None:
            added["task_id"] = new_id(agent.name, state.id)
        is_kept = any(given.get(name) for name in ("session", *IDS))
        before = [] if is_kept else state.after
        return [*before, *state.pending_input], cast("RunArguments", {**given, **added})
    if goes_on:
        return state, cast("RunArguments", {**given, **added})
    if state.context is not None and state.context.decisions.taken:
        raise UserError(
            "The state is of a run that has not begun, so that no call of a tool waits yet, but"
            " calls were decided on. Run the state; then decide on the interruptions of its result."
        )
    added |= {"max_turns": state.max_turns, "exist_ok": True, **state.kept}
    if given.get("task_id") is None:
        added["task_id"] = new_id(agent.name, state.id)
    return state.whole_input, cast("RunArguments", {**given, **added})


def _check(agent: object, given: RunArguments) -> None:
    """Refuse arguments that cannot be served, before anything is created.

    Raises:
        UserError: The agent is not an Agent, max_turns is negative, or a name is not a text.
        TypeError: The hooks are not RunHooks.
    """
    if not isinstance(agent, Agent):
        msg = f"starting_agent must be an Agent; it was {shown(agent)} ({type(agent).__name__})."
        raise UserError(msg)
    turns: object = given.get("max_turns")
    is_count = isinstance(turns, int) and not isinstance(turns, bool) and turns >= 0
    if turns is not None and not is_count:
        msg = f"max_turns must be at least 0, or None for no limit; it was {shown(turns)}."
        raise UserError(msg)
    try:
        _check_names(given)
    except InvalidArgumentError as error:
        raise UserError(*error.args, remedy=remedy_of(error)) from None
    check_run_hooks(given.get("hooks"))


def _check_names(given: RunArguments) -> None:
    """Refuse names that cannot be used.

    Raises:
        InvalidArgumentError: A name is too long, or not a text.
    """
    task_id = given.get("task_id")
    if task_id is not None:
        check_known_id(task_id, "task_id")
    check_by(given.get("by", RUNNER))
    session = cast("object", given.get("session"))
    if isinstance(session, str):
        session_id(DEFAULT_APP, session)
    elif session is not None and not is_kept_here(session):
        check_session(session)


def _session(
    given: str | Session | blocking.Session | SessionLike | None,
    invoke: Invoke,
    wrapper: RunContextWrapper[Any],
) -> str | Session | CallerStore | None:
    if given is None or isinstance(given, str):
        return given
    if not is_kept_here(given):
        return CallerStore(cast("SessionLike", given), invoke, wrapper)
    return given.twin if isinstance(given, blocking.Session) else cast("Session", given)


def is_kept_here(session: object) -> bool:
    """Whether a session is one of the engine's; a subclass that reads otherwise is the caller's."""
    if isinstance(session, Session):
        return type(session).get_items is Session.get_items
    return isinstance(session, blocking.Session)


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
        on_busy: OnBusy = "queue",
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
            on_busy: What to do while another task of the engine's session has the floor: "queue"
                waits for its turn, "refuse" raises, "interrupt" abandons that task, "merge" gives
                it the input as feedback and returns its result.

        Raises:
            SessionBusyError: Another task has the floor: nothing was created, or that task rests,
                and this one waits for its turn.
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
                "on_busy": on_busy,
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
    if call.session is None or isinstance(call.session, CallerStore):
        return await begin(engine, call, given, started)
    if started is not None and call.on_busy == "merge":
        msg = "A streamed run has a task of its own; on_busy='merge' makes none. Use Runner.run."
        raise UserError(msg)
    session = engine.session(call.session)
    turn = Turn(engine.tasks, session, call.task_id, call.on_busy, call.by)
    if holder := await turn.claim(given if isinstance(given, str) else ""):
        state = RunState.of(holder)
        known: RunArguments = {"context": call.context.object, "hooks": call.hooks, "by": call.by}
        return await go_on(engine, checked_call(call.known_by, state, known), state, started)
    return await turn.follow(begin(engine, call, given, started))


async def find_engine(agent: Agent, runner: AgentRunner | None) -> AgentRunner:
    """Return the given engine, else the process's own, once it serves the agent."""
    if runner is None:
        return await engines.runner(agent)
    await runner.ensure_agent(agent)
    return runner
