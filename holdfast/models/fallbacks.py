"""Several models in place of one: where one cannot answer, the same attempt asks the next."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Self, TypeGuard

from holdfast.errors import (
    ModelError,
    ModelRequestError,
    ModelUnavailableError,
    UserError,
    message_of,
)
from holdfast.models.base import (
    AMONG,
    KEPT_BY_ONE,
    Delta,
    Model,
    ModelAnswer,
    ModelRequest,
    Tell,
    admitted,
    foreign_errors,
    streamed,
    unread,
)
from holdfast.values.checks.gate import safe_text
from holdfast.values.settings import ModelSettings
from holdfast.values.text.logs import log

PATIENCE_SECONDS = 10.0
"""Longest time that a provider over its limit may ask to wait before the next model is asked."""

_ELSEWHERE = frozenset({401, 402, 403, 404, 429})
"""Statuses of a refusal that is about the model or the account, not about the request."""

_AGAIN = re.compile(r"(\.|;| and)? [Tt]he call is repeated\b.*", re.DOTALL)
_LONGEST_CAUSE = 300


class FallbackModel:
    """The first of several models that can answer.

    The next one is asked where one is down, is over its limit for longer than `PATIENCE_SECONDS`,
    or refuses the model or the account (401, 402, 403, 404, a used-up quota). A request that any
    model would refuse is not passed on, nor one of whose answer a piece was told.
    """

    provider = "several"
    """As traces name it; the span of the call has the name of the model that answered."""

    def __init__(
        self, models: Sequence[Model], settings: Sequence[ModelSettings], joint: ModelSettings
    ) -> None:
        """Take the models.

        Args:
            models: The models, the first choice first.
            settings: Settings that go with each one's name.
            joint: What requests have of them.
        """
        self._models = tuple(models)
        self._settings = tuple(settings)
        self._joint = joint

    @property
    def name(self) -> str:
        """The names of the models."""
        return AMONG.join(model.name for model in self._models)

    @property
    def has_unique_ids(self) -> bool:
        """Whether each of the models gives each call of a conversation an id of its own."""
        return all(getattr(model, "has_unique_ids", False) for model in self._models)

    def with_each(self, change: Callable[[Model], Model]) -> Self:
        """Return the same of what a function makes of each model."""
        return type(self)([*map(change, self._models)], self._settings, self._joint)

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request by the first model that can.

        Raises:
            ModelUnavailableError: None could, and that may pass with time for one of them.
            ModelRequestError: A person must fix the cause.
            UserError: One provider keeps the conversation.
        """
        return await self._first(request, lambda model, sent: model.respond(sent), lambda: False)

    async def stream(self, request: ModelRequest, tell: Tell) -> ModelAnswer:
        """Answer one request as `respond` does, in pieces of the model that answers.

        Raises:
            ModelUnavailableError: None could, or one broke off what it had begun to say.
            ModelRequestError: A person must fix the cause.
            UserError: One provider keeps the conversation.
        """
        told: list[bool] = []

        def telling(delta: Delta) -> None:
            told.append(True)
            tell(delta)

        return await self._first(
            request, lambda model, sent: streamed(model, sent, telling), lambda: bool(told)
        )

    async def _first(
        self,
        request: ModelRequest,
        ask: Callable[[Model, ModelRequest], Awaitable[ModelAnswer]],
        has_told: Callable[[], bool],
    ) -> ModelAnswer:
        if request.previous_response_id or request.conversation_id:
            raise UserError(KEPT_BY_ONE)
        failures: list[ModelError] = []
        causes: list[str] = []
        for model, own in zip(self._models, self._settings, strict=True):
            settings = self._fitting(request.settings, own)
            sent = request.model_copy(update={"model": model.name, "settings": settings})
            made = await _asked(model, sent, ask)
            if _is_short(made, settings) and not has_told():
                await asyncio.sleep(made.retry_after or 0)
                made = await _asked(model, sent, ask)
            if isinstance(made, ModelAnswer):
                known = {"model": made.model or model.name, "asked": model.name}
                return made.model_copy(update={**known, "tried": tuple(causes)})
            if isinstance(made, ModelUnavailableError) and made.is_accepted:
                raise made  # it will be answered, and paid for
            failures.append(made)
            causes.append(f"{model.name}: {_cause(made, model.name)}")
            log.warning("A model of several has failed. %s", causes[-1])
            if has_told() or not _may_pass_on(made):
                break
        raise failures[0] if len(failures) == 1 else _joined(failures, causes)

    def _fitting(self, settings: ModelSettings, own: ModelSettings) -> ModelSettings:
        """Return settings in which what goes with a model's name is what goes with this one's."""
        joint = vars(self._joint)
        changes = {
            name: getattr(own, name)
            for name, value in joint.items()
            if value is not None and value == getattr(settings, name)
        }
        return settings.model_copy(update=changes) if changes else settings


async def _asked(
    model: Model, sent: ModelRequest, ask: Callable[[Model, ModelRequest], Awaitable[ModelAnswer]]
) -> ModelAnswer | ModelError:
    """Return a model's answer, which may be one that cannot be used, or why it gave none."""
    try:
        with foreign_errors(repr(model.name)):
            return admitted(await ask(model, sent), model.name)
    except ModelError as error:
        if isinstance(error, ModelUnavailableError) and error.usage is not None:
            return unread(error, model.name)
        return error


def _is_short(
    made: ModelAnswer | ModelError, settings: ModelSettings
) -> TypeGuard[ModelUnavailableError]:
    """Whether a provider is over its limit for so short that its model is asked once more."""
    if not isinstance(made, ModelUnavailableError) or not made.is_limit or made.is_unasked:
        return False
    most = min(PATIENCE_SECONDS, settings.seconds_of_limits)
    return made.retry_after is not None and made.retry_after <= most


def _may_pass_on(error: ModelError) -> bool:
    """Whether another model may do what this one could not."""
    if isinstance(error, ModelUnavailableError):
        return error.used_day is None  # the day is that of all providers
    return isinstance(error, ModelRequestError) and error.status in _ELSEWHERE


def _cause(error: ModelError, name: str) -> str:
    text = _AGAIN.sub("", message_of(error)).removeprefix(f"Model {name!r} ").rstrip(".")
    return safe_text(text)[:_LONGEST_CAUSE]


def _joined(failures: Sequence[ModelError], causes: Sequence[str]) -> ModelError:
    """Return one error for those of several models; the shortest wait holds."""
    text = f"No model of several has answered. {'; '.join(causes)}."
    passing = [each for each in failures if isinstance(each, ModelUnavailableError)]
    if not passing:
        remedy = "Give access to one of them, or name others, then run the step again."
        return ModelRequestError(text, remedy=remedy)
    waits = [each.retry_after for each in passing]
    wait = None if None in waits else min(wait for wait in waits if wait is not None)
    limit = all(each.is_limit for each in passing)
    made = ModelUnavailableError(
        f"{text} The call is repeated later.", retry_after=wait, is_limit=limit
    )
    made.is_unasked = all(each.is_unasked for each in passing)
    made.client_error = passing[0].client_error
    return made
