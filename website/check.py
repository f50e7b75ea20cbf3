"""Checks the built site: links inside it lead somewhere, and nothing is loaded from elsewhere."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from website.errors import SiteError
from website.stage import ROOT

SITE = ROOT / ".build" / "site"

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Elements whose address a browser requests by itself."""


@dataclass
class Page:
    """What one page refers to.

    Attributes:
        anchors: Its ids.
        links: Where its links lead.
        loads: What a browser requests to show it.
    """

    anchors: set[str] = field(default_factory=set[str])
    links: list[str] = field(default_factory=list[str])
    loads: list[str] = field(default_factory=list[str])


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.page.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and "href" in given:
            self.page.links.append(given["href"])
        if tag in LOADED and LOADED[tag] in given and given.get("rel") not in {"canonical", "edit"}:
            self.page.loads.append(given[LOADED[tag]])


def read_pages(site: Path = SITE) -> dict[str, Page]:
    """Return all pages of a built site, by path."""
    pages: dict[str, Page] = {}
    for path in site.rglob("*.html"):
        reader = _Reader()
        reader.feed(path.read_text("utf-8"))
        pages[path.relative_to(site).as_posix()] = reader.page
    return pages


def check(site: Path = SITE) -> None:
    """Check a built site.

    Raises:
        SiteError: A link leads nowhere, or a page would load something from another host.
    """
    pages = read_pages(site)
    wrong = [
        f"{path}: {problem}"
        for path, page in sorted(pages.items())
        if path != "404.html"  # is shown at any path
        for problem in _problems(site, path, page, pages)
    ]
    if wrong:
        raise SiteError("\n".join(["the built site has mistakes:", *wrong]))


def _problems(site: Path, path: str, page: Page, pages: dict[str, Page]) -> list[str]:
    found = [f"loads {each}" for each in page.loads if urlsplit(each).netloc]
    for link in {*page.links, *page.loads}:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(parts.path)))
        target = path if not parts.path else target
        if not (site / target).is_file():
            if not (site / target / "index.html").is_file():
                found.append(f"{link} leads nowhere")
        elif parts.fragment and target in pages:
            anchor = unquote(parts.fragment)
            if anchor not in pages[target].anchors and anchor != "__top":
                found.append(f"{link} has no such anchor")
    return found
