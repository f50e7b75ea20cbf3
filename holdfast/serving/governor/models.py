"""Models behind the gate of their provider."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from temporalio import activity
from temporalio.api.common.v1 import Priority
from temporalio.service import RPCError

from holdfast.activities.data.registry import Registry
from holdfast.activities.heartbeat import current, ensure_ours
from holdfast.activities.user_loop import UserLoops
from holdfast.agents.agent import Agent
from holdfast.errors import ModelUnavailableError, UserError
from holdfast.models.base import Model, ModelAnswer, ModelRequest, StreamingModel, Tell, unread
from holdfast.models.fallbacks import FallbackModel
from holdfast.models.openai.http.bodies import RequestBody
from holdfast.models.openai.http.connection import Connection
from holdfast.models.openai.model import OpenAIModel
from holdfast.models.prices import Prices, priced
from holdfast.models.resolve import close_at_end
from holdfast.reading.queries import WAITS
from holdfast.serving.governor.gate import Gates, Used, come_again
from holdfast.serving.governor.providers import Limited, Provider, checked_providers
from holdfast.serving.governor.turns import Call
from holdfast.task.data.head import AgentSnapshot, TaskHead
from holdfast.values.base import canonical
from holdfast.values.text.logs import log

USUAL_PRIORITY = 3


_gates: WeakKeyDictionary[UserLoops, Gates] = WeakKeyDictionary()
"""The gates of workers that share their loops."""


def governing_registry(
    providers: Iterable[Limited] | None, loops: UserLoops | None, *, prices: bool
) -> type[Registry]:
    """Return the registry of a process with providers: its models wait at their gates.

    Args:
        providers: Providers and budgets of tenants; those of `HOLDFAST_PROVIDERS` when None.
        loops: The loops of the process, which end after the gates.
        prices: Whether the process knows what calls cost.

    Raises:
        InvalidArgumentError: A provider cannot be used.
    """
    given = checked_providers(providers, prices=prices)
    if not given:
        return Registry
    gates = _gates.get(loops) if loops is not None else None
    behind = Gates(given) if gates is None else gates
    if gates is None and loops is not None:
        _gates[loops] = behind
        loops.closing.append(behind.close)

    class Governed(Registry):
        async def model_of_run(
            self, agent: Agent, snapshot: AgentSnapshot, head: TaskHead, _limit: str = ""
        ) -> Model:
            found = await super().model_of_run(agent, snapshot, head)
            return governed(found, behind, self.prices, is_past=_limit in ("past", "finish"))

    return Governed


def governed(model: Model, gates: Gates, prices: Prices | None, *, is_past: bool) -> Model:
    """Put a model behind the gates of its provider and of the days of tenants, as far as they are.

    Args:
        model: The model.
        gates: The gates of the process.
        prices: What models cost.
        is_past: Whether the call may go past the day of its tenant.
    """
    if isinstance(model, FallbackModel):
        return model.with_each(lambda each: governed(each, gates, prices, is_past=is_past))
    provider = next((each for each in gates.providers if each.has(model)), None)
    if provider is None and not gates.budgets:
        return model
    kind = GovernedStreaming if isinstance(model, StreamingModel) else GovernedModel
    return kind(model, provider, gates, prices, is_past=is_past)


class GovernedModel:
    """A model whose calls wait for their turn.

    Attributes:
        model: The model.
    """

    def __init__(
        self,
        model: Model,
        provider: Provider | None,
        gates: Gates,
        prices: Prices | None,
        *,
        is_past: bool,
    ) -> None:
        """Put a model behind gates."""
        self.model = model
        self._is_past = is_past
        self._provider = provider
        self._gates = gates
        self._prices = prices

    def __getattr__(self, name: str) -> Any:
        """Return what the model says of itself."""
        return getattr(self.model, name)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request when its turn has come.

        Raises:
            ModelUnavailableError: The turn has not come yet, or as the model raises it.
            ModelRequestError: As the model raises it.
        """
        return await self._in_turn(request, lambda model: model.respond(request))

    async def _in_turn(
        self, request: ModelRequest, ask: Callable[[Any], Awaitable[ModelAnswer]]
    ) -> ModelAnswer:
        info, pulse, begun = activity.info(), current.get(None), time.monotonic()
        client, gates = activity.client(), self._gates
        whose = await self._whose(info.workflow_id or "", info.workflow_run_id or "")
        call = Call(
            size=len(canonical(request.wire())),
            since=info.scheduled_time.timestamp(),
            tenant=whose.fairness_key,
            priority=whose.priority_key or USUAL_PRIORITY,
            is_past=self._is_past,
        )

        def shown(what: Callable[[], str]) -> None:
            if pulse is not None:
                pulse.rest(lambda: {WAITS: f"It {what()}"})

        used, model = Used(), self.model
        async with AsyncExitStack() as stack:
            day = await gates.day(call.tenant, client)
            if day is not None:  # before the turn, which another tenant may have meanwhile
                await stack.enter_async_context(day.turn(replace(call), shown, used))
            if self._provider is not None:
                gate = await gates.gate(self._provider, client)
                line = await stack.enter_async_context(gate.turn(call, shown, used))
                model = _reached(model, line.key, partial(gate.heard, line))
            if pulse is not None:
                pulse.go_on()
            await ensure_ours("model call")  # it may have waited for long
            waited, used.is_made = time.monotonic() - begun, True
            try:
                answer = await ask(model)
            except ModelUnavailableError as error:
                if error.usage is not None:  # of an answer that cannot be used
                    self._used(used, unread(error, self.name), request)
                raise
            return self._used(used, answer, request).model_copy(update={"waited": round(waited, 3)})

    async def _whose(self, task_id: str, run_id: str) -> Priority:
        """Return whose a task is, and its priority.

        Raises:
            ModelUnavailableError: It cannot be read, and the tenant may have used its day.
        """
        try:
            return await _priority_of(task_id, run_id)
        except RPCError as error:
            text = f"The tenant of task {task_id!r} cannot be read"
            if self._gates.budgets:
                raise come_again(f"{text}: {error}. The call is repeated.", 0.0) from error
            log.warning("%s, and none is taken: %s", text, error)
            return Priority()

    def _used(self, used: Used, answer: ModelAnswer, request: ModelRequest) -> ModelAnswer:
        """Note what an answer has used; return it with its cost."""
        if self._prices is not None:
            answer = priced(answer, self._prices, request.model)
        used.tokens = answer.usage.input_tokens + answer.usage.output_tokens
        used.dollars = answer.usage.paid
        return answer


