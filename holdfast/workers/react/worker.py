"""ReAct: the model reasons and acts in text, in rounds of thought, action and observation.

The loop is that of ReAct, arXiv:2210.03629; the words of the prompts are ours. Images may be in the
task's input, in later input, and in tool results.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, assert_never

from holdfast.models.base import ToolSpec
from holdfast.values.checks.gate import check_arguments
from holdfast.values.messages import (
    FilePart,
    ImagePart,
    Message,
    ToolCall,
    assistant,
    shown,
    system,
    user,
)
from holdfast.values.steps import Task, TaskStep, TaskStepOutput
from holdfast.workers.base import AgentWorker, at_least
from holdfast.workers.react.parser import Action, Answer, Parsed, ParseFailure, parse

if TYPE_CHECKING:
    from holdfast.models.base import ModelAnswer
    from holdfast.workers.context.context import StepContext


Prompt = Callable[[str, Sequence[ToolSpec]], str]
"""Makes the system prompt from the agent's instructions and its tools. It must be pure: it is
called again for each model call, and another prompt would not match the step's journal."""

FORMAT = """\
You work towards an answer in rounds: reason, use one tool, read what it gave, and so on until you \
can answer. Write one reply per round, in one of these two forms and nothing else.

To use a tool:

Thought: what is known, what is missing, and why this tool helps
Action: the name of the tool
Action Input: {"argument": "value"}

To finish:

Thought: why this is enough
Answer: the answer, in the language of the question

Rules:
- Each of these keywords begins a line. Put no code fence around a reply.
- An action names one tool of the list below. Its input is one JSON object that fits the tool's \
schema; a tool without arguments gets {}.
- A reply ends after its action input. The tool is run for you, and the next message gives its \
result after "Observation:". Never write an observation yourself.
- An observation may also be a remark of the person you work for.
- If the tools cannot give what is asked, say so in an answer."""

NO_TOOLS = "There are no tools: finish with your first reply."

ANSWER_NOW = system(
    "No more tools can be used for this question. Reply in the form that finishes: say what is"
    " known, and what is missing."
)
WITHOUT_TOOL = system("Use no tool in the next reply.")


def react_instructions(instructions: str, tools: Sequence[ToolSpec]) -> str:
    """Make the system prompt: the agent's own instructions, the reply format, the tools.

    Args:
        instructions: The agent's instructions; may be empty.
        tools: The agent's tools.
    """
    listed = f"Tools:\n\n{described(tools)}" if tools else NO_TOOLS
    return "\n\n".join(part for part in (instructions.strip(), FORMAT, listed) if part)


def described(tools: Sequence[ToolSpec]) -> str:
    """List tools with their descriptions and schemas."""
    return "\n\n".join(map(_describe, tools))


def _describe(tool: ToolSpec) -> str:
    schema = json.dumps(tool.parameters, ensure_ascii=False)
    lines = [f"- {tool.name}", *tool.description.strip().splitlines(), f"Schema: {schema}"]
    return "\n  ".join(lines)


def use_tool(choice: str) -> str:
    """Ask for an action in the next reply.

    Args:
        choice: "required", or a tool's name.
    """
    return "Use a tool in the next reply." if choice == "required" else f"Use {choice} next."


def not_readable(reply: str, failure: ParseFailure) -> str:
    """Make the observation that says why the reply could not be read, and how to write it."""
    del reply
    return (
        f"Nothing was run, because the reply could not be read: {failure.text}. Reply again with"
        ' "Thought:", then either "Action:" and "Action Input:" with one JSON object, or "Answer:".'
    )


def unknown_tool(name: str, known: Sequence[str]) -> str:
    """Make the observation after an action with an unknown tool."""
    tools = f"The tools are: {', '.join(known)}." if known else "There are no tools: answer."
    return f"There is no tool named {name!r}. {tools}"


def refused(action: Action) -> str:
    """Make the observation after an action in a reply that had to do without one."""
    return f"{action.tool} was not run: this reply had to do without a tool."


def unfinished(action: Action, why: str) -> str:
    """Make the task's answer from an action that a limit forbids to run.

    Args:
        action: The model's action.
        why: The limit, as in "the limit of 3 model calls".
    """
    thought = f" Its last thought: {action.thought}" if action.thought else ""
    wish = f"{action.tool} with {action.arguments}"
    return f"There is no final answer: {why} was reached.{thought} It wanted to run {wish} next."


def unread(failure: ParseFailure, why: str) -> str:
    """Make the task's answer from a last reply that cannot be read.

    Args:
        failure: The problem, with the part of the reply that was kept.
        why: The limit, as in "the limit of 3 model calls".
    """
    said = f" The last words were: {failure.said}" if failure.said else ""
    return f"There is no final answer: {why} was reached.{said}"


ParseFailureHandler = Callable[[str, ParseFailure], str]
"""Makes the observation after an unreadable reply, from the reply's text and the failure."""

CALLS = "react_calls"
"""Key of `step_state`: model calls made for this user turn. A step without it begins a turn."""

