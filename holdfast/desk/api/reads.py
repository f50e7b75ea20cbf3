"""Routes that read: tasks, what they did and cost, what waits, sessions, workers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response, StreamingResponse

from holdfast.archive.segments import turns
from holdfast.client.agent_runner.approvals import open_approvals
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.client.agent_runner.schedules import Schedule
from holdfast.client.agent_runner.sessions import Session
from holdfast.desk.api.access import RUN_SECONDS, Asked, CleanJSON, DecisionJSON, IdRoute
from holdfast.desk.pages.feed import Feed, read_forks, read_sessions
from holdfast.desk.pages.queues import read_queues
from holdfast.desk.views.artifacts import HARMLESS
from holdfast.desk.views.branches import Branch, ForkedTask, branches_of
from holdfast.desk.views.cards import Card, card_of
from holdfast.desk.views.tasks import MOST_SEARCHED, TaskFilter
from holdfast.desk.views.timeline import Effect, Timeline, effects_of, timeline_of
from holdfast.desk.views.words import without_secrets
from holdfast.desk.views.workers import Queue, ServedAgent, agents_of
from holdfast.errors import InvalidArgumentError, NotFoundError, NoWorkerError, TaskNotFoundError
from holdfast.reading.artifacts import KeptArtifact, read_artifact
from holdfast.reading.audit.audit import AuditEvent
from holdfast.reading.inbox import InboxFilter
from holdfast.reading.visibility import SessionName
from holdfast.task.data.calls import Approval, StandingRule
from holdfast.task.happenings import happenings
from holdfast.values.checks.ids import task_of
from holdfast.values.messages import Message, Usage
from holdfast.values.runs.status import TaskStatus
from holdfast.values.steps import AgentResponse, ListedTask, Task, TaskStep, TaskStepOutput

PAGE = 50
MOST = 500

reads = APIRouter(default_response_class=CleanJSON, route_class=IdRoute)


_JSON_LINES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/jsonl": {"schema": {"type": "string"}}}}
}
_BYTES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {"schema": {"type": "string"}}}}
}


class Me(BaseModel):
    """Who sends the request."""

    name: str
    roles: list[str]
    source: Literal["local", "token", "proxy", "oidc"]
    tenant: str


class TaskPage(BaseModel):
    """A page of the list of tasks, newest first.

    Attributes:
        tasks: The tasks, with what lists know of them.
        page: Number of the page, from 1.
        more: Whether there is another page.
        next: The `after` of the page that follows. If there is more without it, as in a search, the
            next `page` has it.
    """

    tasks: list[ListedTask]
    page: int
    more: bool
    next: str


class Cost(BaseModel):
    """What a task has cost.

    Attributes:
        total: All model calls whose answer has arrived, also those of steps that were undone.
        branch: The part of the present branch.
    """

    total: Usage
    branch: Usage


class Steps(BaseModel):
    """The steps of a task: what was done, and what comes."""

    completed: list[TaskStepOutput]
    upcoming: list[TaskStep]


class Findings(BaseModel):
    """The result of recomputing a task's digests.

    Attributes:
        intact: Whether nothing is wrong.
        findings: What is wrong.
        proved: What was proven, in sentences.
        unproved: What could not be.
    """

    intact: bool
    findings: list[dict[str, Any]]
    proved: list[str]
    unproved: list[str]


class SessionFacts(BaseModel):
    """A conversation.

    Attributes:
        name: Its name.
        messages: What was said in it, oldest first.
        tasks: The tasks whose turns it has, oldest first.
        usage: What its turns have cost.
    """

    name: str
    messages: list[Message]
    tasks: list[str] = Field(default_factory=list)
    usage: Usage


@reads.get("/me")
async def me(asked: Asked) -> Me:
    """Say who sends the request, and what they may do."""
    who = asked.visitor
    return Me(name=who.name, roles=sorted(who.roles), source=who.source, tenant=who.tenant)


@reads.get("/tasks")
async def list_tasks(
    asked: Asked,
    *,
    status: TaskStatus | None = None,
    agent: str | None = None,
    parent: str | None = None,
    q: Annotated[str, Query(description="Text in id, input or agent.")] = "",
    after: Annotated[str, Query(description="The `next` of the page before.")] = "",
    page: Annotated[int, Query(ge=1, le=10_000, description="`after` is faster.")] = 1,
    size: Annotated[int, Query(ge=1, le=MOST)] = PAGE,
) -> TaskPage:
    """List tasks, newest first; a search looks at 5,000 from where it begins.

    Raises:
        InvalidArgumentError: The number of the page is too large.
    """
    end = page * size
    if end > MOST_SEARCHED:
        msg = f"Pages have numbers up to {MOST_SEARCHED:,} tasks. Go on with `after`, not `page`."
        raise InvalidArgumentError(msg)
    limit = MOST_SEARCHED if q else end
    found = await asked.runner.list_tasks(status, agent, limit=limit, parent=parent, after=after)
    wanted = TaskFilter(text=q)
    tasks = [task for task in found if wanted.takes(task)]
    following = found.next if len(tasks) <= end else ""
    more = bool(following) or len(tasks) > end
    return TaskPage(tasks=tasks[end - size : end], page=page, more=more, next=following)


@reads.get("/tasks/{task_id:path}/steps")
async def steps(asked: Asked, task_id: str, *, undone: bool = False) -> Steps:
    """List completed and upcoming steps."""
    completed = await asked.runner.get_completed_steps(task_id, undone=undone)
    return Steps(completed=completed, upcoming=await asked.runner.get_upcoming_steps(task_id))


@reads.get("/tasks/{task_id:path}/calls")
async def calls(asked: Asked, task_id: str) -> list[AuditEvent]:
    """List the model calls and tool calls of a task, oldest first."""
    found = await asked.runner.audit(task_id)
    return [event for event in found if event.kind in ("model_call", "tool_call")]


@reads.get("/tasks/{task_id:path}/transcript")
async def transcript(
    asked: Asked, task_id: str, *, whole: Annotated[bool, Query()] = False
) -> list[Message]:
    """Return the transcript; with `whole`, that of the open step too."""
    runner = asked.runner
    return await (runner.all_messages(task_id) if whole else runner.transcript(task_id))


@reads.get("/tasks/{task_id:path}/usage")
async def usage(asked: Asked, task_id: str) -> Cost:
    """Say what a task has cost."""
    task = await asked.runner.get_task(task_id)
    return Cost(total=task.usage, branch=task.branch_usage)


@reads.get("/tasks/{task_id:path}/response")
async def response(asked: Asked, task_id: str) -> AgentResponse:
    """Return the answer of a task that has one."""
    return await asked.runner.response(task_id)


@reads.get("/tasks/{task_id:path}/timeline")
async def timeline(asked: Asked, task_id: str) -> Timeline:
    """Say what ran when: steps, model calls, tool calls, waits."""
    entries, opens = await asked.runner.reader.ledger(task_id, legible=True)
    return timeline_of(list(happenings(entries, opens)), now=time.time())


@reads.get("/tasks/{task_id:path}/branches")
async def branches(asked: Asked, task_id: str) -> list[Branch]:
    """List the branches of a task: each undo ends one and begins the next."""
    entries, opens = await asked.runner.reader.ledger(task_id)
    return branches_of(list(happenings(entries, opens)))


@reads.get("/tasks/{task_id:path}/forks")
async def forks(asked: Asked, task_id: str) -> list[ForkedTask]:
    """List the tasks that were forked from a task, oldest first."""
    return await read_forks(asked.runner, await asked.runner.get_task(task_id))


@reads.get("/tasks/{task_id:path}/effects")
async def effects(asked: Asked, task_id: str) -> list[Effect]:
    """List what a task and its child tasks did outside, and whether it was undone."""
    return await _effects(asked.runner, task_id)


async def _effects(runner: AgentRunner, task_id: str) -> list[Effect]:
    """List the effects of a task, after each call that was a child task those of that task."""
    entries, opens = await runner.reader.ledger(task_id)  # a list with a hole would say "nothing"
    found: list[Effect] = []
    for each in effects_of(happenings(entries, opens), await Feed(runner).snapshot(task_id)):
        inside = await _effects(runner, each.child) if each.child else []
        found += [each, *(replace(one, task=one.task or each.child) for one in inside)]
    return found


@reads.get("/tasks/{task_id:path}/artifacts")
async def artifacts(asked: Asked, task_id: str, *, versions: bool = False) -> list[KeptArtifact]:
    """List the files that the tools of a task have kept, of each name the newest."""
    return await asked.runner.artifacts(task_id, versions=versions)


@reads.get("/tasks/{task_id:path}/artifact", response_class=Response, responses=_BYTES)
async def artifact(
    asked: Asked,
    task_id: str,
    name: Annotated[str, Query(description="Its name, or its reference.")],
) -> Response:
    """Download a file that a tool has kept.

    A tool may have made it of what a model or a stranger said: no browser shows it as a page.
    """
    found, data = await read_artifact(asked.runner.reader, task_id, name)
    media_type = found.media_type if found.media_type in HARMLESS else "application/octet-stream"
    file = f"attachment; filename*=UTF-8''{quote(found.name, safe='')}"
    return Response(data, media_type=media_type, headers={"Content-Disposition": file})


@reads.get("/tasks/{task_id:path}/approvals", response_class=DecisionJSON)
async def approvals_of(asked: Asked, task_id: str) -> list[Approval]:
    """List what of a task waits for a person."""
    return await asked.runner.pending_approvals(task_id)


@reads.get("/tasks/{task_id:path}/rules")
async def rules(asked: Asked, task_id: str) -> list[StandingRule]:
    """List the decisions that hold for later calls, oldest first."""
    return await asked.runner.standing_rules(task_id)


@reads.get("/rules")
async def all_rules(asked: Asked) -> list[StandingRule]:
    """List the decisions that hold for later calls, of all open tasks and of all sessions."""
    return await asked.runner.standing_rules()


@reads.get("/tasks/{task_id:path}/audit", response_class=StreamingResponse, responses=_JSON_LINES)
async def audit(asked: Asked, task_id: str) -> StreamingResponse:
    """Return every event of a task as JSON lines, oldest first."""
    found = await asked.runner.audit(task_id)

    async def lines() -> AsyncGenerator[str]:
        for event in found:
            yield json.dumps(without_secrets(event.wire()), ensure_ascii=False) + "\n"

    return StreamingResponse(lines(), media_type="application/jsonl")


@reads.get("/tasks/{task_id:path}/verify")
async def verify(asked: Asked, task_id: str) -> Findings:
    """Recompute the digests of a task."""
    found = await asked.runner.verify(task_id)
    return Findings(
        intact=not found,
        findings=[finding.wire() for finding in found],
        proved=found.proved,
        unproved=found.unproved,
    )


@reads.get("/approvals", response_class=DecisionJSON)
async def list_approvals(asked: Asked, wanted: Annotated[InboxFilter, Query()]) -> list[Approval]:
    """List what waits for a person over all tasks, oldest first.

    With `mine`, only what the sender of the request can decide.
    """
    now = time.time()
    found = await open_approvals(asked.runner)
    return [approval for approval in found if wanted.takes(approval, asked.person, now=now)]


@reads.get("/approvals/{approval_id:path}", response_class=DecisionJSON)
async def card(asked: Asked, approval_id: str) -> Card:
    """Return an approval that waits, with what a decision needs.

    While no worker process answers, it is as the list has it: long arguments are cut.
    """
    task_id = task_of(approval_id)
    try:
        async with asyncio.timeout(RUN_SECONDS):
            found = await asked.runner.pending_approvals(task_id)
    except (TimeoutError, NoWorkerError):
        found = await open_approvals(asked.runner)
    approval = next((each for each in found if each.id == approval_id), None)
    if approval is None:
        said = await Feed(asked.runner).decided_by(approval_id)
        what = f"It was {said}." if said else "There was none, or it was withdrawn."
        raise NotFoundError(f"No approval {approval_id!r} waits. {what}")
    context = await Feed(asked.runner).context(task_id)
    return await asked.seen(card_of(approval, context, now=time.time()))


@reads.get("/sessions")
async def list_sessions(asked: Asked) -> list[SessionName]:
    """List the newest conversations, newest first."""
    return await read_sessions(asked.runner)


@reads.get("/sessions/{name:path}")
async def session(asked: Asked, name: str) -> SessionFacts:
    """Return a conversation."""
    found: Session = asked.runner.session(name)
    try:
        state = await asked.runner.reader.session(found.id)
    except TaskNotFoundError as error:
        msg = f"No session {name!r} is known here: it has no turns, or was deleted."
        raise NotFoundError(msg) from error
    commits = await turns(asked.runner.archive, state)
    return SessionFacts(
        name=name,
        messages=await found.chat_history(legible=True),
        tasks=[commit.task for commit in commits if not commit.task.startswith("-")],
        usage=await found.usage(),
    )


@reads.get("/schedules")
async def list_schedules(asked: Asked) -> list[Schedule]:
    """List the schedules, each with its next times and what was missed or skipped."""
    return await asked.runner.list_schedules()


@reads.get("/agents")
async def agents(asked: Asked) -> list[ServedAgent]:
    """List the agents of open and of the newest tasks, and who serves them."""
    return agents_of(await read_queues(asked.runner.client))


@reads.get("/workers")
async def workers(asked: Asked) -> list[Queue]:
    """List the queues, who polls them, and the open tasks that no one serves."""
    return await read_queues(asked.runner.client)


@reads.get("/tasks/{task_id:path}")
async def task(asked: Asked, task_id: str) -> Task:
    """Describe a task."""
    return await asked.runner.get_task(task_id)
