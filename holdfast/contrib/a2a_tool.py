"""A remote agent that speaks A2A, as a tool whose call is recorded as any other.

Source: Agent2Agent Protocol 1.0, "Send Message", "Get Task" and "Task Lifecycle".
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from typing_extensions import Unpack

from holdfast.values.code.extras import needing

with needing("a2a", "holdfast.contrib.a2a_tool"):
    import httpx
    from a2a.client import A2ACardResolver, A2AClientError, Client, ClientConfig, create_client
    from a2a.helpers import (
        get_data_parts,
        get_message_text,
        get_text_parts,
        new_data_part,
        new_text_part,
    )
    from a2a.types import a2a_pb2 as a2a
    from a2a.utils.errors import InternalError, TaskNotCancelableError

from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.foreign.servers import QuestionAskedError
from holdfast.agents.tools.options import ToolOptions
from holdfast.agents.tools.tool import Tool
from holdfast.contrib.frameworks import LONGEST, ONE_TEXT
from holdfast.errors import OutcomeUnknownError
from holdfast.task.data.calls import Asks, Question
from holdfast.values.base import Json, canonical, digest, pauses
from holdfast.values.checks.gate import as_object, as_text

T = TypeVar("T")

PAUSES = 0.2, 30.0
"""Seconds between two looks at a remote task: the first, and the most."""

MOST_BYTES = 8 * 1024 * 1024
"""Of a remote agent's answer to one request."""

ANSWER_SECONDS = 120.0
"""How long one request may take, whatever trickles in."""

CARD_SECONDS = 30.0
"""How long a remote agent may be out of reach when a call begins, or goes on."""

PASSING = {408, 425, 429}
"""HTTP statuses after which a request is sent again."""

PATIENCE_SECONDS = 600.0
"""How long a remote agent may be out of reach while its task is followed."""

_GOING = {a2a.TASK_STATE_SUBMITTED, a2a.TASK_STATE_WORKING}
_ASKING = {a2a.TASK_STATE_INPUT_REQUIRED, a2a.TASK_STATE_AUTH_REQUIRED}


def a2a_tool(
    url: str, *, headers: Mapping[str, str] | None = None, **options: Unpack[ToolOptions]
) -> Tool[..., Any]:
    """Make a tool that gives a remote agent a message, and returns its answer.

    What the remote agent asks, a person is asked; no worker is held meanwhile. The id of the
    message is the idempotency key of the call. Give `idempotent=True` if the remote agent begins
    one task for one id, as those of `a2a_router` do: a call whose worker is lost then goes on with
    its remote task. Otherwise a person says what happened.

    Args:
        url: Address of the agent, under which its card is at `.well-known/agent-card.json`.
        headers: Headers of each request, such as `Authorization`.
        options: As for `@tool`; `name` and `description` say what the agent is good for.
    """

    async def ask_agent(ctx: ToolContext[Any, Any], message: str) -> str:
        """Ask another agent.

        Args:
            message: What it is to do, with all that it must know.
        """
        given = {**(headers or {}), "Accept-Encoding": "identity"}
        limits: Any = {"response": [_limited]}
        async with httpx.AsyncClient(headers=given, timeout=60.0, event_hooks=limits) as http:
            client = await _client(url, http)
            call = _Call(client, ctx.idempotency_key, bool(options.get("idempotent")))
            if not ctx.resume:
                return await call.begin(message)
            return await call.go_on(_Asked(*json.loads(ctx.resume)), ctx.answers["answer"])

    return Tool.from_function(ask_agent, **options)


async def _client(url: str, http: httpx.AsyncClient) -> Client:
    """Make a client by an agent's card, which may not lead the headers to another host.

    Raises:
        RuntimeError: It would.
    """
    get = A2ACardResolver(http, url).get_agent_card
    card = await _patiently(get, repeats=True, seconds=CARD_SECONDS)
    for each in card.supported_interfaces:
        if _origin(each.url) != _origin(url):
            raise RuntimeError(
                f"The card of the agent at {url} leads to {each.url[:200]}, another host, which"
                " must not get the headers of this tool. Give a2a_tool that host's address."
            )
    return await create_client(card, ClientConfig(streaming=False, polling=True, httpx_client=http))


async def _limited(answer: httpx.Response) -> None:
    """Read an answer that is neither too long nor packed: unpacked, it could be of any length.

    Raises:
        RuntimeError: It is too long or packed, and the card of the agent.
        OutcomeUnknownError: Likewise, and it answers a message.
    """
    kind = RuntimeError if answer.request.method == "GET" else OutcomeUnknownError
    packed, body = answer.headers.pop("content-encoding", "identity"), bytearray()
    if packed.lower() != "identity" and answer.is_success:
        raise kind(
            f"The remote agent has answered by content-encoding {packed[:40]!r}, which is not"
            " unpacked here. Let its server send what Accept-Encoding asks for: identity."
        )
    async with aclosing(cast("Any", answer.stream)) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > MOST_BYTES:
                raise kind(f"The remote agent has answered by more than {MOST_BYTES:,} bytes.")
    answer.stream = httpx.ByteStream(bytes(body))


def _origin(url: str) -> tuple[str, str, int | None]:
    found = httpx.URL(url)
    return found.scheme, found.host, found.port


class _Asked(NamedTuple):
    """What a call keeps with its question: the remote task, and the message that asks."""

    task: str
    message: str
    approval: str = ""
    digest: str = ""


