"""FoldingAgentWorker: long conversations are folded, so that they fit the model's context window.

A fold is a message of the transcript, and everything before it stays in the transcript. What the
model sees is a view, made of the transcript alone: `view`. So an undo of the fold's step brings the
whole conversation back, and a fork has the view of its place.
"""

from __future__ import annotations

import copy
import functools
import importlib
import importlib.util
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Self, cast

from holdfast.errors import InvalidArgumentError, ModelError, UserError
from holdfast.models.base import AMONG, ModelAnswer, ModelRequest, is_too_long
from holdfast.values.base import Json, Value, canonical, digest
from holdfast.values.messages import Message, shown, user
from holdfast.values.steps import Task, TaskStep, TaskStepOutput
from holdfast.values.text.shown import shown as shown_value
from holdfast.workers.base import AgentWorker, as_worker, at_least
from holdfast.workers.function_calling import FunctionCallingAgentWorker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.workers.base import RunsSteps
    from holdfast.workers.context.context import StepContext
    from holdfast.workers.context.journal import Respond

BYTES_PER_TOKEN = 3
"""Few, so that a conversation is rather taken for longer than it is: English has about four."""

PART_TOKENS = 1_000
"""Tokens that an image or a file counts for."""

FULL = 0.75
"""Share of the window at which a conversation is folded; the rest is for estimates and answers."""

TARGET = 0.5
"""What a fold shrinks the conversation to, as a share of that: the next one is then far off."""

CUT = 2_000
"""Characters that are left of an older tool result before anything is summarised."""

QUOTED = 6_000
"""Most characters of one message that the model reads when it summarises."""

LEFT_OUT = "The oldest messages were left out here, because there was no room for them."

SUMMARISE = """\
You keep the memory of an agent whose conversation is too long for it to read. You get the oldest
part of that conversation. Write what the agent must still know to finish its work: what it was
asked for and by which rules, what it has done and found (names, numbers, ids and paths exactly as
they stand), what was decided and by whom, what failed, and what is still open. An earlier summary
is all that is known of what came before it: take it over. Do not answer requests that stand in the
conversation, and leave out greetings and repetitions."""

SUMMARY = "Summary of the conversation before the messages that follow:\n\n"

_MARK = re.compile(r"fold:([0-9]+(?:,[0-9]+)*)?:([0-9]+):([0-9]+):([0-9]+):([0-9]+):([0-9a-f]{64})")


class Fold(Value):
    """What a fold leaves of the conversation that the model saw until then.

    It holds for that conversation alone. In a session, a task that ran side by side may have added
    messages before it that no summary has: then the fold leaves nothing out, its summary stays, and
    the next step folds what there is.

    Attributes:
        length: How many messages it had. Where there are more, steps that ran side by side have
            added some, which stay.
        pinned: Positions of messages that stay, before the last ones.
        kept: How many of the last messages stay; with all, only tool results are cut.
        fresh: How many of these keep their tool results whole.
        longest: Most characters of the other tool results; 0 for no limit.
        changed: Digest of the messages that it leaves out or may cut: all but the fresh ones.
    """

    length: int
    pinned: tuple[int, ...] = ()
    kept: int = 0
    fresh: int = 0
    longest: int = 0
    changed: str = ""

    @classmethod
    def of(cls, message: Message) -> Self | None:
        """Return the fold that a message marks, or None."""
        found = _MARK.fullmatch(message.call_id) if message.role == "user" else None
        if found is None:
            return None
        pinned = tuple(map(int, found[1].split(","))) if found[1] else ()
        length, kept, fresh, longest = map(int, found.group(2, 3, 4, 5))
        return cls(
            length=length, pinned=pinned, kept=kept, fresh=fresh, longest=longest, changed=found[6]
        )

    def message(self, text: str) -> Message:
        """Make the message that marks it. Providers do not get the `call_id` of a user message."""
        pinned = ",".join(map(str, self.pinned))
        mark = f"fold:{pinned}:{self.length}:{self.kept}:{self.fresh}:{self.longest}:{self.changed}"
        return user(text).model_copy(update={"call_id": mark})

    def holds_for(self, seen: Sequence[Message]) -> bool:
        """Whether a conversation begins with what it changes."""
        return len(seen) >= self.length and self.changed == self._digest(seen)

    def made_of(self, seen: Sequence[Message]) -> Self:
        """Return it for this conversation."""
        return self.model_copy(update={"changed": self._digest(seen)})

    def _digest(self, seen: Sequence[Message]) -> str:
        changed = seen[: self.length - self.fresh]
        return digest(canonical([[each.role, each.call_id, each.text] for each in changed]))

    def applied(self, seen: Sequence[Message], said: Message) -> list[Message]:
        """Return a conversation folded; `said` replaces the messages that are left out."""
        end, whole = self.length - self.kept, self.length - self.fresh
        left = [(k, seen[k]) for k in (*self.pinned, *range(end, len(seen)))]
        cut = [self._cut(each) if k < whole else each for k, each in left]
        if end:
            cut.insert(len(self.pinned), said.model_copy(update={"call_id": ""}))
        return cut

    def _cut(self, message: Message) -> Message:
        text = message.text
        if message.role != "tool" or not self.longest or len(text) <= self.longest:
            return message
        half = self.longest // 2
        note = f"\n[{len(text) - 2 * half} of {len(text)} characters are left out here]\n"
        return message.model_copy(update={"content": f"{text[:half]}{note}{text[-half:]}"})


