"""`BatchModel`: a model whose calls wait for a batch, and the workers for its batches."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from contextvars import Context
from datetime import timedelta
from functools import partial
from typing import Any, cast
from weakref import WeakKeyDictionary

from temporalio import activity
from temporalio.client import (
    Client,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)
from temporalio.common import QueryRejectCondition, WorkflowIDConflictPolicy
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.heartbeat import Lease, current_lease
from holdfast.errors import (
    InvalidArgumentError,
    ModelRequestError,
    ModelUnavailableError,
    UserError,
)
from holdfast.models import resolve_model
from holdfast.models.base import AMONG, ModelAnswer, ModelRequest
from holdfast.models.libraries.library_model import LibraryModel
from holdfast.models.openai.model import OpenAIModel
from holdfast.models.prices import BATCH
from holdfast.models.resolve import close_at_end
from holdfast.reading.queries import while_busy
from holdfast.serving.batches import hand as times
from holdfast.serving.batches.hand import GRACE, MOST_LINES, Ask, Asker, Hand, Reply
from holdfast.serving.batches.provider import BatchActivities, OpenAIBatches, open_activities
from holdfast.serving.batches.stored import Stored, answer_of
from holdfast.serving.batches.workflow import QUEUE, Batches
from holdfast.serving.governor.served import bare, serve
from holdfast.task.data.wire import activity_key
from holdfast.values.base import digest
from holdfast.values.checks.gate import as_object
from holdfast.values.runs.times import span_in
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown

ASKING = timedelta(seconds=10)
_OPEN = QueryRejectCondition.NOT_OPEN
DAY = timedelta(days=1)

_Opened = dict[tuple[str, str], tuple[asyncio.Event, asyncio.Task[None]]]
"""What serves batches, by server and namespace: what stops it, and its run."""

_made: WeakKeyDictionary[Lease, int] = WeakKeyDictionary()
"""Number of the newest call of an attempt: after one that is refused another may follow."""


class BatchModel:
    """A model whose calls wait for a batch: half the price, and an answer within a day.

    It is one of OpenAI's APIs, or one of Anthropic's that any-llm knows.

    Calls of all tasks are collected, submitted together, and each answer is given to its step. A
    step that waits holds no worker. A call that has no answer in time is asked directly, at the
    full price.
    """

    def __init__(
        self,
        model: str | OpenAIModel | LibraryModel,
        *,
        wait: timedelta | str = DAY,
        age: timedelta | str = "1 min",
        look: timedelta | str | None = None,
        size: int = 1000,
        account: str | None = None,
    ) -> None:
        """Put a model's calls into batches.

        Args:
            model: Name of the model, a model of one of OpenAI's APIs, or an `AnyLLMModel` of
                Anthropic, which is also "any-llm/anthropic/NAME".
            wait: How long a call waits for its batch, such as "6 h".
            age: How long calls are collected before they are submitted.
            look: How long after that a batch is looked at first, 15 seconds by default; then it is
                looked at less and less often.
            size: How many calls are submitted at once, 2,000 at most.
            account: Names the provider's account; the provider's name by default. Processes whose
                keys are of other accounts need another name; a new key of the same account needs
                none.

        Raises:
            InvalidArgumentError: A time or number cannot be used.
            UserError: The model is of another provider.
        """
        self._batches, made = _batches_of(resolve_model(model))
        if made is None:
            msg = (
                "BatchModel takes a model of OpenAI's APIs, or one of Anthropic by any-llm, or the"
                f" name of one; it was {shown(model)}."
            )
            raise UserError(msg)
        of = "openai" if isinstance(made, OpenAIModel) else "anthropic"
        account, self.provider = of if account is None else account, f"{of} batch"
        if not 1 <= size <= MOST_LINES:
            msg = f"size is a number of calls from 1 to {MOST_LINES}; it was {shown(size)}."
            raise InvalidArgumentError(msg)
        if not account.isidentifier():
            msg = f"account is a name of letters, digits and '_'; it was {shown(account)}."
            raise InvalidArgumentError(msg)
        self._model = made
        self._wait = _seconds("wait", wait)
        self._age = _seconds("age", age)
        self._look = times.FIRST_GAP if look is None else _seconds("look", look)
        if self._age >= self._wait:
            msg = f"age is shorter than wait; they were {shown(age)} and {shown(wait)}."
            raise InvalidArgumentError(msg)
        self._size = size
        self._id = f"{QUEUE}.{account}.{made.path.strip('/').partition('/')[0]}.{made.name}"
        self._opened: WeakKeyDictionary[asyncio.AbstractEventLoop, _Opened] = WeakKeyDictionary()

    @property
    def name(self) -> str:
        """The names under which its answers are priced: by a batch, or directly."""
        return f"{BATCH}{self._model.name}{AMONG}{self._model.name}"

    @property
    def has_unique_ids(self) -> bool:
        """Whether each call of a conversation has an id of its own."""
        return getattr(self._model, "has_unique_ids", False)

    @property
    def serves_hosted(self) -> bool:
        """Whether it passes on tools and prompts of the provider."""
        return getattr(self._model, "serves_hosted", False)

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request, once its batch has.

        Raises:
            ModelUnavailableError: The call waits for its batch.
            ModelRequestError: The provider refuses the request, or its batch.
            UserError: It is called outside of a task, or with what a batch cannot have.
        """
        if not activity.in_activity():
            raise UserError("BatchModel answers in steps of tasks only: it has to wait.")
        info, settings = activity.info(), request.settings
        if settings.extra_headers or settings.extra_query:
            msg = "Calls of a batch cannot have extra_headers or extra_query: leave them out."
            raise UserError(msg)
        lease = current_lease()
        _made[lease] = n = _made.get(lease, -1) + 1
        self._open(activity.client())
        handle = activity.client().get_workflow_handle(self._id)
        key = digest(f"{activity_key(info.workflow_run_id, info.activity_id)}:{n}".encode())
        reply = await self._reply(handle, key) if info.attempt > 1 else Reply(state="unknown")
        match reply.state:
            case "unknown":
                # Of a call that is known, the answer may be there, and paid for. So what cannot be
                # read now, as while the workers come back, is asked about for a day.
                most = self._wait + (DAY.total_seconds() if reply.why else 2 * GRACE)
                if time.time() > info.scheduled_time.timestamp() + most:
                    return await self._directly(request, "its batches did not answer in time")
                if reply.why:
                    raise _waits(reply.why, times.HASTE)
                await self._ask(request, key)
                why = f"a batch of calls of {self._model.name!r} to be full"
                raise _waits(why, self._age + self._look)
            case "waits":
                least = min(self._look, times.FIRST_GAP)  # what was due is under way
                raise _waits(reply.why, max(reply.again - time.time(), least))
            case "direct":
                made = await self._directly(request, reply.why)
                await self._taken(handle, key)
                return made
            case "failed":
                await self._taken(handle, key)
                remedy = "Fix what the provider names, then run the step again."
                raise ModelRequestError(reply.why, remedy=remedy)
            case "answered":
                return await self._read(handle, key, reply.answer)

    async def _reply(self, handle: WorkflowHandle[Any, Any], key: str) -> Reply:
        """Ask for the state of a call."""
        try:
            ask = partial(handle.query, Batches.reply, key, reject_condition=_OPEN)
            found: Reply = await while_busy(partial(ask, rpc_timeout=ASKING))
        except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
            status = getattr(error, "status", None)
            if status is RPCStatusCode.NOT_FOUND or isinstance(error, WorkflowQueryRejectedError):
                return Reply(state="unknown")
            log.warning("%s cannot say what a call waits for: %s", self._id, error)
            return Reply(state="unknown", why="its batch, of which nothing can be read now")
        return found

    async def _ask(self, request: ModelRequest, key: str) -> None:
        """Give a call to the workflow.

        Raises:
            ModelUnavailableError: It could not be given.
        """
        client, info = activity.client(), activity.info()
        task, run = info.workflow_id or "", info.workflow_run_id or ""
        body = await self._model.written(request)
        try:
            ask = Ask(
                key=key,
                asker=Asker(task=task, run=run, activity=info.activity_id),
                body=await Stored(client).write(task, body),
                size=len(body),
                wait=self._wait,
                most=self._size,
                age=self._age,
                look=self._look,
                pending=await open_activities(task, run),
            )
            await client.start_workflow(
                Batches.run,
                Hand(),
                id=self._id,
                task_queue=self._id,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                start_signal="ask",
                start_signal_args=[ask],
                rpc_timeout=ASKING,
            )
        except TemporalError as error:
            log.warning("A call was not given to %s: %s", self._id, error)
            raise _waits("the Temporal server, to be collected", times.FIRST_GAP) from None

    async def _read(self, handle: WorkflowHandle[Any, Any], key: str, answer: str) -> ModelAnswer:
        """Read an answer.

        Raises:
            ModelUnavailableError: It cannot be used.
            ModelRequestError: The provider has refused the request.
        """
        task = activity.info().workflow_id or ""
        kept = as_object(json.loads(await Stored(activity.client()).read(task, answer)))
        await self._taken(handle, key)
        made = await answer_of(self._model, kept)
        name = self._model.name
        known = {"model": f"{BATCH}{made.model or name}", "asked": f"{BATCH}{name}"}
        return made.model_copy(update=known)

    async def _taken(self, handle: WorkflowHandle[Any, Any], key: str) -> None:
        try:
            await handle.signal(Batches.taken, key, rpc_timeout=ASKING)
        except RPCError as error:  # it is found out later
            log.warning("%s does not know that an answer was read: %s", self._id, error)

    async def _directly(self, request: ModelRequest, why: str) -> ModelAnswer:
        """Ask the API itself.

        Raises:
            ModelUnavailableError: As the model raises it.
            ModelRequestError: As the model raises it.
        """
        name = self._model.name
        made: ModelAnswer = await self._model.respond(request.model_copy(update={"model": name}))
        return made.model_copy(update={"asked": name, "tried": (f"{BATCH}{name}: {why}",)})

    def _open(self, client: Client) -> None:
        """Serve the batches in this process, until its models are closed."""
        place = client.service_client.config.target_host, client.namespace
        opened = self._opened.setdefault(asyncio.get_running_loop(), {})
        if place in opened:
            return
        close_at_end(self)
        stop = asyncio.Event()
        served: dict[str, Any] = {"activities": self._batches(self._model).all}
        served["sticky_queue_schedule_to_start_timeout"] = timedelta(seconds=3)
        run = serve(bare(client), self._id, stop, workflows=[Batches], build_id=QUEUE, **served)
        # In a context of its own: this activity's would be taken for that of its activities.
        opened[place] = stop, asyncio.get_running_loop().create_task(run, context=Context())

    async def close(self) -> None:
        """Serve the batches no longer, and close the connections of the running event loop."""
        opened = self._opened.pop(asyncio.get_running_loop(), {})
        for stop, _ in opened.values():
            stop.set()
        await asyncio.gather(*(run for _, run in opened.values()))
        await self._model.close()


