"""AgentRunner by LlamaIndex's names: each task is a Temporal workflow, the memory is a session.

A runner holds names only: its agent's, its conversation's, and those of the tasks that it was asked
for. The blocking methods run on Holdfast's own loop, so they also work in notebooks and in threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from holdfast.agents.agent import Agent
from holdfast.client.blocking import AgentRunner as Durable
from holdfast.engine.loop import shared_loop
from holdfast.errors import InvalidArgumentError
from holdfast.llama_index.blocking import blocking, on_shared_loop
from holdfast.llama_index.llms.messages import to_message
from holdfast.llama_index.llms.openai import default_callbacks, default_llm
from holdfast.llama_index.memory import memory_of
from holdfast.llama_index.program import current_program
from holdfast.llama_index.streaming import StreamingAgentChatResponse
from holdfast.llama_index.tasks import Tasks
from holdfast.llama_index.values import (
    AgentChatResponse,
    Task,
    TaskStep,
    TaskStepOutput,
    output_view,
    step_view,
)
from holdfast.llama_index.workers.base import (
    AGENTS,
    RUNNER,
    BaseAgentWorker,
    MadeOfTools,
    options_of_runner,
    worker_of,
)
from holdfast.llama_index.workers.react import ReActAgentWorker
from holdfast.llama_index.workers.tools import (
    CoAAgentWorker,
    FunctionCallingAgentWorker,
    OpenAIAgentWorker,
    ToolAgentWorker,
)
from holdfast.models.choices import ToolChoice
from holdfast.models.libraries.llama_index import LlamaIndexModel, as_model
from holdfast.values import steps
from holdfast.values.steps import UndoReceipt
from holdfast.values.text.shown import shown


def id_of(task: Task | str) -> str:
    """Return the id of a task, given as a Task or by its id.

    Raises:
        InvalidArgumentError: It is neither.
    """
    given: object = getattr(task, "task_id", task)
    if isinstance(given, str):
        return given
    raise InvalidArgumentError(f"A task is given as a Task or by its id; this is {shown(task)}.")


class TaskState(Task):
    """A task as a runner lists it, with its steps; these are read when they are asked for.

    Attributes:
        task: The task itself.
    """

    def __init__(self, task: Task, reads: TaskReads) -> None:
        """Take the task, and what reads its steps."""
        super().__init__(
            task.task_id, task.input, task.memory, task.extra_state, task.callback_manager
        )
        self.task = task
        self._reads = reads

    @property
    def completed_steps(self) -> list[TaskStepOutput]:
        """The outputs of the completed steps, oldest first."""
        return self._reads.get_completed_steps(self.task_id)

    @property
    def step_queue(self) -> deque[TaskStep]:
        """The step in progress and the queued ones, in order."""
        return self._reads.get_step_queue(self.task_id)


class TaskReads:
    """The part of AgentRunner that reads tasks, and that reads and changes prompts.

    Attributes:
        agent_worker: The step logic.
    """

    agent_worker: BaseAgentWorker
    _tasks: Tasks

    @blocking
    async def list_tasks(self, **_: Any) -> list[TaskState]:
        """List the tasks of this run of the program, the newest last."""
        listed = await self._tasks.list()
        return [TaskState(await self._tasks.describe(each), self) for each in listed]

    @blocking
    async def get_task(self, task_id: Task | str, **_: Any) -> Task:
        """Describe a task.

        Raises:
            KeyError: There is no such task.
        """
        return await self._tasks.describe(id_of(task_id))

    @blocking
    async def get_upcoming_steps(self, task_id: Task | str, **_: Any) -> list[TaskStep]:
        """List the step in progress and the queued ones, in order."""
        return [step_view(each) for each in await self._tasks.upcoming(id_of(task_id))]

    def get_step_queue(self, task_id: Task | str, **_: Any) -> deque[TaskStep]:
        """Return what `get_upcoming_steps` lists."""
        return deque(self.get_upcoming_steps(task_id))

    @property
    def task_dict(self) -> dict[str, TaskState]:
        """The tasks by id, the newest last."""
        return {each.task_id: each for each in self.list_tasks()}

    async def _completed(self, task_id: str) -> list[TaskStepOutput]:
        runner = await self._tasks.connect()
        return await self._views(await runner.get_completed_steps(task_id))

    async def _views(self, outputs: Sequence[steps.TaskStepOutput]) -> list[TaskStepOutput]:
        """Show outputs of steps; a last one has all results of tools of those before it."""
        worker = self.agent_worker
        views: list[TaskStepOutput] = []
        before: list[steps.ToolOutput] = []
        for output, own in await self._tasks.with_records(outputs):
            view = output_view(
                output,
                observes=worker.observes,
                before=before,
                gives_data=worker.gives_data,
                own=own,
            )
            views.append(view)
            before += output.sources
        return views

    async def _shown(self, task_id: str, output: steps.TaskStepOutput) -> TaskStepOutput:
        """Show the output of a step that was run; the last one has all results of tools."""
        if output.is_last:
            for each in await self._completed(task_id):
                if each.task_step.step_id == output.task_step.step_id:
                    return each
        return (await self._views([output]))[0]

    @blocking
    async def get_completed_steps(self, task_id: Task | str, **_: Any) -> list[TaskStepOutput]:
        """List the outputs of the completed steps, oldest first."""
        return await self._completed(id_of(task_id))

    def get_completed_step(self, task_id: Task | str, step_id: str, **_: Any) -> TaskStepOutput:
        """Return the output of one completed step.

        Raises:
            ValueError: There is no such id.
        """
        for output in self.get_completed_steps(task_id):
            if output.task_step.step_id == step_id:
                return output
        raise ValueError(f"Could not find step_id: {step_id}")

    def get_task_output(self, task_id: Task | str, **_: Any) -> TaskStepOutput:
        """Return the output of the newest completed step.

        Raises:
            ValueError: No step is completed.
        """
        outputs = self.get_completed_steps(task_id)
        if not outputs:
            raise ValueError(f"No completed steps for task_id: {id_of(task_id)}")
        return outputs[-1]

    def get_completed_tasks(self, **_: Any) -> list[Task]:
        """List the tasks that have their answer, finalized or not."""
        return [each.task for each in self.list_tasks() if self._is_answered(each.task_id)]

    def _is_answered(self, task_id: str) -> bool:
        outputs = self.get_completed_steps(task_id)
        return bool(outputs) and outputs[-1].is_last

    @blocking
    async def delete_task(self, task_id: Task | str) -> None:
        """Delete a task with its record; what the conversation has of it stays.

        Raises:
            KeyError: There is no such task.
        """
        await self._tasks.delete(id_of(task_id))

    # ---- prompts

    def get_prompts(self) -> dict[str, Any]:
        """Return the prompts that may be changed: "agent_worker:system_prompt" and so on."""
        found = self.agent_worker.get_prompts()
        return {f"agent_worker:{name}": prompt for name, prompt in found.items()}

    def update_prompts(self, prompts: Mapping[str, Any]) -> None:
        """Change prompts, for the steps that follow.

        Raises:
            ValueError: There is no such name.
        """
        own = {name.removeprefix("agent_worker:"): prompt for name, prompt in prompts.items()}
        self.agent_worker.update_prompts(own)


class BaseAgent(TaskReads):
    """What every agent of this package is, for `isinstance`."""


class AgentRunner(BaseAgent):
    """Runs an agent: whole chats, or tasks step by step.

    Attributes:
        agent_worker: The step logic.
        memory: The conversation.
        default_tool_choice: Tool choice of the first step of a chat.
        init_task_state_kwargs: State that each task begins with.
        delete_task_on_finish: Whether a finalized task is not listed any more; its record stays.
        callback_manager: Kept, and handed to step logic of your own.
        verbose: Whether the events of each task are printed.
    """

    def __init__(
        self,
        agent_worker: Any,
        chat_history: Sequence[Any] | None = None,
        state: Any = None,
        memory: Any = None,
        llm: Any = None,
        callback_manager: Any = None,
        init_task_state_kwargs: Mapping[str, Any] | None = None,
        delete_task_on_finish: bool = False,
        default_tool_choice: ToolChoice = "auto",
        verbose: bool = False,
        **options: Any,
    ) -> None:
        """Make the agent; the engine is started when it is first needed.

        Args:
            agent_worker: The step logic: a worker of this package or of Holdfast, a worker of your
                own with LlamaIndex's methods, or an Agent of Holdfast.
            chat_history: Messages that the conversation begins with.
            state: Taken and not used: the state of tasks is Temporal's.
            memory: The conversation: a session's name, a Session, or a memory whose messages it
                begins with. By default a session of this run of the program.
            llm: The model of a worker that has none.
            callback_manager: Kept, and handed to step logic of your own.
            init_task_state_kwargs: State that each task begins with.
            delete_task_on_finish: Whether lists leave a finalized task out.
            default_tool_choice: Tool choice of the first step of a chat.
            verbose: Whether the events of each task are printed.
            options: Fields of the Agent, for an AgentWorker of Holdfast: tools and so on.

        Raises:
            InvalidArgumentError: The worker cannot be run, or both a memory with messages and a
                history are given.
        """
        del state
        self.agent_worker: BaseAgentWorker = worker_of(agent_worker, **options)
        self.default_tool_choice = default_tool_choice
        self.init_task_state_kwargs = dict(init_task_state_kwargs or {})
        self.delete_task_on_finish = delete_task_on_finish
        self.verbose = verbose
        known = getattr(self.agent_worker, "callback_manager", None)
        self.callback_manager = callback_manager or known or default_callbacks()
        if self.callback_manager is not known:
            self.agent_worker.set_callback_manager(self.callback_manager)
        prints = verbose or bool(getattr(agent_worker, "verbose", False))
        self._tasks = Tasks(self.agent_worker, current_program(), llm, verbose=prints)
        name = self._tasks.program.session(self._tasks.agent.name)
        self.memory, begins = memory_of(memory, self._tasks.connect, name)
        if begins and chat_history:
            msg = "Cannot specify both a memory with messages and chat_history"
            raise InvalidArgumentError(msg)
        self.memory.begin_with(begins or [to_message(each) for each in chat_history or ()])
        self._tasks.memory = self.memory

    @classmethod
    def from_llm(
        cls, tools: Sequence[Any] | None = None, llm: Any = None, **options: Any
    ) -> AgentRunner:
        """Make an agent for a model: an OpenAIAgent if it calls functions, else a ReActAgent."""
        model = as_model(default_llm(llm))
        is_plain = isinstance(model, LlamaIndexModel) and not model.calls_functions
        agent = AGENTS[ReActAgentWorker if is_plain else OpenAIAgentWorker]
        made: AgentRunner = agent(tools, llm=llm, **options)
        return made

    @property
    def agent(self) -> Agent[Any]:
        """The agent of Holdfast."""
        return self._tasks.agent

    @property
    def durable(self) -> Durable:
        """The runner of Holdfast, for all else: approvals, feedback, undo, fork, audit."""
        return Durable(shared_loop().run(self._tasks.connect()))

    @property
    def state(self) -> Self:
        """The runner itself, which knows the state of its tasks."""
        return self

    # ---- the conversation

    @property
    def chat_history(self) -> list[Any]:
        """The messages of the conversation, oldest first."""
        return self.memory.get_all()

    def reset(self) -> None:
        """Begin a new conversation, and stop listing the tasks so far; their records stay."""
        self.memory.reset()
        self._tasks.forget_all()

    async def _chat(
        self,
        message: str,
        chat_history: Sequence[Any] | None,
        tool_choice: ToolChoice | None,
        *,
        remembers: bool = True,
    ) -> AgentChatResponse:
        if chat_history is not None and remembers:
            await self.memory.aset(chat_history)
        task_id = await self._create(message, {}, tool_choice, remembers=remembers)
        response = await self._tasks.answer(await self._run(task_id))
        self._finished(task_id)
        return response

    async def _create(
        self,
        input: str,
        options: Mapping[str, Any],
        tool_choice: ToolChoice | None,
        *,
        remembers: bool = True,
        streams: bool = False,
    ) -> str:
        given = options.get("extra_state")
        if given and self.init_task_state_kwargs:
            raise ValueError("Cannot specify both `extra_state` and `init_task_state_kwargs`")
        choice = self.default_tool_choice if tool_choice is None else tool_choice
        await self.memory.abegin()
        return await self._tasks.create(
            input,
            task_id=options.get("task_id"),
            extra_state=given or self.init_task_state_kwargs,
            tool_choice=choice,
            remembers=remembers,
            streams=streams,
        )

    async def _run(self, task_id: str) -> Any:
        """Run a task to its end; a runner with another order of steps has its own way."""
        return await self._tasks.run_task(task_id)

    def _finished(self, task_id: str) -> None:
        if self.delete_task_on_finish:
            self._tasks.forget(task_id)

    @on_shared_loop
    async def achat(
        self,
        message: str,
        chat_history: Sequence[Any] | None = None,
        tool_choice: ToolChoice | None = None,
    ) -> AgentChatResponse:
        """Run a task to its answer.

        Args:
            message: The request.
            chat_history: Replaces the conversation first.
            tool_choice: "auto", "none", "required", a tool's name or dict; for the first step.
        """
        return await self._chat(message, chat_history, tool_choice)

    chat = blocking(achat)
    """Do what `achat` does, and block."""

    @on_shared_loop
    async def astream_chat(
        self,
        message: str,
        chat_history: Sequence[Any] | None = None,
        tool_choice: ToolChoice | None = None,
    ) -> StreamingAgentChatResponse:
        """Do what `achat` does, and return at once: the answer is read as it is made."""
        if chat_history is not None:
            await self.memory.aset(chat_history)
        task_id = await self._create(message, {}, tool_choice, streams=True)
        reads_react = self.agent_worker.observes
        stream = StreamingAgentChatResponse(self._tasks, task_id, reads_react=reads_react)
        await stream.start()
        return stream

    stream_chat = blocking(astream_chat)
    """Do what `astream_chat` does, and block until it has begun."""

    @on_shared_loop
    async def aquery(self, query: Any) -> AgentChatResponse:
        """Answer a question on its own: the conversation is neither read nor changed."""
        asked = str(getattr(query, "query_str", query))
        return await self._chat(asked, None, None, remembers=False)

    query = blocking(aquery)
    """Do what `aquery` does, and block."""

    def chat_repl(self) -> None:
        """Chat with a person at the terminal, in a new conversation, until "exit"."""
        self._repl(streams=False)

    def streaming_chat_repl(self) -> None:
        """Do what `chat_repl` does, and print the answers as they are made."""
        self._repl(streams=True)

    def _repl(self, *, streams: bool) -> None:
        print("===== Entering Chat REPL =====")
        print('Type "exit" to exit.\n')
        self.reset()
        while (message := input("Human: ")) != "exit":
            if streams:
                print("Assistant: ", end="", flush=True)
                self.stream_chat(message).print_response_stream()
                print("\n")
            else:
                print(f"Assistant: {self.chat(message)}\n")

    # ---- tasks and steps

    @on_shared_loop
    async def acreate_task(self, input: str, **options: Any) -> Task:
        """Create a task; it is durable once this returns.

        Args:
            input: The request.
            options: `task_id` and `extra_state`.

        Raises:
            ValueError: Both extra_state and init_task_state_kwargs are given.
        """
        task_id = await self._create(input, options, options.get("tool_choice") or "auto")
        return await self._tasks.describe(task_id)

    create_task = blocking(acreate_task)
    """Do what `acreate_task` does, and block."""

    @on_shared_loop
    async def arun_step(
        self,
        task_id: Task | str,
        input: str | None = None,
        step: TaskStep | None = None,
        **options: Any,
    ) -> TaskStepOutput:
        """Run the next step of a task.

        Args:
            task_id: The task.
            input: What a person says: for ReAct in the middle an observation, else a message.
            step: The queued step to run, instead of the first.
            options: `tool_choice`, for this step.

        Raises:
            ValueError: Both step and input are given.
            KeyError: There is no such task.
            IndexError: No step is left.
        """
        if step is not None and input is not None:
            raise ValueError("Cannot specify both `step` and `input`")
        wanted = None if step is None else step.step_id
        output = await self._tasks.run_step(
            id_of(task_id), input, wanted, options.get("tool_choice")
        )
        return await self._shown(id_of(task_id), output)

    run_step = blocking(arun_step)
    """Do what `arun_step` does, and block."""

    stream_step = run_step
    """Do what `run_step` does: `output.output.response_gen` gives the text in one piece."""

    astream_step = arun_step

    @on_shared_loop
    async def afinalize_response(
        self, task_id: Task | str, step_output: TaskStepOutput | None = None
    ) -> AgentChatResponse:
        """Commit an answered task to the conversation, and return its answer.

        Raises:
            ValueError: The last completed step is not the last of the task.
        """
        if step_output is not None and not step_output.is_last:
            raise ValueError("finalize_response can only be called on the last step output")
        response = await self._tasks.answer(await self._tasks.finalize(id_of(task_id)))
        self._finished(id_of(task_id))
        return response

    finalize_response = blocking(afinalize_response)
    """Do what `afinalize_response` does, and block."""

    @blocking
    async def undo_step(self, task_id: Task | str) -> UndoReceipt:
        """Undo the newest step with its effects, see `holdfast.AgentRunner.undo_step`."""
        return await self._tasks.undo_step(id_of(task_id))


RUNNER.append(AgentRunner)


class _WorkerAgent(MadeOfTools, AgentRunner):
    """A runner that makes its worker of tools."""

    worker_class: ClassVar[type[ToolAgentWorker]]

    def __init_subclass__(cls) -> None:
        """Be the agent that `AgentRunner.from_llm` makes with this worker."""
        super().__init_subclass__()
        AGENTS.setdefault(cls.worker_class, cls.from_tools)

    def __init__(self, tools: Sequence[Any] = (), llm: Any = None, **options: Any) -> None:
        """Make the worker, then the runner.

        Args:
            tools: The tools.
            llm: The model.
            options: Those of AgentRunner, and all of the worker's.
        """
        own = options_of_runner(options)
        worker = self.worker_class(tools or (), llm, **options)
        super().__init__(worker, **own)


class OpenAIAgent(_WorkerAgent):
    """Function calling with OpenAI's models."""

    worker_class = OpenAIAgentWorker


