"""A2A: served agents as agents of this protocol, whose tasks are durable tasks.

A message begins a task, and its context is a session of its sender. Clients of the versions 1.0 and
0.3 are served.

Source: Agent2Agent Protocol 1.0, "Operations" and "Task Lifecycle".
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import Any, NoReturn
from urllib.parse import quote

from holdfast.values.code.extras import needing

with needing("a2a", "holdfast.contrib.a2a"):
    from a2a.helpers import (
        get_data_parts,
        get_message_text,
        new_data_part,
        new_message,
        new_text_artifact,
        new_text_artifact_update_event,
        new_text_part,
    )
    from a2a.server.context import ServerCallContext
    from a2a.server.events import Event
    from a2a.server.request_handlers import RequestHandler
    from a2a.server.routes import (
        DefaultServerCallContextBuilder,
        create_agent_card_routes,
        create_jsonrpc_routes,
    )
    from a2a.types import a2a_pb2 as a2a
    from a2a.utils import errors
    from fastapi import APIRouter, Depends, Request
    from starlette.exceptions import HTTPException
    from starlette.responses import Response
    from starlette.types import Message

    from holdfast.contrib.fastapi import known_by
    from holdfast.contrib.threads import begin, names_digest, question_of, settled
    from holdfast.desk.api.access import RUN_SECONDS, Access, Asked, IdRoute
    from holdfast.desk.identity.tokens import READ, May
    from holdfast.desk.views.words import without_secrets

from holdfast.agents.agent import Agent
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.errors import (
    ArchiveError,
    CommandRefusedError,
    ConnectError,
    HoldfastError,
    InvalidArgumentError,
    NotFoundError,
    NoWorkerError,
    message_of,
)
from holdfast.reading.streams.reader import RawResponsesStreamEvent
from holdfast.task.data.calls import Approval
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_object
from holdfast.values.checks.ids import check_name
from holdfast.values.runs.status import CLOSED, TaskStatus
from holdfast.values.text.decided import covered
from holdfast.values.text.logs import log
from holdfast.values.text.redact import redact
from holdfast.values.version import __version__

ANSWER = "answer"
"""Id of the artifact that is the agent's answer."""

MOST_BYTES = 1_000_000
"""Of a request's body."""

_ASKED = "holdfast.asked"

_STATES: Mapping[TaskStatus, a2a.TaskState] = {
    "running": a2a.TASK_STATE_WORKING,
    "paused": a2a.TASK_STATE_WORKING,
    "needs_attention": a2a.TASK_STATE_WORKING,
    "waiting": a2a.TASK_STATE_INPUT_REQUIRED,
    "answered": a2a.TASK_STATE_COMPLETED,
    "finished": a2a.TASK_STATE_COMPLETED,
    "failed": a2a.TASK_STATE_FAILED,
    "abandoned": a2a.TASK_STATE_CANCELED,
}

_DECISION: dict[str, Json] = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approved"],
}


def a2a_router(
    runner: AgentRunner,
    agents: Sequence[Agent[Any]],
    *,
    url: str,
    identity: Callable[..., Any],
    may: May | None = None,
    change_card: Callable[[a2a.AgentCard], object] | None = None,
) -> APIRouter:
    """Make a router with an endpoint and a card for each agent.

    The card of agent `clerk` is at `/clerk/.well-known/agent-card.json`, for everybody. The number
    of requests is your app's to limit; their size is limited here.

    Args:
        runner: Runs the tasks. Your app starts and closes it.
        agents: The agents.
        url: Where clients reach the router, as "https://example.org/a2a".
        identity: As for `tasks_router`.
        may: Likewise.
        change_card: Is called with each card before it is served, to add to it.
    """
    router = APIRouter(route_class=IdRoute)
    known = Depends(known_by(runner, identity, may))
    for agent in agents:
        path = f"/{quote(agent.name, safe='')}"
        card = _card(agent, url.rstrip("/") + path)
        if change_card is not None:
            change_card(card)
        card_url = f"/{agent.name}/.well-known/agent-card.json"
        router.routes += create_agent_card_routes(card, card_url=card_url)
        [route] = create_jsonrpc_routes(
            _Tasks(agent.name), path, context_builder=_Contexts(), enable_v0_3_compat=True
        )
        endpoint = _endpoint(route.endpoint)
        router.add_api_route(
            f"/{agent.name}", endpoint, methods=["POST"], dependencies=[known], response_model=None
        )
    return router


