"""Holds the pages to what can be read: each one kind, short sentences, plain words, one length.

    python -m website.prose [--write] [PAGE ...]

Prints each page's figures, and of pages that are named what they have of `words.txt`. `pages.toml`
has the kind of each page, and the limits of pages, and of the docstrings, that do not meet the
standard yet: they may only fall. `--write` lowers them.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from website import messages
from website.errors import SiteError
from website.stage import DOCS, ELSEWHERE, ROOT

TABLE = Path(__file__).parent / "pages.toml"
LIST = Path(__file__).parent / "words.txt"
KINDS = ("tutorial", "how-to", "explanation", "reference")

CODE = re.compile(r"^([ \t]*)(`{3,}|~{3,})[^\n]*\n.*?^\1\2[ \t]*$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
INLINE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
HEADING = re.compile(r"^#+ .*$", re.MULTILINE)
ROW = re.compile(r"^[ \t]*\|.*$", re.MULTILINE)
ENDS = re.compile(r"\n\s*\n|\n[ \t]*(?:[*+-]|\d+\.)[ \t]+|(?<=[.!?])[)\"*_]*\s+(?=\W*[A-Z0-9])")
"""Where a sentence ends: a blank line, an item of a list, or a full stop before a capital."""
TRIPLE = re.compile(r'(= f?|\()?"""(.*?)"""', re.DOTALL)
"""A text in triple quotes, after what shows that it is a value and not a docstring."""
DOCSTRINGS, MESSAGES = "docstrings", "error messages"
"""Where the table has the limits of what the code says: of the words of the list alone."""
ALL = "README and docs"
"""Where the table has the most words that these may have in all, with code and tables."""
WORD = re.compile(r"\w[\w'-]*")


@dataclass(frozen=True)
class Figures:
    """How a page reads, or the most that it may have of each.

    Attributes:
        words: Words of prose, without code, headings and tables.
        sentence: Average number of words of a sentence.
        hits: Words and turns of `words.txt`, also in tables.
    """

    words: float
    sentence: float
    hits: int


def standard(kind: str) -> Figures:
    """Return the most that a page of a kind may have. References are as long as they must be."""
    return Figures(float("inf") if kind == "reference" else 1500, 20, 0)


def measure(text: str, words: list[re.Pattern[str]]) -> Figures:
    """Return the figures of a page's text."""
    plain = without_code(text)
    sentences = [WORD.findall(each) for each in ENDS.split(ROW.sub("", HEADING.sub("\n", plain)))]
    counted = [len(each) for each in sentences if each]
    total = sum(counted)
    return Figures(total, round(total / max(len(counted), 1), 1), len(hits(text, words)))


def without_code(text: str) -> str:
    """Return a page's text without its blocks of code, comments and targets of links."""
    return INLINE.sub("Code", LINK.sub(r"\1", COMMENT.sub("", CODE.sub("", text))))


def hits(text: str, words: list[re.Pattern[str]]) -> list[str]:
    """Return the words and turns of the list that a page has, each with what is around it."""
    plain = " ".join(without_code(text).split())
    found = [each for word in words for each in word.finditer(plain)]
    return [plain[max(each.start() - 30, 0) : each.end() + 20] for each in found]


def read_words() -> list[re.Pattern[str]]:
    """Return the words and turns of `words.txt`."""
    lines = LIST.read_text("utf-8").splitlines()
    return [re.compile(line, re.IGNORECASE) for line in lines if line[:1] not in {"", "#"}]


def pages() -> dict[str, Figures]:
    """Return the figures of all pages that people wrote, by their paths in the repository."""
    words = read_words()
    files = [*(ROOT / name for name in ELSEWHERE), *sorted(DOCS.rglob("*.md"))]
    figures = {
        path.relative_to(ROOT).as_posix(): measure(path.read_text("utf-8"), words) for path in files
    }
    read = [path for path in files if path.name == "README.md" or path.is_relative_to(DOCS)]
    written = sum(len(path.read_text("utf-8").split()) for path in read)
    code = (DOCSTRINGS, docstrings()), (MESSAGES, error_messages())
    said = {name: Figures(0, 0, len(hits(text, words))) for name, text in code}
    return figures | said | {ALL: Figures(written, 0, 0)}


