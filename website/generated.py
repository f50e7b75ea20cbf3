"""Pages that are made from the code: the reference, the commands, the blocking API."""

from __future__ import annotations

import inspect
from typing import Any

import typer
import typer.cli
from typer.main import get_command

from holdfast.cli.app import app
from holdfast.cli.exits import EPILOG
from holdfast.sync import AgentRunner, Progress, Session
from website import messages, tables
from website.errors import SiteError
from website.reference import Reference, page, plain
from website.stage import HOME, SOURCE, copy_source, write_page

PLAIN = HOME / "plain"
"""The pages of the reference as text, for llms-full.txt."""


def make() -> None:
    """Write all pages that are made from the code.

    Raises:
        SiteError: A public name has no docstring, or is on no page.
    """
    copy_source()
    reference = Reference(str(SOURCE))
    if missing := reference.undocumented():
        msg = f"without a docstring: {', '.join(missing)}"
        raise SiteError(msg)
    pages = reference.pages()
    PLAIN.mkdir(parents=True, exist_ok=True)
    lines = ["# API reference\n", "Every public name, from its docstring.\n"]
    for group, names in pages.items():
        write_page(f"reference/{group.name}.md", page(group, names))
        (PLAIN / f"{group.name}.md").write_text(plain(group, names), "utf-8")
        lines.append(f"* [{group.title}]({group.name}.md): {group.about}")
    lines.append("* [holdfast.sync](sync.md): the step API without `await`.")
    lines.append("* [Error messages](messages.md): every message, and what to do about it.")
    lines.append("* [Command line](commands.md): every command of `holdfast`.")
    for name, text in tables.pages().items():
        title = text.partition("\n")[0].removeprefix("# ")
        write_page(f"reference/{name}.md", text)
        lines.append(f"* [{title}]({name}.md): made from the tables of the code.")
    write_page("reference/index.md", "\n".join(lines) + "\n")
    write_page("reference/sync.md", _sync())
    write_page("reference/commands.md", _commands())
    write_page("reference/messages.md", messages.page(SOURCE / "holdfast"))


def _sync() -> str:
    """Return the page of the blocking twins: their names, which lead to the async ones."""
    about = (
        "The step API without `await`: each method does what its async twin does, and returns what"
        " the twin's `await` returns. Import from `holdfast.sync`.\n"
    )
    parts = ["# holdfast.sync\n", about]
    for twin in (AgentRunner, Session):
        parts.append(f"## {twin.__name__}\n")
        for name, member in sorted(vars(twin).items()):
            if name.startswith("_"):
                continue
            summary = (inspect.getdoc(member) or "").partition("\n")[0]
            shown = f"`{name}`"
            if callable(getattr(twin, name)):
                shown = f"[{shown}][holdfast.{twin.__name__}.{name}]"
            parts.append(f"* {shown}: {summary}")
        parts.append("")
    parts.append(f"## Progress\n\n{inspect.getdoc(Progress)}\n")
    return "\n".join(parts)


def _commands() -> str:
    """Return the page of the command line, as the commands describe themselves."""
    command = get_command(app)
    context = typer.Context(command, info_name="holdfast")
    described: Any = context  # its class is one that typer keeps to itself
    text = typer.cli.get_docs_for_click(
        obj=command, ctx=described, name="holdfast", title="Command line"
    )
    codes = EPILOG.strip()
    without = text.replace(f"{codes}\n", "")  # every command repeats them
    return without.replace("# Command line\n", f"# Command line\n\n{codes}\n", 1)