def _card(agent: Agent[Any], url: str) -> a2a.AgentCard:
    about = agent.handoff_description or f"The agent {agent.name}."
    skill = a2a.AgentSkill(id=agent.name, name=agent.name, description=about, tags=["agent"])
    return a2a.AgentCard(
        name=agent.name,
        description=about,
        supported_interfaces=[
            a2a.AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version=version)
            for version in ("1.0", "0.3")
        ],
        version=__version__,
        capabilities=a2a.AgentCapabilities(streaming=True),
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["text/plain"],
        skills=[skill],
    )


def _endpoint(serve: Callable[..., Any]) -> Callable[..., Any]:
    async def endpoint(asked: Asked, request: Request) -> Response:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BYTES:
                raise HTTPException(413, f"A request may have {MOST_BYTES:,} bytes at most.")
        _check(bytes(body))

        async def receive() -> Message:
            return {"type": "http.request", "body": bytes(body)}

        answer: Response = await serve(Request({**request.scope, _ASKED: asked}, receive))
        return answer

    return endpoint


def _check(body: bytes) -> None:
    """Refuse JSON that could not be answered.

    Raises:
        HTTPException: It could not.
    """
    try:
        json.dumps(json.loads(body), ensure_ascii=False, allow_nan=False).encode()
    except json.JSONDecodeError:
        return  # the protocol has an error for it
    except (ValueError, RecursionError) as error:
        msg = "The body is nested too deep, or has a text or a number that JSON cannot have."
        raise HTTPException(400, msg) from error


class _Contexts(DefaultServerCallContextBuilder):
    """Passes on who asks, and the runner for them."""

    def build(self, request: Request) -> ServerCallContext:
        made = super().build(request)
        made.state[_ASKED] = request.scope[_ASKED]
        return made


