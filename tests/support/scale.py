"""How often tests repeat what they do: a little in `make test`, exhaustively in `make test-all`."""

from __future__ import annotations

import os

EXHAUSTIVE = os.environ.get("HOLDFAST_EXHAUSTIVE") == "1"


def times(usual: int, exhaustive: int) -> int:
    """Return how often to repeat something.

    Args:
        usual: How often in `make test`.
        exhaustive: How often in `make test-all`.
    """
    return exhaustive if EXHAUSTIVE else usual


ON_TWO_WORKERS = (
    "abandoned_task_leaves_no_trace",
    "rewind_to_the_first_step",
    "run_steps_in_queue_gives_the_same_answer",
    "run_task_gives_the_same_answer",
    "runner_run_gives_the_same_answer",
)
"""Checks of what the engine does with steps: with one after the other, and with some at once."""

ON_THE_SAME_WORKER = (
    "chat_gives_the_same_answer",
    "history_replays",
    "next_task_sees_the_session",
    "run_step_leads_to_one_answer",
    "state_is_plain_json",
)
"""What is checked of MultimodalReActAgentWorker, which is ReActAgentWorker with another prompt."""


def is_repetition(test: str) -> bool:
    """Whether a conformance check repeats with an AgentWorker what it shows with others.

    Args:
        test: Id of the test.
    """
    place, _, rest = test.partition("/test_conformance.py::")
    worker, _, check = rest.partition("::test_")
    if not place or not check or worker == "TestFunctionCalling":
        return False
    if worker == "TestMultimodalReAct":
        return check not in ON_THE_SAME_WORKER
    return "killed" in check or (check in ON_TWO_WORKERS and worker != "TestPlanAndSolve")