class FunctionCallingAgent(_WorkerAgent):
    """Function calling with any model that can."""

    worker_class = FunctionCallingAgentWorker


class ReActAgent(_WorkerAgent):
    """Thought, action and observation as text, for any model."""

    worker_class = ReActAgentWorker


class CoAAgentPack:
    """An agent that reasons with placeholders, and one method to run it.

    Attributes:
        agent: The agent.
    """

    def __init__(self, tools: Sequence[Any] | None = None, llm: Any = None, **options: Any) -> None:
        """Make the agent; the options are those of CoAAgentWorker."""
        self.agent = AgentRunner(CoAAgentWorker.from_tools(tools, llm=llm, **options))

    def get_modules(self) -> dict[str, Any]:
        """Return the parts by name."""
        return {"agent": self.agent, "worker": self.agent.agent_worker}

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Chat with the agent."""
        return self.agent.chat(*args, **kwargs)


class ParallelAgentRunner(AgentRunner):
    """Runs all steps that are ready at the same time."""

    async def _round(self, task_id: str) -> list[TaskStepOutput]:
        outputs = await self._tasks.run_round(task_id)
        return [await self._shown(task_id, each) for each in outputs]

    @on_shared_loop
    async def arun_steps_in_queue(self, task_id: Task | str, **_: Any) -> list[TaskStepOutput]:
        """Run all steps that are ready, and return their outputs in the order of the queue.

        Raises:
            IndexError: No step is left.
        """
        return await self._round(id_of(task_id))

    run_steps_in_queue = blocking(arun_steps_in_queue)
    """Do what `arun_steps_in_queue` does, and block."""

    async def _run(self, task_id: str) -> steps.AgentResponse:
        """Run round after round until one has the answer.

        Raises:
            ValueError: More than one step gave an answer.
        """
        outputs: list[TaskStepOutput] = []
        while not any(output.is_last for output in outputs):
            outputs = await self._round(task_id)
        if len(outputs) > 1:
            raise ValueError("More than one step output returned in final step.")
        return await self._tasks.finalize(task_id)