class _Tasks(RequestHandler):
    """The operations of one agent. All state is in the tasks."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._prefix = f"a2a-{names_digest(agent)[:8]}-"

    async def on_message_send(
        self, params: a2a.SendMessageRequest, context: ServerCallContext
    ) -> a2a.Task:
        with _as_a2a():
            asked: Access = context.state[_ASKED]
            task_id = await self._sent(asked, params.message)
            if not params.configuration.return_immediately:
                async for _ in asked.runner.stream_events(task_id, until="waiting"):
                    pass
            return await _shown(asked, task_id)

    async def on_message_send_stream(
        self, params: a2a.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        with _as_a2a():
            asked: Access = context.state[_ASKED]
            async for each in _followed(asked, await self._sent(asked, params.message)):
                yield each

    async def on_subscribe_to_task(
        self, params: a2a.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        with _as_a2a():
            async for each in _followed(await self._reading(context, params.id), params.id):
                yield each

    async def on_get_task(
        self, params: a2a.GetTaskRequest, context: ServerCallContext
    ) -> a2a.Task | None:
        with _as_a2a():
            return await _shown(await self._reading(context, params.id), params.id)

    async def on_cancel_task(
        self, params: a2a.CancelTaskRequest, context: ServerCallContext
    ) -> a2a.Task | None:
        with _as_a2a():
            asked = await self._reading(context, params.id)
            by = await asked.may("abandon", params.id)
            if (await settled(asked, params.id)).status in CLOSED:
                raise errors.TaskNotCancelableError("The task has ended already.")
            await asked.runner.abandon(params.id, "It was cancelled.", by=by)
            with suppress(TimeoutError, NoWorkerError):  # it is recorded, and takes effect later
                async with asyncio.timeout(RUN_SECONDS):
                    async for _ in asked.runner.stream_events(params.id):
                        pass
            return await _shown(asked, params.id)

    async def _refused(self, *_: object, **__: object) -> NoReturn:
        raise errors.UnsupportedOperationError("This operation is not served here.")

    async def _no_push(self, *_: object, **__: object) -> NoReturn:
        raise errors.PushNotificationNotSupportedError

    on_list_tasks = on_get_extended_agent_card = _refused
    on_create_task_push_notification_config = _no_push
    on_get_task_push_notification_config = _no_push
    on_list_task_push_notification_configs = _no_push
    on_delete_task_push_notification_config = _no_push

    async def _reading(self, context: ServerCallContext, task_id: str) -> Access:
        """Return the request's way to a task of this agent that the sender may read."""
        asked: Access = context.state[_ASKED]
        if not task_id.startswith(self._prefix):  # not begun here
            raise errors.TaskNotFoundError(f"There is no task {task_id[:80]!r} here.")
        await asked.may(READ, task_id)
        return asked

    async def _sent(self, asked: Access, message: a2a.Message) -> str:
        """Begin the task of a message, or give the message to its task; return the task's id."""
        parts = message.parts
        if not all(each.HasField("text") or each.HasField("data") for each in parts):
            raise errors.ContentTypeNotSupportedError("Parts of a message are texts or data.")
        check_name("The id of a message", message.message_id)
        text = get_message_text(message)
        if message.task_id:
            await self._reading(ServerCallContext(state={_ASKED: asked}), message.task_id)
            await self._told(asked, message, text)
            return message.task_id
        if not text:
            raise errors.InvalidParamsError("A message that begins a task has a text.")
        task_id = self._prefix + names_digest(asked.visitor.key, self._agent, message.message_id)
        if message.context_id:
            check_name("The id of a context", message.context_id)
        thread_id = message.context_id or task_id
        return await begin(asked, text, agent=self._agent, thread_id=thread_id, task_id=task_id)

    async def _told(self, asked: Access, message: a2a.Message, text: str) -> None:
        """Give a task an answer to what it waits for, or feedback."""
        task_id, runner = message.task_id, asked.runner
        task = await settled(asked, task_id)
        if message.context_id not in ("", _context(task.session, task_id)):
            raise errors.InvalidParamsError("The task is of another context.")
        if task.status in (*CLOSED, "answered"):
            msg = "The task has ended: leave taskId out, and begin another one in its context."
            raise errors.UnsupportedOperationError(msg)
        data = next(map(_whole, get_data_parts(message.parts)), None)
        waits = await runner.pending_approvals(task_id) if task.status == "waiting" else ()
        # Sent again, it has one effect: it decides nothing that the task asks meanwhile.
        key = names_digest(asked.visitor.key, message.message_id)
        if waits:
            try:
                await _decide(asked, waits, data, text, key)
            except CommandRefusedError as error:
                if not error.is_repeated:
                    raise
        elif text and data is None:
            by = await asked.may("feedback", task_id)
            await runner.give_feedback(task_id, text, by=by, request_id=key)


async def _decide(
    asked: Access, waits: Sequence[Approval], data: Json, text: str, key: str
) -> None:
    """Decide what a task waits for; `key` names the request.

    Raises:
        InvalidParamsError: It is not said what, or not what is decided.
    """
    given = as_object(data)
    named, digest = given.pop("approval", None), given.pop("digest", None)
    due = [each for each in waits if named in (None, each.id)]
    if len(due) != 1:
        names = ", ".join(each.id for each in waits)
        msg = f"Name in a data part which is decided: 'approval' is one of {names}."
        raise errors.InvalidParamsError(msg)
    [one] = due
    more: Any = {"roles": asked.person.roles, "request_id": key}
    # By what the sender has seen: a call that was edited since is not voted for unseen.
    seen = Approval(id=one.id, digest=digest) if isinstance(digest, str) else one.id
    data = given or (None if named or digest else data)
    reason, form = str(given.get("reason", text)), as_object(_schema(one))
    is_form = one.kind == "question" and form is not _DECISION
    if is_form and ("approved" not in given or "approved" in as_object(form.get("properties"))):
        by = await asked.may("respond", one.id)
        await asked.runner.respond(seen, by, text if data is None else data, **more)
    elif given.get("approved") is False:
        by = await asked.may("reject", one.id)
        await asked.runner.reject(seen, by, reason or "It was rejected.", **more)
    elif given.get("approved") is True:
        by = await asked.may("approve", one.id)
        await asked.runner.approve(seen, by, note=reason, **more)
    else:
        msg = 'The task waits for a decision: send a data part {"approved": true} or false.'
        raise errors.InvalidParamsError(msg)


