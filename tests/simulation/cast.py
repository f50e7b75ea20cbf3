"""Who plays in a simulation: agents with a model that follows a plan, and the world of their tools.

The request of a task is its plan, as JSON: a list of turns, each a text (an answer) or a list of
calls `[tool, arguments]`. A call of `helper` brings the plan of the child task that it begins.

All code of agents is async: plain functions would run in threads, which no seed repeats.
"""

import json
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, ClassVar

from holdfast import Agent, TaskStep, TaskStepOutput, ToolContext, sleep_until, tool, wait_for_event
from holdfast.agents.tools.context import Effect
from holdfast.agents.tools.decorator import Tool
from holdfast.errors import ModelRequestError, ModelUnavailableError, OutcomeUnknownError
from holdfast.models.base import ModelAnswer, ModelRequest
from holdfast.values.messages import Message, ToolCall, Usage, assistant, user
from holdfast.workers import AgentWorker, StepContext

COST = Usage(requests=1, input_tokens=10, output_tokens=1)


@dataclass
class World:
    """What tools do outside of any task, and what is to go wrong there.

    Attributes:
        done: How often each call took effect, by tool and idempotency key.
        undone: How often each effect was undone, by the same.
        troubles: What goes wrong next, by who meets it: "model", or a tool's name.
        tokens: Tokens of the calls of `order`, oldest first.
    """

    done: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    undone: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    troubles: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    tokens: list[str] = field(default_factory=list[str])

    def reset(self) -> None:
        """Begin anew."""
        self.done.clear()
        self.undone.clear()
        self.troubles.clear()
        self.tokens.clear()

    def trouble(self, who: str) -> str:
        """Return what goes wrong now, once; empty for nothing."""
        waiting = self.troubles.get(who)
        return waiting.pop(0) if waiting else ""

    def act(self, name: str, key: str) -> None:
        """Take effect, unless something goes wrong before; afterwards something may as well.

        Raises:
            Exception: It went wrong.
        """
        trouble = self.trouble(name)
        if trouble == "raises":
            msg = f"{name} is out of order"
            raise ValueError(msg)
        self.done[name, key] += 1
        if trouble == "unknown":
            msg = f"{name} may have happened"
            raise OutcomeUnknownError(msg)

    def take_back(self, name: str, key: str) -> None:
        """Undo an effect, unless something goes wrong.

        Raises:
            Exception: It went wrong.
        """
        trouble = self.trouble(f"undo {name}")
        if trouble == "raises":
            msg = f"{name} cannot be undone now"
            raise ValueError(msg)
        self.undone[name, key] += 1
        if trouble == "unknown":
            msg = f"the undo of {name} may have happened"
            raise OutcomeUnknownError(msg)


def plan_of(messages: Collection[Message]) -> tuple[list[Any], int]:
    """Return the newest plan of a conversation, and the turns that were taken of it."""
    plan: list[Any] = ["nothing to do"]
    taken = 0
    for message in messages:
        if message.role == "user" and message.text.startswith("["):
            plan, taken = json.loads(message.text), 0
        elif message.role == "assistant":
            taken += 1
    return plan, taken


