"""The model calls of a step: filters and hooks before, the call itself, its span and stream."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

from temporalio import activity

from holdfast.activities.data.conversation import Conversation
from holdfast.activities.data.source import Source
from holdfast.activities.heartbeat import Pulse, ensure_ours
from holdfast.activities.owning_task import ensure_wanted
from holdfast.activities.spans import answered, model_call
from holdfast.activities.steps.agent_code import RegisteredCode
from holdfast.activities.steps.kept_conversation import Continuation
from holdfast.activities.steps.money import within
from holdfast.activities.steps.step_hooks import StepHooks
from holdfast.errors import ModelRequestError, ModelUnavailableError
from holdfast.models.base import (
    Delta,
    Model,
    ModelAnswer,
    ModelRequest,
    StreamingModel,
    Tell,
    admitted,
    unread,
)
from holdfast.models.draft import Draft
from holdfast.models.openai.response_tools import named, refuse_hosted
from holdfast.models.prices import Prices, priced
from holdfast.reading.streams.hub import LocalHub, StreamKey, local_hub
from holdfast.reading.streams.progress import write_progress
from holdfast.task.data.head import TaskHead
from holdfast.task.data.wire import AdvanceInput
from holdfast.values.base import Json
from holdfast.values.code.user_calls import kept_alive
from holdfast.values.money import NOTHING
from holdfast.values.runs.failed_attempts import is_locked, next_failure
from holdfast.values.text.logs import log
from holdfast.workers.context.call_ids import unrepeated
from holdfast.workers.context.journal import OverBudget


@contextmanager
def publishing(hub: LocalHub, pulse: Pulse, key: StreamKey, attempt: int) -> Generator[Tell]:
    """Yield a function that publishes deltas: by the hub and, for other processes, by heartbeats.

    Each heartbeat that shows that the worker lives has the newest of them. Others are sent only
    where a reader in another process may want them.

    Args:
        hub: Carries pieces to readers in this process.
        pulse: The activity's heartbeats.
        key: The call.
        attempt: Number of this attempt to make it.
    """
    draft = Draft(attempt)

    def window() -> Json:
        return write_progress(key, draft.window())

    def publish(delta: Delta) -> None:
        draft.add(delta)
        hub.publish(key, shared, delta)
        if hub.is_read_elsewhere(key.task_id):
            pulse.tell_progress()

    shared = hub.begin(key, attempt)
    pulse.carry(window)
    try:
        yield publish
    finally:
        hub.end(key, shared)


class Asking:
    """Asks an agent's model in one run of a step.

    Attributes:
        lost: The most that an earlier attempt of the call can have cost, whose worker was lost.
        progress: Whether the model was asked, and has answered.
    """

    def __init__(
        self,
        model: Model,
        code: RegisteredCode,
        source: Source,
        *,
        before: Conversation,
        hooks: StepHooks,
        head: TaskHead,
        given: AdvanceInput,
        state: dict[str, Json],
        key: StreamKey | None,
        attempt: int,
        pulse: Pulse,
        prices: Prices | None,
        continuation: Continuation | None,
    ) -> None:
        """Ask this model; the agent's filters may change what is sent.

        Args:
            model: The model.
            code: The agent's code.
            source: Where images are.
            before: The messages before the step, with which most requests begin.
            hooks: Called with what is sent.
            head: The task's head.
            given: The activity's input.
            state: The task's extra_state.
            key: Names the call's stream to readers; None when the answer is not streamed.
            attempt: Number of this attempt.
            pulse: The activity's heartbeats, which carry the answer to other processes.
            prices: What models cost; None records no cost.
            continuation: What is sent where the provider keeps the conversation.
        """
        self._model = model
        self._code = code
        self._source = source
        self._before = before
        self._hooks = hooks
        self._head = head
        self._given = given
        self._state = state
        self._key = key
        self._attempt = attempt
        self._pulse = pulse
        self._prices = prices
        self._continuation = continuation
        self.lost = NOTHING
        self.progress: Literal["", "asked", "answered"] = ""

    async def __call__(self, request: ModelRequest) -> ModelAnswer:
        """Make one model call; only the model gets the bytes of images.

        Steps and journals name the model of the agent. The run may have replaced it by another one,
        which is named from here on.
        """
        await ensure_ours("model call")  # before hooks see the request
        if self._given.root:
            await ensure_wanted(self._given.root)
        request = request.model_copy(update={"model": self._model.name})
        if self._continuation is None:
            return await self._ask(request)
        try:
            return await self._ask(self._continuation.shortened(request))
        except ModelRequestError as error:
            if not self._is_forgotten(error):
                raise
            log.warning("%s The whole conversation is sent.", error)
            return await self._ask(request)

    async def _ask(self, request: ModelRequest) -> ModelAnswer:
        refuse_hosted(self._model, request)
        sent = await self._code.sent(request, self._state)
        if self._given.dollars is not None:
            try:
                sent, self.lost = await within(sent, self._prices, self._given)
            except OverBudget as over:
                self.lost = over.lost
                raise
        await self._hooks.asking(sent)
        self.progress = "asked"
        with model_call(self._head, self._given, self._code.agent.name, self._model, sent) as span:
            whole = await self._with_images(sent)
            begun = time.monotonic()
            made = await self._respond(self._code.with_secrets(whole))
            self.progress = "answered"
            found = {
                "at": round(time.time(), 3),
                "took": round(time.monotonic() - begun, 3),
                "has_unique_ids": self._has_unique_ids,
                "failed": self._pulse.failed.repeated,
            }
            answer = priced(made, self._prices, sent.model)
            answer = named(answer, sent.tools).model_copy(update=found)
            answered(span, answer)
        return answer

    @property
    def _has_unique_ids(self) -> bool:
        """Whether a call of an id of before is left out.

        A provider that keeps the conversation wants a result for each call, also for one that is
        made once more.
        """
        return self._continuation is None and getattr(self._model, "has_unique_ids", False)

    async def _with_images(self, request: ModelRequest) -> ModelRequest:
        """Put the bytes of images into a request; most conversations have none."""
        places = self._before.places_in(request.messages)
        if not places:
            return request
        messages = list(request.messages)
        for place in places:
            messages[place] = await self._source.rehydrate(messages[place])
        return request.model_copy(update={"messages": tuple(messages)})

    async def _respond(self, request: ModelRequest) -> ModelAnswer:
        await ensure_ours("model call")  # again: hooks and images may have taken long
        retry = self._code.retry_of(request)
        try:
            return await self._readable(request)
        except Exception as error:
            if retry is None:
                if isinstance(error, ModelUnavailableError):
                    error.limit_seconds = request.settings.seconds_of_limits
                    error.is_repeated = is_locked(error)
                raise
            if request.previous_response_id and self._is_forgotten(error):
                raise  # no policy is asked before the whole conversation is sent
            failure = await next_failure(
                error,
                retry,
                model=self._model,
                attempt=activity.info().attempt,
                most=request.settings.attempts - 1,
                streams=self._key is not None,
                previous_response_id=request.previous_response_id or None,
                conversation_id=request.conversation_id or None,
            )
            if isinstance(failure, ModelUnavailableError):
                failure.is_repeated, failure.is_limit = True, False  # the policy counts them
            raise failure from failure.__cause__

    def _is_forgotten(self, error: Exception) -> bool:
        """Whether the provider has forgotten the conversation, so that all of it is sent."""
        kept = self._continuation
        return (
            kept is not None and isinstance(error, ModelRequestError) and kept.may_send_all(error)
        )

    async def _readable(self, request: ModelRequest) -> ModelAnswer:
        """Return the answer; of one that cannot be used, what it cost."""
        try:
            return admitted(await self._attempted(request), self._model.name)
        except ModelUnavailableError as error:
            return unread(error, self._model.name)

    async def _attempted(self, request: ModelRequest) -> ModelAnswer:
        key, model = self._key, self._model
        if key is None or not isinstance(model, StreamingModel):
            with kept_alive():
                return await model.respond(request)
        with kept_alive(), publishing(local_hub, self._pulse, key, self._attempt) as publish:
            leaves_out = self._has_unique_ids and self._head.dialect.unknown_tool == "raise"
            tell = unrepeated(publish, request.messages) if leaves_out else publish
            return await model.stream(request, tell)