def _batches_of(model: Any) -> tuple[Callable[[Any], BatchActivities[Any]], Any]:
    """Return what makes a model's batches, and what writes their lines; None if it has none."""
    if isinstance(model, LibraryModel) and model.name.startswith("any-llm/anthropic/"):
        from holdfast.serving.batches.anthropic import AnthropicBatches, AnthropicLines

        return AnthropicBatches, AnthropicLines(cast("Any", model))
    return OpenAIBatches, model if isinstance(model, OpenAIModel) else None


def _seconds(name: str, given: timedelta | str) -> float:
    """Return a span in seconds.

    Raises:
        InvalidArgumentError: It is not one.
    """
    span = span_in(given) if isinstance(given, str) else given
    if not isinstance(span, timedelta) or span.total_seconds() <= 0:
        msg = f'{name} is a timedelta or a text such as "6 h"; it was {shown(given)}.'
        raise InvalidArgumentError(msg)
    return span.total_seconds()


def _waits(why: str, seconds: float) -> ModelUnavailableError:
    """Make the error for a call that waits: the attempt does not count."""
    pause = max(seconds, 1.0) * random.uniform(1.0, 1.2)  # noqa: S311  so that not all come at once
    made = ModelUnavailableError(f"The call waits for {why}.", retry_after=pause, is_limit=True)
    made.is_unasked = made.is_accepted = True
    return made
