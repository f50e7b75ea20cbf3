"""StepContext: an AgentWorker's access to model, tools, transcript and state, with a journal."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from holdfast.archive.contents import check_whole
from holdfast.errors import InvalidArgumentError, ModelBehaviorError
from holdfast.models.base import ModelAnswer, ModelRequest, OutputSpec, ToolSpec
from holdfast.models.choices import MessageLike, ToolChoice, choice_of, messages_of
from holdfast.task.data.head import AgentSnapshot, Dialect, RunRules, TaskHead
from holdfast.task.data.records import DEPARTED, JournalEntry, OpenStep
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import ChainRef, Json, canonical, digest, extend
from holdfast.values.checks import gate
from holdfast.values.messages import Message, ToolCall
from holdfast.values.steps import Task
from holdfast.values.text.shown import shown
from holdfast.workers.context.journal import (
    LAST_CALL,
    Interrupt,
    PaidCalls,
    Respond,
    StepJournal,
    StepStop,
    parsed,
    request_digest,
    told_again,
    verdict,
)
from holdfast.workers.context.offer import (
    AgentCode,
    Offer,
    Retrieve,
    StepHandoffs,
    ToolResult,
    tool_result,
)

_MAKE_MESSAGE = "Make a Message with user(text), assistant(text) or system(text)"
_MAKE_CALL = "Make a ToolCall with ToolCall(id=..., name=..., arguments=...)"


def check_messages(given: Any, where: str) -> tuple[Message, ...]:
    """Return messages as a tuple; dicts are read as items of the Responses API.

    Raises:
        InvalidArgumentError: It is not a list of messages that can be stored; the text says why.
    """
    advice = (
        f'{_MAKE_MESSAGE}, or write {{"role": "user", "content": text}}, and put it into a list'
    )
    messages = tuple(messages_of(_all_of((Message, Mapping), given, where, advice)))
    for message in messages:
        check_whole(message)
    return messages


def check_calls(given: Any, where: str) -> tuple[ToolCall, ...]:
    """Return tool calls as a tuple.

    Raises:
        InvalidArgumentError: It is not a list of ToolCalls; the text says what was given.
    """
    return _all_of((ToolCall,), given, where, f"{_MAKE_CALL}, and put it into a list")


def _all_of(kinds: tuple[type, ...], given: Any, where: str, advice: str) -> tuple[Any, ...]:
    # A single Message or ToolCall is iterable, too: a pydantic model iterates over its fields.
    is_many = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping, *kinds))
    items = tuple(cast("Iterable[Any]", given)) if is_many else ()
    wrong = [item for item in items if not isinstance(item, kinds)][:1]
    if not is_many or wrong:
        got = f"a list with {_shown(wrong[0])}" if is_many else _shown(given)
        msg = f"{where} takes a list of {kinds[0].__name__}s; it got {got}. {advice}."
        raise InvalidArgumentError(msg)
    return items


def _shown(given: Any) -> str:
    return f"{shown(given)} ({type(given).__name__})"


TURN = "turn"
"""Name of the memo with the instructions and tools that the agent's code made for a step."""


