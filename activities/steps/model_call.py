"""The model calls of a step: filters and hooks before, the call itself, its span and stream.

Before each call a budget in money is looked at. Of a conversation that the provider keeps, a call
sends what the provider does not have.
"""

from __future__ import annotations

import math
import operator
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.data.cache import Conversation
from holdfast.activities.data.source import Source
from holdfast.activities.failures import with_fact
from holdfast.activities.heartbeat import Pulse, ensure_ours, losses
from holdfast.activities.long_calls import ensure_wanted
from holdfast.activities.spans import answered, model_call
from holdfast.activities.steps.agent_code import RegisteredCode, StepHooks
from holdfast.errors import ModelRequestError, ModelUnavailableError, UserError
from holdfast.models.base import (
    AMONG,
    Delta,
    Model,
    ModelAnswer,
    ModelRequest,
    StreamingModel,
    Tell,
    ToolSpec,
    admitted,
    refuse_hosted,
    unread,
)
from holdfast.models.draft import Draft
from holdfast.models.openai.response_tools import named
from holdfast.models.prices import VARIABLE, MostCost, Prices, priced
from holdfast.reading.streams.hub import LocalHub, StreamKey, local_hub, write_progress
from holdfast.task.data.calls import not_run
from holdfast.task.data.failures import Losses, lost_fact
from holdfast.task.data.head import KeptConversation
from holdfast.task.data.records import JournalEntry, OpenStep, StepResult
from holdfast.task.data.wire import AdvanceInput
from holdfast.tracing.switch import may_trace
from holdfast.values.base import Json, canonical
from holdfast.values.code.user_calls import kept_alive
from holdfast.values.messages import NOTHING, Message, TextPart, plain, user
from holdfast.values.runs.retries import is_locked, next_failure
from holdfast.values.text.logs import log
from holdfast.workers.context.call_ids import unrepeated
from holdfast.workers.context.journal import OverBudget

RESPONSE = "response_id"
"""Key of a step's state: the answer that its model call goes on from, so that undo, rewind or
fork go back to the one before."""

AGAIN = user("Your answers cannot be used. Answer again, in the form that was asked for.")
"""What is sent to a conversation that has all of a step but an answer of use."""

FORGOTTEN = "previous_response_not_found"
"""OpenAI's code for a previous response that has expired or was deleted."""


@dataclass(frozen=True)
class Continuation:
    """What one step's model call sends of a conversation that the provider keeps.

    Attributes:
        kept: Where the provider keeps it.
        before: Id of the answer that the call goes on from; empty for none.
        is_first: Whether no call of the task came before.
        told: What a step says that asks again because its answers were not usable; None for others.
    """

    kept: KeptConversation
    before: str
    is_first: bool
    told: tuple[Message, ...] | None = None

    @classmethod
    def of(
        cls, kept: KeptConversation, opened: OpenStep, n: int, journal: Sequence[JournalEntry]
    ) -> Continuation:
        """Return the continuation of a step."""
        answers = [entry.answer for entry in journal if entry.answer]  # the step asks again
        said = str(opened.step.step_state.get(RESPONSE, ""))
        for answer in answers:  # the request repeats no empty one, and goes on from before it
            said = said if answer.is_blank else answer.response_id
        told = None
        if not answers and opened.told >= 0:
            unanswered = not_run(opened.unanswered, "Not run.")
            told = (*unanswered, *(opened.notes[opened.told :] or (AGAIN,)))
        if answers and answers[-1].is_blank:
            told = (*not_run(answers[-1].open_calls, "Not run."), AGAIN)
        return cls(kept, said, is_first=n == 1 and not answers, told=told)

    def shortened(self, request: ModelRequest) -> ModelRequest:
        """Return a request with what the provider does not have yet.

        The model's own answers are there, and what came before the newest of them. Where the answer
        to go on from is not known, as after a follow-up, the request has all that the task has.
        """
        if self.kept.conversation_id:
            new = request.messages if self.is_first else _after_answer(request)
            new = new if self.told is None else self.told
            return request.model_copy(
                update={"messages": new, "conversation_id": self.kept.conversation_id}
            )
        before = self.before or self.kept.previous_response_id
        new = _after_answer(request) if self.before else request.messages
        return request.model_copy(update={"messages": new, "previous_response_id": before})

    def may_send_all(self, error: ModelRequestError) -> bool:
        """Whether the provider has forgotten what the record has in full."""
        return error.code == FORGOTTEN and not self.kept.previous_response_id

    def handed_on(self, result: StepResult, answer: ModelAnswer | None) -> StepResult:
        """Return a step's result whose next steps go on from this answer."""
        if answer is None or not answer.response_id or not result.next:
            return result
        named: dict[str, Json] = {RESPONSE: answer.response_id}
        following = tuple(
            step.model_copy(update={"step_state": {**step.step_state, **named}})
            for step in result.next
        )
        return result.model_copy(update={"next": following})


