"""The page of all error messages, each with what to do about it, as the code has them."""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from holdfast import errors

HEAD = """# Error messages

Every message of the code, under the class of the error that it raises. `...` is a name, a value or
another error's text. [Common errors](../errors.md) explains what most people meet.
"""
WORDS = 3
"""Fewest words of a message: others only pass another error's text on."""


def texts(node: ast.expr | None) -> str:
    """Return the text of a literal, with `...` for what is filled in; nothing for other code."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(texts(part) or "..." for part in node.values)
    return ""


def raised(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yield class, message and remedy of each error that a module makes."""
    for node in _blocks(tree):
        said: dict[str, str] = {}
        for line in [*_lines(node, "body"), *_lines(node, "orelse")]:
            if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
                said[line.targets[0].id] = texts(line.value)
            made = line.exc if isinstance(line, ast.Raise) else getattr(line, "value", None)
            if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.args:
                first = made.args[0]
                message = said.get(first.id, "") if isinstance(first, ast.Name) else texts(first)
                cures = [texts(each.value) for each in made.keywords if each.arg == "remedy"]
                yield made.func.id, message, "".join(cures)


def _blocks(node: Any) -> Iterator[Any]:
    """Yield a statement and all below it; expressions are most of a tree, and raise nothing."""
    yield node
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for line in _lines(node, part):
            yield from _blocks(line)


def _lines(node: ast.AST, part: str) -> list[Any]:
    lines: Any = getattr(node, part, None)
    return [*lines] if isinstance(lines, list) else []  # a lambda's body is an expression


def messages(code: Iterable[Path]) -> dict[str, list[tuple[str, str]]]:
    """Return each message and its remedy in files of code, by the name of Holdfast's error."""
    found: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for path in code:
        for name, message, cure in raised(ast.parse(path.read_text("utf-8"))):
            if len(re.findall(r"[a-z]{2,}", message)) >= WORDS:
                found[name].add((message, cure))
    named = (name for name, each in vars(errors).items() if inspect.isclass(each))
    return {name: sorted(found[name]) for name in named if name in found}


def page(package: Path) -> str:
    """Return the page for the code below a directory."""
    parts = [HEAD]
    for name, found in messages(package.rglob("*.py")).items():
        about = (inspect.getdoc(getattr(errors, name)) or "").partition("\n")[0]
        rows = [f"| {plain(said)} | {plain(cure)} |" for said, cure in found]
        parts.append(f"## {name}\n\n{about}\n\n| message | what to do |\n| --- | --- |")
        parts[-1] += "\n" + "\n".join(rows) + "\n"
    return "\n".join(parts)


def plain(text: str) -> str:
    """Return a text as a cell of a table that shows it as it is."""
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", " ".join(text.split()))