class StepContext:
    """Everything that a step may use; calls are answered from the step's journal first.

    Attributes:
        agent: The agent's snapshot: name, instructions, tools, settings.
        task_id: The task.
        n: Ordinal of the step in its task, from 1.
        state: The task's extra_state; changes to it are recorded when the step is done.
        tool_choice: Tool choice of the request that runs this step, else "auto".
        inputs: Step id to output, for the steps that this one waited for.
        notes: Messages for this step, which `messages` has too: feedback, and what was undone. A
            worker that passes messages of its own to call_model must include them.
        offer: The tools that may be called in this step.
        code: Access to the agent's own code, such as a function that makes its instructions.
        record: The answered calls of this step: those of the journal, then those made here.
        stop: Interrupts this run of the step.
        handoffs: The agent's handoffs; None if the AgentWorker does not hand over.
        is_asked_again: Whether a person runs the step again after an UnfitAnswerError.
    """

    handoffs: StepHandoffs | None = None

    def __init__(
        self,
        *,
        agent: AgentSnapshot,
        head: TaskHead,
        opened: OpenStep,
        transcript: Sequence[Message],
        respond: Respond,
        ask_task: Callable[[], Awaitable[Task]] | None = None,
        inputs: Mapping[str, Json] | None = None,
        retrieve: Retrieve | None = None,
        at: ChainRef | None = None,
        task_id: str = "",
        n: int = 1,
        before: tuple[Message, ...] | None = None,
        journal: Sequence[JournalEntry] = (),
        limit: Literal["", "stop", "finish", "past"] = "",
        tokens: int = 0,
        unrecorded: JournalEntry | None = None,
        keep: Callable[[JournalEntry], None] | None = None,
        ensure_ours: Callable[[], Awaitable[None]] | None = None,
        code: AgentCode | None = None,
        has_used_tools: bool = False,
    ) -> None:
        """Set up one run of a step.

        Args:
            agent: The agent's snapshot.
            head: The task's head.
            opened: The step with its state.
            transcript: The task's messages before this step, oldest first.
            respond: Makes one model call.
            ask_task: Reads the task.
            inputs: Outputs of the steps that this one waited for.
            retrieve: Chooses the tools on offer; None offers all.
            at: Length and digest of the transcript; counted when left out.
            task_id: The task.
            n: Ordinal of the step.
            before: What the model sees before this step's own messages: those of the session, or
                given with the input, then the transcript; None for the transcript alone.
            journal: Calls answered by earlier runs of this step.
            limit: See AdvanceInput.
            tokens: Output tokens that are left; 0 for no limit.
            unrecorded: An answer that was paid for but never reached the task; the same request
                gets it without a call.
            keep: Called with each costly answer at once, before anything that may fail.
            ensure_ours: Called before a costly memo; raises when another worker process has taken
                the step over.
            code: Access to the agent's own code; None for an agent without any.
            has_used_tools: Whether the agent has used a tool in this task.
        """
        self.agent = agent
        self.code = code or AgentCode(agent)
        self.task_id = task_id
        self.n = n
        self.state: dict[str, Json] = copy.deepcopy(opened.state)
        self._settings = agent.settings_in(head)
        given = opened.tool_choice or (head.tool_choice if n == 1 else "")
        # Once a tool was used, the choice of the settings counts no more, if that resets it.
        own = None if has_used_tools and not agent.keeps_tool_choice else self._settings.choice
        self.tool_choice = given or own or "auto"
        self.inputs: Mapping[str, Json] = inputs or {}
        self.offer = Offer(agent, head, retrieve, self.code)
        self.stop = StepStop()
        self.record = StepJournal(journal, unrecorded=unrecorded, keep=keep)
        self.notes = opened.notes
        self.adds: list[Message] = list(opened.notes)
        self._input = opened.step.message()
        self._behind = opened.step.behind
        self.is_asked_again = opened.told >= 0
        self._head = head
        self._before = tuple(transcript) if before is None else before
        self.paid = PaidCalls(self.record, self.stop, respond, ensure_ours, transcript)
        self._retrieve = retrieve
        self._ask_task = ask_task
        self._view = opened.step.history
        self._at = at or ChainRef(length=len(transcript), digest=extend("", transcript))
        self._limit = limit
        self._tokens = tokens

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation as the model would see it now: history, transcript, this step's adds."""
        return self._before + tuple(self.adds)

    @property
    def _leaves_model(self) -> bool:
        """Whether the provider's stored prompt chooses the model: neither agent nor run does."""
        run = self._head.run
        return self.agent.leaves_model and not (self._head.model or run.model or run.model_provider)

    @property
    def dialect(self) -> Dialect:
        """Which API's rules apply."""
        return self._head.dialect

    @property
    def rules(self) -> RunRules:
        """The rules that the task was started with, such as error handlers of the run."""
        return self._head.run

    @property
    def has_view(self) -> bool:
        """Whether a handoff replaced the conversation before this step."""
        return self._view is not None

    def aside(self, conversation: Sequence[Message]) -> StepContext:
        """Return a context for reasoning outside the transcript, within this step.

        It has this step's model, tools, journal, state and budget, and a conversation of its own:
        what is added to it does not join the transcript.

        Args:
            conversation: The messages that it begins with, oldest first.
        """
        beside = copy.copy(self)  # all but the conversation is shared, the journal above all
        beside.adds = []
        beside.notes = ()
        beside._before = tuple(conversation)  # noqa: SLF001  of its own class
        beside._at = ChainRef(length=len(conversation), digest=extend("", conversation))  # noqa: SLF001  of its own class
        return beside

    @property
    def is_kept_elsewhere(self) -> bool:
        """Whether the provider keeps the conversation, so that a request has its end only."""
        return self._head.run.kept is not None

    def see(self, messages: Sequence[Message]) -> None:
        """Have model calls see other messages than those before this step.

        They must be made of these messages alone, or a later run of the step asks differently.

        Args:
            messages: What takes their place, oldest first.
        """
        self._before = tuple(messages)

    def respond_by(self, wrap: Callable[[Respond], Respond]) -> None:
        """Wrap how this run of the step makes a model call that is not recorded yet."""
        self.paid.respond = wrap(self.paid.respond)

    async def prepare(self) -> None:
        """Call the agent's code for instructions and tools, once per step, and record the result.

        Raises:
            Exception: An error that the agent's code raised.
        """
        said = await self.memo(TURN, lambda: self.code.turn(self.state), costly=False)
        self.agent = await self.code.taken(said)
        self.offer = Offer(self.agent, self._head, self._retrieve, self.code)

    @property
    def limit_reached(self) -> bool:
        """Whether the next model call is the last one, made without tools."""
        known = self.record.next_is_last  # recorded calls stay as they were made
        return self._limit == "finish" if known is None else known

    @property
    def journal(self) -> tuple[JournalEntry, ...]:
        """All answered calls of this step, including those made in this activity."""
        return self.record.all

    @property
    def finished(self) -> bool:
        """Whether the last model call that the budget allows has its answer."""
        return self.record.is_finished

    async def task(self) -> Task:
        """Describe the task as it is now: the input is fixed, the rest may change between calls."""
        if self._ask_task is None:
            return Task(task_id=self.task_id, agent=self.agent.name)
        return await self._ask_task()

    async def offered_tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools on offer in this step, for a prompt that lists them.

        Without a tool retriever, all of the agent's tools. With one, the tools that it chooses for
        the task's input, the best first, and the tool that `tool_choice` names. The retriever is
        called once per step and its choice is recorded. Calls of other tools are then not run, and
        the model gets a message that says why.

        Raises:
            InvalidArgumentError: The retriever named a tool that its catalogue lacks.
            Exception: An error that the retriever raised.
        """
        return await self.offer.tools(self, self.tool_choice)

    def add(self, message: Message) -> None:
        """Append a message to the transcript; it is recorded when the step is done.

        The step's own input, added first, goes before the notes that came while it waited: a
        correction follows what it corrects.

        Raises:
            InvalidArgumentError: It is not a Message or cannot be stored; the text says why.
        """
        if not isinstance(cast("object", message), Message):
            msg = f"ctx.add takes a Message; it got {_shown(message)}. {_MAKE_MESSAGE}."
            raise InvalidArgumentError(msg)
        gate.check(list(message.items), "Message.items given to ctx.add")
        if message.kept is not None or not isinstance(message.content, str):
            check_whole(message)
        own = self._input if len(self.adds) == len(self.notes) else None
        is_input = own and (own.role, own.content) == (message.role, message.content)
        departs = bool(self.notes) and self.notes[0].call_id == DEPARTED
        at = max(self._behind, int(departs)) if is_input else len(self.adds)
        self.adds.insert(at, message)

    async def call_model(
        self,
        messages: Sequence[MessageLike] | None = None,
        tools: Sequence[ToolSpec] | None = None,
        tool_choice: ToolChoice | None = None,
        output_type: Any = None,
        instructions: str | None = None,
    ) -> ModelAnswer:
        """Call the agent's model.

        Limit its time by `ModelSettings.timeout_seconds`. A timeout around this call discards an
        answer that may have been paid for; and as the timeout is not recorded, another run of the
        step may get the answer in time.

        Args:
            messages: The conversation, as Messages or as dicts such as `{"role": "user",
                "content": "hi"}` (items of the Responses API); None for `ctx.messages`.
            tools: Tools on offer; None for `offered_tools()`.
            tool_choice: "auto", "none", "required", a tool's name, or a dict as OpenAI's APIs
                write one; None for "auto".
            output_type: Structure of the answer: an OutputSpec, or a pydantic model, dataclass or
                other type; `answer.parsed` is then a validated object of it. None for the agent's
                own output type, or for text if `messages` or `tools` are given.
            instructions: System prompt; None for the agent's own.

        Returns:
            The answer, recorded: a later run of this step gets the same one without a call.

        Raises:
            InvalidArgumentError: `messages` or `tool_choice` cannot be read.
            StepCodeChangedError: The journal holds the answer to a different request here.
            UnfitAnswerError: The answer is useless: it is empty or does not fit the type, though
                the model was told so and asked `max_output_attempts` times, or it is incomplete, or
                holds an item that no agent can answer. When the step is run again, the model is
                asked again.
            ModelBehaviorError: The same, where the rules of the run end it by such an answer.
            asyncio.CancelledError: The step is interrupted already.
        """
        asked = None if messages is None else check_messages(messages, "ctx.call_model")
        choice = "" if tool_choice is None else choice_of(tool_choice)
        spec: OutputSpec | None = None
        structure = None
        if output_type is None or isinstance(output_type, OutputSpec):
            spec = output_type
        elif (structure := self.code.structure(output_type)) is not None:
            spec = structure.spec()

        def check(answer: ModelAnswer) -> ModelAnswer:
            return parsed(answer, structure, last=self.finished) if structure else answer

        return await self.ask(check, asked, tools, choice, spec, instructions)

    async def ask(  # noqa: PLR0917  as for `call_model`
        self,
        check: Callable[[ModelAnswer], ModelAnswer],
        messages: Sequence[Message] | None = None,
        tools: Sequence[ToolSpec] | None = None,
        choice: str = "",
        output_type: OutputSpec | None = None,
        instructions: str | None = None,
    ) -> ModelAnswer:
        """Call the model as `call_model` does, again while its answer is useless.

        Args:
            check: Returns the answer; raises ModelBehaviorError if it is useless.
            messages: As for `call_model`, as are the others.
            tools: Tools on offer.
            choice: The tool choice.
            output_type: Structure of the answer.
            instructions: System prompt.
        """
        if messages is None and tools is None:
            output_type = output_type or self.agent.output
        said: tuple[Message, ...] = ()
        for asked in itertools.count(1):
            before = self.messages if messages is None else messages
            given = (*before, *said) if said else messages
            answer = await self._call_model(given, tools, choice, output_type, instructions)
            try:
                if (
                    not self.record.is_finished
                    and (error := verdict(answer, self._head)) is not None
                ):
                    raise error
                return check(answer)
            except ModelBehaviorError as error:
                said += told_again(answer, error, self.rules, asked, last=self.record.is_finished)
        raise RuntimeError  # unreachable: the loop returns or raises

    async def _call_model(
        self,
        messages: Sequence[Message] | None,
        tools: Sequence[ToolSpec] | None,
        choice: str,
        output_type: OutputSpec | None,
        instructions: str | None,
    ) -> ModelAnswer:
        self.stop.go_on()
        offered = await self.offer.given(self, tools, choice)
        finishing = self.limit_reached
        if finishing and LAST_CALL not in self.adds:
            self.add(LAST_CALL)
        asked = tuple(self.messages if messages is None else messages)
        if finishing and LAST_CALL not in asked:
            asked = (*asked, LAST_CALL)
        settings = self._settings
        if self._tokens:  # what the budget has left
            most = min(self._tokens, settings.max_tokens or self._tokens)
            settings = settings.model_copy(update={"max_tokens": most})
        request = ModelRequest(
            model=self._head.model or self.agent.model,
            instructions=self.agent.instructions if instructions is None else instructions,
            tools=offered,
            tool_choice="none" if finishing else (choice or "auto"),
            output=output_type,
            prompt=self.agent.prompt,
            leaves_model=self.agent.prompt is not None and self._leaves_model,
        ).model_copy(update={"messages": asked, "settings": settings})  # both were checked before
        key = request_digest(
            request,
            agent=self.agent,
            head=self._head,
            at=None if messages is not None else self._at,
            view=self._view,
            adds=self.adds,
        )
        recorded = self.record.next(key, "a model call", n=self.n, task_id=self.task_id)
        if recorded is not None and recorded.answer is not None:
            return recorded.answer
        # One costly call per activity: its answer must be in the task's history before the next
        # one is made, so that a lost worker process loses at most one paid answer.
        await self.paid.settled()
        self.stop.go_on()
        if self.record.is_finished:
            await self.stop.interrupt(Interrupt(kind="over"))
        if self._limit == "stop":
            await self.stop.interrupt(Interrupt(kind="limit"))
        if self.record.has_spent:
            await self.stop.interrupt(Interrupt(kind="more"))
        return await self.paid.answer(request, key, self._head, last=finishing)

    async def memo(
        self, name: str, make: Callable[[], Awaitable[Any] | Any], *, costly: bool = True
    ) -> Json:
        """Make a value once and record it: a later run of this step gets the recorded value.

        For values that cost time or money, or would differ the second time: an answer of another
        framework's agent, a search, a random choice. The value is recorded when the activity ends;
        if the worker process is lost before that, the value is made again. An effect that must not
        happen twice belongs in a tool.

        Args:
            name: Name of the value, with the arguments that decide it, as in `f"search {query}"`:
                the record is for this name only.
            make: Makes it; async or not. JSON data, or data that pydantic can write as JSON.
            costly: Whether it must be recorded before the next costly call. False saves an
                activity where making the value again would do no harm.

        Returns:
            The JSON data, the same in the first run as in later ones.

        Raises:
            InvalidArgumentError: The value cannot be stored as JSON.
            StepCodeChangedError: The journal holds the answer to a different request here.
            Exception: An error that `make` raised; it is not recorded.
        """
        self.stop.go_on()
        key = digest(canonical(["memo", name]))[:16]
        recorded = self.record.next(key, f"memo {name!r}", n=self.n, task_id=self.task_id)
        if recorded is not None and recorded.memo is not None:
            return copy.deepcopy(recorded.memo.output)
        await self.paid.settled()
        self.stop.go_on()
        if costly and self.record.has_spent:
            await self.stop.interrupt(Interrupt(kind="more"))
        return await self.paid.memo(name, key, make, costly=costly)

    async def call_tools(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run tools in the middle of the step.

        The task runs them after this activity: this run of the step is interrupted here, and the
        next one gets the results from the journal.

        Returns:
            The results in the order of `calls`. They join the transcript only by `ctx.add`.

        Raises:
            InvalidArgumentError: `calls` is not a list of ToolCalls.
            StepCodeChangedError: The journal holds the answer to a different request here.
            asyncio.CancelledError: The step is interrupted already.
        """
        self.stop.go_on()
        calls = check_calls(calls, "ctx.call_tools")
        if not calls:
            return []
        key = digest(canonical([call.wire() for call in calls]))[:16]
        recorded = self.record.next(key, "tool calls", n=self.n, task_id=self.task_id)
        if recorded is None:
            await self.paid.settled()
            if self.finished:
                await self.stop.interrupt(Interrupt(kind="over"))
            await self.stop.interrupt(Interrupt(kind="tools", request=key, calls=tuple(calls)))
        patches = [outcome.patch for outcome in recorded.outcomes]
        merged, _ = merge_patch.merge(self.state, patches)
        self.state.clear()
        self.state.update(merged)
        return [tool_result(c, o) for c, o in zip(calls, recorded.outcomes, strict=True)]
