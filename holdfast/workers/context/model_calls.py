"""Model calls and memos of a step: settings, tool choice, digests of requests, checks of answers.

Each costs something, so its answer is recorded at once.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import itertools
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from holdfast.errors import HoldfastError, ModelBehaviorError, UnfitAnswerError
from holdfast.models.base import ModelAnswer, ModelRequest
from holdfast.models.openai.hosted_items import SEARCH_CALL
from holdfast.models.openai.item_checks import kind_of
from holdfast.task.data.agent_snapshot import AgentSnapshot
from holdfast.task.data.failures import INVALID_OUTPUT, KIND
from holdfast.task.data.head import RunRules, TaskHead
from holdfast.task.data.records import Handed, JournalEntry
from holdfast.values.base import ChainRef, Json, canonical, digest, sense
from holdfast.values.messages import Message, ToolCall, clean, not_run, system, user
from holdfast.values.settings import ModelSettings
from holdfast.values.steps import HistoryRef
from holdfast.values.text.redact import redact
from holdfast.workers.context.call_ids import without_repeated
from holdfast.workers.context.journal import Interrupt, OverBudget, StepJournal, StepStop, memo_json
from holdfast.workers.context.offer import Structure

UNANSWERED = frozenset({"computer_call", "program"})
"""Items that need an answer before the provider continues, and that agents here cannot answer."""

EMPTY = "The model's answer is empty: it has neither a text nor a call."
UNFIT = "Your answer cannot be used: {}\nAnswer again, in the form that was asked for."
LONGEST_REASON = 2000


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


def usable(answer: ModelAnswer, head: TaskHead, *, last: bool) -> ModelAnswer:
    """Return an answer with which the task can go on.

    Args:
        answer: The answer.
        head: The task's head.
        last: Whether it is the last one that the budget allows; such an answer is not checked.

    Raises:
        ModelBehaviorError: The task cannot go on with it: it is empty, or such answers end the run.
        UnfitAnswerError: The task cannot go on with it, and waits for a person.
    """
    error = None if last else verdict(answer, head)
    if error is not None:
        raise error
    return answer


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
    is_told = not ends or bool(answer.message.items)
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
    """Return what the model is told when it is asked again after an answer of no use.

    It joins the request, not the transcript: later turns and the session have the answer of use.

    Args:
        answer: The answer.
        error: Why it is of no use.
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
    reason = clean(redact(str(why)))[:LONGEST_REASON]
    if ids := answer.message.call_ids:  # each needs a result, also where the provider keeps them
        return (answer.message, *not_run(ids, reason))
    told = user(UNFIT.format(reason))
    return (answer.message, told) if answer.text else (told,)


def _reason(answer: ModelAnswer, *, raises: bool) -> str:
    calls = answer.message.calls
    items = answer.message.items
    if any(item.get("type") == SEARCH_CALL and item.get("execution") == "client" for item in items):
        return (
            "Client-executed tool_search calls are not supported: the model asks this process to"
            ' search tools, as ToolSearchTool(execution="client") tells it. Leave execution out, so'
            " that the provider searches."
        )
    pending = next((kind for kind in map(kind_of, items) if kind in UNANSWERED), None)
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
    if len({call.id for call in calls}) < len(calls):
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


def settings_within(agent: AgentSnapshot, head: TaskHead, tokens: int) -> ModelSettings:
    """Return the agent's settings, with no more output tokens than the budget has left.

    Args:
        agent: The agent.
        head: The task's head, whose settings override the agent's.
        tokens: Output tokens that are left; 0 for no limit.
    """
    settings = agent.settings_in(head)
    if not tokens:
        return settings
    most = min(tokens, settings.max_tokens or tokens)
    return settings.model_copy(update={"max_tokens": most})


def own_choice(agent: AgentSnapshot, head: TaskHead, *, used_tools: bool) -> str | None:
    """Return the tool choice of the settings; None once a tool was used, if that resets it."""
    if used_tools and not agent.keeps_tool_choice:
        return None
    return agent.settings_in(head).choice


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
    """Makes the costly calls of one run of a step, and adds their answers to its journal."""

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
        self._respond = respond
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
            made = paid or await self._respond(request)
            answer = read(made, renames=not head.ends_by_answers)
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
