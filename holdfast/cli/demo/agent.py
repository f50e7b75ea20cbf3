"""The demo's agent: arithmetic tools and a model, each counting its own executions."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable

from holdfast.agents.agent import Agent
from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.decorator import Tool, tool
from holdfast.cli.demo.log import ExecutionLog
from holdfast.errors import InvalidArgumentError
from holdfast.models.base import Model, ModelAnswer, ModelRequest
from holdfast.models.resolve import resolve_model
from holdfast.values.settings import ModelSettings

APP = "demo"
AGENT = "calculator"
LATENCY_SECONDS = 0.8
"""Latency of the offline model: long enough to be watched, and to be killed during a call."""

LARGEST_BITS = 4096

INSTRUCTIONS = (
    "You answer arithmetic questions. Never calculate yourself: call one tool per operation, and"
    " use what the tools return. When you have the result, answer in one short sentence that ends"
    " with the result as a plain number."
)

Number = int | float


def power(base: Number, exponent: Number) -> Number:
    """Raise to a power, as long as the result has a size that can be printed.

    Raises:
        InvalidArgumentError: The result is too large, or not a real number.
    """
    if isinstance(base, int) and isinstance(exponent, int):
        bits = base.bit_length() * abs(exponent)
        if bits > LARGEST_BITS:
            msg = f"{base} to the power of {exponent} is too large for this demonstration."
            raise InvalidArgumentError(msg)
    result: object = pow(base, exponent)
    if not isinstance(result, int | float):
        raise InvalidArgumentError(f"{base} to the power of {exponent} is not a real number.")
    return result


def divide(a: Number, b: Number) -> Number:
    """Divide; the result is a float."""
    return a / b


OPERATIONS: dict[str, tuple[Callable[[Number, Number], Number], str]] = {
    "add": (operator.add, "Return a plus b."),
    "subtract": (operator.sub, "Return a minus b."),
    "multiply": (operator.mul, "Return a times b."),
    "divide": (divide, "Return a divided by b."),
    "power": (power, "Return a to the power of b."),
}


def arithmetic_tools(log: ExecutionLog) -> list[Tool]:
    """Make the five tools. Arithmetic changes nothing, so all are declared effect="read"."""
    return [_tool(name, act, text, log) for name, (act, text) in OPERATIONS.items()]


def _tool(name: str, act: Callable[[Number, Number], Number], text: str, log: ExecutionLog) -> Tool:
    def calculate(ctx: ToolContext, a: Number, b: Number) -> Number:
        with log.execution("tool", ctx.call_id):
            return act(a, b)

    return tool(calculate, name=name, description=text, effect="read")


class CountingModel:
    """Any model, with a log of its executions."""

    def __init__(self, inner: Model, log: ExecutionLog) -> None:
        """Wrap a model."""
        self._inner = inner
        self._log = log

    @property
    def name(self) -> str:
        """The model's own name."""
        return self._inner.name

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request; its number is one more than the answers before it."""
        number = 1 + sum(message.role == "assistant" for message in request.messages)
        with self._log.execution("model", str(number)):
            return await self._inner.respond(request)


def choose_model() -> tuple[Model, str]:
    """Choose a model by the environment; return it with a line that says which and why."""
    from holdfast.models.offline import OfflineModel

    offline = OfflineModel(latency=LATENCY_SECONDS)
    if not os.environ.get("OPENAI_API_KEY"):
        said = "the built-in offline model (OPENAI_API_KEY is not set; with it, a real one answers)"
        return offline, said
    model = resolve_model(None)
    if model.name == "offline":
        return offline, "the built-in offline model (HOLDFAST_MODEL says so)"
    return model, f"{model.name} (OPENAI_API_KEY is set; HOLDFAST_MODEL names another)"


def demo_agent(log: ExecutionLog) -> Agent:
    """Make the agent."""
    model, _ = choose_model()
    return Agent(
        name=AGENT,
        instructions=INSTRUCTIONS,
        model=CountingModel(model, log),
        tools=arithmetic_tools(log),
        model_settings=ModelSettings(max_attempts=4),
    )
