"""What the workflow knows of a tool."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast.agents.tools.decorator import tool
from holdfast.task.data.agent_snapshot import ToolEffect, ToolPolicy


def test_a_plain_tool_costs_no_bytes() -> None:
    @tool
    def plain(x: int) -> int:
        return x

    assert plain.policy() == ToolPolicy()
    assert plain.policy().wire() == {}


@pytest.mark.parametrize(
    ("effect", "idempotent", "repeatable"),
    [
        ("read", False, True),
        ("read", True, True),
        ("irreversible", False, False),
        ("irreversible", True, True),
        ("reversible", False, False),
        ("reversible", True, True),
    ],
)
def test_only_reads_and_idempotent_calls_are_repeatable(
    effect: ToolEffect, *, idempotent: bool, repeatable: bool
) -> None:
    assert ToolPolicy(effect=effect, idempotent=idempotent).repeatable is repeatable


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


def test_the_tool_modules_are_light() -> None:
    """In a process of its own, because this one has everything loaded."""
    code = (
        "import sys, holdfast.agents.tools.decorator, holdfast.values.json_patch;"
        "print(*sorted({'griffe', 'temporalio', 'openai', 'fsspec'} & sys.modules.keys()))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert loaded.stdout.decode().split() == []
