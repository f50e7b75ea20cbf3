"""The agent of a campaign, its tools, and the model that makes it work."""

import asyncio
import random

from holdfast import Agent, ToolContext, tool
from holdfast.agents.tools.context import Effect
from holdfast.testing import FakeRequest, Reply, calls, reply
from holdfast.values.settings import ModelSettings
from tests.crash.programs import AGENT, Job, make_helper, note

LONGEST_SECONDS = 0.2
TOOLS = ("look", "book", "pay", "sign")


def answer(request: FakeRequest) -> Reply:
    """Take the next turn of the newest message `run APP look:a pay:b,pay:c`, or end it.

    One turn is one answer with tool calls. Results already given count the turns that were taken.
    """
    messages = list(request.messages)
    asked = max(i for i, m in enumerate(messages) if m.role == "user" and m.text[:4] == "run ")
    given = sum(message.role == "tool" for message in messages[asked:])
    before = 0
    for turn in messages[asked].text.split()[2:]:
        wanted = [each.split(":") for each in turn.split(",")]
        if before >= given:
            return calls([(name, {"thing": thing}) for name, thing in wanted])
        before += len(wanted)
    return reply("all done")


def make_agent(job: Job) -> Agent:
    """Make an agent with a tool of each kind, and one that is an agent with the same tools."""
    chance = random.SystemRandom()
    home = job.home

    async def act(ctx: ToolContext, **facts: object) -> str:
        known = {"task": ctx.task_id, "call": ctx.call_id, "tool": ctx.tool_name, **facts}
        note(home, "start", **known, key=ctx.idempotency_key)
        await asyncio.sleep(chance.uniform(0, LONGEST_SECONDS))
        note(home, "effect", **known, key=ctx.idempotency_key)
        await asyncio.sleep(chance.uniform(0, LONGEST_SECONDS))
        return f"{ctx.tool_name}({facts['thing']})"

    async def cancel(ctx: ToolContext, effect: Effect) -> None:
        known = {"task": ctx.task_id, "call": effect.call_id, "tool": effect.tool}
        note(home, "cancelling", **known)
        await asyncio.sleep(chance.uniform(0, LONGEST_SECONDS))
        note(home, "cancel", **known, key=effect.key)

    @tool(effect="read")
    async def look(ctx: ToolContext, thing: str) -> str:
        return await act(ctx, thing=thing)

    @tool(undo=cancel)
    async def book(ctx: ToolContext, thing: str) -> str:
        return await act(ctx, thing=thing)

    @tool
    async def pay(ctx: ToolContext, thing: str) -> str:
        return await act(ctx, thing=thing)

    @tool(needs_approval=True)
    async def sign(ctx: ToolContext, thing: str, cents: int = 1) -> str:
        return await act(ctx, thing=thing, cents=cents)

    tools = {each.name: each for each in (look, book, pay, sign)}
    return Agent(
        name=AGENT,
        model="fake-model",
        tools=[*tools.values(), make_helper(job, tools)],
        model_settings=ModelSettings(max_attempts=50),
    )


def draw_input(chance: random.Random, app: str, name: str) -> str:
    """Draw the input of a task: one to four turns of one or two calls."""

    def call(number: int) -> str:
        return f"{chance.choice(TOOLS)}:{name}.{number}"

    turns: list[str] = []
    for number in range(chance.randint(1, 4)):
        if chance.random() < 0.1:
            inner = "+".join(call(n).replace(":", "-") for n in (10 * number, 10 * number + 1))
            turns.append(f"helper:{inner}")
        else:
            there = range(10 * number, 10 * number + chance.randint(1, 2))
            turns.append(",".join(call(n) for n in there))
    return f"run {app} {' '.join(turns)}"
