"""Markdown of models and people as HTML in which a browser finds nothing to obey or to fetch."""

from __future__ import annotations

from functools import lru_cache

from markdown_it import MarkdownIt

from holdfast.values.text.terminal import printable

_SCHEMES = ("https://", "http://", "mailto:")


class _Markdown(MarkdownIt):
    """CommonMark with tables: HTML stays text, an image is a link, a link leaves for the web."""

    def __init__(self) -> None:
        super().__init__("commonmark", {"html": False, "breaks": True})
        self.enable(["table", "strikethrough"]).disable(["image", "entity"])

    def validateLink(self, url: str) -> bool:  # noqa: N802  the library's name
        """Whether a link may be one: another scheme could run code, or act on the desk."""
        return url.casefold().startswith(_SCHEMES)


_MARKDOWN = _Markdown()


@lru_cache(500)
def rendered(source: str) -> str:
    """Return Markdown as HTML; its headings rank below those of the page."""
    tokens = _MARKDOWN.parse(source)
    for each in tokens:
        if each.type in ("heading_open", "heading_close"):
            each.tag = f"h{min(int(each.tag[1]) + 2, 6)}"
    return printable(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))