def _after_answer(request: ModelRequest) -> tuple[Message, ...]:
    messages = request.messages
    backwards = range(len(messages), 0, -1)
    start = next((k for k in backwards if messages[k - 1].role == "assistant"), 0)
    return messages[start:]


LEAST_ANSWER = 1_000
"""Output tokens for which there must be money, when the settings give no max_tokens."""

MOST_ANSWER = 16_384
"""Most output tokens of a call then; each current model accepts this number as its max_tokens."""

LAST_ANSWER = 200
"""Output tokens for which there must be money at the last call of the budget."""

PART_TOKENS = 10_000
"""Tokens that an image or a file counts for; its size says little about them."""

BYTES_PER_TOKEN = 4
"""Bytes that an answer may have for each of its tokens, when it becomes input of the last call."""


_lost: ContextVar[list[Decimal]] = ContextVar("holdfast_lost")
"""Gets the most that earlier attempts of the model call of this step can have cost."""


@asynccontextmanager
async def telling_losses() -> AsyncGenerator[None]:
    """Have a failed attempt say which ones before it were lost.

    The server keeps that of the last attempt only, and the task would not learn it of a step that
    has failed: what these may have cost would not count.

    Raises:
        ApplicationError: The one of the block, with that as a fact.
    """
    found: list[Decimal] = []  # the call may be made in a copy of this context
    _lost.set(found)
    try:
        yield
    except ApplicationError as error:
        if activity.info().attempt == 1:
            raise
        known = await losses()
        if not known.attempts:
            raise
        dollars = max([known.dollars, *found])
        raise with_fact(error, lost_fact(Losses(known.attempts, dollars))) from None


async def within(
    sent: ModelRequest, prices: Prices | None, given: AdvanceInput
) -> tuple[ModelRequest, Decimal]:
    """Limit a request to the money that is reserved for it.

    Args:
        sent: The request as it must be sent.
        prices: What models cost.
        given: The activity's input.

    Returns:
        The request with the most output tokens that the money pays for, and the most that earlier
        attempts of the call can have cost.

    Raises:
        OverBudget: The call may cost more.
        UserError: The price of the model is not known.
    """
    dollars, read = given.dollars or NOTHING, input_bound(sent)
    most = None if prices is None else _most(prices, sent.model, read)
    if prices is None or most is None:
        raise UserError(
            f"The task has a budget in money, and the price of model {sent.model!r} is not known"
            f" here. Give the worker processes prices, by {VARIABLE} or HoldfastPlugin(prices=),"
            " and run the step again."
        )
    is_last = given.limit == "finish"
    wanted = sent.settings.max_tokens
    least = wanted or LEAST_ANSWER
    if is_last:
        least = min(least, LAST_ANSWER)
    after = _last_call(prices, sent.model, read, least) if given.keeps and not is_last else NOTHING
    needs = most.of(least) + after
    lost = most.of(wanted or MOST_ANSWER) * (await losses()).attempts
    lost = plain(min(lost, dollars))  # together they were held to the same money
    _lost.get([]).append(lost)
    if needs > dollars - lost:
        raise OverBudget(plain(needs), lost)
    tokens = _tokens(most, dollars - lost - after, wanted or MOST_ANSWER)
    settings = sent.settings.model_copy(update={"max_tokens": tokens})
    return sent.model_copy(update={"settings": settings}), lost