def code() -> Iterator[Path]:
    """Yield the modules of the product."""
    for name in ("holdfast", "workflows", "activities"):
        yield from sorted((ROOT / name).rglob("*.py"))


def docstrings() -> str:
    """Return the docstrings of the product: the reference is made of them."""
    found = (TRIPLE.findall(path.read_text("utf-8")) for path in code())
    return ".\n\n".join(text for each in found for value, text in each if not value)


def error_messages() -> str:
    """Return the messages of the product's errors, and what they say to do."""
    found = messages.messages(code()).values()
    return ".\n\n".join(text for each in found for said in each for text in said)


def problems(found: dict[str, Figures], table: dict[str, dict[str, Any]]) -> list[str]:
    """Return what is wrong with pages, given the rows of `pages.toml`."""
    wrong = [f"{page}: is in website/pages.toml, and is no page" for page in table.keys() - found]
    for page, figures in found.items():
        kind = table.get(page, {}).get("kind")
        if kind not in KINDS:
            wrong.append(f"{page}: give it one kind in website/pages.toml: {', '.join(KINDS)}")
            continue
        limits = asdict(standard(kind)) | table[page]
        wrong += [
            f"{page}: {name} {figure:g}, at most {limits[name]:g}"
            for name, figure in asdict(figures).items()
            if figure > limits[name]
        ]
    return wrong


def lowered(figures: Figures, row: dict[str, Any]) -> dict[str, Any]:
    """Return a page's row with limits as low as its figures allow, and none above what it had."""
    usual, now = asdict(standard(row["kind"])), asdict(figures)
    kept = {name: min(row.get(name, usual[name]), max(now[name], usual[name])) for name in usual}
    return {"kind": row["kind"], **{n: each for n, each in kept.items() if each != usual[n]}}


def read_table() -> dict[str, dict[str, Any]]:
    """Return the rows of `pages.toml`, by page."""
    return tomllib.loads(TABLE.read_text("utf-8"))


def write_table(rows: dict[str, dict[str, Any]]) -> None:
    """Write `pages.toml`, one line a page."""
    head = "# Each page has one kind. Limits: of pages above the standard. They may only fall.\n"
    lines: list[str] = []
    for page, row in sorted(rows.items()):
        fields = ", ".join(f"{name} = {json.dumps(value)}" for name, value in row.items())
        lines.append(f"{json.dumps(page)} = {{ {fields} }}\n")
    TABLE.write_text(head + "".join(lines), "utf-8")


def check() -> None:
    """Check all pages.

    Raises:
        SiteError: A page has no kind, or is harder to read than it may be.
    """
    if wrong := problems(pages(), read_table()):
        raise SiteError("\n".join(["the pages are harder to read than they may be:", *wrong]))


def main() -> None:
    """Print the figures, and lower the limits if asked."""
    found, table = pages(), read_table()
    for page, each in found.items():
        print(f"{page:32} {each.words:6g} words {each.sentence:5g} a sentence {each.hits:4} hits")
    prose = sum(each.words for page, each in found.items() if page.endswith(".md"))
    print(f"{prose:g} words of prose")
    for page in found.keys() & {*sys.argv}:
        of_code = {DOCSTRINGS: docstrings, MESSAGES: error_messages}
        text = of_code[page]() if page in of_code else (ROOT / page).read_text("utf-8")
        print(page, *hits(text, read_words()), sep="\n  ")
    if "--write" in sys.argv:
        kept = {page: row for page, row in table.items() if page in found}
        write_table({page: lowered(found[page], row) for page, row in kept.items()})
    sys.exit("\n".join(problems(found, read_table())) or 0)


if __name__ == "__main__":
    main()