@dataclass(frozen=True)
class _Call:
    """One attempt of a call.

    Attributes:
        client: The client.
        key: The idempotency key of the call.
        repeats: Whether the remote agent begins one task for one message id.
    """

    client: Client
    key: str
    repeats: bool

    async def begin(self, text: str) -> str:
        """Send the message, and return the answer.

        Raises:
            QuestionAskedError: The remote agent asks something.
            OutcomeUnknownError: It may have the message, or its task is out of reach.
            RuntimeError: The remote task has failed; the model reads why.
        """
        found = await self._send(self.key, [new_text_part(text)])
        return found if isinstance(found, str) else await self._end_of(found)

    async def go_on(self, asked: _Asked, answer: Json) -> str:
        """Send the answer to a question, unless the remote agent has it; then as `begin`."""
        task = await self._look(asked.task)
        if task.status.state in _ASKING and task.status.message.message_id == asked.message:
            said = as_object(answer)
            if said.get("action") != "accept":
                await self._cancel(task.id)
                raise RuntimeError("The remote agent has asked a person, who did not answer.")
            form = as_object(said["content"])
            text = form.get("answer") if len(form) == 1 else None
            parts, data = list[a2a.Part](), form
            if isinstance(text, str):
                parts, data = [new_text_part(text)], {}
            if asked.approval:  # with the names of what was asked, it decides nothing asked later
                data = {**data, "approval": asked.approval, "digest": asked.digest}
            if data or not parts:
                parts.append(new_data_part(data))
            id = f"{self.key}-{digest(asked.message.encode())[:8]}"
            found = await self._send(id, parts, task_id=task.id, context_id=task.context_id)
            if isinstance(found, str):
                return found
            task = found
        return await self._end_of(task)

    async def _send(self, id: str, parts: list[a2a.Part], **more: Any) -> str | a2a.Task:
        message = a2a.Message(message_id=id, role=a2a.ROLE_USER, parts=parts, **more)

        async def send() -> str | a2a.Task:
            async for found in self.client.send_message(a2a.SendMessageRequest(message=message)):
                is_text = found.HasField("message")
                return get_message_text(found.message) if is_text else found.task
            raise RuntimeError("The remote agent has answered nothing.")

        return await _patiently(send, repeats=self.repeats)

    async def _look(self, task_id: str) -> a2a.Task:
        look = partial(self.client.get_task, a2a.GetTaskRequest(id=task_id))
        return await _patiently(look, repeats=True)

    async def _cancel(self, task_id: str) -> None:
        with suppress(TaskNotCancelableError):
            await self.client.cancel_task(a2a.CancelTaskRequest(id=task_id))

    async def _end_of(self, task: a2a.Task) -> str:
        """Wait until a remote task has ended, and return its answer.

        Raises:
            QuestionAskedError: It asks something.
            RuntimeError: It has failed.
        """
        for pause in pauses(*PAUSES):
            if task.status.state not in _GOING:
                break
            await asyncio.sleep(pause)
            task = await self._look(task.id)
        status = task.status
        said = get_message_text(status.message)
        if status.state in _ASKING:
            raise QuestionAskedError(_asks(task, said))
        if status.state == a2a.TASK_STATE_COMPLETED:
            return "\n".join(map(_text, task.artifacts)) or said
        name = a2a.TaskState.Name(status.state).removeprefix("TASK_STATE_").lower()
        raise RuntimeError(f"The remote task is {name}. {said}".strip())


async def _patiently(
    ask: Callable[[], Awaitable[T]], *, repeats: bool, seconds: float = PATIENCE_SECONDS
) -> T:
    """Ask a remote agent; again while it is out of reach, if it may be asked twice.

    Raises:
        OutcomeUnknownError: It may have been asked, and does not answer.
        A2AError: It has refused, or was not asked.
    """
    for pause in pauses(*PAUSES, total=seconds):
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await ask()
        except (A2AClientError, InternalError, TimeoutError) as error:
            cause = error.__cause__
            if isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout) and not repeats:
                raise
            if isinstance(cause, httpx.HTTPStatusError) and _is_refused(cause.response):
                raise
            if not repeats:
                msg = f"Whether the remote agent has the message is not known: {error}"
                raise OutcomeUnknownError(msg) from error
            await asyncio.sleep(pause)
    raise OutcomeUnknownError("The remote agent is out of reach; its task may go on.")


def _is_refused(answer: httpx.Response) -> bool:
    """Whether the same request would be refused again: a time-out or a limit passes."""
    return answer.is_client_error and answer.status_code not in PASSING


def _text(artifact: a2a.Artifact) -> str:
    data = (json.dumps(each, ensure_ascii=False) for each in get_data_parts(artifact.parts))
    return "\n".join([*get_text_parts(artifact.parts), *data])


def _asks(task: a2a.Task, said: str) -> Asks:
    """Return a remote question as one for a person.

    Raises:
        RuntimeError: Its ids cannot be kept.
    """
    message = task.status.message
    data: Any = next(iter(get_data_parts(message.parts)), None)
    names = (as_text(as_object(data).get(each)) for each in ("approval", "digest"))
    state = json.dumps(_Asked(task.id, message.message_id, *names))
    if len(state) > LONGEST:
        raise RuntimeError("The remote agent asks something with an id that is too long to keep.")
    form = as_object(as_object(data).get("schema"))
    if not form or len(canonical(form)) > LONGEST:
        form = ONE_TEXT
    text = said[:LONGEST] or "The remote agent asks for something."
    return Asks(questions=(Question(key="answer", message=text, fields=form),), state=state)
