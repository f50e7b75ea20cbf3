"""Copies the pages to where the site is built from, with links that lead to where things are there.

Pages link as GitHub reads them, by paths of the repository. A link to a page leads to its copy, a
link to a program or a settings file to a page that shows it.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
HOME = ROOT / ".build" / "docs"
PAGES = HOME / "pages"
SOURCE = HOME / "source"

ELSEWHERE = {
    "README.md": "overview.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages outside docs/, and the names of their copies."""

LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
LANGUAGES = {".py": "python", ".yml": "yaml", ".toml": "toml", ".json": "json"}


class Stage:
    """The copies of all pages, and the pages that show files."""

    def __init__(self) -> None:
        self.pages = {
            **{f"docs/{path.relative_to(DOCS).as_posix()}": path for path in DOCS.rglob("*.md")},
            **{name: ROOT / name for name in ELSEWHERE},
        }
        self.shown: set[str] = set()

    def place(self, page: str) -> str:
        """Return the path of a page's copy, from its path in the repository."""
        return ELSEWHERE.get(page) or page.removeprefix("docs/")

    def copy(self) -> None:
        """Copy all pages and pictures, and make the pages that show files."""
        shutil.rmtree(PAGES, ignore_errors=True)
        for page, path in self.pages.items():
            write_page(self.place(page), self.relinked(page, path.read_text("utf-8")))
        for path in (DOCS / "images").iterdir():
            target = PAGES / "images" / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        shutil.copytree(Path(__file__).parent / "assets", PAGES / "assets")
        for file in sorted(self.shown):
            text = (ROOT / file).read_text("utf-8")
            language = LANGUAGES.get(Path(file).suffix, "text")
            write_page(f"files/{file}.md", f"# {file}\n\n````{language}\n{text}````\n")

    def relinked(self, page: str, text: str) -> str:
        """Return a page's text with links that fit the place of its copy. Code stays as it is."""
        lines: list[str] = []
        fence = ""
        for line in text.splitlines(keepends=True):
            mark = FENCE.match(line)
            if mark and not fence:
                fence = mark[1]
            elif mark and line.strip() == fence:
                fence = ""
            lines.append(line if fence else self._relinked_line(page, line))
        return "".join(lines)

    def _relinked_line(self, page: str, line: str) -> str:
        return LINK.sub(lambda found: f"{found[1]}{self._target(page, found[2])}{found[3]}", line)

    def _target(self, page: str, link: str) -> str:
        path, mark, anchor = link.partition("#")
        if not path or ":" in path:
            return link
        file = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        if file in self.pages:
            copy = self.place(file)
        elif file.startswith("docs/") and (ROOT / file).is_file():
            copy = file.removeprefix("docs/")  # a picture
        elif not (ROOT / file).is_file():
            return link  # which fails the build
        else:
            self.shown.add(file)
            copy = f"files/{file}.md"
        start = posixpath.dirname(self.place(page)) or "."
        return posixpath.relpath(copy, start) + mark + anchor


def copy_source() -> None:
    """Copy the package for griffe, which reads neither links nor packages without __init__.py."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(
        ROOT / "holdfast", SOURCE / "holdfast", ignore=shutil.ignore_patterns("__pycache__")
    )
    for folder in (SOURCE / "holdfast").rglob("*"):
        if folder.is_dir():
            (folder / "__init__.py").touch()


def write_page(place: str, text: str) -> None:
    """Write a page of the site."""
    target = PAGES / place
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, "utf-8")
