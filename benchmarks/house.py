"""Numbers that hold the house: how much code there is, and how much of it is loaded and entered.

    python -m benchmarks.house [--write]

Prints each figure beside its limit in `house.toml`. `--write` makes the limits of the figures.
`tests/packaging/test_house.py` holds them.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.entered import entered

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "benchmarks" / "house.toml"
TREES = ("holdfast", "workflows", "activities")
OUTSIDE = {"workflows", "activities"}
"""Packages of `holdfast` that are directories at the root."""

DIRECTIVE = re.compile(r"#\s*(noqa|type:|pyright:|fmt:|ruff:|pragma:|!)")
"""Comments that are for tools."""

Figures = dict[str, float]
"""Figures by their names, as `code lines: task`."""


@dataclass(frozen=True)
class Kind:
    """What is wanted of figures whose names begin alike.

    Attributes:
        step: Limits are multiples of it, which leaves room for small changes.
        slack: How much better than its limit a figure may be, as a part of the limit and at least
            two steps: a figure that is better by more makes the limit too loose.
        is_least: Whether the limit is the least, not the most.
    """

    step: float
    slack: float = 0.01
    is_least: bool = False

    def limit(self, figure: float) -> float:
        """Return the limit of a figure as it is now."""
        steps = figure // self.step if self.is_least else -(-figure // self.step)
        return round(steps * self.step, 4)

    def verdict(self, figure: float, limit: float) -> str:
        """Return "worse", "better", or nothing where figure and limit fit."""
        gain = figure - limit if self.is_least else limit - figure
        if gain < 0:
            return "worse"
        return "better" if gain > max(2 * self.step, self.slack * limit) else ""


KINDS = {
    "files": Kind(1),
    "functions": Kind(10, 0.02),
    "imports": Kind(1),
    "code lines": Kind(50),
    "test lines": Kind(500, 0.05),
    "comments": Kind(0.0005, 0.1, is_least=True),
}


def kind_of(name: str) -> Kind:
    """Return what is wanted of a figure."""
    return KINDS[name.partition(":")[0]]


def limits() -> Figures:
    """Return the limits, by the names of the figures."""
    found: dict[str, Figures] = tomllib.loads(TABLE.read_text("utf-8"))
    return {f"{kind}: {name}": each for kind, part in found.items() for name, each in part.items()}


# Code: the files of the product, without links, and those of the tests.


def files(*trees: str) -> Iterator[Path]:
    """Yield the Python files of directories of the checkout, each once, without following links."""
    for tree in trees:
        for folder, _, names in sorted(os.walk(ROOT / tree)):  # which follows no links
            yield from (Path(folder, name) for name in sorted(names) if name.endswith(".py"))


def package(path: Path) -> str:
    """Return the package of a file: `task` of `holdfast/task/undo.py`."""
    parts = path.relative_to(ROOT).parts
    return parts[0] if parts[0] != "holdfast" else parts[1].removesuffix(".py")


@cache
def counted(path: Path) -> tuple[int, int]:
    """Return how many lines of code, and how many lines of comments, a file has.

    Code is what is neither blank, comment nor docstring. A comment is a line of its own, for
    people.
    """
    text = path.read_text("utf-8")
    lines = {n: line.strip() for n, line in enumerate(text.splitlines(), 1)}
    comments = [line for line in lines.values() if line.startswith("#")]
    docstrings = _docstrings(parsed(path).body)
    code = {n for n, line in lines.items() if line and not line.startswith("#")} - docstrings
    return len(code), sum(DIRECTIVE.match(line) is None for line in comments)


def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text("utf-8"))


def _docstrings(body: list[ast.stmt]) -> set[int]:
    """Return the lines of all strings that are statements: docstrings, also of attributes."""
    found: set[int] = set()
    for node in body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        for part in ("body", "orelse", "finalbody"):
            found |= _docstrings(getattr(node, part, []))
    return found


def code_figures() -> Figures:
    """Count the lines of code of each package, of the product and of the tests, and comments."""
    found: Figures = {"code lines: product": 0, "test lines: all": 0}
    for path in files(*TREES):
        name = f"code lines: {package(path)}"
        found[name] = found.get(name, 0) + counted(path)[0]
        found["code lines: product"] += counted(path)[0]
    for path in files("tests"):
        found["test lines: all"] += counted(path)[0]
    for tree in ("workflows", "holdfast/task/ledger"):
        code, comments = (sum(each) for each in zip(*map(counted, files(tree)), strict=True))
        found[f"comments: {tree}"] = round(comments / code, 4)
    return found


# Imports.


def module_name(path: Path) -> str:
    """Return the name by which a file of the product is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] in OUTSIDE:
        parts = ("holdfast", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph() -> dict[str, set[str]]:
    """Return which modules of ours each module imports when it is itself imported.

    Imports inside functions and those for type checkers alone are left out, and so is the package
    `holdfast` itself, which loads its names late.
    """
    paths = {module_name(path): path for path in files(*TREES)}
    del paths["holdfast"]
    graph: dict[str, set[str]] = {}
    for name, path in paths.items():
        asked = {
            each if each in paths else each.rpartition(".")[0] for each in _imported(parsed(path))
        }
        graph[name] = (asked & paths.keys()) - {name}
    return graph


def _imported(node: ast.AST) -> Iterator[str]:
    """Yield what the statements below a node import: modules, and names with their modules."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                continue
            case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.expr():
                continue
            case ast.Import():
                yield from (each.name for each in child.names)
            case ast.ImportFrom(module=str(module)):
                yield from (f"{module}.{each.name}" for each in child.names)
            case _:
                yield from _imported(child)


def longest_chain(graph: dict[str, set[str]]) -> list[str]:
    """Return the longest chain of modules each of which imports the next one."""
    known: dict[str, list[str]] = {}

    def below(name: str) -> list[str]:
        if name not in known:
            chains = [below(each) for each in sorted(graph[name])]
            known[name] = [name, *max(chains, key=len, default=list[str]())]
        return known[name]

    return max(map(below, sorted(graph)), key=len)


def loaded_by(statement: str) -> int:
    """Return how many modules of ours a statement runs in a fresh process."""
    code = (
        f"{statement}\nimport sys\nprint(sum(n.split('.')[0] == 'holdfast' for n in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    return int(done.stdout)


def import_figures() -> Figures:
    """Count the modules that imports run, and the length of the longest chain of imports."""
    return {
        "imports: import holdfast": loaded_by("import holdfast"),
        "imports: from holdfast import Agent": loaded_by("from holdfast import Agent"),
        "imports: longest chain": len(longest_chain(import_graph())),
    }


def entered_figures() -> Figures:
    """Count the files and functions that the commonest ways enter; see `entered`."""
    found: Figures = {}
    for way, counts in asyncio.run(entered()).items():
        found[f"files: {way}"] = len(counts)
        found[f"functions: {way}"] = counts.total()
    return found


def entered_apart() -> Figures:
    """Count the same in a process of its own: whatever else runs in this one would count, too."""
    code = "import json, benchmarks.house as h; print(json.dumps(h.entered_figures()))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    figures: Figures = json.loads(done.stdout)
    return figures


# The table, and its copy in the documentation.


def written(found: Figures) -> str:
    """Return the text of the table whose limits fit these figures."""
    lines = [
        "# Made by `python -m benchmarks.house --write`; held by tests/packaging/test_house.py."
    ]
    for kind, wanted in KINDS.items():
        lines += ["", f'["{kind}"]']
        for name in sorted(found):
            if name.startswith(f"{kind}:"):
                limit = wanted.limit(found[name])
                lines.append(f'"{name.partition(": ")[2]}" = {limit:g}')
    return "\n".join(lines) + "\n"


def main(*, writes: bool) -> None:
    """Print all figures.

    Args:
        writes: Whether they become the limits.
    """
    found = code_figures() | import_figures() | entered_apart()
    if writes:
        TABLE.write_text(written(found), "utf-8")
    held = limits()
    for name, figure in sorted(found.items()):
        limit = held.get(name, 0)
        verdict = kind_of(name).verdict(figure, limit)
        print(f"{figure:>10,g} {limit:>10,g}  {name}  {verdict}".rstrip())
    print("longest chain:", " > ".join(longest_chain(import_graph())))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="make the limits of the figures")
    main(writes=parser.parse_args().write)
