"""Step logic of a user's own, written for LlamaIndex's AgentRunner, as an AgentWorker of Holdfast.

Each step is one memo: the user's method runs once from its top to its end, in a thread, and its
output, its next steps and the state that it leaves are recorded. It is run again only when its
process is lost before that.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from holdfast.agents.tools.foreign.llama_index import raw_output_of
from holdfast.llama_index.llms.messages import ChatMemoryBuffer, to_message
from holdfast.llama_index.step_code.state import StateCodec
from holdfast.llama_index.tools import ToolOutput
from holdfast.llama_index.values import OwnRecord, Task, TaskStep, TaskStepOutput
from holdfast.values import steps
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_object
from holdfast.values.code.user_calls import invoke_here
from holdfast.values.json_patch import OBJECTS
from holdfast.values.messages import Message
from holdfast.values.parts.sources import SourceNode, nodes_of
from holdfast.workers.base import AgentWorker, add_answer, add_question, one_turn

if TYPE_CHECKING:
    from holdfast.workers.context.context import StepContext

STATE = "step"
"""Key of a step's state under which that of the user's step is."""

FIELDS = ("content", "tool_name", "raw_input", "is_error", "raw_output")
"""Of a source, what is recorded."""

MOST_BYTES = 1_000_000
"""Of what is recorded next to a step's text, as JSON: a memo that is too large fails its step."""


class _Room:
    """Writes values as long as there is room in the record of a step."""

    def __init__(self, codec: StateCodec) -> None:
        """Begin with all room."""
        self._codec = codec
        self._left = MOST_BYTES

    def kept(self, value: object) -> Json:
        """Write a value; None for one that cannot be written, or that has no room."""
        try:
            written = self._codec.encode(value)
            size = len(json.dumps(written))
        except Exception:  # noqa: BLE001  of the value's own code: the step goes on without it
            return None
        if size > self._left:
            return None
        self._left -= size
        return written

    def kept_values(self, given: Any) -> dict[str, Json]:
        """Write those values of a dict that can be kept."""
        found = {str(key): self.kept(each) for key, each in as_object(given).items()}
        return {key: each for key, each in found.items() if each is not None}


def written_beside(output: TaskStepOutput, codec: StateCodec) -> dict[str, Json]:
    """Write what a step gave, as far as it can be recorded."""
    response: Any = output.output
    made: dict[str, Json] = {}
    room = _Room(codec)
    left: Any = getattr(output.task_step, "step_state", None)
    handed_on = [n for n, each in enumerate(output.next_steps) if each.step_state is left]
    if handed_on:
        made["left_to"] = handed_on[0]  # written there already
    elif left is not None:
        made["left"] = room.kept(left)
    if sources := _listed(getattr(response, "sources", None)):
        made["sources"] = [
            room.kept_values({name: getattr(each, name, None) for name in FIELDS})
            for each in sources
        ]
    if nodes := [node for each in nodes_of(response) if (node := room.kept(each.wire()))]:
        made["nodes"] = nodes
    if metadata := room.kept_values(getattr(response, "metadata", None)):
        made["metadata"] = metadata
    return made


def _listed(given: object) -> list[Any]:
    return list(cast("Sequence[Any]", given)) if isinstance(given, list | tuple) else []


def own_record(memo: Mapping[str, Any], codec: StateCodec, *, ends: bool = True) -> OwnRecord:
    """Read what `written_beside` wrote, and the sources that the step logic collects.

    Args:
        memo: What a step gave.
        codec: Reads it.
        ends: Whether the collected sources are wanted, as for a last step.
    """
    state: Mapping[str, Any] = memo.get("state") or {}
    collected = _read(state.get("sources"), codec) if ends else None
    return OwnRecord(
        sources=[_source(each, codec) for each in memo.get("sources", ())],
        nodes=[SourceNode.model_validate(each) for each in memo.get("nodes", ())],
        metadata=_read(memo.get("metadata"), codec),
        all_sources=_listed(collected),
    )


def _source(recorded: Mapping[str, Any], codec: StateCodec) -> ToolOutput:
    known = {name: _read(each, codec) for name, each in recorded.items()}
    content = str(known.pop("content", ""))
    return ToolOutput(content, **{"raw_output": raw_output_of(content), **known})


