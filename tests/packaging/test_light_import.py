"""`import holdfast` is light, and so is a module that declares agents."""

import ast
import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

import holdfast
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


def test_import_loads_the_standard_library_and_nothing_else(tmp_path: Path) -> None:
    assert loaded_by("import holdfast; assert holdfast.__file__", tmp_path) == {"holdfast"}


def test_declaring_an_agent_loads_pydantic_and_nothing_else(tmp_path: Path) -> None:
    code = "from holdfast import Agent, tool; Agent(name='a', tools=[tool(lambda x: x, name='t')])"
    loaded = loaded_by(code, tmp_path)
    assert "pydantic" in loaded
    assert loaded - ALLOWED == set()


STUBS = sorted(Path(str(holdfast.__file__)).parent.rglob("__init__.pyi"))
NAMES = [".".join(path.parts[path.parts.index("holdfast") : -1]) for path in STUBS]
PACKAGES = pytest.mark.parametrize("package", [*map(importlib.import_module, NAMES)], ids=NAMES)


@PACKAGES
def test_type_checkers_see_each_name_in_the_module_that_it_is_loaded_from(
    package: ModuleType,
) -> None:
    stub = ast.parse(Path(str(package.__file__)).with_suffix(".pyi").read_text("utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    places = {each.asname: (str(node.module), each.name) for node in imports for each in node.names}
    assert set(places) - {"AsyncOpenAI"} == set(package.__all__) <= set(dir(package))
    for here, (module, there) in places.items():
        assert getattr(package, str(here)) is getattr(importlib.import_module(module), there), here


def test_the_product_has_few_names() -> None:
    assert len(holdfast.__all__) <= 91


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ReasoningItem", "write from holdfast.agents_sdk import ReasoningItem"),
        ("ComputerTool", "use function tools"),
        ("EncryptedSession", "write from holdfast.agents_sdk import EncryptedSession"),
    ],
)
def test_a_name_that_only_the_sdk_has_is_refused_with_its_place(name: str, said: str) -> None:
    with pytest.raises(ImportError, match=said):
        exec(f"from holdfast import {name}")
    with pytest.raises(AttributeError, match=said):
        getattr(holdfast, name)


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match="Did you mean 'Agent'"):
        _ = holdfast.Agnet