async def _priority_of(task_id: str, run_id: str) -> Priority:
    """Return whose a task is, and its priority: an activity is not told what its task has."""
    known = _priorities.get(run_id)
    if known is not None:
        return known
    found = await activity.client().get_workflow_handle(task_id, run_id=run_id).describe()
    while len(_priorities) >= MOST_PRIORITIES:
        del _priorities[next(iter(_priorities))]
    _priorities[run_id] = found.raw_description.workflow_execution_info.priority
    return _priorities[run_id]


_priorities: dict[str, Priority] = {}
MOST_PRIORITIES = 10_000


class GovernedStreaming(GovernedModel):
    """The same of a model that streams."""

    async def stream(self, request: ModelRequest, tell: Tell) -> ModelAnswer:
        """Answer one request, in pieces, when its turn has come.

        Raises:
            ModelUnavailableError: The turn has not come yet, or as the model raises it.
            ModelRequestError: As the model raises it.
        """
        return await self._in_turn(request, lambda model: model.stream(request, tell))


class HeardConnection(Connection):
    """A connection of a model, with a key of the provider, that hears the headers of answers."""

    def __init__(
        self, connection: Connection, key: str, hear: Callable[[Mapping[str, str]], None]
    ) -> None:
        """Take the place of another connection, whose clients it uses.

        Raises:
            UserError: It cannot be given a key.
        """
        vars(self).update(vars(connection))
        self._hear = hear
        if key and self._stand_in is not None:
            raise _takes_no_key(self.model)
        if key and (given := self._given) is not None:
            self._own = given.with_options(api_key=os.environ[key])  # sent where its own key was
        elif key:
            self._api_key = os.environ[key]

    @asynccontextmanager
    async def _opened(
        self, path: str, body: RequestBody, options: dict[str, Any]
    ) -> AsyncGenerator[Any]:
        async with super()._opened(path, body, options) as raw:
            self._hear(raw.headers)
            yield raw


def _reached(model: Any, key: str, hear: Callable[[Mapping[str, str]], None]) -> Any:
    """Return a model that is called with a key, and whose answers are heard where that can be.

    Raises:
        UserError: It cannot be given a key.
    """
    ours = getattr(model, "model", model) if type(model).__name__ == "ServedModel" else model
    if isinstance(ours, OpenAIModel):
        close_at_end(ours)
        return ours.reached_by(lambda known: HeardConnection(known, key, hear))
    if not key:
        return model
    if hasattr(ours, "with_key"):
        return ours.with_key(os.environ[key])
    raise _takes_no_key(model.name)


def _takes_no_key(model: str) -> UserError:
    return UserError(
        f"Model {model!r} cannot be given one of the keys= of its provider. Leave keys= out,"
        " and give the model its key."
    )
