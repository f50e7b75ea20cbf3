"""What the README and the docs show in Python, run as a reader would run them."""

import asyncio
import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from examples.tutorial.model import answer
from holdfast.engine.dev_server.leases import leased_server
from holdfast.testing import FakeOpenAI
from tests.support import forked
from tests.support.pages import ALL, PAGES, ROOT, SAID, Block, blocks
from tests.support.programs import printed_by

__all__ = ["model"]

BLOCK = re.compile(
    r"^```python\n(.*?)^```(?:\n\nPrints:\n\n```\n(.*?)^```)?", re.MULTILINE | re.DOTALL
)
"""A program, and all that it prints if the page says that."""
GUIDED = ("docs/tutorial/", "docs/recipes/")
"""Pages whose files and commands the tests of the tutorial and of the recipes run."""
BLOCKS = {page: BLOCK.findall(page.read_text("utf-8")) for page in PAGES}
RUN = [page for page, blocks in BLOCKS.items() if blocks]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have programs that name no other model ask the one of the tutorial."""
    with FakeOpenAI(answer) as api:
        monkeypatch.setenv("OPENAI_BASE_URL", api.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "any")
        yield


def environment() -> dict[str, str]:
    """Return the environment of a program with its own data directory."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TEMPORAL_", "HOLDFAST_"))}
    return {**kept, "PYTHONPATH": str(ROOT)}


def run(arguments: list[str], directory: Path) -> str:
    """Run a Python program with its own data directory; return what it printed."""
    return printed_by(forked.command(*arguments), directory, environment())


def test_every_block_is_run_or_blocks_toml_says_why_not() -> None:
    here = {text for found in BLOCKS.values() for text, _ in found}
    forgotten = [
        block.place
        for block in ALL
        if not (block.info == "python" and block.text in here)
        and not (block.is_shown or block.said)
        and not (block.page.startswith(GUIDED) and (block.file or block.info == "sh"))
    ]
    assert not forgotten, "say in website/blocks.toml what runs it, or why nothing does"
    rows = {(page, first) for page, reasons in SAID.items() for first in reasons}
    assert not rows - {(block.page, block.text.partition("\n")[0]) for block in ALL}


def test_the_tests_that_are_named_as_runners_read_these_pages() -> None:
    named = [block for block in ALL if block.runner]
    assert named
    for block in named:
        assert block.runner is not None
        assert Path(block.page).name in block.runner.read_text("utf-8"), block.place


@pytest.fixture(scope="module")
async def directory(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Path]:
    """Give the programs of all pages one directory, with one server."""
    made = tmp_path_factory.mktemp("pages")
    async with leased_server(made / ".holdfast"):
        yield made


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
async def test_the_programs_of_a_page_run_and_print_what_it_says(
    page: Path, directory: Path
) -> None:
    for block, output in BLOCKS[page]:
        assert not output or (await asyncio.to_thread(run, ["-c", block], directory)) == output


def test_the_killed_program_of_the_streaming_page_goes_on_where_it_was(tmp_path: Path) -> None:
    [block] = [text for text, _ in BLOCKS[ROOT / "docs/streaming.md"] if "RunState" in text]
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


# ---- the tutorial and the recipes, run as a reader runs them


TUTORIAL = [path for path in PAGES if path.parent.name == "tutorial"]
RECIPES = [
    path
    for path in PAGES
    if path.parent.name == "recipes" and any(block.file for block in blocks(path))
]


def write_files(page: Path, directory: Path) -> None:
    """Write the files that a page shows."""
    for block in blocks(page):
        if block.file:
            (directory / block.file).write_text(block.text, "utf-8")


def commands(page: Path) -> list[tuple[str, str]]:
    """Return the commands of a page, each with what it prints."""
    found = list(blocks(page))
    told: list[tuple[str, str]] = []
    for block, after in zip(found, [*found[1:], Block("", 0, "", "", "")], strict=True):
        if block.info == "sh" and not block.said:
            assert after.above == "Prints:", f"{block.place}: the page does not say what it prints"
            told.append((block.text, after.text))
    return told


def bash(command: str, directory: Path) -> str:
    """Run a command of a page in the reader's directory."""
    path = [forked.programs(), str(Path(sys.executable).parent), os.environ["PATH"]]
    bash = ["bash", "-uo", "pipefail", "-c", command]
    return printed_by(bash, directory, {**environment(), "PATH": os.pathsep.join(path)})


def test_the_tutorial_has_seven_steps_and_each_leads_to_the_next() -> None:
    assert [path.name[0] for path in TUTORIAL] == list("1234567")
    for page, following in itertools.pairwise(TUTORIAL):
        assert re.search(rf"\nNext: \[.*\]\({following.name}\)", page.read_text("utf-8"))


def follow(page: Path, files: list[Path], directory: Path) -> None:
    """Do what a page says: make the files, run the commands, compare what they print."""
    for each in files:
        write_files(each, directory)
    told = commands(page)
    assert told
    try:
        for command, printed in told:
            assert bash(command, directory) == printed
    finally:
        bash("holdfast stop >&2 || true", directory)


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("page", TUTORIAL, ids=lambda page: page.stem)
def test_a_step_of_the_tutorial_does_what_it_says(page: Path, tmp_path: Path) -> None:
    follow(page, TUTORIAL[: TUTORIAL.index(page) + 1], tmp_path)


@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_a_recipe_does_what_it_says(page: Path, tmp_path: Path) -> None:
    follow(page, [page], tmp_path)