def _read(recorded: Any, codec: StateCodec) -> Any:
    """Read a part of a record; as it is recorded, if the program can make no such object now."""
    try:
        return codec.decode(recorded)
    except Exception:  # noqa: BLE001  of the object's own code, or its class is gone
        return recorded


def own_step(step: steps.TaskStep, codec: StateCodec) -> steps.TaskStep:
    """Return a step with the state that the step logic gave it, instead of its record."""
    state = _read(step.step_state.get(STATE, {}), codec)
    return step.model_copy(update={"step_state": state})


def own_output(
    output: steps.TaskStepOutput, memo: Mapping[str, Any], codec: StateCodec
) -> steps.TaskStepOutput:
    """Return a step's output with the states that the step logic gave."""
    following = tuple(own_step(each, codec) for each in output.next_steps)
    if "left_to" in memo:
        same = following[int(memo["left_to"])].step_state
        step = output.task_step.model_copy(update={"step_state": same})
    elif memo.get("left") is not None:
        # Not read beside the state before it, which had the same objects.
        state: Any = _read(memo["left"], codec) or {}
        step = output.task_step.model_copy(update={"step_state": state})
    else:
        step = own_step(output.task_step, codec)
    return output.model_copy(update={"task_step": step, "next_steps": following})


ADDED = "$memory"
"""Key of the task's state: messages that steps have put into the task's memory."""

MEMO = "step"
"""Name of the memo that records what the user's step gave."""

TASK = "$task"
"""Name of the task itself, where a state holds it."""

HISTORY = "history"
"""Key of a step's state: how many messages the conversation had before the task."""


class TaskMemory(ChatMemoryBuffer):
    """The conversation as a task sees it: what was before it, and what it adds.

    What it adds joins the agent's conversation when the task is finalized.
    """

    def __init__(self, history: Sequence[Message] = (), added: Sequence[Message] = ()) -> None:
        """Take both parts."""
        super().__init__([*history, *added])
        self._before = len(history)

    @property
    def added(self) -> list[Message]:
        """What the task adds."""
        return self.messages[self._before :]

    def set(self, messages: Sequence[Any]) -> None:
        """Replace all messages; the ones that were there before the task stay where they are."""
        read = [to_message(each) for each in messages]
        kept = self.messages[: self._before]
        same = [*map(_said, read[: self._before])] == [*map(_said, kept)]
        self.messages = [*kept, *(read[self._before :] if same else read)]


def _said(message: Message) -> object:
    """Return what a chat message of LlamaIndex keeps of one: no items and ids of a provider."""
    return message.role, message.content, message.calls, message.call_id


