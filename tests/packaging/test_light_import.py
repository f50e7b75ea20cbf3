"""`import holdfast` is light: Temporal's sandbox executes it again for every workflow."""

import json
from pathlib import Path

from tests.packaging.checkout import run_python

ALLOWED = {
    "annotated_types",
    "holdfast",
    "pydantic",
    "pydantic_core",
    "typing_extensions",
    "typing_inspection",
}
"""pydantic with what it needs itself, and ours."""


def loaded_by(statement: str, cwd: Path) -> set[str]:
    """Return the top-level modules outside the standard library that a statement loads."""
    code = (
        "import json, sys; before = set(sys.modules)\n"
        f"{statement}\n"
        "names = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(json.dumps(sorted(names - sys.stdlib_module_names)))"
    )
    names: list[str] = json.loads(run_python(code, cwd=cwd))
    # Part of the standard library, but named after the platform and so not on its list.
    return {name for name in names if not name.startswith("_sysconfigdata_")}


def test_import_loads_pydantic_and_nothing_else(tmp_path: Path) -> None:
    loaded = loaded_by("import holdfast; assert holdfast.__file__", tmp_path)
    assert "holdfast" in loaded
    assert loaded - ALLOWED == set()
