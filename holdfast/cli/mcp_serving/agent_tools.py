"""The MCP server whose tools are agents."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from mcp.server import Server, ServerRequestContext
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

from holdfast.agents.agent import Agent
from holdfast.agents.tools.foreign.llama_index import tool_name
from holdfast.cli.mcp_serving.transports import TENANT
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.desk.identity.tenants import runner_of
from holdfast.desk.identity.tokens import ROLES
from holdfast.errors import (
    CommandRefusedError,
    HoldfastError,
    InvalidArgumentError,
    StepFailedError,
    TaskClosedError,
    TaskExistsError,
    message_of,
)
from holdfast.reading.step_events import event_text
from holdfast.task.data.calls import Approval, asked_for
from holdfast.task.people.choices import choices_of
from holdfast.task.people.decisions import Person
from holdfast.values.base import Json, digest
from holdfast.values.text.decided import for_decision
from holdfast.values.text.logs import log
from holdfast.values.text.redact import redact
from holdfast.values.text.shown import shown
from holdfast.values.version import __version__


def question_form(approval: Approval) -> ElicitRequestFormParams:
    """Return an approval as a form for the client's user."""
    asks = approval.asks
    if asks is not None and len(asks.questions) == 1 and asks.questions[0].fields:
        fields = asks.questions[0].fields
        return ElicitRequestFormParams(message=for_decision(approval.text), requested_schema=fields)
    choices = {each.verb: f"{each.verb}: {each.label}" for each in choices_of(approval)}
    if "respond" in choices:  # to approve a question without fields is to consent
        choices.setdefault("approve", choices["respond"].replace("respond", "approve", 1))
    verbs = [verb for verb in ("approve", "reject") if verb in choices]
    text = approval.text if approval.tool else ""
    asked = f"It waits for {asked_for(approval.kind, approval.tool)}."
    parts = (approval.what, *approval.filled_in, text, asked, *(choices[verb] for verb in verbs))
    decision: dict[str, Json] = {"type": "string", "enum": ["approve", "reject"]}
    reason: dict[str, Json] = {"type": "string", "description": "Why; the model reads it."}
    schema: dict[str, Json] = {
        "type": "object",
        "properties": {"decision": decision, "reason": reason},
        "required": ["decision"],
    }
    message = for_decision("\n".join(part for part in parts if part))
    return ElicitRequestFormParams(message=message, requested_schema=schema)


async def decided(
    runner: AgentRunner, approval: Approval, answered: ElicitResult, person: Person
) -> None:
    """Decide an approval as the client's user has answered.

    Raises:
        CommandRefusedError: The decision is refused.
    """
    content: dict[str, Any] = answered.content or {}
    reason = str(content.get("reason") or "")
    by = person.name
    roles = [*person.roles, *runner.roles_of(by)]
    if answered.action == "decline":
        await runner.reject(approval, by=by, reason="declined", roles=roles)
    elif "decision" not in content and approval.asks is not None:
        await runner.respond(approval, by=by, result=content, roles=roles)
    elif content.get("decision") == "approve":
        await runner.approve(approval, by=by, note=reason or None, roles=roles)
    else:
        await runner.reject(approval, by=by, reason=reason, roles=roles)


def waiting_text(task_id: str, approvals: Sequence[Approval], *, where: str) -> str:
    """Return what a client reads of a task that waits for a person whom it cannot ask."""
    lines = [f"Task {task_id!r} waits for a person. Nothing is lost."]
    for each in approvals:
        lines += [f"- {each.line}", *(f"  {line}" for line in each.filled_in)]
        verbs = ("respond", "reject") if each.asks is not None else ("approve", "reject")
        lines += [f"  holdfast {verb} {each.id}{where}" for verb in verbs]
    lines.append(f"Then call this tool again with task_id={task_id!r}: it goes on with the task.")
    return for_decision("\n".join(lines))


ENDS_WITH_QUESTIONS = "2026-07-28"
"""The version of the protocol from which on a call ends with the questions to the user."""

OWN = "mcp-"
"""What the ids of tasks begin with that clients begin; they reach no others."""

KEY = "holdfast/idempotency-key"
"""Field of a call's metadata: calls of one user with the same key are the same task."""

_ARGUMENTS: dict[str, Json] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "What the agent is asked."},
        "task_id": {
            "type": "string",
            "description": "Id of the task. Give one of your own to be able to call again after a"
            " lost connection; with that of an earlier call, the call goes on with its task."
            f" Ids begin with {OWN!r}, which is put before yours.",
        },
    },
}
_RESULT: dict[str, Json] = {
    "type": "object",
    "properties": {
        "task_id": {"type": "string"},
        "status": {"type": "string", "enum": ["done", "waiting", "failed"]},
        "answer": {"type": "string"},
        "approvals": {"type": "array", "items": {"type": "object"}},
    },
    "required": ["task_id", "status"],
}


