"""The code blocks of the documentation's pages, and what runs each of them."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(r"^(?P<indent>\s*)(?P<mark>`{3,})(?P<info>.*)$")
SAID: dict[str, dict[str, str]] = tomllib.loads((ROOT / "website/blocks.toml").read_text("utf-8"))
RUN_BY = re.compile(r"run by (?P<file>tests/\S+\.py)")
TITLE = re.compile(r'^(?P<language>\w+) title="(?P<file>[\w./-]+)"$')


@dataclass(frozen=True)
class Block:
    """One code block.

    Attributes:
        page: Path of its page, from the root of the repository.
        line: Number of the line on which it opens.
        info: Its language, and the name of its file if it has one.
        text: What is in it.
        above: The last line with text above it.
    """

    page: str
    line: int
    info: str
    text: str
    above: str

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """The name of the file that it shows, if it is named."""
        found = TITLE.match(self.info)
        return found["file"] if found else None

    @property
    def is_shown(self) -> bool:
        """Whether it is no code: a drawing, or what a program prints."""
        return self.info == "text" or (not self.info and self.above == "Prints:")

    @property
    def said(self) -> str:
        """What blocks.toml says of it: why no test runs it, or which one does."""
        return SAID.get(self.page, {}).get(self.text.partition("\n")[0], "")

    @property
    def runner(self) -> Path | None:
        """The test that is named as its runner."""
        found = RUN_BY.fullmatch(self.said)
        return ROOT / found["file"] if found else None


def blocks(path: Path) -> Iterator[Block]:
    """Find all blocks of a page.

    Raises:
        ValueError: One is never closed.
    """
    page = path.relative_to(ROOT).as_posix()
    above, opened, held = "", None, list[str]()
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        mark = FENCE.match(line)
        if opened is None and mark:
            opened, held = (mark, number), []
        elif opened is not None and line.strip() == opened[0]["mark"]:
            text = "".join(f"{each}\n" for each in held)
            yield Block(page, opened[1], opened[0]["info"].strip(), text, above)
            opened, above = None, line.strip()
        elif opened is not None:
            held.append(line.removeprefix(opened[0]["indent"]))
        elif line.strip():
            above = line.strip()
    if opened is not None:
        msg = f"{page}:{opened[1]} is never closed"
        raise ValueError(msg)


ALL = [block for path in PAGES for block in blocks(path)]
