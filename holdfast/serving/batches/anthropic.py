"""Calls of Anthropic's models as lines of its Message Batches; any-llm writes and reads them.

Anthropic gives a batch no name. Whether a submission whose worker was lost has arrived shows by the
ids of its lines, once the batch has ended. Until then it is not submitted again.
"""

from __future__ import annotations

import json
from typing import Any, cast

from temporalio import activity

from holdfast.activities.failures import LoggedError
from holdfast.activities.heartbeat import ensure_ours
from holdfast.errors import ModelError, ModelRequestError
from holdfast.models.base import ModelAnswer, ModelRequest
from holdfast.models.libraries.any_llm import AnyLLMModel
from holdfast.models.openai.chat import chat_body
from holdfast.models.openai.http.failures import malformed
from holdfast.serving.batches.hand import Outcome, Seen
from holdfast.serving.batches.provider import CLOCKS, BatchActivities, trouble
from holdfast.serving.batches.stored import Stored
from holdfast.serving.batches.workflow import UNTAKEN, Fetch, Look, Submission
from holdfast.values.base import Json
from holdfast.values.code.extras import needing
from holdfast.values.settings import ModelSettings
from holdfast.values.text.logs import log

with needing("any-llm", "BatchModel of Anthropic"):
    from any_llm.exceptions import AnyLLMError
try:
    import anthropic
    import httpx
    from anthropic.types.messages import MessageBatch
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "BatchModel of Anthropic needs its client: pip install 'any-llm-sdk[anthropic]'"
        f" ({missing})."
    ) from None

_REFUSED = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
}
"""HTTP status of the errors of lines that repeating does not mend."""

_UNCLEAR = (408, 409)
"""Refusals of a request that may have been taken, as after a status from 500 on."""

_NOTHING: Json = {
    "id": "msg",
    "type": "message",
    "role": "assistant",
    "model": "none",
    "content": [],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 0, "output_tokens": 0},
}


class _Replay(httpx.AsyncBaseTransport):
    """Answers a request without sending it, and keeps its body."""

    def __init__(self, answer: Json) -> None:
        self._answer = answer
        self.body = b""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.body = await request.aread()
        return httpx.Response(200, json=self._answer, request=request)


class AnthropicLines:
    """Writes calls as bodies of Anthropic's API, and reads its answers, by any-llm."""

    path = "/messages"

    def __init__(self, model: AnyLLMModel) -> None:
        """Write for this model."""
        self._model = model
        self.name = model.name
        self.secret = model.secret
        self.respond = model.respond
        self.failure = model.failure

    async def client(self) -> anthropic.AsyncAnthropic:
        """Return the client of the running event loop."""
        found: anthropic.AsyncAnthropic = (await self._model.opened()).client
        return found

    async def written(self, request: ModelRequest) -> bytes:
        """Write the body of a request that is answered later.

        Raises:
            ModelRequestError: any-llm cannot write it.
        """
        body = (await chat_body(self.name, request)).data()
        wire = _Replay(_NOTHING)
        await self._asked(wire, body, request.settings)
        return wire.body

    async def read(self, body: Json, _request_id: str | None) -> ModelAnswer:
        """Read the body of an answer to such a request.

        Raises:
            ModelUnavailableError: It cannot be used.
        """
        asked: dict[str, Json] = {"messages": [{"role": "user", "content": "-"}]}
        try:
            found = await self._asked(_Replay(body), asked, ModelSettings())
        except ModelRequestError:  # nothing was asked: the body is wrong
            raise malformed(self.name, "it is no message") from None
        return self._model.read(self._model.data(found))

    async def close(self) -> None:
        """Leave the connections to any-llm."""

    async def _asked(self, wire: _Replay, body: dict[str, Json], settings: ModelSettings) -> Any:
        try:
            async with httpx.AsyncClient(transport=wire) as http:
                provider = self._model.made(http_client=http)
                return await self._model.asked(provider, body, settings)
        except Exception as error:  # noqa: BLE001  mapped and raised again
            raise self._model.failure(error) from None


