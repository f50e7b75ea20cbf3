"""The tasks of one runner: made, or found again, by names that the same lines give again."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

from holdfast.agents.agent import Agent
from holdfast.archive.contents import read_json
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.client.runner.engines import engines
from holdfast.errors import (
    HoldfastError,
    InvalidArgumentError,
    StepFailedError,
    TaskClosedError,
    TaskExistsError,
    TaskNotFoundError,
)
from holdfast.llama_index.llms.messages import read_image
from holdfast.llama_index.memory import Memory
from holdfast.llama_index.program import Program
from holdfast.llama_index.step_code.worker import MEMO, StepCode, own_output, own_record, own_step
from holdfast.llama_index.values import AgentChatResponse, OwnRecord, Task, response_view
from holdfast.llama_index.workers.base import BaseAgentWorker, HoldfastWorker
from holdfast.llama_index.workers.react import MultimodalReActAgentWorker
from holdfast.models.choices import ToolChoice
from holdfast.reading.reader import Reader
from holdfast.task.data.calls import Approval
from holdfast.task.data.records import StepRecord
from holdfast.task.queries.pages import StepView
from holdfast.task.undo import active_steps
from holdfast.values import steps
from holdfast.values.base import Json
from holdfast.values.json_patch import ObjectState
from holdfast.values.parts.images import Image
from holdfast.values.text.shown import shown

T = TypeVar("T")


async def own_outputs(
    outputs: Sequence[steps.TaskStepOutput],
    logic: StepCode,
    reader: Reader,
    task: Task,
    newest: int = 0,
) -> list[tuple[steps.TaskStepOutput, OwnRecord | None]]:
    """Return outputs with the states of their steps, and what is recorded next to each.

    Args:
        outputs: Outputs of steps of the task.
        logic: The step logic.
        reader: Reads the task's record.
        task: The task, for states that hold it.
        newest: Ordinal of the newest step, if it is known.
    """
    memos = await _memos(reader, task.task_id, outputs, newest)
    shown: list[tuple[steps.TaskStepOutput, OwnRecord | None]] = []
    for each in outputs:
        memo = memos.get(each.task_step.step_id, {})
        codec = logic.codec(task)  # of its own: an object was another one in an earlier step
        shown.append((own_output(each, memo, codec), own_record(memo, codec, ends=each.is_last)))
    return shown


def own_steps(
    queued: Sequence[steps.TaskStep], logic: StepCode, task: Task
) -> list[steps.TaskStep]:
    """Return queued steps with the states that the step logic gave them."""
    codec = logic.codec(task)
    newest_first = [own_step(each, codec) for each in reversed(queued)]
    return newest_first[::-1]


async def own_answer(logic: StepCode, reader: Reader, task: Task) -> OwnRecord:
    """Read what the last step of a task recorded next to its text."""
    done = active_steps(await reader.entries(task.task_id))
    memo = await _memo(reader, done[-1]) if done else None
    return own_record(memo or {}, logic.codec(task))


async def _memos(
    reader: Reader, task_id: str, outputs: Sequence[steps.TaskStepOutput], newest: int
) -> dict[str, dict[str, Any]]:
    """Read what completed steps gave, by their ids: the newest alone is not looked for in all."""
    wanted = {each.task_step.step_id for each in outputs}
    done: list[StepRecord] = []
    if len(wanted) == 1 and newest:
        with suppress(TaskClosedError, TaskNotFoundError):
            view = await reader.query(task_id, "step", StepView, newest)
            done = [view.record] if view.record is not None else []
    if not any(record.step.step_id in wanted for record in done):
        done = active_steps(await reader.entries(task_id))
    found = {
        record.step.step_id: await _memo(reader, record)
        for record in done
        if record.step.step_id in wanted
    }
    return {name: memo for name, memo in found.items() if memo is not None}


async def _memo(reader: Reader, record: StepRecord) -> dict[str, Any] | None:
    """Read what a completed step gave; None for a step that no such step logic has run."""
    for entry in record.journal:
        if entry.name == MEMO and entry.memo is not None:
            made = await read_json(entry.memo.output, entry.memo.stored, reader.text)
            return cast("dict[str, Any]", made)
    return None


IMAGES = "image_docs"
"""Key of a task's extra_state: the images of a multimodal agent."""