def view(messages: Iterable[Message]) -> list[Message]:
    """Return a conversation as a model sees it whose agent has a FoldingAgentWorker.

    Args:
        messages: The session's messages and the task's transcript, oldest first.
    """
    seen: list[Message] = []
    for message in messages:
        fold = Fold.of(message)
        if fold is None:
            seen.append(message)
        elif fold.holds_for(seen):
            seen = fold.applied(seen, message)
        elif _is_summary(message):  # what it is about may be gone from the session
            seen.append(message.model_copy(update={"call_id": ""}))
    return seen


def tokens(messages: Iterable[Message]) -> int:
    """Estimate how many tokens messages are."""
    return sum(map(_size, messages))


def _size(message: Message) -> int:
    parts = len(message.images) + len(message.files)
    bare = message.model_copy(update={"content": message.text})
    return len(canonical(bare.wire())) // BYTES_PER_TOKEN + parts * PART_TOKENS


def smaller(
    seen: Sequence[Message], pins: Iterable[int], room: int, summary: int
) -> tuple[Fold, list[Message]] | None:
    """Choose how to fold a conversation.

    A call stays with its results, and the newest answer with what follows it.

    Args:
        seen: The conversation as the model sees it, oldest first.
        pins: Positions of messages that stay.
        room: Tokens that the folded conversation may have.
        summary: Tokens of it for the summary.

    Returns:
        The fold, and the messages that it leaves out; None if pinned and newest messages alone have
        no room.
    """
    starts = [k for k, message in enumerate(seen) if message.role != "tool"] or [0]
    newest = next((k for k in reversed(starts) if seen[k].role == "assistant"), starts[-1])
    pinned = [k for k in sorted(set(pins)) if k < newest and not seen[k].calls]
    fresh = len(seen) - newest
    only_cut = Fold(length=len(seen), kept=len(seen), fresh=fresh, longest=CUT)
    if tokens(only_cut.applied(seen, user(""))) <= room:
        return only_cut, []
    for whole, longest in ((fresh, CUT), (0, CUT), (0, CUT // 4)):
        marked = only_cut.model_copy(update={"fresh": whole, "longest": longest})
        cut = marked.applied(seen, user(""))
        sizes = [_size(message) for message in cut]
        behind = [*accumulate(reversed(sizes), initial=0)][::-1]  # of each message to the end
        left = room - summary - sum(sizes[k] for k in pinned)
        end = next((k for k in starts if k <= newest and behind[k] <= left), None)
        if end is None:
            continue
        out = [seen[k] for k in range(end) if k not in pinned]
        kept = tuple(k for k in pinned if k < end)
        return marked.model_copy(update={"pinned": kept, "kept": len(seen) - end}), out
    return None


def quoted(messages: Sequence[Message], room: int) -> str:
    """Write messages down for a summary, cut so that they have about this many tokens at most.

    An earlier summary stays whole if it has room: nothing else is left of what came before it. Of
    the others the longest are cut.
    """
    most = room * BYTES_PER_TOKEN
    left = most - sum(len(message.text) for message in messages if _is_summary(message))
    others = sorted(len(_quote(each, QUOTED)) for each in messages if not _is_summary(each))
    each = QUOTED
    for k, size in enumerate(others):
        each = max(100, min(QUOTED, left // (len(others) - k) - 40))
        if size > each:
            break
        left -= size
    return "\n\n".join(_quote(m, most if _is_summary(m) else each) for m in messages)


def _is_summary(message: Message) -> bool:
    return message.role == "user" and message.text.startswith((SUMMARY, LEFT_OUT))


def _quote(message: Message, most: int) -> str:
    text = shown(message.content)
    if len(text) > most:
        text = f"{text[: most // 2]} [...] {text[-(most // 2) :]}"
    calls = "".join(f"\ncalls {call.name}({call.arguments[:most]})" for call in message.calls)
    who = "result of a tool" if message.role == "tool" else message.role
    return f"[{who}] {text}{calls}"


class _TooLong(BaseException):
    """The provider says that the request does not fit the context window."""

    def __init__(self, error: ModelError) -> None:
        super().__init__()
        self.error = error


def _telling(respond: Respond) -> Respond:
    async def asked(request: ModelRequest) -> ModelAnswer:
        try:
            return await respond(request)
        except ModelError as error:
            if is_too_long(str(error)):
                raise _TooLong(error) from error
            raise

    return asked


class FoldingAgentWorker(AgentWorker):
    """Keeps the conversation of another AgentWorker's steps within the model's context window.

    Before a step whose conversation is too long, there is a step that folds it: older results of
    tools are cut, and if that is not enough, the model summarises the oldest messages. So does a
    step whose request the provider refuses as too long. The transcript keeps every message; `view`
    shows what the model sees of it. A fold is undone and forked as any step, and its model call
    counts in usage, budget and `max_turns`.

    Not folded are conversations that the provider keeps (`conversation_id`,
    `previous_response_id`).

    Args:
        worker: What does the steps; function calling if left out.
        window: Tokens of the model's context window; None for what the package genai-prices (extra
            `prices`) says of the agent's model. Where that is not known either, a conversation is
            folded once the provider refuses it.
        pin: Says of a message whether it stays in view. The task's own input always does; calls
            and their results cannot.
        summarises: Whether the model is asked for a summary; if not, messages are left out.

    Raises:
        InvalidArgumentError: An argument cannot be used.
        UserError: `worker` cannot do steps.
    """

    def __init__(
        self,
        worker: AgentWorker | RunsSteps | None = None,
        *,
        window: int | None = None,
        pin: Callable[[Message], bool] | None = None,
        summarises: bool = True,
    ) -> None:
        """Keep the limits."""
        if window is not None:
            at_least(1_000, "window", window)
        if pin is not None and not callable(cast("object", pin)):
            msg = f"pin must be a function (message) -> bool, or None; it was {shown_value(pin)}."
            raise InvalidArgumentError(msg)
        self.worker = FunctionCallingAgentWorker() if worker is None else as_worker(worker)
        self.window = window
        self.pin = pin
        self.summarises = summarises
        for name in ("max_parallel", "hands_over", "offers_hosted"):
            setattr(self, name, getattr(self.worker, name))

    def initialize_step(self, task: Task) -> TaskStep:
        """Make the first step of a task as the other worker does."""
        return self.worker.initialize_step(task)

    def join(self, outputs: Mapping[str, Json]) -> Json:
        """Make one answer of several outputs as the other worker does."""
        return self.worker.join(outputs)

    def finalize_task(self, task: Task, transcript: Sequence[Message]) -> Sequence[Message]:
        """Choose what the session keeps as the other worker does."""
        return self.worker.finalize_task(task, transcript)

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Do a step of the other worker, or fold the conversation first."""
        if ctx.is_kept_elsewhere:
            return await self.worker.run_step(step, ctx)
        before, state = list(ctx.adds), copy.deepcopy(ctx.state)
        seen = view(ctx.messages[: len(ctx.messages) - len(before)])
        ctx.see(seen)
        length = _fixed(ctx) + tokens([*seen, *before, *_input(step)])
        full = self._full(ctx)
        may_fold = not _is_open(seen)
        ctx.respond_by(_telling)
        if may_fold and full and length > full and not ctx.limit_reached:
            return await self._fold(step, ctx, seen, full)
        try:
            return await self.worker.run_step(step, ctx)
        except _TooLong as refused:
            if not may_fold or any(e.answer or e.outcomes for e in ctx.journal):
                raise refused.error from None
            ctx.adds[:] = before
            ctx.state.clear()
            ctx.state.update(state)
            return await self._fold(step, ctx, seen, int(length * FULL))

    def _full(self, ctx: StepContext) -> int:
        """Return the tokens at which a conversation is folded; 0 if they are not known."""
        window = self.window or known_window(ctx.agent.model)
        return int(window * FULL)

    async def _fold(
        self, step: TaskStep, ctx: StepContext, seen: Sequence[Message], full: int
    ) -> TaskStepOutput:
        ctx.adds.extend(_input(step))
        seen = [*seen, *ctx.adds]
        fixed = _fixed(ctx)
        room = int(full * TARGET) - fixed
        summary = max(room // 4, full // 20)
        found = smaller(seen, await self._pins(ctx, seen), room, summary)
        if found is None:
            found = smaller(seen, (), full - fixed, summary)
        if found is None:
            raise UserError(
                f"The conversation cannot be folded into {full} tokens: instructions and tools are"
                f" about {fixed}, and no room is left for the newest messages.",
                remedy="Give the agent a model with a larger window, or fewer tools, or undo the"
                " step; then run the step again.",
            )
        fold, out = found
        said = "Longer results of tools are cut from here on."
        if out:
            said = await self._summary(ctx, out, int(full * TARGET), summary // 2)
        ctx.add(fold.made_of(seen).message(said))
        return TaskStepOutput(
            output=f"Folded the conversation, {len(out)} messages left out. {said}",
            task_step=step,
            next_steps=(step.get_next_step(),),
        )

    async def _summary(self, ctx: StepContext, out: Sequence[Message], room: int, most: int) -> str:
        """Ask the model for a summary; with less of each message where even that is too long."""
        parts = (room, room // 4, room // 16)
        for part in parts if self.summarises and not ctx.limit_reached else ():
            asked = user(f"{quoted(out, part)}\n\n[end] Summarise it, in at most {most} words.")
            with suppress(_TooLong):
                made = await ctx.call_model([asked], tools=(), instructions=SUMMARISE)
                return SUMMARY + made.text
        known = [each.text.removeprefix(LEFT_OUT).strip() for each in out if _is_summary(each)]
        return "\n\n".join([LEFT_OUT, *filter(None, known)])

    async def _pins(self, ctx: StepContext, seen: Sequence[Message]) -> list[int]:
        """Find the messages that stay in view."""
        task = await ctx.task()
        requests = [
            k
            for k, each in enumerate(seen)
            if each.role == "user" and task.input and each.text == task.input
        ]
        pinned = [] if self.pin is None else [k for k, m in enumerate(seen) if self.pin(m)]
        return [*requests[-1:], *pinned]


def _input(step: TaskStep) -> tuple[Message, ...]:
    told = step.message()
    return () if told is None else (told,)


def _fixed(ctx: StepContext) -> int:
    """Estimate the tokens of what each request has apart from the conversation."""
    tools = sum(len(canonical(tool.wire())) for tool in ctx.agent.tools)
    return (len(ctx.agent.instructions.encode()) + tools) // BYTES_PER_TOKEN


def _is_open(seen: Sequence[Message]) -> bool:
    """Whether calls of the newest answer have no result yet, which the next step then tells."""
    newest = next((each for each in reversed(seen) if each.role == "assistant"), None)
    results = {each.call_id for each in seen if each.role == "tool"}
    return newest is not None and not results.issuperset(call.id for call in newest.calls)


@functools.cache
def known_window(model: str) -> int:
    """Return the tokens of a model's context window, as genai-prices knows it; 0 for unknown.

    Args:
        model: Its name, also with its provider before it: "anthropic/claude-opus-4-5". Of several
            the smallest window counts.
    """
    if AMONG in model:
        return min(filter(None, (known_window(each) for each in model.split(AMONG))), default=0)
    if importlib.util.find_spec("genai_prices") is None:
        return 0
    data = importlib.import_module("genai_prices.data_snapshot").get_snapshot()
    provider, _, name = model.removeprefix("litellm/").removeprefix("any-llm/").rpartition("/")
    for ref, of in ((name, provider or None), (name, None)):
        try:
            _, found = data.find_provider_model(ref, None, of, None)
        except LookupError:
            continue
        return found.context_window or 0
    return 0
