"""The documentation's site: it is built strictly, and looks right in a real browser."""

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import griffe
import pytest
from playwright.async_api import Browser, Page, expect

import website.build
from holdfast.agents_sdk.absent_names import ABSENT, LENT
from holdfast.serving.observed.metrics import METRICS
from holdfast.values.runs.verbs import VERBS
from tests.packaging.environments import made_once
from tests.support.desk import PATIENCE_MS
from tests.support.scale import EXHAUSTIVE
from website import generated
from website.check import SITE, check
from website.errors import SiteError
from website.llms import navigation
from website.reference import GROUPS, Group, Reference
from website.stage import Stage

WIDE, NARROW = 1280, 400
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- its name
        """Say nothing."""


def outline(group: Group, names: dict[str, griffe.Object]) -> str:
    """Return a page of the reference as its headings: mkdocstrings takes most of a build's time."""
    lines = [f"# {group.title}"]
    for name, each in names.items():
        members = each.all_members if isinstance(each, griffe.Class) else ()
        paths = [name, *(f"{name}.{member}" for member in members if member[0] != "_")]
        lines += [f"## {path} {{#{group.module}.{path}}}" for path in paths]
    return "\n\n".join(lines)


def build(_directory: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not EXHAUSTIVE:
            patch.setattr(generated, "page", outline)
        website.build.build()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Build the site and serve it; return its address."""
    made_once(tmp_path_factory, "site", build)
    handler = functools.partial(Quiet, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def watch(page: Page, site: str) -> list[str]:
    """Collect what goes wrong on a page, and what it asks of other hosts."""
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request",
        lambda asked: None if asked.url.startswith((site, "data:")) else wrong.append(asked.url),
    )
    return wrong


SOME = ("index.html", "desk.html", "reference/agent_runner.html")
"""Pages that `make test` looks at: text, pictures with tables, and docstrings."""


async def test_pages_are_right_at_both_widths_and_the_search_finds_a_word(
    site: str, browser: Browser
) -> None:
    pages = [path.relative_to(SITE).as_posix() for path in sorted(SITE.rglob("*.html"))]
    assert len(pages) > 30
    assert {*SOME} < {*pages}
    page = await browser.new_page()
    wrong = watch(page, site)
    for path in pages if EXHAUSTIVE else SOME:
        await page.set_viewport_size({"width": WIDE, "height": 900})
        await page.goto(f"{site}/{path}", timeout=PATIENCE_MS)
        for width in (WIDE, NARROW):
            await page.set_viewport_size({"width": width, "height": 900})
            if beyond := await page.evaluate(TOO_WIDE):
                wrong.append(f"{path} at {width} is {beyond} px too wide")
    await page.set_viewport_size({"width": WIDE, "height": 900})
    await page.keyboard.press("f")
    # The page hears keys: text set without any is not searched if it comes before the focus.
    await page.get_by_role("textbox", name="Search").press_sequentially("set_tracing_disabled")
    found = page.locator(".md-search-result__link[href*='reference/tracing.html']")
    await expect(found.first).to_be_visible(timeout=PATIENCE_MS)
    await page.close()
    assert wrong == []


def test_language_models_the_search_and_the_reference_have_what_the_code_has(site: str) -> None:
    listed = (SITE / "llms.txt").read_text("utf-8")
    full = (SITE / "llms-full.txt").read_text("utf-8")
    for _, pages in navigation():
        for page in pages:
            text = (SITE / page).read_text("utf-8")
            assert f"]({page}): " in listed
            assert text.splitlines()[0] in full
    assert "`holdfast.tool(" in full
    assert all(not line.endswith(": ") for line in listed.splitlines())
    text = (SITE / "reference" / "commands.md").read_text("utf-8")
    for command in ("dev", "worker", "inbox", "desk token make"):
        assert f"## `holdfast {command}`" in text
    tables: dict[str, list[str]] = {
        "signals": [*VERBS],
        "metrics": [*METRICS],
        "absent_names": [*ABSENT, *LENT],
    }
    for page, names in tables.items():
        text = (SITE / "reference" / f"{page}.md").read_text("utf-8")
        assert [name for name in names if f"`{name}`" not in text] == []
    routes = (SITE / "reference" / "http_api.md").read_text("utf-8")
    assert "* `POST /approvals/{approval_id}/snooze`: " in routes
    known = json.loads((SITE / "search" / "search_index.json").read_text("utf-8"))["docs"]
    places = {each["location"] for each in known}
    assert "reference/agent_runner.html#holdfast.AgentRunner.create_task" in places


# ---- what stops a build


def test_a_mistake_of_the_built_site_is_told(tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text('<p id="here">', "utf-8")
    fine = '<a href="other.html#here">x</a><a href="https://example.com">y</a>'
    (tmp_path / "page.html").write_text(fine, "utf-8")
    check(tmp_path)
    for body, problem in (
        ('<a href="gone.html">x</a>', "gone.html leads nowhere"),
        ('<a href="other.html#gone">x</a>', "other.html#gone has no such anchor"),
        ('<script src="https://cdn.example.com/x.js"></script>', "loads https://cdn.example.com"),
        ('<link rel="stylesheet" href="//fonts.example.com/x.css">', "loads //fonts.example.com"),
    ):
        (tmp_path / "page.html").write_text(fine + body, "utf-8")
        with pytest.raises(SiteError, match=f"page.html: {problem}"):
            check(tmp_path)


def test_a_public_name_without_a_docstring_or_a_page_is_told(tmp_path: Path) -> None:
    package = tmp_path / "holdfast"
    for name in {each.module for each in GROUPS} - {"holdfast", "holdfast.errors"}:
        folder = tmp_path.joinpath(*name.split("."))
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text('"""Empty."""\n__all__ = []\n', "utf-8")
    (package / "errors.py").write_text("class BadError(Exception):\n    pass\n", "utf-8")
    (package / "__init__.py").write_text("__all__ = []\n", "utf-8")
    assert Reference(str(tmp_path)).undocumented() == ["holdfast.errors.BadError"]
    text = "from holdfast.new import thing\n__all__ = ['thing']\n"
    (package / "__init__.py").write_text(text, "utf-8")
    (package / "new.py").write_text("def thing():\n    pass\n", "utf-8")
    with pytest.raises(SiteError, match=r"holdfast\.thing .* is on no page"):
        Reference(str(tmp_path)).pages()


def test_links_lead_to_the_copies_and_code_stays_as_it_is() -> None:
    stage = Stage()
    text = "[a](../README.md#install) [b](../examples/desk/webhook.py) [c](people.md)\n"
    assert stage.relinked("docs/desk.md", text) == (
        "[a](overview.md#install) [b](files/examples/desk/webhook.py.md) [c](people.md)\n"
    )
    assert stage.shown == {"examples/desk/webhook.py"}
    code = "```python\n[a](../README.md)\n```\n"
    assert stage.relinked("docs/desk.md", code) == code