class UnclearCallError(HoldfastError):
    """A task waits: a tool was cut off, and only a person can say whether it took effect.

    Attributes:
        task_id: The task.
        approval: Id of what must be decided.
    """

    def __init__(self, task_id: str, asked: Approval) -> None:
        """Say which call it is, and how to decide."""
        self.task_id = task_id
        self.approval = asked.id
        super().__init__(
            f"Task {task_id!r} waits: tool {asked.tool!r} was cut off in a call with"
            f" {asked.as_agreed}, and it is not known whether it took effect.",
            remedy=(
                f"Say `holdfast approve {asked.id}` to run it again, `holdfast respond` with its"
                " result if it happened, or the same by agent.durable; then start the program"
                " again. A function that may simply be called twice is FunctionTool.from_defaults("
                "function, effect='read') or idempotent=True."
            ),
        )


class Tasks:
    """What a runner does with its tasks, on the shared loop.

    Attributes:
        program: The run of the program.
        agent: The agent of Holdfast.
        memory: The conversation; set by the runner.
    """

    def __init__(self, worker: BaseAgentWorker, program: Program, llm: Any, **options: Any) -> None:
        """Make the agent.

        Args:
            worker: The step logic.
            program: The run of the program.
            llm: The model of a worker that has none.
            options: Options of the AgentRunner of Holdfast.
        """
        self.program = program
        given = isinstance(worker, HoldfastWorker) and isinstance(worker.given, Agent)
        name = "" if given else program.agent(worker.kind)
        self.agent = worker.make_agent(name, llm)
        self.memory: Memory | None = None
        self._worker = worker
        self._options = options
        self._runner: AgentRunner | None = None
        self._lock: asyncio.Lock | None = None
        self._created: dict[str, None] = {}
        self._found: set[str] = set()
        self._forgotten: set[str] = set()
        self._described: WeakValueDictionary[str, Task] = WeakValueDictionary()
        self._done: dict[str, int] = {}
        self._given: Counter[str] = Counter()
        self._tries: Counter[str] = Counter()

    async def connect(self) -> AgentRunner:
        """Return the runner of Holdfast, with the agent served."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            if self._runner is None:
                self._runner = await engines.handle(self.agent, **self._options)
            else:
                await engines.runner(self.agent)
            return self._runner

    # ---- creating

    async def create(
        self,
        input: str,
        *,
        task_id: str | None = None,
        extra_state: Mapping[str, Any] | None = None,
        tool_choice: ToolChoice | None = None,
        remembers: bool = True,
        streams: bool = False,
    ) -> str:
        """Create a task, or find the one that these lines made before; return its id.

        Raises:
            InvalidArgumentError: A task of this id has another input.
            TaskExistsError: This process has made one of this id.
        """
        named = task_id or self.name_of(input, tool_choice)
        if named in self._created:
            raise TaskExistsError(named)
        state, images = self._state(extra_state)
        runner = await self.connect()
        session = self.memory.session if remembers and self.memory is not None else None
        try:
            await runner.create_task(
                input,
                task_id=named,
                session=session,
                extra_state=state,
                tool_choice=tool_choice,
                images=images,
                streams=streams,
            )
        except TaskExistsError:
            known = await runner.get_task(named)
            if known.input != input:
                raise InvalidArgumentError(
                    f"Task {named!r} was made with another input before: {shown(known.input)}; now"
                    f" it is {shown(input)}. Use another task_id."
                ) from None
            self._found.add(named)
        self._created[named] = None
        return named

    def has_made(self, task_id: str) -> bool:
        """Whether this process has made or found a task."""
        return task_id in self._created

    def name_of(self, input: str, tool_choice: ToolChoice | None = None) -> str:
        """Name the next task that asks this."""
        snapshot = self.agent.snapshot("")
        # Without defaults, so that a release with more fields gives the same names.
        about = snapshot.model_dump_json(exclude={"settings"}, exclude_defaults=True)
        return self.program.task(
            self.agent.name, json.dumps([input, str(tool_choice), about], default=str)
        )

    def _state(self, given: Mapping[str, Any] | None) -> tuple[dict[str, Json] | None, list[Image]]:
        """Write the shared state of a task; images of a multimodal agent go apart."""
        state = dict(given or {})
        images: list[Image] = []
        if isinstance(self._worker, MultimodalReActAgentWorker):
            if IMAGES not in state:
                raise InvalidArgumentError("Image docs not found in task extra state.")
            images = [read_image(each) for each in state.pop(IMAGES)]
        if not state:
            return None, images
        codec = self._logic.codec()
        made = {key: codec.encode(each, f"extra_state[{key!r}]") for key, each in state.items()}
        return ObjectState(made), images

    @property
    def _logic(self) -> StepCode:
        """What knows the state of tasks; a worker of Holdfast owns no objects in it."""
        logic = self.agent.made_worker
        return logic if isinstance(logic, StepCode) else StepCode(BaseAgentWorker())

    # ---- running

    async def run_step(
        self,
        task_id: str,
        input: str | None = None,
        step: str | None = None,
        tool_choice: ToolChoice | None = None,
    ) -> steps.TaskStepOutput:
        """Run the next step, or return the next one that an earlier process has run."""
        runner = await self.connect()
        if task_id in self._found:
            done = await runner.get_completed_steps(task_id)
            if self._given[task_id] < len(done):
                self._given[task_id] += 1
                return done[self._given[task_id] - 1]
        run = partial(runner.run_step, task_id, step=step, tool_choice=tool_choice)
        try:
            output = await self._ask(task_id, "step", partial(run, input=input))
        except StepFailedError:
            if task_id not in self._found or self._tries[task_id] > 1:
                raise  # it failed now; a failure of an earlier process is tried again
            output = await self._ask(task_id, "step", partial(run, input=input))
        while output.status == "waiting" and not output.waiting_for:
            self._tries[task_id] += 1  # it was decided, and goes on: this request has its answer
            output = await self._ask(task_id, "step", run)
        await self._note(task_id, [output])
        return output

    async def _note(self, task_id: str, outputs: Sequence[steps.TaskStepOutput]) -> None:
        """Count what was given, or say that a call is unclear; bring the task up to date."""
        if all(output.status == "done" for output in outputs):
            self._given[task_id] += 1
        else:
            await self._ensure_clear(task_id)
        await self._refresh(task_id)

    async def _ensure_clear(self, task_id: str) -> None:
        """Make sure that a task which waits does not wait for a call of unknown outcome.

        Raises:
            UnclearCallError: It does. LlamaIndex's programs know no output that waits.
        """
        for asked in await (await self.connect()).pending_approvals(task_id):
            if asked.kind == "unknown":
                raise UnclearCallError(task_id, asked)

    async def _ask(self, task_id: str, what: str, run: Callable[..., Awaitable[T]]) -> T:
        """Ask for a step or a round under a name that the same line gives again."""
        try:
            name = f"{what}{self._given[task_id] + 1}.{self._tries[task_id]}"
            return await run(request_id=name)
        except StepFailedError:
            self._tries[task_id] += 1
            raise

    async def run_round(self, task_id: str) -> list[steps.TaskStepOutput]:
        """Run all steps that are ready."""
        runner = await self.connect()
        run = partial(runner.run_steps_in_queue, task_id)
        outputs = await self._ask(task_id, "round", run)
        await self._note(task_id, outputs)
        return outputs

    async def run_task(self, task_id: str) -> steps.AgentResponse:
        """Run a task to its end and finalize it; one that waits for a person says what for."""
        runner = await self.connect()
        try:
            output = await runner.run_task(task_id)
        except TaskClosedError:  # by the program that was killed, or another one beside this
            return await self.finalize(task_id)
        if output.status == "waiting":
            await self._ensure_clear(task_id)
            said = f"The task waits: {'; '.join(output.waiting_for)}"
            return steps.AgentResponse(response=said, task_id=task_id, status="waiting")
        return await self.finalize(task_id)

    async def finalize(self, task_id: str) -> steps.AgentResponse:
        """Commit the task to the conversation and return its answer."""
        return await (await self.connect()).finalize_response(task_id)

    async def undo_step(self, task_id: str) -> steps.UndoReceipt:
        """Undo the newest step."""
        runner = await self.connect()
        receipt = await runner.undo_step(task_id)
        self._tries[task_id] += 1
        self._given[task_id] = len(await runner.get_completed_steps(task_id))
        await self._refresh(task_id)
        return receipt

    # ---- reading

    async def list(self) -> Sequence[str]:
        """List the tasks of this run, the newest last."""
        runner = await self.connect()
        found = [task.task_id for task in await runner.list_tasks(agent=self.agent.name)]
        mine = f"{self.agent.name}.{self.program.run}."
        earlier = [id for id in reversed(found) if id.startswith(mine) and id not in self._created]
        return [id for id in (*earlier, *self._created) if id not in self._forgotten]

    async def describe(self, task_id: str) -> Task:
        """Describe a task; a program that has it gets the same object, brought up to date."""
        if task_id in self._forgotten:
            raise TaskNotFoundError(task_id)
        return await self._read(task_id)

    async def _read(self, task_id: str, *, whole: bool = True) -> Task:
        """Read a task into the object that the program has of it.

        Args:
            task_id: The task.
            whole: Whether its state must be read: if not, one that this process can make no objects
                of stays as it was.
        """
        found = await (await self.connect()).get_task(task_id)
        self._done[task_id] = found.steps
        callbacks = getattr(self._worker, "callback_manager", None)
        made = Task(found.task_id, found.input, self.memory, callback_manager=callbacks)
        try:
            self._logic.restore(made, found.extra_state)
        except Exception:
            if whole:
                raise
            return self._described.get(task_id, made)
        known = self._described.setdefault(task_id, made)
        if known is not made:
            known.extra_state.update(made.extra_state)  # never empty: other threads may read it
            for gone in known.extra_state.keys() - made.extra_state.keys():
                del known.extra_state[gone]
        return known

    async def _refresh(self, task_id: str) -> None:
        """Bring the task that the program has up to date, as LlamaIndex's steps changed it.

        What was asked for is done: a task that cannot be read here and now stays as it was.
        """
        if task_id in self._described:
            with suppress(HoldfastError):
                await self._read(task_id, whole=False)

    async def _held(self, task_id: str) -> Task:
        """Return a task for states that hold it: the program's own object, if it has one."""
        return self._described.get(task_id) or await self._read(task_id, whole=False)

    async def with_records(
        self, outputs: Sequence[steps.TaskStepOutput]
    ) -> Sequence[tuple[steps.TaskStepOutput, OwnRecord | None]]:
        """Read what step logic of the program's own has recorded with outputs of a task."""
        logic = self.agent.made_worker
        if not (isinstance(logic, StepCode) and outputs):
            return [(each, None) for each in outputs]
        reader = (await self.connect()).reader
        task = await self._held(outputs[0].task_step.task_id)
        newest = self._done.get(task.task_id, 0)
        return await own_outputs(outputs, logic, reader, task, newest)

    async def upcoming(self, task_id: str) -> Sequence[steps.TaskStep]:
        """List the step in progress and the queued ones, in order."""
        queued = await (await self.connect()).get_upcoming_steps(task_id)
        logic = self.agent.made_worker
        if not isinstance(logic, StepCode):
            return queued
        return own_steps(queued, logic, await self._held(task_id))

    async def answer(self, made: steps.AgentResponse) -> AgentChatResponse:
        """Show the answer of a task."""
        logic = self.agent.made_worker
        if not isinstance(logic, StepCode) or made.status == "waiting":
            return response_view(made)
        reader = (await self.connect()).reader
        own = await own_answer(logic, reader, await self._held(made.task_id))
        return response_view(made, own)

    async def delete(self, task_id: str) -> None:
        """Delete a task with its record; what the conversation has of it stays."""
        if task_id in self._forgotten:
            raise TaskNotFoundError(task_id)
        await (await self.connect()).delete_task(task_id)
        self.forget(task_id)

    def forget(self, task_id: str) -> None:
        """No longer list or describe a task; its record stays."""
        self._forgotten.add(task_id)

    def forget_all(self) -> None:
        """No longer list the tasks made so far; their records stay."""
        self._forgotten.update(self._created)