def input_bound(sent: ModelRequest) -> int:
    """Return a number of tokens that the input of a request does not exceed.

    A token of text has a byte or more.
    """
    bare = sent.model_copy(update={"settings": type(sent.settings)()})
    parts = sum(
        not isinstance(part, TextPart)
        for message in sent.messages
        if isinstance(message.content, tuple)
        for part in message.content
    )
    return len(canonical(bare.wire())) + parts * PART_TOKENS


def _most(prices: Prices, models: str, read: int) -> MostCost | None:
    """Return the most that a call of any of several models can cost; None if a price is unknown."""
    found = [prices.most(read, name) for name in models.split(AMONG)]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return None
    return MostCost(max(each.input for each in known), max(each.output_token for each in known))


def _last_call(prices: Prices, model: str, read: int, answer: int) -> Decimal:
    """Return what a last call after this one can cost, with this answer in its input."""
    most = _most(prices, model, read + answer * BYTES_PER_TOKEN)
    return NOTHING if most is None else most.of(min(answer, LAST_ANSWER))


def _tokens(most: MostCost, dollars: Decimal, wanted: int) -> int:
    paid = most.output_tokens(dollars)
    return wanted if paid is None else min(paid, wanted)


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


_OF_PROVIDER: Callable[[ToolSpec], bool] = operator.attrgetter("is_of_provider")