class StepCode(AgentWorker):
    """Runs the methods of a worker that was written for LlamaIndex.

    Attributes:
        worker: The worker: `initialize_step(task)`, `run_step(step, task, **kwargs)` or the async
            `arun_step`, and `finalize_task(task)`.
    """

    max_parallel: ClassVar[int] = 8

    def __init__(self, worker: Any) -> None:
        """Take a worker."""
        self.worker = worker

    def codec(self, task: Task | None = None, scope: str = "") -> StateCodec:
        """Make what writes and reads the state of the user's steps; it may hold their task."""
        owned: Any = getattr(self.worker, "owned_objects", None)
        known: dict[str, Any] = {**vars(self.worker)} if owned is None else {**owned()}
        return StateCodec({**known, TASK: task}, scope)

    def restore(self, task: Task, state: Mapping[str, Json], scope: str = "") -> StateCodec:
        """Give a task the state that is recorded; return what reads and writes the rest of it.

        A state without the mark is JSON of anyone who has started the task, and holds no objects.
        """
        codec = self.codec(task, scope)
        read = codec.decode if state.get(OBJECTS) else copy.deepcopy
        kept = {k: read(v) for k, v in state.items() if not k.startswith("$")}
        task.extra_state.update(kept)
        return codec

    async def run_step(self, step: steps.TaskStep, ctx: StepContext) -> steps.TaskStepOutput:
        """Run the user's step, or take what it gave before."""
        is_first = STATE not in step.step_state
        before = ctx.messages[: len(ctx.messages) - len(ctx.adds)]
        length: int = step.step_state.get(HISTORY, len(before))
        step = add_question(ctx, step)
        task = await ctx.task()
        added: Any = ctx.state.get(ADDED, [])
        view = Task(
            task.task_id,
            task.input,
            TaskMemory(before[:length], [Message.model_validate(each) for each in added]),
            callback_manager=getattr(self.worker, "callback_manager", None),
        )
        codec = self.restore(view, ctx.state, step.step_id)

        async def make() -> Json:
            if is_first:
                own = await invoke_here(self.worker.initialize_step, view)
                own.step_id, own.input = step.step_id, step.input
            else:
                held = codec.decode(step.step_state[STATE])
                own = TaskStep(task.task_id, step.step_id, step.input, held)
            output = await self._run(own, view, ctx.tool_choice)
            return {**_recorded(output, view, codec), **written_beside(output, codec)}

        made = cast("dict[str, Any]", await ctx.memo(MEMO, make))
        ctx.state.clear()
        ctx.state.update(made["state"])
        if made["is_last"]:
            add_answer(ctx, made["output"])
        following = tuple(
            steps.TaskStep.model_validate(
                {**each, "step_state": {STATE: each["step_state"], HISTORY: length}}
            )
            for each in made["next"]
        )
        return steps.TaskStepOutput(
            output=made["output"], task_step=step, next_steps=following, is_last=made["is_last"]
        )

    async def _run(self, step: TaskStep, view: Task, tool_choice: str) -> TaskStepOutput:
        """Call the user's method; of a worker with async methods only, that."""
        method = self.worker.run_step
        options = {"tool_choice": tool_choice} if _takes_options(method) else {}
        try:
            output: TaskStepOutput = await invoke_here(method, step, view, **options)
        except NotImplementedError:
            output = await self.worker.arun_step(step, view, **options)
        return output

    def finalize_task(self, task: steps.Task, transcript: Sequence[Message]) -> Sequence[Message]:
        """Keep what the user's method puts into the memory; if nothing, question and answer."""
        added: Any = task.extra_state.get(ADDED, [])
        memory = TaskMemory((), [Message.model_validate(each) for each in added])
        view = Task(task.task_id, task.input, memory)
        self.restore(view, task.extra_state)
        finalize = getattr(self.worker, "finalize_task", None)
        if finalize is not None:
            made = finalize(view)
            if inspect.isawaitable(made):
                asyncio.run(_awaited(made))
        return memory.messages or one_turn(task, transcript)


async def _awaited(made: Any) -> None:
    await made


def _takes_options(method: Any) -> bool:
    parameters = inspect.signature(method).parameters.values()
    return any(each.kind is each.VAR_KEYWORD or each.name == "tool_choice" for each in parameters)


def _recorded(output: TaskStepOutput, view: Task, codec: StateCodec) -> dict[str, Json]:
    """Write down what a step gave, and the state that it leaves."""
    state: dict[str, Json] = {
        str(key): codec.encode(each, f"task.extra_state[{key!r}]")
        for key, each in view.extra_state.items()
    }
    state[OBJECTS] = True
    memory: TaskMemory = view.memory
    if memory.added:
        state[ADDED] = [each.wire() for each in memory.added]
    return {
        "output": _text(output.output),
        "is_last": bool(output.is_last),
        "next": [_step(each, codec) for each in output.next_steps],
        "state": state,
    }


def _text(output: Any) -> Json:
    """Return what a step gave as text, or as the data that it is."""
    said = getattr(output, "response", None)
    if said is None and (output is None or isinstance(output, str | int | float | list | dict)):
        return "" if output is None else cast("Json", output)
    return str(output if said is None else said)


def _step(step: TaskStep, codec: StateCodec) -> Json:
    """Write a step that follows; one that was linked waits for those before it."""
    return {
        "task_id": step.task_id,
        "step_id": step.step_id,
        "input": step.input,
        "step_state": codec.encode(step.step_state, "step_state"),
        "prev_steps": list(step.prev_steps),
        "is_ready": step.is_ready,
    }
