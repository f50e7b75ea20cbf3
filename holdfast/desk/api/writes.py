"""Routes that act. Who acts is always the identity of the request; no body can name another."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model

from holdfast.client.agent_runner.creation import Attempts
from holdfast.client.agent_runner.events import EventReceipt
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.desk.api.access import Access, Asked, CleanJSON, IdRoute
from holdfast.desk.identity.tokens import BUSY_VERBS, NotAllowedError
from holdfast.desk.pages.queues import read_queues
from holdfast.desk.views.branches import origin_of
from holdfast.errors import ErasedError, InvalidArgumentError, NotFoundError, TaskExistsError
from holdfast.task.data.calls import Approval
from holdfast.task.data.commands import Receipt
from holdfast.task.happenings import happenings
from holdfast.task.mailbox import DAY, LONGEST_KEPT
from holdfast.values.checks.ids import DEFAULT_APP, queue_of, serves, task_of
from holdfast.values.runs.approval_rules import Always
from holdfast.values.runs.status import OnBusy
from holdfast.values.runs.verbs import VERBS, Part, Verb, signature_of
from holdfast.values.settings import Budget
from holdfast.values.steps import AgentResponse, Task, UndoReceipt

KEY_DIGITS = 24

writes = APIRouter(default_response_class=CleanJSON, route_class=IdRoute)


class Body(BaseModel):
    """The body of a request; a field that it does not have is refused."""

    model_config = ConfigDict(extra="forbid")


class NewTask(Body):
    """A task to be created; see `AgentRunner.create_task`."""

    input: str
    agent: str | None = None
    task_id: str | None = None
    session: str | None = None
    on_busy: OnBusy | None = None
    extra_state: dict[str, Any] | None = None
    budget: Budget | None = None
    tool_choice: str | None = None
    step_mode: Literal["manual", "automatic"] = "automatic"
    streams: bool = False
    max_output_attempts: Attempts = 3


class Approve(Body):
    """An approval; with `arguments`, of other arguments than the proposed ones.

    `digest` says for which call it is: `bound` of the approval if it has one, else `digest`, which
    is empty where nothing is called. If the call has other arguments by now, it is refused.
    """

    digest: str
    arguments: dict[str, Any] | None = None
    note: str = ""
    always: bool | Always = False


class Edit(Body):
    """Other arguments, with which the call is to run."""

    arguments: dict[str, Any]
    note: str = ""


class Reason(Body):
    """Why something is done."""

    reason: str = ""


class NextStep(Body):
    """Which step runs next, and how; see `AgentRunner.run_step`."""

    input: str | None = None
    step: str | None = None
    restart: Literal["step"] | None = None


class StepInput(Body):
    """The new input of a queued step, and why."""

    input: str
    reason: str = ""


class Undo(Body):
    """Why, and what to do with effects that cannot be undone."""

    reason: str = ""
    residue: Literal["refuse", "keep"] = "refuse"


class Rewind(Undo):
    """The last step to keep, by its id."""

    to: str


class NewEvent(Body):
    """An event; see `AgentRunner.send_event`."""

    data: dict[str, Any] = {}
    id: str | None = None
    keep_seconds: Annotated[float, Field(gt=0, le=LONGEST_KEPT)] = DAY


class Fork(Body):
    """From which step, and how the new task goes on; see `AgentRunner.fork`."""

    at: str
    input: str | None = None
    agent: str | None = None
    feedback: str | None = None
    task_id: str | None = None
    session: str | None = None
    reason: str = ""


class Erase(Body):
    """What goes: a task, a session or a person; see `AgentRunner.erase`.

    Without `sure` nothing is erased: the answer lists what would be.
    """

    task: str | None = None
    session: str | None = None
    person: str | None = None
    reason: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    forks: Literal["refuse", "erase"] = "refuse"
    open_tasks: Literal["refuse", "abandon"] = "refuse"
    sure: bool = False


Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        max_length=200,
        description="Names this request: sent again with the same key, it acts once.",
    ),
]


@writes.post("/tasks", status_code=201)
async def create_task(asked: Asked, body: NewTask, key: Key = None) -> Task:
    """Create a task. With an Idempotency-Key, sending it again returns the same task.

    Raises:
        InvalidArgumentError: No agent is named; the text says which ones are served.
    """
    if not (body.agent or asked.runner.agent):
        polled = [each for each in await read_queues(asked.runner.client) if each.workers]
        known = {name for each in polled for name in each.agents or [each.serves]}
        served = ", ".join(sorted(known - {serves(queue_of(DEFAULT_APP))})) or "none"
        msg = f"'agent' is missing: the name of the agent of the task. Served are: {served}."
        raise InvalidArgumentError(msg)
    by = await asked.may("create", body.agent or "")
    if body.session and (verb := BUSY_VERBS.get(body.on_busy or "")):
        await asked.may(verb, body.session)
    given: dict[str, Any] = dict(body) | {"task_id": _new_id(asked, key, body.task_id)}
    return await asked.runner.create_task(**given, exist_ok=key is not None, by=by)


@writes.post("/tasks/{task_id:path}/run", status_code=202)
async def run(asked: Asked, task_id: str) -> Task:
    """Run a task to its end, or to where a person must decide.

    The answer comes after ten seconds at the latest, with the task as it is then: it runs on.
    """
    await asked.may("run", task_id)
    return await asked.begun(task_id, asked.runner.run_on(task_id))


@writes.post("/tasks/{task_id:path}/step", status_code=202)
async def step(asked: Asked, task_id: str, body: NextStep | None = None, key: Key = None) -> Task:
    """Run the next step; of a task that has its answer, a step with another input.

    The answer comes after ten seconds at the latest, with the task as it is then.
    """
    await asked.may("run", task_id)
    wanted = (body or NextStep()).model_dump()
    running = asked.runner.run_step(task_id, **wanted, request_id=_request(asked, key))
    return await asked.begun(task_id, running)


@writes.post("/tasks/{task_id:path}/finalize")
async def finalize(asked: Asked, task_id: str) -> AgentResponse:
    """Close a task that has its answer, and commit its turn to its session."""
    await asked.may("finalize", task_id)
    return await asked.runner.finalize_response(task_id)


@writes.put("/tasks/{task_id:path}/steps/{step_id}")
async def edit_step(asked: Asked, task_id: str, step_id: str, body: StepInput) -> Receipt:
    """Change the input of a queued step."""
    by = await asked.may("edit_step", task_id)
    return await asked.runner.edit_step(task_id, step_id, body.input, by, reason=body.reason)


@writes.delete("/tasks/{task_id:path}/steps/{step_id}")
async def drop_step(
    asked: Asked, task_id: str, step_id: str, body: Reason | None = None
) -> Receipt:
    """Take a queued step out of the queue."""
    by = await asked.may("drop_step", task_id)
    return await asked.runner.drop_step(task_id, step_id, by, reason=body.reason if body else "")


@writes.post("/tasks/{task_id:path}/undo")
async def undo(asked: Asked, task_id: str, body: Undo, key: Key = None) -> UndoReceipt:
    """Undo the step in progress, else the last completed one."""
    by = await asked.may("undo", task_id)
    request = _request(asked, key)
    return await asked.runner.undo_step(
        task_id, body.residue, by=by, reason=body.reason, request_id=request
    )


@writes.post("/tasks/{task_id:path}/rewind")
async def rewind(asked: Asked, task_id: str, body: Rewind, key: Key = None) -> UndoReceipt:
    """Undo all steps after one."""
    by = await asked.may("rewind", task_id)
    request = _request(asked, key)
    return await asked.runner.rewind(
        task_id, body.to, body.residue, by=by, reason=body.reason, request_id=request
    )


@writes.post("/tasks/{task_id:path}/fork", status_code=201)
async def fork(asked: Asked, task_id: str, body: Fork, key: Key = None) -> Task:
    """Start a new task from a step of this one; with an Idempotency-Key, once."""
    by = await asked.may("fork", task_id)
    new = _new_id(asked, key, body.task_id)
    try:
        return await asked.runner.fork(task_id, **dict(body) | dict[str, Any](task_id=new), by=by)
    except TaskExistsError:
        if key is None or new is None or not await _is_fork(asked, new, task_id):
            raise
        return await asked.runner.get_task(new)


async def _is_fork(asked: Asked, task_id: str, of: str) -> bool:
    origin = origin_of(list(happenings(await asked.runner.ledger(task_id))))
    return origin is not None and origin.task_id == of


@writes.post("/events/{event:path}", status_code=202)
async def send_event(asked: Asked, event: str, body: NewEvent) -> EventReceipt:
    """Send an event to the calls that wait for it; sent again with its id, it changes nothing.

    Raises:
        NotAllowedError: The sender is of a tenant.
    """
    await asked.may("send_event", "")
    if asked.visitor.tenant:
        msg = "An event reaches the tasks of all tenants: who is of one may not send it."
        raise NotAllowedError(msg)
    keep = timedelta(seconds=body.keep_seconds)
    return await asked.runner.send_event(event, body.data, id=body.id, keep=keep)


@writes.post("/erasures")
async def erase(asked: Asked, body: Erase) -> dict[str, Any]:
    """Erase a task, a session or a person; return the certificate, or the list of what would go."""
    wanted = body.model_dump(include={"task", "session", "person"})
    by = await asked.may("erase", body.task or body.session or "")
    given: dict[str, Any] = {**wanted, "by": by, "reason": body.reason, "forks": body.forks}
    try:
        plan = await asked.runner.plan_erasure(**given)
    except (ErasedError, NotFoundError):
        if not body.sure:
            raise
        return await asked.runner.erase(**given)  # returns the certificate that there is
    for each in plan.erasure.tasks:
        await asked.may("erase", each)
    if body.sure:
        return await asked.runner.erase(**given, open_tasks=body.open_tasks)
    listed = plan.erasure.model_dump(mode="json", include={"tasks", "sessions", "unread"})
    return {"erased": False, **listed, "open": plan.opens, "forks": plan.forks}


@writes.post("/rules/{rule_id:path}/revoke")
async def revoke(
    asked: Asked,
    rule_id: str,
    session: Annotated[str, Query(description="Session of a rule that holds in one.")] = "",
) -> Receipt:
    """End a decision for later calls; calls that it has decided stay."""
    by = await asked.may("revoke", rule_id)
    if session:
        return await asked.runner.session(session).revoke_rule(rule_id, by)
    return await asked.runner.revoke_rule(rule_id, by)


@writes.post("/approvals/{approval_id:path}/approve")
async def approve(asked: Asked, approval_id: str, body: Approve) -> Receipt:
    """Let a call run, as proposed or with other arguments."""
    by = await asked.may("approve" if body.arguments is None else "edit", approval_id)
    if body.always:
        await asked.may("approve_always", approval_id)
    wanted = Approval(id=approval_id, digest=body.digest)
    return await asked.runner.approve(
        wanted, by, body.arguments, body.note, roles=asked.person.roles, always=body.always
    )


@writes.post("/approvals/{approval_id:path}/uncover", response_class=JSONResponse)
async def uncover(asked: Asked, approval_id: str) -> Approval:
    """Return an approval that waits with its secrets, and record who was shown them."""
    by = await asked.may("uncover", approval_id)
    found = await asked.runner.pending_approvals(task_of(approval_id))
    await asked.runner.uncover(approval_id, by, roles=asked.person.roles)
    return next(each for each in found if each.id == approval_id)


@writes.post("/approvals/{approval_id:path}/edit")
async def edit(asked: Asked, approval_id: str, body: Edit) -> Receipt:
    """Let a call run with other arguments."""
    by = await asked.may("edit", approval_id)
    roles = asked.person.roles
    return await asked.runner.approve(approval_id, by, body.arguments, body.note, roles=roles)


def _new_id(asked: Asked, key: str | None, given: str | None) -> str | None:
    """Return the id of a task that a request creates; None for one that is made up.

    Raises:
        InvalidArgumentError: Both a key and an id name it.
    """
    if key is None:
        return given
    if given is not None:
        msg = "Give a task_id or an Idempotency-Key, not both: each names the task."
        raise InvalidArgumentError(msg)
    return f"api-{_request(asked, key)}"


def _request(asked: Asked, key: str | None) -> str | None:
    """Return the id of a request that may be sent again; None for one that may not."""
    if key is None:
        return None
    return hashlib.sha256(f"{asked.visitor.key}\0{key}".encode()).hexdigest()[:KEY_DIGITS]


_Said = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


def _body_of(method: Callable[..., Any], form: Mapping[str, Part]) -> type[Body]:
    """Return the body of a verb's request: the arguments of the client's method."""
    fields: dict[str, Any] = {}
    for each in [*inspect.signature(method, eval_str=True).parameters.values()][2:]:
        if each.name not in ("by", "roles", "request_id"):
            is_needed = each.name in form and form[each.name].form == "needed"
            default = ... if each.default is each.empty else each.default
            fields[each.name] = (_Said if is_needed else each.annotation, default)
    return create_model(method.__name__.title(), __base__=Body, **fields)


def _serve(verb: Verb) -> None:
    """Serve a verb by the client's method."""
    declared = VERBS[verb]
    method = getattr(AgentRunner, declared.method or verb)
    body_type = _body_of(method, declared.form or {})
    takes_roles = "roles" in inspect.signature(method).parameters

    async def act(
        asked: Access, body: Body | None = None, key: str | None = None, **id: str
    ) -> Receipt:
        [subject] = id.values()
        given = dict(body or ())
        role_of: Any = f"{verb}_always" if given.get("always") else verb
        # A token is a secret of who has it, and rules of an application are about tasks.
        about = task_of(task_of(subject)) if declared.about == "call" else subject
        by = await asked.may(role_of, about)
        given |= {"request_id": _request(asked, key)} if key else {}
        given |= {"roles": asked.person.roles} if takes_roles else {}
        receipt: Receipt = await method(asked.runner, subject, by=by, **given)
        return receipt

    needs_body = any(field.is_required() for field in body_type.model_fields.values())
    body: tuple[Any, Any] = (body_type, ...) if needs_body else (body_type | None, None)
    taken = {"asked": (Asked, ...), f"{declared.about}_id": (str, ...), "body": body}
    if "request_id" in inspect.signature(method).parameters:
        taken["key"] = (Key, None)
    act.__doc__ = declared.does
    vars(act)["__signature__"] = signature_of(taken, Receipt)
    writes.post(f"/{declared.about}s/{{{declared.about}_id:path}}/{verb}", name=verb)(act)


_by_hand = {getattr(route, "name", "") for route in writes.routes}
for _verb, _declared in VERBS.items():
    if _declared.role and _verb not in _by_hand:
        _serve(_verb)
