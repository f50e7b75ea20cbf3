"""Conformance: running a task in every way, its session, its state."""

from __future__ import annotations

import asyncio
import functools
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from holdfast.client.runner.runner import Runner
from holdfast.errors import HoldfastError
from holdfast.testing.conformance.asserts import check, check_same, fake_api, until
from holdfast.testing.conformance.bench import shared_bench
from holdfast.testing.conformance.lab import MOST_STEPS, Lab, Story
from holdfast.testing.fake_api.fake_openai import FakeOpenAI
from holdfast.values.base import Json, canonical
from holdfast.values.messages import Message
from holdfast.values.steps import AgentResponse, Task, TaskStep, TaskStepOutput
from holdfast.workers.base import AgentWorker
from holdfast.workers.context.context import StepContext

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
        raise NotImplementedError(
            f"{type(self).__name__}.script must append the model's replies for one task, or set"
            " uses_model = False."
        )

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
            raise AssertionError(f"The check was not over after {self.seconds:g} s.") from None

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
        return await lab.create(self.write(lab, word), **options)

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
        raise AssertionError(f"The task asked more than {MOST_DECISIONS} times: {kinds}.")


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


SESSION = "memory"


class RunningChecks(Surface):
    """Checks of the ways to run a task."""

    @claim()
    async def test_run_step_leads_to_one_answer(self) -> None:
        """Steps run one by one lead to exactly one last output, which finalize_response returns."""
        found = await self.reference()
        outputs = found.story.outputs
        check_same([o.is_last for o in outputs].count(True), 1, "There is not one last output.")
        check(str(outputs[-1]).strip(), "The last output is empty.")
        check_same(found.response.output, outputs[-1].output, "finalize_response answers otherwise")
        check(
            len(outputs) >= self.steps and (self.steps > 1 or len(outputs) == 1),
            f"steps = {self.steps} is declared, and the task had {len(outputs)}. Declare the number"
            " of steps that a task has at least: some checks need more than one.",
        )
        check_same(found.requests > 0, self.uses_model, "uses_model does not fit the requests.")
        check_same(bool(found.kept), self.uses_tools, "uses_tools does not fit the calls of note.")
        check_same(found.left, 0, "The script has replies that were not used.")

    @claim()
    async def test_run_task_gives_the_same_answer(self) -> None:
        """run_task comes to the same answer by the same steps as run_step."""
        async with self.lab() as lab:
            task = await self.begin(lab)
            await self.check_ended(lab, task, await lab.runner.run_task(task))

    @claim()
    async def test_run_steps_in_queue_gives_the_same_answer(self) -> None:
        """Rounds of run_steps_in_queue, outputs in queue order, come to the same answer."""
        async with self.lab() as lab:
            task = await self.begin(lab)
            for _ in range(MOST_STEPS):
                queued = [step.step_id for step in await lab.runner.get_upcoming_steps(task)]
                outputs = await lab.runner.run_steps_in_queue(task)
                ran = [output.task_step.step_id for output in outputs]
                wanted = [step_id for step_id in queued if step_id in ran]
                check_same(ran, wanted, "A round's outputs are not in the order of the queue.")
                if (await lab.runner.get_task(task)).status == "answered":
                    break
            await self.check_ended(lab, task, await lab.runner.get_task_output(task))

    @claim()
    async def test_chat_gives_the_same_answer(self) -> None:
        """Chat returns the answer that run_step comes to."""
        wanted = await self.reference()
        async with self.lab() as lab:
            lab.tasks.append(lab.app)
            response = await lab.runner.chat(self.write(lab), task_id=lab.app)
            check_same(response.output, wanted.response.output, "The answer differs.")
            check_same(str(response), str(wanted.response), "The answer's text differs.")

    @claim()
    async def test_runner_run_gives_the_same_answer(self) -> None:
        """Runner.run returns the answer that run_step comes to."""
        wanted = await self.reference()
        async with self.lab() as lab:
            lab.tasks.append(lab.app)
            given = self.write(lab)
            result = await Runner.run(
                lab.agent, given, runner=lab.runner, max_turns=None, task_id=lab.app
            )
            check_same(result.final_output, wanted.response.output, "The answer differs.")

    @claim()
    async def test_two_tasks_at_once_do_not_mix(self) -> None:
        """Two tasks stepped in turn, by one worker object, each go as they do alone."""
        worker = self.make_worker()
        alone = await self.reference(), await self.run_undisturbed(OTHER_WORD)
        async with self.lab(worker=worker) as one, self.lab(worker=worker) as other:
            first = Story(await self.begin(one))
            second = Story(await self.begin(other, OTHER_WORD))
            for _ in range(max(len(each.story.outputs) for each in alone)):
                for lab, story in ((one, first), (other, second)):
                    if not (story.outputs and story.outputs[-1].is_last):
                        story.outputs.append(await lab.runner.run_step(story.task))
            what = "A task goes differently next to another one: the worker keeps state of its own."
            for lab, story, wanted in ((one, first, alone[0]), (other, second, alone[1])):
                check_same(output_texts(story.outputs), output_texts(wanted.story.outputs), what)
                seen, last = await lab.seen(story.task), wanted.story.before[-1]
                check_same(seen.extra_state, last.extra_state, what)
                check_same(texts(seen.transcript), texts(last.transcript), what)

    @claim()
    async def test_state_is_plain_json(self) -> None:
        """The next step gets step_state and extra_state as the step before handed them on."""
        worker, problems = self.make_worker(), list[str]()
        run_step = worker.run_step

        async def watched(step: TaskStep, ctx: StepContext) -> TaskStepOutput:
            output = await run_step(step, ctx)
            for following in output.next_steps:
                problems.extend(differences(following.step_state, "step_state"))
            problems.extend(differences(ctx.state, "ctx.state"))
            return output

        object.__setattr__(worker, "run_step", watched)
        async with self.lab(worker=worker) as lab:
            task = await self.begin(lab)
            problems.extend(differences(worker.initialize_step(task).step_state, "step_state"))
            try:
                await lab.run_story(task)
            except HoldfastError:
                if not problems:
                    raise
            check(not problems, "\n".join(problems))

    # ---- the session

    @claim()
    async def test_session_keeps_what_finalize_task_returned(self) -> None:
        """Finalized once or twice, the session holds exactly what finalize_task returned."""
        async with self.lab() as lab:
            task = await self.begin(lab, session=SESSION)
            await lab.runner.run_task(task)
            transcript = await lab.runner.transcript(task)
            chosen = self.make_worker().finalize_task(await lab.runner.get_task(task), transcript)
            await lab.runner.finalize_response(task)
            kept = await self._memory(lab)
            check_same(written(kept), written(chosen), "The session holds something else.")
            await lab.runner.finalize_response(task)
            again = await self._memory(lab)
            check_same(written(again), written(kept), "Finalized again, it was committed again.")
            check_no_dangling_calls(kept)
            check_none_twice(kept, transcript)
            if self.commits is not None:
                roles = [message.role for message in kept]
                check_same(roles, list(self.commits), "The session does not hold what `commits`.")

    @claim("model", "memory")
    async def test_next_task_sees_the_session(self) -> None:
        """The model of a second task in a session is shown what the first was asked."""
        async with self.lab() as lab:
            first = await self.begin(lab, session=SESSION)
            await lab.runner.run_task(first)
            await lab.runner.finalize_response(first)
            before = len(lab.api.requests)
            second = await self.begin(lab, OTHER_WORD, session=SESSION)
            await lab.runner.run_task(second)
            first_input = self.make_input("amber")
            check(
                any(request.holds(first_input) for request in lab.api.requests[before:]),
                f"No request of the second task holds the first one's input {first_input!r}. Send"
                " ctx.messages, or set remembers = False and say so in the worker's docstring.",
            )

    @claim()
    async def test_abandoned_task_leaves_no_trace(self) -> None:
        """A task abandoned after a step leaves nothing in the session and in later requests."""
        async with self.lab() as lab:
            empty = lab.api.place()
            task = await self.begin(lab, session=SESSION)
            await lab.runner.run_step(task)
            await lab.runner.abandon(task, "not wanted any more", by="suite")

            async def abandoned() -> bool:
                return (await lab.runner.get_task(task)).status == "abandoned"

            await until(abandoned)
            lab.api.go_to(empty)
            before = len(lab.api.requests)
            later = await self.begin(lab, OTHER_WORD, session=SESSION)
            await lab.runner.run_task(later)
            await lab.runner.finalize_response(later)
            asked = self.make_input("amber")
            for request in lab.api.requests[before:]:
                check(not request.holds(asked), "A later request holds the abandoned input.")
            kept = json.dumps([message.wire() for message in await self._memory(lab)])
            check(asked not in kept, "The session holds the abandoned input.")

    async def _memory(self, lab: Lab) -> list[Message]:
        memory = lab.runner.session(SESSION)
        if memory.id not in lab.tasks and await memory.chat_history():
            lab.tasks.append(memory.id)  # its history replays as well
        return await memory.chat_history()


def texts(transcript: list[dict[str, Json]]) -> list[tuple[Json, Json]]:
    """Return role and text of each message; ids of calls differ between runs."""
    return [(each.get("role"), each.get("content")) for each in transcript]


def written(messages: Any) -> list[dict[str, Json]]:
    """Return messages as JSON data."""
    return [message.wire() for message in messages]


def check_none_twice(kept: Sequence[Message], transcript: Sequence[Message]) -> None:
    """Check that finalize_task repeats no message.

    Raises:
        AssertionError: It does.
    """
    for message in kept:
        most = max(1, transcript.count(message))
        check(
            kept.count(message) <= most,
            f"finalize_task gives a message {kept.count(message)} times: {message!r}",
        )


def differences(state: Json, what: str) -> list[str]:
    """Return how a state differs after a round trip through JSON; empty if it does not."""
    try:
        back = json.loads(json.dumps(state, allow_nan=False))
    except (TypeError, ValueError) as error:
        return [f"{what} is not JSON data ({error}): {state!r}"]
    if back == state:
        return []
    return [f"{what} comes back otherwise: {state!r} was handed on, the next step gets {back!r}"]
