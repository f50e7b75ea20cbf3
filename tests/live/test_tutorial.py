"""The tutorial and the recipes, run as a reader runs them.

A page of the tutorial needs the files of the pages before it, a recipe only its own.
"""

import itertools
import os
import re
import sys
from pathlib import Path

import pytest

from tests.live.test_readme import environment, model
from tests.support import forked
from tests.support.pages import PAGES, Block, blocks
from tests.support.programs import printed_by

__all__ = ["model"]  # a fixture

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


def run(command: str, directory: Path) -> str:
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
            assert run(command, directory) == printed
    finally:
        run("holdfast stop >&2 || true", directory)


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("page", TUTORIAL, ids=lambda page: page.stem)
def test_a_step_of_the_tutorial_does_what_it_says(page: Path, tmp_path: Path) -> None:
    follow(page, TUTORIAL[: TUTORIAL.index(page) + 1], tmp_path)


@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_a_recipe_does_what_it_says(page: Path, tmp_path: Path) -> None:
    follow(page, [page], tmp_path)
