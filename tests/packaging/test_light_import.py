"""`import holdfast` is light, and so is a module that declares agents."""

import ast
import importlib
import json
from pathlib import Path

import holdfast
from tests.packaging.checkout import ROOT, run_python

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


def test_import_loads_the_standard_library_and_nothing_else(tmp_path: Path) -> None:
    assert loaded_by("import holdfast; assert holdfast.__file__", tmp_path) == {"holdfast"}


def test_declaring_an_agent_loads_pydantic_and_nothing_else(tmp_path: Path) -> None:
    code = "from holdfast import Agent, tool; Agent(name='a', tools=[tool(lambda x: x, name='t')])"
    loaded = loaded_by(code, tmp_path)
    assert "pydantic" in loaded
    assert loaded - ALLOWED == set()


def test_type_checkers_see_each_name_in_the_module_that_it_is_loaded_from() -> None:
    stub = ast.parse((ROOT / "holdfast" / "__init__.pyi").read_text("utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    places = {each.asname or "": node.module for node in imports for each in node.names}
    assert set(places) == {*holdfast.__all__, "_filters", "AsyncOpenAI"} - {"handoff_filters"}
    for name in set(places) - {"_filters"}:
        made = getattr(importlib.import_module(places[name] or ""), name)
        assert made is getattr(holdfast, name), name


def test_every_public_name_can_be_loaded_and_is_listed() -> None:
    assert all(getattr(holdfast, name) is not None for name in holdfast.__all__)
    assert set(holdfast.__all__) <= set(dir(holdfast))
