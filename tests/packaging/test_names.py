"""The two directories at the root are ours by one name only."""

import re
from pathlib import Path

import pytest

from tests.packaging.checkout import MAPPED, ROOT, python_files, run_python

TREES = (*MAPPED, "holdfast", "tests", "examples", "benchmarks")
BARE_IMPORT = re.compile(
    rf"^\s*(?:import|from)\s+(?:[\w.]+,\s*)*(?:{'|'.join(MAPPED)})\b", re.MULTILINE
)

PROJECT = ROOT / "holdfast" / "cli" / "commands" / "start" / "project.py"
TEXTS = {".md", ".py", ".toml", ".yml", ".json", ".txt", ".sh", ""}
THE_OTHER = re.compile(
    r"""\b(?:pip3?|pipx|uv)\s(?:.*\s)?(?:install|add)\s+(?:-\S+\s+)*['"]?holdfast(?!-agents)\b"""
    r"""|(?<![\w./-])holdfast\[[a-z]"""
    r"""|['"]holdfast\s*(?:[=<>~!]=|@\s)"""
)
"""Text that a person or an installer takes for the name of our distribution."""


@pytest.mark.parametrize("name", MAPPED)
def test_an_installed_package_of_that_name_wins_over_the_checkout(
    name: str, tmp_path: Path
) -> None:
    stub = tmp_path / name / "__init__.py"
    stub.parent.mkdir()
    stub.touch()
    # The root is first on the path here, the installed package comes after it.
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {name}; print({name}.__file__)"
    assert run_python(code, cwd=ROOT, pythonpath=tmp_path) == str(stub)


@pytest.mark.parametrize("name", MAPPED)
def test_its_directory_at_the_root_is_no_package_and_is_linked_and_imported_as_a_part_of_ours(
    name: str, tmp_path: Path
) -> None:
    assert not (ROOT / name / "__init__.py").exists()
    assert (ROOT / "holdfast" / name).samefile(ROOT / name)
    module = next(python_files(ROOT / name))
    dotted = ".".join(module.relative_to(ROOT).with_suffix("").parts)
    code = f"import holdfast.{dotted} as m; print(m.__file__)"  # outside the checkout
    assert Path(run_python(code, cwd=tmp_path)).samefile(module)


def test_nothing_imports_them_by_their_bare_name() -> None:
    trees = [path for tree in TREES for path in python_files(ROOT / tree)]
    files = [*trees, *ROOT.glob("*.py")]
    assert len(files) > len(TREES)
    assert [path for path in files if BARE_IMPORT.search(path.read_text("utf-8"))] == []
    for line in ("import workflows", "import os, workflows.x", "    from activities.a import b"):
        assert BARE_IMPORT.search(f"import os\n{line}\n")


def test_nothing_tells_anyone_to_install_the_other_project_of_our_name() -> None:
    folders = [ROOT / name for name in (*TREES, "docs", "website", ".ci")]
    paths = [*ROOT.iterdir(), *(path for folder in folders for path in folder.rglob("*"))]
    files = {path for path in paths if path.suffix in TEXTS and path.is_file()}
    assert {ROOT / "README.md", ROOT / "Makefile", ROOT / "docs" / "mcp.md", PROJECT} <= files
    files.remove(Path(__file__))
    lines = [line for path in files for line in path.read_text("utf-8", "ignore").splitlines()]
    assert [line for line in lines if "holdfast" in line and THE_OTHER.search(line)] == []


@pytest.mark.parametrize(
    ("text", "is_ours"),
    [
        ("pip install holdfast", False),
        ("uv pip install -U 'holdfast'", False),
        ("pip install -q holdfast==0.1", False),
        ("needs holdfast[desk]", False),
        ('dependencies = ["holdfast>=0.1"]', False),
        ('"holdfast @ git+https://host/a.git"', False),
        ("pip install 'holdfast-agents[desk]'", True),
        ("pip uninstall holdfast", True),
        ('pip install "holdfast-agents @ git+https://host/holdfast.git"', True),
    ],
)
def test_advice_to_install_the_other_project_is_seen(text: str, is_ours: bool) -> None:
    assert (THE_OTHER.search(text) is None) is is_ours