class AnthropicBatches(BatchActivities[AnthropicLines]):
    """By Anthropic's Message Batches API."""

    errors = anthropic.AnthropicError, AnyLLMError

    @activity.defn(name="batch_submit")
    async def submit(self, given: Submission) -> str:
        """Submit a batch, unless that was done; return the provider's id.

        Without lines it is only found out whether it was; empty if no one that has ended is it.

        Raises:
            ApplicationError: A batch may be this one, and has not ended.
        """
        async with self.asking():
            client = await self._model.client()
            is_again = given.again or activity.info().attempt > 1
            if is_again and (id := await self._known(client, given)):
                return id
            if not given.lines:
                return ""
            lines = await self.written(given.lines)
            requests = [{"custom_id": id, "params": json.loads(body)} for id, body in lines]
            await ensure_ours("submission of a batch")
            try:
                # The typed method looks at each value of a request, which takes seconds.
                made = await client.post(
                    "/v1/messages/batches", body={"requests": requests}, cast_to=MessageBatch
                )
            except anthropic.AnthropicError as error:
                # An attempt before may have submitted it, though no list has it yet.
                untaken = "" if is_again or not _is_untaken(error) else UNTAKEN
                raise trouble(self.cause(error), untaken) from None
            return str(made.id)

    @staticmethod
    async def _known(client: anthropic.AsyncAnthropic, given: Submission) -> str:
        """Return the id of the batch of these lines; empty if no batch has them.

        Raises:
            ApplicationError: One may be it, and has not ended.
        """
        ids = set(given.ids)
        async for each in client.messages.batches.list(limit=100):  # newest first
            if each.created_at.timestamp() < given.made - CLOCKS:
                break
            size = sum(cast("dict[str, int]", each.request_counts.to_dict()).values())
            if each.id in given.others or (given.size and size > given.size):
                continue
            if each.processing_status != "ended":
                if not given.lines:  # at the deadline; it is not cancelled, as it may be another
                    continue
                msg = f"Whether {each.id} is this batch shows when it has ended."
                log.warning("A batch waits: %s", msg)
                raise LoggedError(msg, type="BatchTrouble")
            async for line in await client.messages.batches.results(each.id):
                if line.custom_id in ids:
                    return str(each.id)
        return ""

    @activity.defn(name="batch_look")
    async def look(self, given: Look) -> Seen:
        """Look at a batch, or cancel it; one that is over is only looked at."""
        async with self.asking():
            batches = (await self._model.client()).messages.batches
            found = await batches.retrieve(given.id)
            if given.cancel and found.processing_status == "in_progress":
                found = await batches.cancel(given.id)
            if found.processing_status != "ended":
                return Seen(status=found.processing_status)
            status = "completed" if found.cancel_initiated_at is None else "cancelled"
            return Seen(status=status, outputs=(given.id,), files=(given.id,))

    @activity.defn(name="batch_fetch")
    async def fetch(self, given: Fetch) -> list[Outcome]:
        """Put the answers of a batch into the archive, each for its task."""
        async with self.asking():
            tasks = {line.id: line.task for line in given.lines}
            stored, found = Stored(activity.client()), list[Outcome]()
            client = await self._model.client()
            for batch in given.outputs:
                async for line in await client.messages.batches.results(batch):
                    said = await self.kept(stored, tasks, line.custom_id, _response(line.result))
                    found += [] if said is None else [said]
            return found

    @activity.defn(name="batch_tidy")
    async def tidy(self, files: list[str]) -> None:
        """Delete a batch, with its answers; if it stays, the log says why."""
        async with self.asking():
            batches = (await self._model.client()).messages.batches
            for batch in files:
                await self.given(batches.delete(batch))

    def cause(self, error: Exception) -> ModelError:
        """Return ours for an error of the client, without the key."""
        return cast("ModelError", self._model.failure(error))


def _is_untaken(error: anthropic.AnthropicError) -> bool:
    """Whether nothing of a request was taken: it was refused, or never sent."""
    if isinstance(error, anthropic.APIStatusError):
        return error.status_code < 500 and error.status_code not in _UNCLEAR  # noqa: PLR2004
    return isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout)


def _response(result: Any) -> dict[str, Any]:
    """Return the result of a line as OpenAI's Batch API has it; empty if there is no final one."""
    if result.type == "succeeded":
        return {"status_code": 200, "body": result.message.to_dict()}
    if result.type == "errored" and (status := _REFUSED.get(result.error.error.type)):
        return {"status_code": status, "body": result.error.to_dict()}
    return {}
