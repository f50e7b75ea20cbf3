"""StructuredPlannerAgent: a plan of sub-tasks, each a task of its own, by any worker."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.agents.agent import Agent
from holdfast.agents.tools.decorator import to_tool
from holdfast.errors import InvalidArgumentError
from holdfast.llama_index.agent_runner import AgentRunner, TaskState, id_of
from holdfast.llama_index.blocking import blocking, on_shared_loop
from holdfast.llama_index.llms.messages import PromptTemplate, filled, template_text
from holdfast.llama_index.llms.openai import default_llm
from holdfast.llama_index.tasks import Tasks
from holdfast.llama_index.values import AgentChatResponse, Task
from holdfast.llama_index.workers.base import HoldfastWorker
from holdfast.models.choices import ToolChoice
from holdfast.values.messages import user
from holdfast.workers.base import FunctionAgentWorker
from holdfast.workers.plan_and_solve.plan import (
    PLAN_OUTPUT,
    Plan,
    SubTask,
    check,
    default_plan,
    merge,
    read_plan,
)
from holdfast.workers.plan_and_solve.prompts import FORM, PLAN_PROMPT, REFINE_PROMPT

if TYPE_CHECKING:
    from holdfast.workers.context.context import StepContext

__all__ = ["Plan", "PlannerAgentState", "StructuredPlannerAgent", "SubTask"]

INITIAL = f"{PLAN_PROMPT}\n\nTools:\n{{tools_str}}\n\nRequest: {{task}}"
REFINED = (
    f"{REFINE_PROMPT}\n\nTools:\n{{tools_str}}\n\nRequest: {{task}}\n\nDone:\n{{completed_outputs}}"
    "\n\nRemaining sub-tasks:\n{remaining_sub_tasks}"
)


async def make_plan(prompt: str, ctx: StepContext) -> str:
    """Ask the model for a plan."""
    instructions = "" if FORM in prompt else FORM
    answer = await ctx.call_model(
        [user(prompt)], tools=(), output_type=PLAN_OUTPUT, instructions=instructions
    )
    return answer.text or "[]"


class PlannerAgentState:
    """The plans of a StructuredPlannerAgent, and what of them is done.

    Attributes:
        plan_dict: The plans by id.
        completed_sub_tasks: Names of what is done, by plan id.
    """

    def __init__(self, agent: StructuredPlannerAgent) -> None:
        """Begin without plans."""
        self._agent = agent
        self.plan_dict: dict[str, Plan] = {}
        self.completed_sub_tasks: dict[str, list[str]] = {}

    def get_completed_sub_tasks(self, plan_id: str) -> list[SubTask]:
        """List the sub-tasks that are done."""
        done = self.completed_sub_tasks.setdefault(plan_id, [])
        return [each for each in self.plan_dict[plan_id].sub_tasks if each.name in done]

    def get_remaining_subtasks(self, plan_id: str) -> list[SubTask]:
        """List the sub-tasks that are not done."""
        done = self.completed_sub_tasks.setdefault(plan_id, [])
        return [each for each in self.plan_dict[plan_id].sub_tasks if each.name not in done]

    def get_next_sub_tasks(self, plan_id: str) -> list[SubTask]:
        """List the sub-tasks whose dependencies are done."""
        done = self.completed_sub_tasks.setdefault(plan_id, [])
        left = self.get_remaining_subtasks(plan_id)
        return [each for each in left if all(name in done for name in each.dependencies)]

    def add_completed_sub_task(self, plan_id: str, sub_task: SubTask) -> None:
        """Note that a sub-task is done."""
        self.completed_sub_tasks.setdefault(plan_id, []).append(sub_task.name)

    def get_task(self, task_id: str) -> Task:
        """Describe a task, or make and describe that of a sub-task by its name."""
        return self._agent.get_task(task_id)

    @property
    def task_dict(self) -> dict[str, TaskState]:
        """The tasks by id, the newest last."""
        return self._agent.task_dict

    def reset(self) -> None:
        """Forget all plans."""
        self.plan_dict.clear()
        self.completed_sub_tasks.clear()


class StructuredPlannerAgent(AgentRunner):
    """Plans a request, does the sub-tasks by any worker, and refines the plan between them.

    The plan is the answer of a task; each sub-task is a task, made when it is first named. They
    share the conversation, so that one sees what those before it found. The last sub-task's answer
    is the answer.
    """

    def __init__(
        self,
        agent_worker: Any,
        tools: Sequence[Any] | None = None,
        tool_retriever: Any = None,
        initial_plan_prompt: Any = INITIAL,
        plan_refine_prompt: Any = REFINED,
        llm: Any = None,
        **options: Any,
    ) -> None:
        """Make the agent.

        Args:
            agent_worker: Does the sub-tasks.
            tools: Tools that the planner knows.
            tool_retriever: Chooses among tools, instead of `tools`.
            initial_plan_prompt: Asks for a plan; it may have `{tools_str}` and `{task}`.
            plan_refine_prompt: Asks for the rest of a plan; it may have `{completed_outputs}` and
                `{remaining_sub_tasks}` as well.
            llm: The planner's model; the worker's by default.
            options: Those of AgentRunner.

        Raises:
            ValueError: Both tools and a retriever are given.
        """
        if tools and tool_retriever is not None:
            raise ValueError("Cannot specify both tools and tool_retriever")
        super().__init__(agent_worker, llm=llm, **options)
        self.plans = PlannerAgentState(self)
        self.tools = list(tools or ())
        self.tool_retriever = tool_retriever
        self._prompts = {
            "initial_plan_prompt": template_text(initial_plan_prompt),
            "plan_refine_prompt": template_text(plan_refine_prompt),
        }
        model = llm or getattr(self.agent_worker, "llm", None)
        name = self._tasks.program.agent("planner")
        worker = FunctionAgentWorker(make_plan)
        planner = Agent[Any](name=name, model=default_llm(model), worker=worker)
        self._planning = Tasks(HoldfastWorker(planner, {}), self._tasks.program, None)
        self._named: dict[str, tuple[str, SubTask]] = {}

    @property
    def state(self) -> Any:
        """The plans, and what of them is done."""
        return self.plans

    def get_prompts(self) -> dict[str, Any]:
        """Return the prompts that may be changed."""
        own = {name: PromptTemplate(text) for name, text in self._prompts.items()}
        return {**own, **super().get_prompts()}

    def update_prompts(self, prompts: Mapping[str, Any]) -> None:
        """Change prompts."""
        own = {name: each for name, each in prompts.items() if name in self._prompts}
        self._prompts.update({name: template_text(each) for name, each in own.items()})
        super().update_prompts({name: each for name, each in prompts.items() if name not in own})

    def get_tools(self, input: str) -> list[Any]:
        """Return the tools; with a retriever, the ones it chooses for an input."""
        retriever = self.tool_retriever
        return self.tools if retriever is None else list(retriever.retrieve(input))

    # ---- plans

    async def _ask(self, name: str, input: str, **parts: str) -> tuple[str, str]:
        """Ask the planner; return the id of its task, and what it says."""
        tools = [to_tool(each) for each in await asyncio.to_thread(self.get_tools, input)]
        listed = "\n".join(f"- {each.name}: {' '.join(each.description.split())}" for each in tools)
        prompt = filled(self._prompts[name], {"tools_str": listed, "task": input, **parts})
        task_id = await self._planning.create(prompt, remembers=False)
        return task_id, (await self._planning.run_task(task_id)).response

    async def _plan(self, input: str) -> str:
        plan_id, said = await self._ask("initial_plan_prompt", input)
        try:
            plan = read_plan(said)
            check(plan)
        except InvalidArgumentError:
            plan = default_plan(input)
        self._keep(plan_id, plan, "Initial plan")
        return plan_id

    def _keep(self, plan_id: str, plan: Plan, title: str) -> None:
        self.plans.plan_dict[plan_id] = plan
        for each in plan.sub_tasks:
            self._named[each.name] = (plan_id, each)
        if self.verbose:
            print(f"=== {title} ===")
            for each in self.plans.get_remaining_subtasks(plan_id):
                print(f"{each.name}:\n{each.input} -> {each.expected_output}")
                print(f"deps: {list(each.dependencies)}\n")

    @on_shared_loop
    async def acreate_plan(self, input: str, **_: Any) -> str:
        """Make a plan; return its id."""
        return await self._plan(input)

    create_plan = blocking(acreate_plan)
    """Do what `acreate_plan` does, and block."""

    async def _refine(self, plan_id: str, input: str, done: Sequence[tuple[SubTask, Any]]) -> None:
        rest = [each.model_dump() for each in self.plans.get_remaining_subtasks(plan_id)]
        outputs = "\n\n".join(f"{each.name}:\n{response}" for each, response in done)
        _, said = await self._ask(
            "plan_refine_prompt",
            input,
            completed_outputs=outputs,
            remaining_sub_tasks=json.dumps(rest, ensure_ascii=False, indent=1),
        )
        finished = self.plans.completed_sub_tasks.setdefault(plan_id, [])
        try:
            plan = merge(self.plans.plan_dict[plan_id], finished, read_plan(said))
        except InvalidArgumentError:
            return  # the plan as it is will do
        self._keep(plan_id, plan, "Refined plan")

    async def _found(self, plan_id: str) -> list[tuple[SubTask, Any]]:
        """Return the sub-tasks that are done, with what they gave: nothing where none was run."""
        pairs: list[tuple[SubTask, Any]] = []
        for each in self.plans.get_completed_sub_tasks(plan_id):
            made = _made_name(plan_id, each)
            outputs = await self._completed(made) if self._tasks.has_made(made) else []
            pairs.append((each, outputs[-1] if outputs else ""))
        return pairs

    @on_shared_loop
    async def arefine_plan(
        self,
        input: str,
        plan_id: str,
        completed_sub_task_pairs: Sequence[tuple[SubTask, Any]] | None = None,
        **_: Any,
    ) -> None:
        """Have the rest of a plan looked at, in the light of what is done.

        Args:
            input: The request.
            plan_id: The plan. Both may be given in the order of 0.10, the plan first.
            completed_sub_task_pairs: Sub-tasks that are done, and their responses; by default the
                ones marked as done.

        Raises:
            InvalidArgumentError: There is no such plan.
        """
        if input in self.plans.plan_dict:
            input, plan_id = plan_id, input
        if plan_id not in self.plans.plan_dict:
            msg = f"There is no plan {plan_id!r}. create_plan returns the id of one."
            raise InvalidArgumentError(msg)
        done = completed_sub_task_pairs
        await self._refine(plan_id, input, await self._found(plan_id) if done is None else done)

    refine_plan = blocking(arefine_plan)
    """Do what `arefine_plan` does, and block."""

    def get_next_tasks(self, plan_id: str, **_: Any) -> list[str]:
        """List the names of the sub-tasks whose dependencies are done."""
        return [each.name for each in self.plans.get_next_sub_tasks(plan_id)]

    def mark_task_complete(self, plan_id: str, task_id: str, **_: Any) -> None:
        """Note that a sub-task, given by its name, is done.

        Raises:
            KeyError: The plan has no sub-task of this name.
        """
        named = {each.name: each for each in self.plans.plan_dict[plan_id].sub_tasks}
        self.plans.add_completed_sub_task(plan_id, named[task_id])

    # ---- sub-tasks

    async def _known(self, task_id: str) -> str:
        """Return the id of a task; that of a sub-task, given by its name, is made when needed."""
        if task_id not in self._named:
            return task_id
        plan_id, sub_task = self._named[task_id]
        made = _made_name(plan_id, sub_task)
        if not self._tasks.has_made(made):
            await self.memory.abegin()
            await self._tasks.create(sub_task.input, task_id=made)
        return made

    @blocking
    async def get_task(self, task_id: Task | str, **_: Any) -> Task:
        """Describe a task, given by its id or by the name of its sub-task."""
        return await self._tasks.describe(await self._known(id_of(task_id)))

    @on_shared_loop
    async def arun_task(self, task_id: Task | str, **_: Any) -> AgentChatResponse:
        """Run a task, given by its id or by the name of its sub-task, to its answer."""
        task = await self._known(id_of(task_id))
        return await self._tasks.answer(await self._tasks.run_task(task))

    run_task = blocking(arun_task)
    """Do what `arun_task` does, and block."""

    async def _chat(
        self,
        message: str,
        chat_history: Sequence[Any] | None,
        tool_choice: ToolChoice | None,
        *,
        remembers: bool = True,
    ) -> AgentChatResponse:
        """Plan, and do what can be done side by side, until nothing is left."""
        del tool_choice, remembers
        if chat_history is not None:
            await self.memory.aset(chat_history)
        plan_id = await self._plan(message)
        done: list[tuple[SubTask, Any]] = []
        while following := self.plans.get_next_sub_tasks(plan_id):
            responses = await asyncio.gather(*(self.arun_task(each.name) for each in following))
            for sub_task, response in zip(following, responses, strict=True):
                self.plans.add_completed_sub_task(plan_id, sub_task)
                done.append((sub_task, response))
            if self.plans.get_next_sub_tasks(plan_id):
                await self._refine(plan_id, message, done)
        if not done:
            return AgentChatResponse("There was nothing to do.")
        last: AgentChatResponse = done[-1][1]
        return last


def _made_name(plan_id: str, sub_task: SubTask) -> str:
    """Name the task of a sub-task."""
    digest = hashlib.sha256(sub_task.name.encode()).hexdigest()[:32]
    return f"{plan_id}.{digest}"
