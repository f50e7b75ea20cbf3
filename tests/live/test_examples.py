"""The examples, run by the commands in their own docstrings; all are offline."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.programs import printed_by

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("[!_]*.py"))


def command_of(example: str) -> list[str]:
    """Return the first command that the docstring names, without the name of Python."""
    text = (ROOT / "examples" / example).read_text(encoding="utf-8")
    found = re.search(
        r"^python (.+?)(?:   .*)?$", ast.get_docstring(ast.parse(text)) or "", re.MULTILINE
    )
    assert found is not None, f"{example} does not say how to run it"
    return shlex.split(found[1])


def output_of(example: str, directory: Path) -> str:
    """Run an example in a checkout of its own, `holdfast` installed; return what it printed."""
    checkout, installed = directory / "checkout", directory / "installed"
    if not checkout.exists():
        shutil.copytree(ROOT / "examples", checkout / "examples")
        installed.mkdir()
        (installed / "holdfast").symlink_to(ROOT / "holdfast")
    environment = {**forked.bare_environment(), "PYTHONPATH": str(installed)}
    return printed_by(forked.command(*command_of(example)), checkout, environment)


def test_an_example_names_itself_in_its_command_and_needs_no_other() -> None:
    own = {"examples", *(each.removesuffix(".py") for each in EXAMPLES)}
    for example in EXAMPLES:
        assert command_of(example)[0] == f"examples/{example}"
        tree = ast.parse((ROOT / "examples" / example).read_text(encoding="utf-8"))
        named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        for node in ast.walk(tree):
            named += [each.name for each in node.names] if isinstance(node, ast.Import) else []
        assert not {name.partition(".")[0] for name in named} & own, example


PRINTED: dict[str, str] = {
    "*arithmetic": "405",
    "*expense_approval": """
        Small, so nobody is asked: 12 euros were paid to Kim
        Large, so the step is waiting
        93 euros were paid to Kim
        ann changed the arguments of pay
        "euros": 930""",
    "*travel_booking": """
        In the world: a flight to Rome, a hotel in Rome
        cancelled a hotel in Rome
        cancelled a flight to Rome
        In the world: nothing
        In the world: a hotel in Rome, a train to Rome
        Answer: Your trip to Rome is booked.""",
    "compare_prompts": """
        terse: Status: order 7 is two days late.
        kind: I am very sorry: order 7 is two days late.
        Looked up once: ['order 7']""",
    "parallel_lookup": """
        p1.1: nothing
        p1.5: p1.1, p1.4
        Lookups at the same time: 3
        Answer: In millions: Rome: 2.8 | Oslo and Bonn: 1.0""",
    "query_engine": """
        As a tool: Our handbook says: A refund is paid within 14 days of the return.
        from refunds.txt: A refund is paid within 14 days of the return.
        As a step: A refund is paid within 14 days of the return.""",
    "plan_a_trip": """
        p1:write-the-itinerary waits for p1:find-a-train, p1:find-a-hotel
        Side by side:
        p1:find-a-train: the 9:20 to Rome (May 12 to May 14)
        p1:find-a-hotel: Hotel Tiber
        Answer: Take the 9:20 to Rome (May 12 to May 14); stay at Hotel""",
    "multi_hop": """
        On which river lies the town
        Action Input: {"title": "Lantern Bridge"}
        Observation: (1 of 1) Its engineer was Ida Brandt, then 29 years old.
        Action Input: {"title": "Ida Brandt"}
        Thought: She was born in Osterhamn, which lies on the Silla.
        After 5 tool calls: The Silla: """,
    "*custom_worker": """
        First try: After ten long years the new bridge in Italy opens
        Second try: New bridge in Italy opens
        Undone; the state is: ['After ten long years the new bridge in Italy opens']
        With a wish: New bridge in Rome opens
        Answer: New bridge in Rome opens""",
    "traced_run": """
        trace_
        invoke_workflow Two questions
        execute_tool divide
        failed: float division by zero
        check b""",
    "*handoffs": """
        [books] desk handed over order 7, angry
        Answer: I am sorry. 40 euros for order 7 are on their way.
        [books] desk handed over order 7, angry
        Next: refunds
        After the undo: desk
        [books] desk handed over order 7, angry
        Answer: I am sorry. 40 euros for order 7 are on their way.
        desk: find_order
        desk: transfer_to_refunds
        refunds: refund
        refunds: answer""",
    "*desk/webhook": """
        clerk asks: pay {"to": "Kim", "euros": 40}
        Kim has the money.""",
    "mcp_servers": """
        Tool 'book' asks: How many nights? [nights (integer)]
        rooms: read: Two free rooms in Rome.
        book: irreversible: Booked 3 nights in Rome.""",
    "hosted_tools": """
        waits: hotels.book {"hotel": "Tiber"}
        You stay at Hotel Tiber.
        web_search: hotels in Rome
        hotels.book: {"hotel": "Tiber"}""",
    "adapters/langchain_tool": """
        waits: book {"city": "Rome"}
        Your room is booked. ['a room in Rome']
        undone: []""",
    "adapters/pydantic_ai_agent": """
        forecaster: {"city":"Rome","degrees":21}
        Take a coat.""",
    "adapters/agents_sdk_agent": """
        population: Rome: 2.8 million
        translator: due milioni e ottocentomila
        Rome: due milioni e ottocentomila.""",
    "*adapters/four_frameworks": """
        waits: pay {"amount": 42}
        spending: at most 100; a letter; paid 42; translated""",
}
"""What each example prints, in this order; `make test` runs those with a star."""


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(each.strip("*"), marks=() if each[0] == "*" else pytest.mark.exhaustive)
        for each in PRINTED
    ],
)
def test_an_example_prints_what_it_shows(tmp_path: Path, example: str) -> None:
    printed, at = output_of(f"{example}.py", tmp_path), 0
    for line in (PRINTED.get(example) or PRINTED[f"*{example}"]).splitlines():
        at = printed.find(line.strip(), at)
        assert at >= 0, (line, printed)


@pytest.mark.exhaustive
def test_a_task_is_gone_on_with_by_one_process_after_the_other(tmp_path: Path) -> None:
    printed = [output_of("step_by_step.py", tmp_path) for _ in range(4)]
    seen = zip(("multiply", "add", "405", "Done before"), printed, strict=True)
    assert [word for word, text in seen if word not in text] == []
