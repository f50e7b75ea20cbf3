"""llms.txt and llms-full.txt: the documentation for language models (https://llmstxt.org).

Each page's Markdown lies beside its HTML. `llms.txt` lists them in the order of the navigation;
`llms-full.txt` has all of them, and the reference as signatures with docstrings, in one file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import yaml

from website.check import SITE
from website.generated import PLAIN
from website.stage import PAGES, ROOT

ABOUT = (
    "Durable agents on Temporal, in Python. One task is one Temporal workflow; its model calls and"
    " tool calls are activities, a ledger records every step, and people approve,"
    " undo, rewind and fork."
)


def write() -> None:
    """Write both files, and the pages' Markdown, into the built site."""
    listed, full = [f"# Holdfast\n\n> {ABOUT}\n"], [f"# Holdfast\n\n{ABOUT}\n"]
    for section, pages in navigation():
        listed.append(f"## {section}\n")
        for page in pages:
            text = _text(page)
            (SITE / page).parent.mkdir(parents=True, exist_ok=True)
            (SITE / page).write_text(text, "utf-8")
            listed.append(f"- [{_title(text)}]({page}): {_summary(text)}")
            full.append(text)
        listed.append("")
    (SITE / "llms.txt").write_text("\n".join(listed), "utf-8")
    (SITE / "llms-full.txt").write_text("\n\n".join(full), "utf-8")


def navigation() -> list[tuple[str, list[str]]]:
    """Return the sections of the navigation with the paths of their pages."""
    text = (ROOT / "website" / "mkdocs.yml").read_text("utf-8")
    # The settings name Python functions, which only MkDocs's own loader knows.
    [found] = re.findall(r"^nav:\n(?:[ -].*\n|\n)+", text, re.MULTILINE)
    return [
        (section, list(_paths(pages)))
        for each in yaml.safe_load(found)["nav"]
        for section, pages in each.items()
    ]


def _paths(entry: Any) -> Iterator[str]:
    match entry:
        case str():
            yield entry
        case dict():
            for each in cast("dict[str, Any]", entry).values():
                yield from _paths(each)
        case _:
            for each in entry:
                yield from _paths(each)


def _text(page: str) -> str:
    """Return the Markdown of a page; for one of the reference, its names and docstrings."""
    found = PLAIN / page.removeprefix("reference/")
    if page.startswith("reference/") and found.is_file():
        return found.read_text("utf-8")
    return (PAGES / page).read_text("utf-8")


def _title(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("# "))[2:]


def _summary(text: str) -> str:
    """Return the first sentence of a page."""
    paragraphs = re.split(r"\n\s*\n", text)
    first = next(each for each in paragraphs[1:] if re.match(r"[A-Z*`\[]", each))
    words = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", " ".join(first.split()))
    return re.split(r"(?<=\.)\s", words)[0]
