"""A budget in money, as the activity of a step keeps to it: before each model call."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from decimal import Decimal

from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.attempts import losses
from holdfast.activities.failures import with_fact
from holdfast.errors import UserError
from holdfast.models.base import ModelRequest
from holdfast.models.prices import VARIABLE, MostCost, Prices
from holdfast.task.data.failures import Losses, lost_fact
from holdfast.task.data.wire import AdvanceInput
from holdfast.values.base import canonical
from holdfast.values.messages import TextPart
from holdfast.values.money import NOTHING, plain
from holdfast.workers.context.journal import OverBudget

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
async def telling_losses(given: AdvanceInput) -> AsyncGenerator[None]:
    """Have a failed attempt say which ones before it were lost.

    The server keeps that of the last attempt only, and the task would not learn it of a step that
    has failed: what these may have cost would not count.

    Args:
        given: The activity's input.

    Raises:
        ApplicationError: The one of the block, with that as a fact.
    """
    found: list[Decimal] = []  # the call may be made in a copy of this context
    _lost.set(found)
    try:
        yield
    except ApplicationError as error:
        if given.dollars is None or activity.info().attempt == 1:
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
    most = None if prices is None else prices.most(read, sent.model)
    if prices is None or most is None:
        msg = (
            f"The task has a budget in money, and the price of model {sent.model!r} is not known"
            f" here. Give the worker processes prices, by {VARIABLE} or HoldfastPlugin(prices=),"
            " and run the step again."
        )
        raise UserError(msg)
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


def _last_call(prices: Prices, model: str, read: int, answer: int) -> Decimal:
    """Return what a last call after this one can cost, with this answer in its input."""
    most = prices.most(read + answer * BYTES_PER_TOKEN, model)
    return NOTHING if most is None else most.of(min(answer, LAST_ANSWER))


def _tokens(most: MostCost, dollars: Decimal, wanted: int) -> int:
    paid = most.output_tokens(dollars)
    return wanted if paid is None else min(paid, wanted)