@dataclass(eq=False, repr=False, kw_only=True)
class Asking:
    """Asks an agent's model in one run of a step.

    Attributes:
        model: The model.
        code: The agent's code, whose filters may change what is sent.
        source: Where images are.
        before: The messages before the step, with which most requests begin.
        hooks: Called with what is sent, if the agent has any.
        given: The activity's input.
        state: The task's extra_state.
        key: Names the call's stream to readers; None when the answer is not streamed.
        attempt: Number of this attempt; one that begins later has a higher number, in any process.
            One that a rate limit ended has said nothing, and does not count.
        pulse: The activity's heartbeats, which carry the answer to other processes.
        continuation: What is sent where the provider keeps the conversation.
        lost: The most that an earlier attempt of the call can have cost, whose worker was lost.
        progress: Whether the model was asked, and has answered.
    """

    model: Model
    code: RegisteredCode
    source: Source
    before: Conversation
    hooks: StepHooks | None
    given: AdvanceInput
    state: dict[str, Json]
    key: StreamKey | None
    attempt: int
    pulse: Pulse
    continuation: Continuation | None
    lost: Decimal = NOTHING
    progress: Literal["", "asked", "answered"] = ""

    async def __call__(self, request: ModelRequest) -> ModelAnswer:
        """Make one model call; only the model gets the bytes of images.

        Steps and journals name the model of the agent. The run may have replaced it by another one,
        which is named from here on.
        """
        await ensure_ours("model call")  # before hooks see the request
        if self.given.root:
            await ensure_wanted(self.given.root)
        request = request.model_copy(update={"model": self.model.name})
        if self.continuation is None:
            return await self._ask(request)
        try:
            return await self._ask(self.continuation.shortened(request))
        except ModelRequestError as error:
            if not self._is_forgotten(error):
                raise
            log.warning("%s The whole conversation is sent.", error)
            return await self._ask(request)

    async def _ask(self, request: ModelRequest) -> ModelAnswer:
        prices = self.code.registry.prices
        is_hosted = request.prompt is not None or any(map(_OF_PROVIDER, request.tools))
        if is_hosted:
            refuse_hosted(self.model, request)
        sent = await self.code.sent(request, self.state)
        if self.given.dollars is not None:
            try:
                sent, self.lost = await within(sent, prices, self.given)
            except OverBudget as over:
                self.lost = over.lost
                raise
        if self.hooks is not None:
            await self.hooks.asking(sent)
        self.progress = "asked"
        name, given = self.code.agent.name, self.given
        traced = model_call(self.code.head, given, name, self.model, sent) if may_trace() else None
        with traced or nullcontext() as span:
            whole = await self._with_images(sent)
            begun = time.monotonic()
            made = await self._respond(self.code.with_secrets(whole) if is_hosted else whole)
            self.progress = "answered"
            found = {
                "at": round(time.time(), 3),
                "took": round(time.monotonic() - begun - made.waited, 3),
                "has_unique_ids": self._has_unique_ids,
                "failed": self.pulse.failed.repeated,
            }
            answer = made if prices is None else priced(made, prices, sent.model)
            if answer.message.calls:
                answer = named(answer, sent.tools)
            answer = answer.model_copy(update=found)
            if span is not None:
                answered(span, answer)
        return answer

    @property
    def _has_unique_ids(self) -> bool:
        """Whether a call of an id of before is left out.

        A provider that keeps the conversation wants a result for each call, also for one that is
        made once more.
        """
        return self.continuation is None and getattr(self.model, "has_unique_ids", False)

    async def _with_images(self, request: ModelRequest) -> ModelRequest:
        """Put the bytes of images into a request; most conversations have none."""
        places = self.before.places_in(request.messages)
        if not places:
            return request
        messages = list(request.messages)
        for place in places:
            messages[place] = await self.source.rehydrate(messages[place])
        return request.model_copy(update={"messages": tuple(messages)})

    async def _respond(self, request: ModelRequest) -> ModelAnswer:
        await ensure_ours("model call")  # again: hooks and images may have taken long
        retry = request.settings.retry and self.code.retry_of(request.settings.retry)
        try:
            return await self._readable(request)
        except Exception as error:
            is_unasked = isinstance(error, ModelUnavailableError) and error.is_unasked
            if retry is None or is_unasked:
                if isinstance(error, ModelUnavailableError):
                    seconds = request.settings.seconds_of_limits
                    error.limit_seconds = math.inf if is_unasked else seconds
                    error.is_repeated = is_locked(error)
                raise
            if request.previous_response_id and self._is_forgotten(error):
                raise  # no policy is asked before the whole conversation is sent
            failure = await next_failure(
                error,
                retry,
                model=self.model,
                attempt=activity.info().attempt,
                most=request.settings.attempts - 1,
                streams=self.key is not None,
                previous_response_id=request.previous_response_id or None,
                conversation_id=request.conversation_id or None,
            )
            if isinstance(failure, ModelUnavailableError):
                failure.is_repeated, failure.is_limit = True, False  # the policy counts them
            raise failure from failure.__cause__

    def _is_forgotten(self, error: Exception) -> bool:
        """Whether the provider has forgotten the conversation, so that all of it is sent."""
        kept = self.continuation
        return (
            kept is not None and isinstance(error, ModelRequestError) and kept.may_send_all(error)
        )

    async def _readable(self, request: ModelRequest) -> ModelAnswer:
        """Return the answer; of one that cannot be used, what it cost."""
        key, model = self.key, self.model
        try:
            with kept_alive():
                if key is None or not isinstance(model, StreamingModel):
                    made = await model.respond(request)
                else:
                    with publishing(local_hub, self.pulse, key, self.attempt) as publish:
                        raises = self.code.head.dialect.unknown_tool == "raise"
                        leaves_out = self._has_unique_ids and raises
                        tell = unrepeated(publish, request.messages) if leaves_out else publish
                        made = await model.stream(request, tell)
            return admitted(made, model.name)
        except Exception as error:  # noqa: BLE001  what is not an answer is raised again
            return unread(error, model.name)
