"""The commands in blocks of the documentation that no test runs: each is one that there is."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from holdfast.cli.app import app
from tests.support.pages import PAGES, blocks

SHELLS = ("sh", "bash")


def commands() -> Iterator[tuple[str, str]]:
    """Find the lines that call `holdfast` in blocks that are not run, each with its place."""
    for page in PAGES:
        for block in blocks(page):
            if block.info in SHELLS and block.said and not block.runner:
                for line in block.text.replace("\\\n", " ").splitlines():
                    if re.match(r"holdfast [a-z]", line):
                        yield block.place, line


@pytest.mark.parametrize(("place", "line"), [*commands()])
def test_a_command_that_is_shown_is_understood(place: str, line: str) -> None:
    command: Any = get_command(app)
    name, *given = shlex.split(re.split(r" [|>]", line)[0], comments=True)
    while given and given[0] in getattr(command, "commands", ()):
        name, *given = given
        command = command.commands[name]
    assert name != "holdfast", f"{place}: there is no such command"
    command.make_context(name, given)  # raises what the command would say of a wrong option