class Planner:
    """A model that follows the plan of its task."""

    name = "planner"

    def __init__(self, world: World) -> None:
        self._world = world

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Take the next turn of the plan.

        Raises:
            ModelUnavailableError: It is the world's trouble.
            ModelRequestError: Likewise.
        """
        trouble = self._world.trouble("model")
        if trouble == "unavailable":
            msg = "The model is not there."
            raise ModelUnavailableError(msg)
        if trouble == "refuses":
            msg = "The model does not take the request."
            raise ModelRequestError(msg)
        plan, taken = plan_of(request.messages)
        return turn_of(plan, taken, can_call=bool(request.tools))


def turn_of(plan: list[Any], taken: int, *, can_call: bool = True) -> ModelAnswer:
    """Return the turn of a plan that follows those that were taken."""
    turn = plan[taken] if taken < len(plan) else "done"
    if isinstance(turn, str) or not can_call:
        return ModelAnswer(message=Message(role="assistant", content=str(turn)), usage=COST)
    calls = tuple(
        ToolCall(id=f"c{taken}.{i}", name=name, arguments=json.dumps(arguments))
        for i, (name, arguments) in enumerate(turn)
    )
    said = Message(role="assistant", calls=calls)
    return ModelAnswer(message=said, usage=COST, finish="tool_calls")


ACTS = {
    "book": "booked {thing}",
    "move": "moved {thing}",
    "pay": "paid {amount}",
    "send": "sent {text}",
    "mark": "marked {text}",
}
"""Tools that change the world, and what they say then."""


def act(world: World, name: str, key: str, arguments: dict[str, Any], state: dict[str, Any]) -> str:
    """Have a tool take effect once more; `book` notes in the task's state what it has booked.

    Raises:
        Exception: It went wrong.
    """
    world.act(name, key)
    if name == "book":
        state["booked"] = [*state.get("booked", []), arguments["thing"]]
    return ACTS[name].format_map(arguments)


def tools_of(world: World) -> dict[str, Tool]:
    """Make the tools, by name."""

    def undo_of(name: str) -> Any:
        async def undo(effect: Effect) -> str:
            world.take_back(name, effect.key)
            return f"took {name} back"

        return undo

    async def is_sent(effect: Effect) -> str | None:
        return "it was sent" if world.done["send", effect.key] else None

    @tool(effect="read")
    async def look(what: str) -> str:
        """Read something."""
        return saw(world, what)

    @tool(undo=undo_of("book"))
    async def book(ctx: ToolContext, thing: str) -> str:
        """Do what can be undone."""
        return act(world, "book", ctx.idempotency_key, {"thing": thing}, ctx.state)

    @tool(undo=undo_of("move"), undo_needs_approval=True)
    async def move(ctx: ToolContext, thing: str) -> str:
        """Do what a person must agree to undo."""
        return act(world, "move", ctx.idempotency_key, {"thing": thing}, ctx.state)

    @tool(needs_approval=True)
    async def pay(ctx: ToolContext, amount: int) -> str:
        """Do what a person must agree to, and nobody can undo."""
        return act(world, "pay", ctx.idempotency_key, {"amount": amount}, ctx.state)

    @tool(probe=is_sent)
    async def send(ctx: ToolContext, text: str) -> str:
        """Do what can be probed."""
        return act(world, "send", ctx.idempotency_key, {"text": text}, ctx.state)

    @tool(idempotent=True)
    async def mark(ctx: ToolContext, text: str) -> str:
        """Do what may be repeated."""
        return act(world, "mark", ctx.idempotency_key, {"text": text}, ctx.state)

    @tool(effect="read", inline=False)
    async def write(ctx: ToolContext, name: str, text: str) -> str:
        """Keep a file with the call, and fail afterwards if that is the trouble."""
        reference = ctx.artifacts.put(name, text)
        world.act("write", ctx.idempotency_key)
        return reference

    @tool(completes="later", completion_seconds=5000, undo=undo_of("order"))
    async def order(ctx: ToolContext, thing: str) -> str:
        """Do what somebody outside completes."""
        world.act("order", ctx.idempotency_key)
        world.tokens.append(ctx.completion_token)
        return f"ordered {thing}"

    tools = (look, book, move, pay, send, mark, write, order, sleep_until, wait_for_event)
    return {each.name: each for each in tools}


def saw(world: World, what: str) -> str:
    """Read something of the world.

    Raises:
        ValueError: There is nothing to see.
    """
    if world.trouble("look") == "raises":
        msg = "nothing to see"
        raise ValueError(msg)
    return f"saw {what}"


class Crowd(AgentWorker):
    """Runs the turns of a plan side by side, each a step; the last step waits for all of them."""

    max_parallel: ClassVar[int] = 8

    async def run_step(self, step: TaskStep, ctx: StepContext) -> TaskStepOutput:
        """Plan, make the calls of one turn, or end."""
        if step.step_id == "s1":
            ctx.add(user(step.input or ""))
            plan, _ = plan_of([user(step.input or "")])
            turns = {f"p{k}": json.dumps(turn) for k, turn in enumerate(plan[:-1])}
            parts = [TaskStep(step_id=id, input=turn) for id, turn in turns.items()]
            last = TaskStep(step_id="last", prev_steps=tuple(turns))
            return TaskStepOutput(output=0, task_step=step, next_steps=(*parts, last))
        text = step.input or ""
        calls: list[Any] = json.loads(text) if text.startswith("[") else []
        made = [
            ToolCall(id=f"{step.step_id}.{i}", name=name, arguments=json.dumps(arguments))
            for i, (name, arguments) in enumerate(calls)
        ]
        results = await ctx.call_tools(made)
        is_last = not step.step_id.startswith("p")
        if is_last:
            ctx.add(assistant("done"))
        texts = [str(result.content) for result in results]
        return TaskStepOutput(output=texts, task_step=step, is_last=is_last)


def agents_of(world: World, without: Collection[str] = ()) -> list[Agent]:
    """Make the agents; those that a deploy serves have not all tools.

    Args:
        world: The world of their tools.
        without: Names of the tools that they lack.
    """
    model = Planner(world)
    tools = [each for name, each in tools_of(world).items() if name not in without]
    clerk = Agent(name="clerk", instructions="", model=model, tools=tools)
    helper = [] if "helper" in without else [clerk.as_tool("helper", "Let the clerk do it.")]
    boss = Agent(name="boss", instructions="", model=model, tools=[*tools, *helper])
    crowd = Agent(name="crowd", instructions="", worker=Crowd(), tools=[*tools, *helper])
    return [boss, clerk, crowd]
