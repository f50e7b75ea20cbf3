"""The examples, run by the commands in their own docstrings; all are offline."""

import ast
import re
import shlex
import shutil
import tomllib
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


PRINTED: dict[str, str] = tomllib.loads(
    Path(__file__).with_name("examples.toml").read_text(encoding="utf-8")
)
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