# Providers do not get the `call_id` of user and assistant messages, so it serves as a mark here:
# finalize_task distinguishes observations, inputs and verbatim answers by it, never by their text.
TURN = "turn"
STEERED = "input"
RETRIED = "format"
VERBATIM = "answer"


def observation(text: str, of: str, images: tuple[ImagePart | FilePart, ...] = ()) -> Message:
    """Make an observation: a user message, because tool messages need native calls.

    Args:
        text: Text of the observation.
        of: Id of its call, or one of the marks above.
        images: Images and files that belong to it.
    """
    return user(f"Observation: {text}", images).model_copy(update={"call_id": of})


class ReActAgentWorker(AgentWorker):
    """ReAct (Yao et al. 2022, arXiv:2210.03629): one model call and at most one tool call a step.

    The model needs no native function calling: the system prompt describes the tools, and `parse`
    reads the model's text. In the conversation, thoughts and actions are assistant messages, and
    results are user messages that begin with "Observation: ".

    The input of a turn's first step is a user message; an input given to a later step is an
    observation. The session keeps the user's message and the answer of each turn.

    A reply that cannot be read is answered by an observation, and the loop goes on. So set
    `max_turns`, or a budget of the task, for a model that may never learn the format.

    Args:
        max_turns: Most model calls for one user turn, or None for no limit. The last call asks for
            an answer; if the model acts all the same, its action is not run, and the answer says so
            and quotes the thought. So there are at most `max_turns - 1` tool calls.
        on_parse_failure: Makes the observation after a reply that cannot be read; None for one that
            says what is wrong and repeats the format. If it raises, the step fails.
        prompt: Makes the system prompt.

    Raises:
        InvalidArgumentError: `max_turns` is not a whole number or less than 1, or another argument
            cannot be called.
    """

    offers_hosted: ClassVar[bool] = False

    def __init__(
        self,
        *,
        max_turns: int | None = None,
        on_parse_failure: ParseFailureHandler | None = None,
        prompt: Prompt = react_instructions,
    ) -> None:
        """Keep the options."""
        if max_turns is not None:
            at_least(1, "max_turns", max_turns)
        given = {"on_parse_failure": on_parse_failure, "prompt": prompt}
        check_arguments(ReActAgentWorker.__init__, **given)
        self.max_turns = max_turns
        self.on_parse_failure = on_parse_failure or not_readable
        self.prompt = prompt

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Call the model once; end the task with its answer, or the step with its action."""
        told = step.message()
        if told is not None:
            _hear(told, step, ctx)
        limit = self._limit(step, ctx)
        note = _note(limit, ctx)
        if note is not None:
            ctx.add(note)
        instructions = self.prompt(ctx.agent.instructions, await ctx.offered_tools())
        answer = await ctx.call_model(tools=(), instructions=instructions)
        if answer.refusal:
            return _ends(answer.text or answer.refusal, step, ctx)
        parsed = parse(answer.text)
        ctx.adds.extend(_said(answer, parsed))
        match parsed:
            case Answer(text=text):
                return TaskStepOutput(output=text, task_step=step, is_last=True)
            case Action() if limit:
                return _ends(unfinished(parsed, limit), step, ctx)
            case Action():
                return await _act(parsed, step, ctx, answer.text)
            case ParseFailure() if limit:
                return _ends(unread(parsed, limit), step, ctx)
            case ParseFailure():
                ctx.add(observation(self.on_parse_failure(answer.text, parsed), RETRIED))
                return _goes_on(answer.text, step)
            case _:
                assert_never(parsed)

    def finalize_task(self, task: Task, transcript: Sequence[Message]) -> Sequence[Message]:
        """Keep the user's message and the answer of each turn."""
        del task
        return turns(transcript)

    def _limit(self, step: TaskStep, ctx: StepContext) -> str:
        """Name the limit that makes the next model call the last one; empty if none does."""
        if ctx.limit_reached:
            return "the budget of the task"
        if self.max_turns is None or _used(step) + 1 < self.max_turns:
            return ""
        return f"the limit of {self.max_turns} model call{'s' if self.max_turns > 1 else ''}"


def turns(transcript: Sequence[Message]) -> list[Message]:
    """Find the user's messages and the answers in a task's transcript.

    The task's input is its first user message, and that of a later turn has a mark: others are
    feedback. A turn without an answer, as after a fork with an input of its own, keeps its user
    message.

    Args:
        transcript: The messages, oldest first.
    """
    kept: list[Message] = []
    asked: list[Message] = []
    waits = True  # the input has no reply yet
    for k, message in enumerate(transcript):
        following = transcript[k + 1] if k + 1 < len(transcript) else None
        if message.role == "user" and message.call_id == TURN:
            asked = [*(() if waits else asked), message.model_copy(update={"call_id": ""})]
        elif message.role == "user" and not message.call_id:
            asked = asked or ([message] if waits else [])
        elif message.role in ("user", "assistant"):
            waits = False
            goes_on = following is not None and following.call_id not in ("", TURN)
            if message.role == "assistant" and not goes_on:
                kept += [*asked, assistant(_answer_text(message))]
                asked, waits = [], True
    return kept


