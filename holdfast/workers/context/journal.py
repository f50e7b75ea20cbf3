"""The journal of a step, its model calls and memos, and the interruption of a run of the step.

The journal holds the answered calls, in the order in which the step made them. A later activity
runs the step again from its top, and its calls get the recorded answers by position.

Model calls and memos cost something, so their answers are recorded at once.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import itertools
import operator
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, Literal, Never

from holdfast.errors import (
    HoldfastError,
    InvalidArgumentError,
    ModelBehaviorError,
    ModelUnavailableError,
    StepCodeChangedError,
    UnfitAnswerError,
)
from holdfast.models.base import ModelAnswer, ModelRequest
from holdfast.models.openai.hosted_items import SEARCH_CALL
from holdfast.models.openai.item_contents import kind_of
from holdfast.task.data.calls import not_run
from holdfast.task.data.failures import INVALID_OUTPUT, KIND
from holdfast.task.data.head import AgentSnapshot, RunRules, TaskHead
from holdfast.task.data.records import Handed, JournalEntry
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import ChainRef, Json, Value, canonical, digest, sense
from holdfast.values.checks.gate import safe_text
from holdfast.values.messages import Message, ToolCall, system, user
from holdfast.values.steps import HistoryRef
from holdfast.workers.context.call_ids import without_repeated
from holdfast.workers.context.offer import Structure


class Interrupt(Value):
    """Why the step cannot go on in this activity.

    Attributes:
        kind: "tools": the task must run tools. "more": a second model call, or costly memo, needs
            the next activity. "limit": the task's limit forbids the call. "over": the budget's last
            model call has been made, so its answer ends the step.
        request: Digest of the request.
        calls: The calls, for "tools".
        needs: For "limit" by a budget in money: what the call can cost at most.
        used_day: For "limit" by a budget of a tenant: its day.
    """

    kind: Literal["tools", "more", "limit", "over"]
    request: str = ""
    calls: tuple[ToolCall, ...] = ()
    needs: Decimal | None = None
    used_day: Any = None


class OverBudget(Exception):  # noqa: N818  no error: the task decides what follows
    """The money that is reserved for a model call may not suffice; it was not made.

    Attributes:
        needs: What the call can cost at most.
        lost: The most that an earlier attempt of it can have cost.
    """

    def __init__(self, needs: Decimal, lost: Decimal) -> None:
        """Say what the call can cost, and its earlier attempt can have cost."""
        super().__init__(needs, lost)
        self.needs = needs
        self.lost = lost


class StepStop:
    """Interrupts the one run of a step that an activity makes.

    The step's coroutine then waits at its call until the driver cancels it.

    Attributes:
        interrupted: Why the step was interrupted: an Interrupt, or the error of a model call.
    """

    def __init__(self) -> None:
        """Make the future that the driver waits for, in the running loop."""
        self.interrupted: asyncio.Future[Interrupt] = asyncio.get_running_loop().create_future()
        self._closed = asyncio.Event()

    def go_on(self) -> None:
        """Refuse a call after the step was interrupted, such as one made in a `finally` block.

        This activity cannot answer it any more, so a run that waited for it would never end.

        Raises:
            asyncio.CancelledError: The step is interrupted.
        """
        if self.interrupted.done():
            raise asyncio.CancelledError

    async def fail(self, error: Exception) -> Never:
        """Interrupt the step with the error of a model call, which the AgentWorker never sees.

        If it saw the error, it could make another call instead, whose answer would take the failed
        call's place in the journal.
        """
        if not self.interrupted.done():
            self.interrupted.set_exception(error)
        await self._halt()

    async def interrupt(self, why: Interrupt) -> Never:
        """Interrupt the step for this reason."""
        self.go_on()
        self.interrupted.set_result(why)
        await self._halt()

    def close(self) -> None:
        """Cancel the waiting calls of the step, and refuse further ones."""
        if not self.interrupted.done():
            self.interrupted.cancel()
        self._closed.set()

    async def _halt(self) -> Never:
        """Wait for the driver, which cancels the step."""
        await self._closed.wait()
        raise asyncio.CancelledError


_IS_LAST: Callable[[JournalEntry], bool] = operator.attrgetter("last")


class StepJournal:
    """The answered calls of a step: the recorded ones, and the ones made here.

    Attributes:
        fresh: Calls that were answered in this activity.
        has_spent: Whether a model call or a costly memo is among them: the task must record it
            before the next costly call is made.
        is_finished: Whether the last model call that the budget allows has its answer.
        answered: The model call that was made here, if one was.
    """

    def __init__(
        self,
        recorded: Sequence[JournalEntry] = (),
        *,
        unrecorded: JournalEntry | None = None,
        keep: Callable[[JournalEntry], None] | None = None,
    ) -> None:
        """Begin at the step's first call.

        Args:
            recorded: Calls that earlier runs of this step had answered.
            unrecorded: An answer that was paid for but never reached the task: the same request
                gets it without a call.
            keep: Called with each costly answer at once, before anything that may fail.
        """
        self.fresh: list[JournalEntry] = []
        self.has_spent = False
        self.answered: JournalEntry | None = None
        self._recorded = tuple(recorded)
        self._unrecorded = unrecorded
        self._keep = keep
        self._position = 0
        self.is_finished = any(map(_IS_LAST, recorded))

    @property
    def all(self) -> tuple[JournalEntry, ...]:
        """All answered calls of the step, oldest first."""
        return (*self._recorded, *self.fresh)

    @property
    def is_paid(self) -> bool:
        """Whether an answer was paid for that has not reached the task yet."""
        return self._unrecorded is not None

    @property
    def next_is_last(self) -> bool | None:
        """Whether the next recorded call is the last that the budget allows; None without one."""
        for entry in self._recorded[self._position :]:
            if entry.memo is None:
                return entry.last
        return None

    def next(self, key: str, what: str, *, n: int, task_id: str) -> JournalEntry | None:
        """Return the recorded answer to the next call; None without one yet.

        Args:
            key: Digest of the call.
            what: The call in words, for the error.
            n: Ordinal of the step.
            task_id: The task.

        Raises:
            StepCodeChangedError: The journal holds the answer to another call here.
        """
        position, self._position = self._position, self._position + 1
        if position >= len(self._recorded):
            return None
        entry = self._recorded[position]
        if entry.request == key:
            return entry
        msg = (
            f"Step {n} now makes {what} where its journal holds the answer to another request"
            f" (call {position + 1} of the step): the code or the prompt changed in mid-step."
            ' Nothing is lost. run_step(task, restart="step") starts the step again, or put the'
            " earlier code back and run the step again."
        )
        raise StepCodeChangedError(msg, task_id=task_id, step_id="")

    def paid_for(self, key: str) -> JournalEntry | None:
        """Return the answer to this call that was paid for but never reached the task, if any."""
        known = self._unrecorded
        return known if known is not None and known.request == key else None

    def add(self, entry: JournalEntry, *, costly: bool) -> None:
        """Add an answer; pass a costly one to `keep`, so that it outlives the activity."""
        self.fresh.append(entry)
        if entry.answer is not None:
            self.answered = entry
        self.is_finished = self.is_finished or entry.last
        self.has_spent = self.has_spent or costly
        if costly and self._keep is not None:
            self._keep(entry)


def memo_json(name: str, made: object) -> Json:
    """Return the value of a memo as JSON data.

    Raises:
        InvalidArgumentError: It cannot be stored as JSON.
    """
    try:
        return merge_patch.written(made, "memo")
    except InvalidArgumentError as cause:
        reason = str(cause).rstrip(".")
        msg = f"Memo {name!r} cannot be stored as JSON: {reason}. Return plain data."
        raise InvalidArgumentError(msg) from cause


UNANSWERED = frozenset({"computer_call", "program"})
"""Items that need an answer before the provider continues, and that agents here cannot answer."""

EMPTY = "The model's answer is empty: it has neither a text nor a call."
UNFIT = "Your answer cannot be used: {}\nAnswer again, in the form that was asked for."


def read(answer: ModelAnswer, *, renames: bool) -> ModelAnswer:
    """Remove repeated calls from an answer, so that none is run twice.

    Providers refuse a conversation with two calls of one id.

    Args:
        answer: The answer as it came.
        renames: Whether different calls of one id get different ids. Where an answer may end the
            run they stay, and `verdict` refuses them.
    """
    calls = answer.message.calls
    if len({call.id for call in calls}) == len(calls):
        return answer
    apart = dict(_apart(calls, renames=renames))
    ids = answer.message.item_ids  # that of the content, then those of the calls
    left = (*ids[:1], *(id for k, id in enumerate(ids[1:]) if k in apart))
    changes = {"calls": tuple(apart.values()), "item_ids": left}
    message = answer.message.model_copy(update=changes)
    return answer.model_copy(update={"message": message})


def verdict(answer: ModelAnswer, head: TaskHead) -> HoldfastError | None:
    """Return the error for an answer with which the task cannot go on; None for a usable one.

    By the verdicts of the Agents SDK the error ends the run. Else the step waits, and an answer
    that was cut off is usable if it has text or calls; those calls are not run.
    """
    ends = head.ends_by_answers
    reason = answer.flaw or _reason(answer, raises=ends)
    if reason:
        again = f"{reason} Run the step again: the model is asked again."
        return ModelBehaviorError(reason) if ends else UnfitAnswerError(again)
    # The SDK's runs end with an empty output, but cannot go on after reasoning without a follower.
    is_told = not ends or any(each.get("type") != "message" for each in answer.message.items)
    is_told = is_told and INVALID_OUTPUT not in head.run.error_handlers
    if answer.unread or (answer.is_blank and is_told):
        return ModelBehaviorError(answer.unread or EMPTY)
    return None


def parsed(answer: ModelAnswer, structure: Structure, *, last: bool) -> ModelAnswer:
    """Return an answer with its validated object; a refusal or a call of tools has none.

    Args:
        answer: The answer.
        structure: The structure that the model was asked for.
        last: Whether the budget allows no further answer; one that does not fit has no object then.

    Raises:
        ModelBehaviorError: It does not fit the type.
    """
    if answer.refusal or answer.message.calls:
        return answer
    try:
        value = structure.load(structure.read(answer.text))
    except ModelBehaviorError:
        if last:
            return answer
        raise
    return answer.model_copy(update={"parsed": value})


def told_again(
    answer: ModelAnswer, error: ModelBehaviorError, rules: RunRules, asked: int, *, last: bool
) -> tuple[Message, ...]:
    """Return what the model reads when it is asked again after an answer that is not usable.

    It joins the request, not the transcript: later turns and the session have the usable answer.

    Args:
        answer: The answer.
        error: Why it is not usable.
        rules: The rules of the run.
        asked: How often the model was asked.
        last: Whether the budget allows no further answer.

    Raises:
        ModelBehaviorError: By the rules the error ends the run, or a handler of the run answers.
        UnfitAnswerError: It was asked often enough: the step waits for a person.
    """
    is_handled = (error.facts or {}).get(KIND) in rules.error_handlers
    if not rules.output_attempts or is_handled:
        raise error
    if asked >= rules.output_attempts or last:
        raise UnfitAnswerError(
            f"The model's answer does not fit, asked {asked} times: {error}",
            remedy="Run the step again: the model is asked again. Feedback before it says more to"
            " the model, and undo_step goes back.",
        ) from error
    cause = error if error.__cause__ is None else error.__cause__
    why = cause if cause.__cause__ is None else cause.__cause__  # without the answer once more
    reason = safe_text(str(why))
    if calls := answer.message.open_calls:  # each needs a result, also where the provider has them
        return (answer.message, *not_run(calls, reason))
    told = user(UNFIT.format(reason))
    return (answer.message, told) if answer.text else (told,)


def _reason(answer: ModelAnswer, *, raises: bool) -> str:
    calls = answer.message.calls
    items = answer.message.items
    if items and any(
        i.get("type") == SEARCH_CALL and i.get("execution") == "client" for i in items
    ):
        return (
            "Client-executed tool_search calls are not supported: the model asks this process to"
            ' search tools, as ToolSearchTool(execution="client") tells it. Leave execution out, so'
            " that the provider searches."
        )
    pending = next(filter(UNANSWERED.__contains__, map(kind_of, items)), None)
    if pending is not None:
        return (
            f"The model's answer holds an item {pending!r}, which must be answered before the"
            " conversation goes on; agents here have no tool for that."
        )
    if answer.is_incomplete and (raises or not (answer.text.strip() or calls)):
        remedy = (
            " Allow more in ModelSettings(max_tokens=...)." if answer.finish == "length" else ""
        )
        return f"The model's answer is incomplete: it was cut off ({answer.finish}).{remedy}"
    if len(calls) > 1 and len({call.id for call in calls}) < len(calls):
        return (
            "The model's answer holds different calls of one id in one response, so their results"
            " could not be told apart: each call needs a unique call ID. None was run."
        )
    return ""


def _apart(calls: Sequence[ToolCall], *, renames: bool) -> Iterator[tuple[int, ToolCall]]:
    """Yield the position of each call, and the call; a repeated one is left out.

    With `renames`, a call whose id is taken gets a new one.
    """
    said: set[tuple[str, str, str]] = set()
    taken = {call.id for call in calls}
    first = set(taken)
    for k, call in enumerate(calls):
        content = (call.id, call.name, sense(call.arguments))
        if content in said:
            continue
        said.add(content)
        if call.id in first or not renames:
            first.discard(call.id)
            yield k, call
            continue
        name = next(each for n in itertools.count(2) if (each := f"{call.id}_{n}") not in taken)
        taken.add(name)
        yield k, call.model_copy(update={"id": name})


LAST_CALL = system(
    "The budget of this task is used up. Answer now, without tools: say what is known, what is"
    " missing, and that the budget ended the work."
)
"""Message that is added to the last model call of the budget."""


def request_digest(
    request: ModelRequest,
    *,
    agent: AgentSnapshot,
    head: TaskHead,
    at: ChainRef | None,
    view: HistoryRef | None,
    adds: Sequence[Message],
) -> str:
    """Make a digest of everything that decides the answer to a request.

    The transcript is represented by the digest of its chain, so that the cost of a call does not
    grow with the conversation; messages that the AgentWorker chose itself are digested whole.

    Args:
        request: The request.
        agent: The agent; instructions and tools that are its own are left out.
        head: The task's head.
        at: The transcript before the step; None when the AgentWorker chose the messages.
        view: The conversation that a handoff made, if one did.
        adds: Messages that the step has added.
    """
    asked: dict[str, Json] = {
        "agent": head.snapshot,
        "model": request.model,
        "choice": request.tool_choice,
        "messages": [m.wire() for m in (request.messages if at is None else adds)],
    }
    if at is not None:
        asked["at"] = at.digest
    if at is not None and view is not None:
        asked["history"] = view.wire()
    if request.instructions != agent.instructions:
        asked["instructions"] = request.instructions
    if request.tools != agent.tools:
        asked["tools"] = [tool.wire() for tool in request.tools]
    if request.prompt is not None:
        asked["prompt"] = request.prompt
    if request.output is not None:
        asked["output"] = request.output.wire()
    return digest(canonical(asked))[:16]


Respond = Callable[[ModelRequest], Awaitable[ModelAnswer]]


class PaidCalls:
    """Makes the costly calls of one run of a step, and adds their answers to its journal.

    Attributes:
        respond: Makes one model call.
    """

    def __init__(
        self,
        record: StepJournal,
        stop: StepStop,
        respond: Respond,
        ensure_ours: Callable[[], Awaitable[None]] | None,
        transcript: Sequence[Message],
    ) -> None:
        """Make no call yet.

        Args:
            record: The journal of the step.
            stop: Interrupts the run of the step.
            respond: Makes one model call.
            ensure_ours: Called before a costly memo; raises when another worker process has taken
                the step over.
            transcript: The task's messages before the step.
        """
        self._record = record
        self._transcript = transcript
        self._stop = stop
        self.respond = respond
        self._ensure_ours = ensure_ours
        self._idle = asyncio.Event()  # no call is in flight
        self._idle.set()

    async def settled(self) -> None:
        """Wait for the call in flight: stopping it would lose a paid answer."""
        while not self._idle.is_set():
            await self._idle.wait()

    async def answer(
        self, request: ModelRequest, key: str, head: TaskHead, *, last: bool
    ) -> ModelAnswer:
        """Make the one model call of this activity.

        A call that the AgentWorker cancels, as by a timeout of its own, has no answer and does not
        count: another call may be made in this activity.

        Args:
            request: The request.
            key: Its digest.
            head: The task's head.
            last: Whether the budget allows no call after it.
        """
        self._idle.clear()
        try:
            known = self._record.paid_for(key)
            paid = None if known is None else known.answer
            answer = paid or await self.respond(request)
            if len(answer.message.calls) > 1:
                answer = read(answer, renames=not head.ends_by_answers)
            if answer.has_unique_ids:
                if head.dialect.unknown_tool == "raise":
                    answer = without_repeated(answer, self._transcript)
                answer = answer.model_copy(update={"has_unique_ids": False})  # as it is recorded
            self._record.add(JournalEntry(request=key, answer=answer, last=last), costly=True)
            return answer
        except OverBudget as over:
            self._idle.set()
            await self._stop.interrupt(Interrupt(kind="limit", needs=over.needs))
        except Exception as error:  # noqa: BLE001  handed to the driver, which raises it
            self._idle.set()  # before `fail`, which never returns: the driver waits for idle first
            if isinstance(error, ModelUnavailableError) and error.used_day is not None:
                await self._stop.interrupt(Interrupt(kind="limit", used_day=error.used_day))
            await self._stop.fail(error)
        finally:
            self._idle.set()

    async def memo(
        self, name: str, key: str, make: Callable[[], Awaitable[Any] | Any], *, costly: bool
    ) -> Json:
        """Make the value of a memo, unless it was paid for already, and record it.

        Args:
            name: Name of the value.
            key: Digest of the name.
            make: Makes it; async or not.
            costly: Whether it must be recorded before the next costly call.

        Raises:
            InvalidArgumentError: The value cannot be stored as JSON.
            Exception: An error that `make` raised; it is not recorded.
        """
        known = self._record.paid_for(key) if costly else None
        if known is not None and known.memo is not None:
            value = known.memo.output
        else:
            if costly:
                await self._ensure_step_is_ours()
            value = await self._make(name, make)
        entry = JournalEntry(request=key, memo=Handed(output=value), name=name)
        self._record.add(entry, costly=costly)
        return copy.deepcopy(value)

    async def _make(self, name: str, make: Callable[[], Awaitable[Any] | Any]) -> Json:
        with self._in_flight():
            made = make()
            if inspect.isawaitable(made):
                made = await made
        return memo_json(name, made)

    async def _ensure_step_is_ours(self) -> None:
        """Stop here when another worker process has taken the step over."""
        if self._ensure_ours is None:
            return
        try:
            await self._ensure_ours()
        except Exception as error:  # noqa: BLE001  handed to the driver, which raises it
            await self._stop.fail(error)

    @contextmanager
    def _in_flight(self) -> Generator[None]:
        self._idle.clear()
        try:
            yield
        finally:
            self._idle.set()
