"""The examples, run by the commands in their own docstrings; all are offline."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import forked

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


def printed_by(example: str, directory: Path) -> str:
    """Run an example in a checkout of its own, `holdfast` installed; return what it printed."""
    hidden = ("TEMPORAL_", "HOLDFAST_", "OPENAI_")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(hidden)}
    checkout, installed = directory / "checkout", directory / "installed"
    if not checkout.exists():
        shutil.copytree(ROOT / "examples", checkout / "examples")
        installed.mkdir()
        (installed / "holdfast").symlink_to(ROOT / "holdfast")
    done = subprocess.run(
        forked.command(*command_of(example)),
        cwd=checkout,
        env={**kept, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_example_names_itself_in_its_command_and_needs_no_other() -> None:
    own = {"examples", *(each.removesuffix(".py") for each in EXAMPLES)}
    for example in EXAMPLES:
        assert command_of(example)[0] == f"examples/{example}"
        tree = ast.parse((ROOT / "examples" / example).read_text(encoding="utf-8"))
        named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        for node in ast.walk(tree):
            named += [each.name for each in node.names] if isinstance(node, ast.Import) else []
        assert not {name.partition(".")[0] for name in named} & own, example


def test_arithmetic_is_done(tmp_path: Path) -> None:
    assert "405" in printed_by("arithmetic.py", tmp_path)


def test_a_task_is_gone_on_with_by_one_process_after_the_other(tmp_path: Path) -> None:
    printed = [printed_by("step_by_step.py", tmp_path) for _ in range(4)]
    seen = zip(("multiply", "add", "405", "Done before"), printed, strict=True)
    assert [word for word, text in seen if word not in text] == []


def test_an_expense_is_paid_as_it_was_edited_and_the_model_is_told(tmp_path: Path) -> None:
    printed = printed_by("expense_approval.py", tmp_path)
    assert "Small, so nobody is asked: 12 euros were paid to Kim" in printed
    assert "Large, so the step is waiting" in printed
    told = printed.splitlines()[-1]
    assert "93 euros were paid to Kim" in told
    assert "ann changed the arguments of pay" in told
    assert '"euros": 930' in told


def test_a_trip_is_booked_undone_newest_first_and_booked_in_another_way(tmp_path: Path) -> None:
    lines = printed_by("travel_booking.py", tmp_path).splitlines()
    worlds = [line for line in lines if line.startswith("In the world: ")]
    assert worlds == [
        "In the world: a flight to Rome, a hotel in Rome",
        "In the world: nothing",
        "In the world: a hotel in Rome, a train to Rome",
    ]
    cancelled = [line.strip() for line in lines if "cancelled" in line]
    assert cancelled == ["cancelled a hotel in Rome", "cancelled a flight to Rome"]
    assert lines[-1] == "Answer: Your trip to Rome is booked."


def test_two_prompts_are_compared_from_one_step_that_ran_once(tmp_path: Path) -> None:
    printed = printed_by("compare_prompts.py", tmp_path)
    assert "terse: Status: order 7 is two days late." in printed
    assert "kind: I am very sorry: order 7 is two days late." in printed
    assert "Looked up once: ['order 7']" in printed


def test_lookups_are_planned_at_once_and_run_side_by_side(tmp_path: Path) -> None:
    lines = printed_by("parallel_lookup.py", tmp_path).splitlines()
    assert "  p1.1: nothing" in lines
    assert "  p1.5: p1.1, p1.4" in lines
    assert "Lookups at the same time: 3" in lines
    assert lines[-1] == "Answer: In millions: Rome: 2.8 | Oslo and Bonn: 1.0"


def test_a_query_engine_answers_as_a_tool_with_its_sources_and_as_a_step(tmp_path: Path) -> None:
    lines = printed_by("query_engine.py", tmp_path).splitlines()
    refund = "A refund is paid within 14 days of the return."
    assert lines == [
        f"As a tool: Our handbook says: {refund}",
        f"  from refunds.txt: {refund}",
        f"As a step: {refund}",
    ]


def test_a_trip_is_planned_and_its_parts_are_done_side_by_side(tmp_path: Path) -> None:
    lines = printed_by("plan_a_trip.py", tmp_path).splitlines()
    assert "  p1:write-the-itinerary waits for p1:find-a-train, p1:find-a-hotel" in lines
    at = lines.index("Side by side:")
    assert lines[at + 1].startswith("  p1:find-a-train: the 9:20 to Rome (May 12 to May 14)")
    assert lines[at + 2].startswith("  p1:find-a-hotel: Hotel Tiber")
    assert lines[-1].startswith("Answer: Take the 9:20 to Rome (May 12 to May 14); stay at Hotel")


def test_a_question_is_answered_over_three_documents_and_the_reasoning_is_shown(
    tmp_path: Path,
) -> None:
    printed = printed_by("multi_hop.py", tmp_path)
    assert printed.startswith("On which river lies the town")
    searched = [line for line in printed.splitlines() if '"title"' in line]
    assert searched == [
        'Action Input: {"title": "Lantern Bridge"}',
        'Action Input: {"title": "Ida Brandt"}',
        'Action Input: {"title": "Osterhamn"}',
    ]
    assert "Observation: (1 of 1) Its engineer was Ida Brandt, then 29 years old." in printed
    assert "Thought: She was born in Osterhamn, which lies on the Silla." in printed
    assert printed.splitlines()[-1].startswith("After 5 tool calls: The Silla: ")


def test_a_headline_is_tried_undone_and_steered(tmp_path: Path) -> None:
    assert printed_by("custom_worker.py", tmp_path).splitlines() == [
        "First try: After ten long years the new bridge in Italy opens",
        "Second try: New bridge in Italy opens",
        "Undone; the state is: ['After ten long years the new bridge in Italy opens']",
        "With a wish: New bridge in Rome opens",
        "Answer: New bridge in Rome opens",
    ]


def test_a_trace_is_drawn_with_what_failed_in_its_place(tmp_path: Path) -> None:
    drawn = printed_by("traced_run.py", tmp_path).splitlines()
    assert drawn[3].startswith("trace_")
    assert drawn[4].startswith("invoke_workflow Two questions")
    [failed] = [line for line in drawn if "failed: float division by zero" in line]
    assert failed.startswith("      execute_tool divide")
    assert drawn[drawn.index(failed) + 1].startswith("        check b")


def test_the_receiver_of_a_webhook_checks_it_and_approves(tmp_path: Path) -> None:
    printed = printed_by("desk/webhook.py", tmp_path).splitlines()
    assert printed == ['clerk asks: pay {"to": "Kim", "euros": 40}', "Kim has the money."]


def test_the_tools_of_an_mcp_server_are_used_and_its_question_is_answered(tmp_path: Path) -> None:
    printed = printed_by("mcp_servers.py", tmp_path)
    assert "Tool 'book' asks: How many nights? [nights (integer)]" in printed
    assert "rooms: read: Two free rooms in Rome." in printed
    assert "book: irreversible: Booked 3 nights in Rome." in printed


def test_a_person_approves_what_the_provider_runs(tmp_path: Path) -> None:
    assert printed_by("hosted_tools.py", tmp_path).splitlines() == [
        'waits: hotels.book {"hotel": "Tiber"}',
        "You stay at Hotel Tiber.",
        "web_search: hotels in Rome",
        'hotels.book: {"hotel": "Tiber"}',
    ]


@pytest.mark.parametrize(
    ("example", "printed"),
    [
        (
            "langchain_tool.py",
            [
                'waits: book {"city": "Rome"}',
                "Your room is booked. ['a room in Rome']",
                "undone: []",
            ],
        ),
        ("pydantic_ai_agent.py", ['forecaster: {"city":"Rome","degrees":21}', "Take a coat."]),
        (
            "agents_sdk_agent.py",
            [
                "population: Rome: 2.8 million",
                "translator: due milioni e ottocentomila",
                "Rome: due milioni e ottocentomila.",
            ],
        ),
        (
            "four_frameworks.py",
            ['waits: pay {"amount": 42}', "spending: at most 100; a letter; paid 42; translated"],
        ),
    ],
)
def test_parts_of_other_frameworks_are_tools(
    tmp_path: Path, example: str, printed: list[str]
) -> None:
    assert printed_by(f"adapters/{example}", tmp_path).splitlines() == printed