def _hear(told: Message, step: TaskStep, ctx: StepContext) -> None:
    """Add an input: an observation in the middle of a turn, else a user message.

    The task's own input stays unmarked: it equals the message in history, so it is stored once. It
    comes before feedback, because `turns` takes the first user message for the input.
    """
    if CALLS in step.step_state:
        text = told.text or shown(told.content)
        ctx.add(observation(text, STEERED, (*told.images, *told.files)))
    elif ctx.n == 1:
        ctx.adds.insert(0, told)
    else:
        ctx.add(told.model_copy(update={"call_id": TURN}))


def _answer_text(message: Message) -> str:
    parsed = parse(message.text)
    if message.call_id == VERBATIM or not isinstance(parsed, Answer):
        return message.text
    return parsed.text


def _used(step: TaskStep) -> int:
    """Count the model calls made for this user turn."""
    used: int = step.step_state.get(CALLS, 0)
    return used


def _note(limit: str, ctx: StepContext) -> Message | None:
    """Return a note for the next reply, if it needs one; the context adds that of the budget."""
    if ctx.limit_reached:
        return None
    if limit:
        return ANSWER_NOW
    match ctx.tool_choice:
        case "auto":
            return None
        case "none":
            return WITHOUT_TOOL
        case choice:
            return system(use_tool(choice))


def _said(answer: ModelAnswer, parsed: Parsed) -> list[Message]:
    """Return the reply for the transcript: without observations that the model made up.

    An empty reply leaves no message, because providers refuse empty messages.
    """
    if not parsed.said:
        return []
    if answer.text.strip() == parsed.said and not answer.message.calls:
        return [answer.message]
    return [assistant(parsed.said)]


async def _act(action: Action, step: TaskStep, ctx: StepContext, reply: str) -> TaskStepOutput:
    """Run the tool; its result is an observation or, with `return_direct`, the answer."""
    call = ToolCall(id=f"call_{step.step_id}", name=action.tool, arguments=action.arguments)
    policy = ctx.agent.policies.get(action.tool)
    if policy is None:
        known = [tool.name for tool in await ctx.offered_tools()]
        ctx.add(observation(unknown_tool(action.tool, known), call.id))
        return _goes_on(reply, step)
    if ctx.tool_choice == "none":
        ctx.add(observation(refused(action), call.id))
        return _goes_on(reply, step)
    [result] = await ctx.call_tools([call])
    said = result.message
    ctx.add(observation(result.content, call.id, (*said.images, *said.files)))
    if policy.return_direct and not result.is_error:
        return _ends(result.content, step, ctx)
    return _goes_on(reply, step)


def _goes_on(reply: str, step: TaskStep) -> TaskStepOutput:
    state = {**step.step_state, CALLS: _used(step) + 1}
    following = step.get_next_step(step_state=state)
    return TaskStepOutput(output=reply, task_step=step, next_steps=(following,))


def _ends(text: str, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
    """End the turn with a text that is not the model's own `Answer:`."""
    ctx.add(assistant(text).model_copy(update={"call_id": VERBATIM}))
    return TaskStepOutput(output=text, task_step=step, is_last=True)


IMAGES = (
    "There may be images: with the question, with a remark, or with what a tool gave. In a text,"
    " [image ...] marks the place of one; the images themselves come after it, in that order. Tools"
    " cannot see them. If a tool needs to know what an image shows, describe that in the tool's"
    " input."
)
"""Rules for images, added to the ReAct format."""


def multimodal_instructions(instructions: str, tools: Sequence[ToolSpec]) -> str:
    """Make the system prompt: that of ReAct, and the rules for images.

    Args:
        instructions: The agent's instructions; may be empty.
        tools: The agent's tools.
    """
    return f"{react_instructions(instructions, tools)}\n\n{IMAGES}"


class MultimodalReActAgentWorker(ReActAgentWorker):
    """ReAct for a model that sees images; the system prompt has rules for them.

    Images come with the task's input, with an input of a later step (then they are part of an
    observation), or as the result of a tool, which returns an `Image` or a list of texts and
    images. The conversation holds references; the session keeps the user's message with its images
    and the answer, so that a later task sees the images too.

    Args:
        max_turns: As for ReActAgentWorker; so are the other arguments.
        on_parse_failure: Makes the observation after a reply that cannot be read.
        prompt: Makes the system prompt.

    Raises:
        InvalidArgumentError: As for ReActAgentWorker.
    """

    def __init__(
        self,
        *,
        max_turns: int | None = None,
        on_parse_failure: ParseFailureHandler | None = None,
        prompt: Prompt = multimodal_instructions,
    ) -> None:
        """Keep the options."""
        super().__init__(max_turns=max_turns, on_parse_failure=on_parse_failure, prompt=prompt)