async def _followed(asked: Access, task_id: str) -> AsyncGenerator[Event]:
    """Yield the task, its answer piece by piece, and how it ends."""
    runner, item, told = asked.runner, "", ""
    shown = await _shown(asked, task_id)
    yield shown
    if shown.status.state in (a2a.TASK_STATE_COMPLETED, a2a.TASK_STATE_FAILED):
        return
    ids: Any = {"task_id": task_id, "context_id": shown.context_id}

    def piece(text: str, *, append: bool) -> a2a.TaskArtifactUpdateEvent:
        return new_text_artifact_update_event(
            **ids, name=ANSWER, text=redact(text), artifact_id=ANSWER, append=append
        )

    async with aclosing(runner.stream_events(task_id, until="waiting")) as following:
        async for event in following:
            data = event.data if isinstance(event, RawResponsesStreamEvent) else None
            if data is None or data.type != "response.output_text.delta":
                continue
            await asked.may(READ, task_id)
            # A text that begins replaces what was said before: the last one is the answer.
            is_more = data.item_id == item
            yield piece(data.delta, append=is_more)
            item, told = data.item_id, told * is_more + data.delta
    shown = await _shown(asked, task_id)
    said = "".join(part.text for each in shown.artifacts for part in each.parts)
    if said and said != redact(told):
        yield piece(said, append=False)
    yield a2a.TaskStatusUpdateEvent(**ids, status=shown.status)


async def _shown(asked: Access, task_id: str) -> a2a.Task:
    """Return a task as the protocol has it."""
    await asked.may(READ, task_id)  # as before, or no more: it may have taken days
    task = await settled(asked, task_id)
    context = _context(task.session, task_id)
    made = a2a.Task(id=task_id, context_id=context)
    made.status.state = _STATES[task.status]
    said, id, parts = task.error or task.paused, str(task.status), list[a2a.Part]()
    if task.status == "waiting":
        waits = await asked.runner.pending_approvals(task_id)
        said, id = "\n".join(map(question_of, waits)), " ".join(each.id for each in waits)
        asks: list[dict[str, Json]] = [
            {"approval": each.id, "digest": each.bound or each.digest, "schema": _schema(each)}
            for each in waits
        ]
        parts = [new_data_part(without_secrets(each, covered)) for each in asks]
    if said:
        parts = [new_text_part(said if parts else redact(said)), *parts]
        message = new_message(parts, context_id=context, task_id=task_id)
        message.message_id = id  # another question is another message
        made.status.message.CopyFrom(message)
    if task.status in ("answered", "finished"):
        text = (await asked.runner.response(task_id)).response
        made.artifacts.append(new_text_artifact(ANSWER, redact(text), artifact_id=ANSWER))
    return made


def _schema(approval: Approval) -> Json:
    """Return what an answer looks like."""
    questions = approval.asks.questions if approval.asks is not None else ()
    if len(questions) > 1:
        return {"type": "object", "properties": {each.key: each.fields for each in questions}}
    return questions[0].fields if questions and questions[0].fields else _DECISION


def _context(session: str, task_id: str) -> str:
    return session.partition("/")[2] or task_id


def _whole(data: Any) -> Any:
    """Return JSON data with whole numbers as integers, which the protocol sends as floats."""
    return json.loads(json.dumps(data), parse_float=_number)


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


@contextmanager
def _as_a2a() -> Generator[None]:
    """Raise the protocol's errors for others."""
    try:
        yield
    except errors.A2AError:
        raise
    except NotFoundError as error:
        raise errors.TaskNotFoundError(message_of(error)) from error
    except InvalidArgumentError as error:
        raise errors.InvalidParamsError(message_of(error)) from error
    except (ConnectError, ArchiveError, NoWorkerError) as error:  # it passes: ask again
        raise errors.InternalError(message_of(error)) from error
    except HoldfastError as error:
        raise errors.UnsupportedOperationError(message_of(error)) from error
    except Exception as error:
        log.exception("A request of A2A failed")
        raise errors.InternalError("The request failed; the log of the server says why.") from error
