"""Prompts of PlanAndSolveAgentWorker.

The idea of asking for a plan before the work is that of plan-and-solve prompting (Wang et al. 2023,
arXiv:2305.04091); a plan made of sub-tasks with dependencies is that of LlamaIndex's structured
planner. The words are ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from holdfast.models.base import ToolSpec
from holdfast.values.base import Json
from holdfast.values.messages import ImagePart, Message, TextPart, user
from holdfast.workers.plan_and_solve.plan import Plan, SubTask

FORM = """\
Write the plan as one JSON object and nothing else:
{"sub_tasks": [{"name": "...", "input": "...", "expected_output": "...", "dependencies": ["..."]}]}
- name: short, and different from every other name.
- input: complete instructions. Whoever does the sub-task sees the request, these instructions and
  the results of its dependencies, but neither the conversation nor the rest of the plan.
- expected_output: what the result should contain.
- dependencies: names of the sub-tasks whose results are needed first; [] when there are none."""

PLAN_PROMPT = """\
Do not answer the last request yet: plan how to. Split it into sub-tasks, as few as do the job.
Sub-tasks that do not need each other's results are done at the same time, so name a dependency only
where a result is really needed. Let the plan end with one sub-task whose result answers the whole
request. A request that needs no splitting is a plan of one sub-task."""

REFINE_PROMPT = """\
Part of the plan for this request is done. Look at the results, and write down what is left to do:
keep the remaining sub-tasks as they are, or change, add or drop some where the results call for it.
Leave out what is done; its names may be used as dependencies, and its results are there. Let the
rest end with one sub-task whose result answers the whole request. If the results answer the request
already, write an empty list."""

OUT_OF_TURNS = (
    "This sub-task has used up its turns. Give its result now, without tools: what is known, and"
    " what is missing."
)

_ANSWER = """\
The sub-tasks of the plan for this request are done. Answer the request now, from these results:"""

_ONE_PART = """\
Do one sub-task of a larger request. Others do the rest: work on this part only, and answer with its
result alone."""


def tool_list(tools: Sequence[ToolSpec]) -> str:
    """List the tools for the planner, one per line."""
    lines = [f"- {tool.name}: {' '.join(tool.description.split())}" for tool in tools]
    return "Tools for the sub-tasks:\n" + ("\n".join(lines) or "none")


def planning(instructions: str, prompt: str, tools: Sequence[ToolSpec]) -> str:
    """Make the planner's system prompt: the agent's instructions, the task, tools and form."""
    return "\n\n".join(filter(None, (instructions, prompt, tool_list(tools), FORM)))


def complaint(problem: str) -> Message:
    """Make the message that asks for another plan and says why this one cannot be used."""
    return user(f"This plan cannot be used. {problem} Write the whole plan again.\n\n{FORM}")


def refining(plan: Plan, outputs: Mapping[str, Json]) -> Message:
    """Make the message that shows the results so far and the remaining sub-tasks.

    Args:
        plan: The plan so far.
        outputs: Name to result, for the sub-tasks that are done.
    """
    rest = [each.model_dump() for each in plan.sub_tasks if each.name not in outputs]
    return user(
        f"Done:\n\n{_results(outputs)}\n\nRemaining sub-tasks:\n"
        + json.dumps(rest, ensure_ascii=False, indent=1)
    )


def solving(request: Message, sub_task: SubTask, outputs: Mapping[str, Json]) -> Message:
    """Make the message that asks for one sub-task, with the images of the request.

    Args:
        request: The message that the plan was made for.
        sub_task: The sub-task.
        outputs: Name to result, for its dependencies.
    """
    parts = [
        _ONE_PART,
        f"The request:\n{request.text}",
        f"Sub-task {sub_task.name!r}:\n{sub_task.input}",
    ]
    if sub_task.expected_output:
        parts.append(f"Its result should contain:\n{sub_task.expected_output}")
    if outputs:
        parts.append(f"Results that it builds on:\n\n{_results(outputs)}")
    text = "\n\n".join(parts)
    if not isinstance(request.content, tuple):
        return user(text)
    images = tuple(part for part in request.content if isinstance(part, ImagePart))
    return Message(role="user", content=(TextPart(kind="text", text=text), *images))


def answering(outputs: Mapping[str, Json]) -> Message:
    """Make the message that asks for the answer to the whole request."""
    return user(f"{_ANSWER}\n\n{_results(outputs)}")


def _results(outputs: Mapping[str, Json]) -> str:
    return "\n\n".join(f"Result of {name!r}:\n{as_text(out)}" for name, out in outputs.items())


def as_text(output: Json) -> str:
    """Return an output as text; an edit of the step may have replaced it by other data."""
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
