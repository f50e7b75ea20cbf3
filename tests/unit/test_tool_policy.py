"""What the workflow knows of a tool."""

from holdfast.agents.tools.decorator import tool
from holdfast.task.data.head import ToolPolicy


def test_a_plain_tool_costs_no_bytes() -> None:
    @tool
    def plain(x: int) -> int:
        return x

    assert (plain.policy(), plain.policy().wire()) == (ToolPolicy(), {})


def test_every_option_that_a_task_needs_is_in_the_policy() -> None:
    @tool(
        undo=lambda effect: effect,
        probe=lambda effect: effect,
        idempotent=True,
        needs_approval=lambda ctx, arguments: "a" in arguments,
        timeout_seconds=2.5,
        timeout_behavior="raise_exception",
        max_attempts=3,
        return_direct=True,
        max_output_bytes=10,
    )
    def full() -> None: ...

    assert full.policy().wire() == {
        "effect": "reversible",
        "idempotent": True,
        "has_undo": True,
        "has_probe": True,
        "needs_approval": "ask",
        "timeout_seconds": 2.5,
        "timeout_behavior": "raise_exception",
        "max_attempts": 3,
        "return_direct": True,
        "max_output_bytes": 10,
    }
