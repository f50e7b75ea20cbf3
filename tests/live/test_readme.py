"""What the README and the docs show in Python, run as a reader would run them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.pages import ALL, PAGES, ROOT

BLOCK = re.compile(
    r"^```python\n(.*?)^```(?:\n\nPrints:\n\n```\n(.*?)^```)?", re.MULTILINE | re.DOTALL
)
"""A program, and all that it prints if the page says that."""
GUIDED = ("docs/tutorial/", "docs/recipes/")
"""Pages whose files and commands tests/live/test_tutorial.py runs."""
ASKED = {
    "README.md": ("finalize_response", "needs_approval", "run_sync", "LLMCompilerAgentWorker"),
}
"""Texts of the blocks that a test of their own runs, for what they print."""


def block_with(text: str, page: str = "README.md") -> str:
    """Return the first block of a page that has this text."""
    blocks = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    return str(next(block for block, _ in blocks if text in block))


OWN = {block_with(text, page) for page, texts in ASKED.items() for text in texts}
BLOCKS = [
    pytest.param(block, output, id=f"{page.relative_to(ROOT)}-{n}")
    for page in PAGES
    for n, (block, output) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")))
    if block not in OWN
]


def environment() -> dict[str, str]:
    """Return the environment of a program with its own data directory."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TEMPORAL_", "HOLDFAST_"))}
    return {**kept, "PYTHONPATH": str(ROOT)}


def run(arguments: list[str], directory: Path) -> str:
    """Run a Python program with its own data directory; return what it printed."""
    done = subprocess.run(
        forked.command(*arguments),
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_blocks_to_run() -> None:
    assert len(BLOCKS) >= 3
    assert len(OWN) == 4


def test_every_block_is_run_or_its_page_says_why_not() -> None:
    here = {text for page in PAGES for text, _ in BLOCK.findall(page.read_text("utf-8"))}
    forgotten = [
        block.place
        for block in ALL
        if not (block.info == "python" and block.text in here)
        and not (block.is_shown or block.is_left or block.runner)
        and not (block.page.startswith(GUIDED) and (block.file or block.info == "sh"))
    ]
    assert not forgotten, "say above the block what runs it, or why nothing does"


def test_the_tests_that_pages_name_as_runners_read_these_pages() -> None:
    named = [block for block in ALL if block.runner]
    assert named
    for block in named:
        assert block.runner is not None
        assert Path(block.page).name in block.runner.read_text("utf-8"), block.place


@pytest.mark.parametrize(("block", "output"), BLOCKS)
def test_a_block_of_the_docs_runs_and_prints_what_it_says(
    block: str, output: str, tmp_path: Path
) -> None:
    printed = run(["-c", block], tmp_path)
    assert not output or printed == output


def test_the_step_api_of_the_readme_answers(tmp_path: Path) -> None:
    block = block_with("finalize_response")
    assert "42" in run(["-c", block], tmp_path)


def test_the_people_of_the_readme_edit_and_undo(tmp_path: Path) -> None:
    block = block_with("needs_approval")
    printed = run(["-c", block], tmp_path).splitlines()
    assert ["48" in printed[0], "42" in printed[1]] == [True, True]
    assert len(printed) == 2


def test_the_runner_of_the_readme_answers_twice(tmp_path: Path) -> None:
    block = block_with("run_sync")
    printed = run(["-c", block], tmp_path).splitlines()
    assert "163" in printed[0]
    assert "4" in printed[1]


def test_the_lookups_of_the_readme_run_side_by_side(tmp_path: Path) -> None:
    printed = run(["-c", block_with("LLMCompilerAgentWorker")], tmp_path).splitlines()
    assert printed[0] == "['p1.1', 'p1.2', 'p1.join']"
    assert printed[-1] == "Rome has more."


def test_the_killed_program_of_the_streaming_page_goes_on_where_it_was(tmp_path: Path) -> None:
    block = block_with("RunState", "docs/streaming.md")
    block = block.replace('data_dir=".holdfast"', 'data_dir=".holdfast", heartbeat=2')
    until_killed = 'while not Path("killed").exists(): time.sleep(0.01)'
    assert "time.sleep(2)" in block
    block = block.replace("time.sleep(2)", until_killed)
    command = forked.command("-c", block)
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    ) as killed:
        assert killed.stdout is not None
        shown = [killed.stdout.readline().strip()]
        while json.loads((tmp_path / "run.json").read_text())[1] == 0:
            time.sleep(0.01)
        killed.kill()
    (tmp_path / "killed").touch()
    shown += run(["-c", block], tmp_path).splitlines()
    assert shown == [
        "tool_called",
        "tool_output",
        "message_output_created",
        "The result of 121 + 42 is 163.",
    ]
    assert not (tmp_path / "run.json").exists()
