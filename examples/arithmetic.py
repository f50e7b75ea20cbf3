"""An agent that does arithmetic with tools, offline.

python examples/arithmetic.py "What is (121 * 3) + 42?"
holdfast dev examples.arithmetic:agents
"""

from __future__ import annotations

import sys

from holdfast import Agent, Runner, tool


@tool(effect="read")
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@tool(effect="read")
def subtract(a: float, b: float) -> float:
    """Subtract b from a."""
    return a - b


@tool(effect="read")
def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b


@tool(effect="read")
def divide(a: float, b: float) -> float:
    """Divide a by b."""
    return a / b


arithmetic = Agent(
    name="arithmetic",
    instructions="Answer the question. Use the tools for every operation.",
    model="offline",
    tools=[add, subtract, multiply, divide],
)
agents = [arithmetic]


def main() -> None:
    """Answer the question on the command line."""
    question = " ".join(sys.argv[1:]) or "What is (121 * 3) + 42?"
    result = Runner.run_sync(arithmetic, question)
    print(result.final_output)
    print(f"{result.usage.requests} model calls; the record is task {result.task_id}")


if __name__ == "__main__":
    main()
