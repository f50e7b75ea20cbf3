"""The two directories at the root are ours by one name only."""

import ast
from pathlib import Path

import pytest

from tests.packaging.checkout import MAPPED, ROOT, python_files, run_python

TREES = (*MAPPED, "holdfast", "tests", "examples", "benchmarks")


def imported_names(path: Path) -> set[str]:
    """Return the top-level names that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add((node.module or "").partition(".")[0])
    return names


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
def test_directory_at_the_root_is_no_package(name: str) -> None:
    assert (ROOT / name).is_dir()
    assert not (ROOT / name / "__init__.py").exists()


@pytest.mark.parametrize("name", MAPPED)
def test_link_leads_to_the_directory_at_the_root(name: str) -> None:
    assert (ROOT / "holdfast" / name).samefile(ROOT / name)


@pytest.mark.parametrize("name", MAPPED)
def test_import_name_works_outside_the_checkout(name: str, tmp_path: Path) -> None:
    module = next(python_files(ROOT / name))
    dotted = ".".join(module.relative_to(ROOT).with_suffix("").parts)
    code = f"import holdfast.{dotted} as m; print(m.__file__)"
    found = Path(run_python(code, cwd=tmp_path))
    assert found.samefile(module)


def test_nothing_imports_them_by_their_bare_name() -> None:
    files = [path for tree in TREES if (ROOT / tree).is_dir() for path in python_files(ROOT / tree)]
    bare = [path for path in [*files, ROOT / "worker.py"] if imported_names(path) & set(MAPPED)]
    assert bare == []
