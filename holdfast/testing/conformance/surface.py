"""The methods that an author overrides for the conformance suite, and the tools of its checks."""

from __future__ import annotations

import asyncio
import functools
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from holdfast.testing.conformance.asserts import check, check_same, fake_api
from holdfast.testing.conformance.bench import shared_bench
from holdfast.testing.conformance.lab import Lab, Story
from holdfast.testing.fake_api.fake_openai import FakeOpenAI
from holdfast.values.base import Json, canonical
from holdfast.values.messages import Message
from holdfast.values.steps import AgentResponse, Task, TaskStepOutput
from holdfast.workers.base import AgentWorker

WORD = "amber"
OTHER_WORD = "birch"
MOST_DECISIONS = 20


@dataclass(frozen=True)
class Reference:
    """An undisturbed run, with which the checks compare theirs.

    Attributes:
        story: The steps.
        response: The finalized answer.
        requests: Number of model requests.
        kept: What the tool `note` has written down, sorted.
        left: Replies of the script that were not used.
        input: The task's input.
    """

    story: Story
    response: AgentResponse
    requests: int
    kept: list[str]
    left: int
    input: str


def claim(*needs: str) -> Callable[[Callable[[Any], Coroutine[Any, Any, None]]], Any]:
    """Turn an async method into a check: a plain function, so that no pytest plug-in is needed.

    Args:
        needs: What the worker must have for the check to apply: "model", "tools", "steps",
            "memory".
    """

    def decorate(body: Callable[[Any], Coroutine[Any, Any, None]]) -> Callable[[Any], None]:
        @functools.wraps(body)
        def run(self: Surface) -> None:
            shared_bench().loop.run(self.in_time(body(self)))

        del run.__wrapped__  # pytest would take it for a coroutine
        setattr(run, "needs", needs)  # noqa: B010  functions have no such attribute for checkers
        return run

    return decorate


class Surface(ABC):
    """The part of the suite that an author overrides; see `AgentWorkerConformance`."""

    uses_model: ClassVar[bool] = True
    uses_tools: ClassVar[bool] = True
    steps: ClassVar[int] = 2
    remembers: ClassVar[bool] = True
    commits: ClassVar[Sequence[str] | None] = None
    seconds: ClassVar[float] = 100.0
    not_checked: ClassVar[Mapping[str, str]] = {}

    undisturbed: ClassVar[Reference | None] = None

    # ---- to be written

    @abstractmethod
    def make_worker(self) -> AgentWorker:
        """Make the worker under test; called often, each time for a new one."""

    def script(self, api: FakeOpenAI, input: str) -> None:
        """Append the model's replies for one task.

        Args:
            api: The fake model, not yet asked.
            input: The task's input; the tool must be called with it, or with another text that is
                the same each time.
        """
        del api, input
        msg = (
            f"{type(self).__name__}.script must append the model's replies for one task, or set"
            " uses_model = False."
        )
        raise NotImplementedError(msg)

    def make_input(self, word: str) -> str:
        """Make the input of a task.

        Args:
            word: One word that must be in the input; it distinguishes tasks.
        """
        return f"Note the word {word}."

    def agent_options(self) -> Mapping[str, Any]:
        """Give more arguments of `Agent`, such as instructions or more tools."""
        return {}

    # ---- for the checks

    async def in_time(self, body: Coroutine[Any, Any, None]) -> None:
        """Run a check within its time limit.

        Raises:
            AssertionError: It took too long.
        """
        limit = asyncio.timeout(self.seconds)
        try:
            async with limit:
                await body
        except TimeoutError:
            if not limit.expired():
                raise
            msg = f"The check was not over after {self.seconds:g} s."
            raise AssertionError(msg) from None

    @asynccontextmanager
    async def lab(
        self, *, worker: AgentWorker | None = None, serve: bool = True, **options: Any
    ) -> AsyncGenerator[Lab]:
        """Make an app with a worker; check afterwards that its histories replay."""
        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(fake_api())
            lab = Lab(self, api, worker or self.make_worker(), **options)
            stack.push_async_callback(lab.close)
            if serve:
                await lab.serve()
            yield lab
            await lab.replay()

    async def begin(self, lab: Lab, word: str = WORD, **options: Any) -> Task:
        """Write the replies for one task into the script, and create the task."""
        given = self.write(lab, word)
        return await lab.create(given, **options)

    def write(self, lab: Lab, word: str = WORD) -> str:
        """Write the replies for one task into the script; return the task's input."""
        given = self.make_input(word)
        if self.uses_model:
            self.script(lab.api, given)
        return given

    async def reference(self) -> Reference:
        """Return the undisturbed run, made once per class."""
        kind = type(self)
        known = cast("Reference | None", kind.__dict__.get("undisturbed"))
        if known is None:
            known = kind.undisturbed = await self.run_undisturbed(WORD)
        return known

    async def run_undisturbed(self, word: str) -> Reference:
        """Run a task undisturbed, as the reference."""
        async with self.lab() as lab:
            story = await lab.run_story(await self.begin(lab, word))
            response = await lab.runner.finalize_response(story.task)
            return Reference(
                story=story,
                response=response,
                requests=len(lab.api.requests),
                kept=lab.book.kept(),
                left=lab.api.left,
                input=self.make_input(word),
            )

    async def check_ended(self, lab: Lab, task: Task | str, output: TaskStepOutput) -> None:
        """Check that a task came to the end of the reference: answer, steps and notes."""
        wanted = await self.reference()
        check(output.is_last, f"The task did not come to its last step: {output!r}")
        check_same(output.output, wanted.story.answer, "The answer is not that of run_step.")
        outputs = await lab.runner.get_completed_steps(task)
        check_same(
            sorted(output_texts(outputs)),
            sorted(output_texts(wanted.story.outputs)),
            "The steps' outputs differ.",
        )
        check_same(lab.book.kept(), wanted.kept, "What the tool wrote down differs.")

    async def decide(
        self, lab: Lab, task: Task, decide: Callable[[Any], Coroutine[Any, Any, object]]
    ) -> tuple[TaskStepOutput, list[str]]:
        """Run a task to its end and decide its approvals; return their kinds."""
        kinds: list[str] = []
        for _ in range(MOST_DECISIONS):
            output = await lab.runner.run_task(task)
            if output.status != "waiting":
                return output, kinds
            for approval in await lab.runner.pending_approvals(task):
                kinds.append(approval.kind)
                await decide(approval)
        msg = f"The task asked more than {MOST_DECISIONS} times: {kinds}."
        raise AssertionError(msg)


def output_texts(outputs: Sequence[TaskStepOutput]) -> list[str]:
    """Return each step's output as text."""
    return [text_of(output.output) for output in outputs]


def text_of(output: Json) -> str:
    """Return JSON data in its canonical form."""
    return canonical(output).decode()


def check_no_dangling_calls(messages: Sequence[Message]) -> None:
    """Check that each tool call has its result, as every provider demands.

    Raises:
        AssertionError: One has none.
    """
    answered = {message.call_id for message in messages if message.role == "tool"}
    asked = [call for message in messages for call in message.calls]
    for call in asked:
        check(
            call.id in answered,
            f"The session keeps a call of {call.name!r} without its result; a provider refuses such"
            " a conversation. Let finalize_task drop both or keep both.",
        )
    known = {call.id for call in asked}
    for message in messages:
        check(
            message.role != "tool" or message.call_id in known,
            f"The session keeps a tool result without its call: {message.text!r}.",
        )
