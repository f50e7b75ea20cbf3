"""Every place where a name may lead to an import or to code, held against docs/architecture.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CALLS = {
    *("import_module", "__import__", "find_spec", "spec_from_file_location", "entry_points"),
    *("eval", "exec", "run_path", "run_module", "loads_pickle", "attrgetter", "methodcaller"),
}
UNSAFE = {"compile", "pickle.load", "pickle.loads", "marshal.loads", "yaml.load", "shelve.open"}


def is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def leads_to_code(node: ast.AST) -> bool:
    """Whether an expression imports, runs code, looks a module up, or an attribute by a field."""
    match node:
        case ast.Subscript(value=ast.Attribute(attr="modules"), slice=name):
            return not is_constant(name)
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="modules"), attr="get")):
            return not is_constant(node.args[0])
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Attribute(), *_]):
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            is_fixed = all(map(is_constant, node.args))
            return (name in CALLS and not is_fixed) or ast.unparse(node.func) in UNSAFE
        case _:
            return False


def found() -> Iterator[str]:
    for top in ("holdfast", "workflows", "activities"):
        for file in sorted((ROOT / top).rglob("*.py")):
            tree = ast.parse(file.read_text("utf-8"))
            if any(map(leads_to_code, ast.walk(tree))):
                yield str(file.resolve().relative_to(ROOT))


def test_each_place_where_a_name_leads_to_code_is_in_the_table_with_its_rule() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    table = page.partition("## Names that lead to code")[2].partition("\n## ")[0]
    listed = [
        name
        for row in table.splitlines()
        if row.startswith("| `")
        for name in re.findall(r"`([\w/]+\.py)`", row.split("|")[1])
    ]
    assert sorted(listed) == sorted(set(found()))