class AgentTools:
    """Serves agents as tools. A call begins a task, or goes on with one.

    The client sees the task's events as progress, and is asked what waits for a person if it can
    ask its user and someone has said who that is. A client that goes away, or cancels its call,
    leaves the task as it is: it goes on to its end, or until it waits for a person.

    Attributes:
        server: The MCP server.
    """

    def __init__(
        self,
        agents: Sequence[Agent],
        runner: Callable[[str], AgentRunner],
        *,
        by: str = "",
        where: str = "",
    ) -> None:
        """Take the agents.

        Args:
            agents: The agents.
            runner: Makes a runner for an agent by its name.
            by: The name with which tasks and decisions are recorded of users without a token of
                their own. Without it they decide nothing, and tasks are recorded with `mcp:` and
                what the client program calls itself, which proves nothing.
            where: Options with which `holdfast` on the command line finds the tasks.

        Raises:
            InvalidArgumentError: Two agents would be tools of one name.
        """
        self._agents = {tool_name(agent.name): agent for agent in agents}
        if len(self._agents) < len(agents):
            msg = "Two agents would be MCP tools of one name. Names of tools are letters, digits,"
            raise InvalidArgumentError(f"{msg} '_' and '-'; rename one of the agents.")
        self._runner = runner
        self._by = by
        self._where = where
        self.server: Server[Any] = Server(
            "holdfast",
            version=__version__,
            instructions="Each tool is an agent, and each call a task that nothing interrupts for"
            " good: call again with its task_id to go on with it.",
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    async def _list(
        self, _ctx: ServerRequestContext[Any, Any], _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        tools = [
            Tool(
                name=name,
                description=agent.handoff_description or f"Give the agent {agent.name!r} a task.",
                input_schema=_ARGUMENTS,
                output_schema=_RESULT,
            )
            for name, agent in self._agents.items()
        ]
        return ListToolsResult(tools=tools)

    async def _call(
        self, ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        agent = self._agents.get(params.name)
        if agent is None:
            known = ", ".join(self._agents)
            raise MCPError(INVALID_PARAMS, f"There is no agent {params.name!r}. Agents: {known}.")
        user = _user(ctx)
        if user is not None and "operator" not in user.scopes:
            msg = f"{user.username} may not run tasks: the token has not the role operator."
            raise MCPError(INVALID_PARAMS, msg)
        tenant = ctx.request.scope.get(TENANT, "") if ctx.request is not None else ""
        runner = runner_of(self._runner(agent.name), tenant)
        message, known = _read(params.arguments or {})
        task_id = _own_id(params.request_state or known) or _id_by_key(ctx, user, tenant)
        if not (message or task_id):
            msg = "Give `message` to begin a task, or `task_id` to go on with one."
            raise MCPError(INVALID_PARAMS, msg)
        task_id = task_id or f"{OWN}{uuid.uuid4().hex[:24]}"
        try:
            await self._ensure(runner, agent, task_id, message, by=self._who(ctx))
            async with _progress(runner, ctx, task_id):
                await self._take(runner, task_id, params, self._decider(ctx))
                return await self._run(runner, ctx, task_id)
        except HoldfastError as error:
            log.warning("A call of agent %r failed: %s", agent.name, error)
            text = redact(f"{message_of(error)} {_remedy(error, task_id)}")
            return _result(text, task_id, "failed", is_error=True)

    async def _ensure(
        self, runner: AgentRunner, agent: Agent, task_id: str, message: str, *, by: str
    ) -> None:
        """Begin a task, or find the one that there is.

        Raises:
            InvalidArgumentError: There is nothing to begin with, or it is another agent's task.
            TaskExistsError: There is a task of this id with another message.
            TaskNotFoundError: There is no task to go on with.
        """
        if message:
            await runner.create_task(message, task_id=task_id, exist_ok=True, by=by)
            return
        task = await runner.get_task(task_id)
        if task.agent != agent.name:
            msg = f"It is a task of agent {task.agent!r}: call the tool of that agent."
            raise InvalidArgumentError(msg)

    async def _run(
        self, runner: AgentRunner, ctx: ServerRequestContext[Any, Any], task_id: str
    ) -> CallToolResult | InputRequiredResult:
        """Run a task to its answer, or until something waits that this client cannot ask."""
        person = self._decider(ctx)
        while True:
            try:
                is_over = (await runner.run_task(task_id)).status != "waiting"
            except TaskClosedError:  # an earlier call had its answer, unless it was abandoned
                is_over = True
            if is_over:
                answer = str(await runner.finalize_response(task_id))
                return _result(answer, task_id, "done", answer=answer)
            waiting = await runner.pending_approvals(task_id)
            if not (waiting and person.name and _can_ask(ctx)):
                return self._waits(task_id, waiting)
            if ctx.protocol_version >= ENDS_WITH_QUESTIONS:
                requests = {each.id: ElicitRequest(params=question_form(each)) for each in waiting}
                return InputRequiredResult(input_requests={**requests}, request_state=task_id)
            for each in waiting:
                form = question_form(each)
                answered = await ctx.session.elicit_form(
                    form.message, form.requested_schema, related_request_id=ctx.request_id
                )
                refused = await self._decide(runner, each, answered, person)
                if refused is not None:
                    return self._waits(task_id, await runner.pending_approvals(task_id), refused)

    async def _take(
        self, runner: AgentRunner, task_id: str, params: CallToolRequestParams, person: Person
    ) -> None:
        """Take the answers that a client brings to the questions with which its call ended."""
        if not (params.input_responses and person.name):
            return
        open_now = {each.id: each for each in await runner.pending_approvals(task_id)}
        for key, answered in params.input_responses.items():
            approval = open_now.get(key)
            if approval is not None and isinstance(answered, ElicitResult):
                refused = await self._decide(runner, approval, answered, person)
                if refused:
                    raise CommandRefusedError(refused)

    async def _decide(
        self, runner: AgentRunner, approval: Approval, answered: ElicitResult, person: Person
    ) -> str | None:
        """Decide an approval as the user says; return why it stays open, empty for no answer."""
        if answered.action == "cancel":
            return ""
        try:
            await decided(runner, approval, answered, person)
        except CommandRefusedError as error:
            return None if error.is_decided else redact(str(error))
        return None

    def _who(self, ctx: ServerRequestContext[Any, Any]) -> str:
        """Return the name under which a client's user creates tasks."""
        user = _user(ctx)
        if user is not None:
            return user.username
        client = ctx.session.client_params
        return self._by or f"mcp:{client.client_info.name if client is not None else ''}"

    def _decider(self, ctx: ServerRequestContext[Any, Any]) -> Person:
        """Return who decides for a client; without a name, one who may not."""
        user = _user(ctx)
        if user is None:
            return Person(self._by)
        name = user.username if "approver" in user.scopes else ""
        return Person(name, sorted({*user.scopes} - {*ROLES}))

    def _waits(
        self, task_id: str, approvals: Sequence[Approval], refused: str = ""
    ) -> CallToolResult:
        text = waiting_text(task_id, approvals, where=self._where)
        listed = [
            {
                "id": each.id,
                "kind": each.kind,
                "tool": each.tool,
                "arguments": for_decision(each.as_agreed),
            }
            | {"defaults": [for_decision(line) for line in each.filled_in]}
            for each in approvals
        ]
        text = f"{refused}\n{text}" if refused else text
        return _result(text, task_id, "waiting", approvals=listed)


def _user(ctx: ServerRequestContext[Any, Any]) -> AuthenticatedUser | None:
    """Return the person whose own token a request has; their scopes are roles of the desk."""
    found = ctx.request.scope.get("user") if ctx.request is not None else None
    return found if isinstance(found, AuthenticatedUser) else None


def _result(
    text: str, task_id: str, status: str, *, is_error: bool = False, **more: Json
) -> CallToolResult:
    data: dict[str, Json] = {"task_id": task_id, "status": status, **more}
    return CallToolResult(
        content=[TextContent(text=text)], structured_content=data, is_error=is_error
    )


def _read(given: Mapping[str, Json]) -> tuple[str, str]:
    """Read message and task id from the arguments of a call; empty for what is not given.

    Raises:
        MCPError: One of them is not text.
    """
    for name in ("message", "task_id"):
        if not isinstance(given.get(name), str | None):
            raise MCPError(INVALID_PARAMS, f"`{name}` must be a text; it was {shown(given[name])}.")
    return given.get("message") or "", given.get("task_id") or ""


def _remedy(error: HoldfastError, task_id: str) -> str:
    """Say to a client what to do about an error; those of Python's API are nothing to it."""
    if isinstance(error, TaskExistsError):
        return "Leave `message` out to go on with it, or choose another `task_id`."
    if isinstance(error, StepFailedError):
        return f"Call again with task_id {task_id!r} and without `message` to try again."
    return error.remedy


def _id_by_key(
    ctx: ServerRequestContext[Any, Any], user: AuthenticatedUser | None, tenant: str
) -> str:
    """Return the id of the task of a call's key, which is that of its user; empty without a key."""
    meta: Any = ctx.meta or {}
    key = meta.get(KEY)
    whose = f"{tenant}\0{user.username}\0" if user is not None else ""
    return f"{OWN}{digest(f'{whose}{key}'.encode())}" if key else ""


def _own_id(given: str) -> str:
    """Return the id of the task that a client names: one that was begun here; empty for none."""
    return f"{OWN}{given.removeprefix(OWN)}" if given else ""


def _can_ask(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Whether the client can ask its user."""
    able = ctx.session.client_capabilities
    if able is None or able.elicitation is None:
        return False
    return ctx.protocol_version >= ENDS_WITH_QUESTIONS or ctx.session.can_send_request


@asynccontextmanager
async def _progress(
    runner: AgentRunner, ctx: ServerRequestContext[Any, Any], task_id: str
) -> AsyncGenerator[None]:
    """Report a task's events to the client while the block runs."""

    async def follow() -> None:
        try:
            await ctx.session.report_progress(0, message=f"task {task_id}")
            number = 0
            async for event in runner.step_events(task_id):
                number += 1
                await ctx.session.report_progress(number, message=redact(event_text(event)))
        except Exception as error:  # noqa: BLE001  the result does not depend on it
            log.debug("The progress of task %r is not reported any more: %s", task_id, error)

    following = asyncio.create_task(follow())
    try:
        yield
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
