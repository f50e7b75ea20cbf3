"""Small parts of pages: texts, chips, code, empty states. All text is shown as text."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import quote, urlencode

from nicegui import ui
from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement

from holdfast.desk.views.markdown import rendered
from holdfast.desk.views.words import clock
from holdfast.values.text.terminal import printable

Tone = Literal["good", "bad", "warn", "info", "calm"]

TONES: dict[str, str] = {
    "good": "bg-emerald-100 text-emerald-900 dark:bg-emerald-950 dark:text-emerald-200",
    "bad": "bg-rose-100 text-rose-900 dark:bg-rose-950 dark:text-rose-200",
    "warn": "bg-amber-100 text-amber-900 dark:bg-amber-950 dark:text-amber-200",
    "info": "bg-indigo-100 text-indigo-900 dark:bg-indigo-950 dark:text-indigo-200",
    "calm": "bg-slate-200 text-slate-800 dark:bg-slate-700 dark:text-slate-100",
}
OF_COLOUR: dict[str, Tone] = {
    "positive": "good",
    "negative": "bad",
    "warning": "warn",
    "primary": "info",
    "grey": "calm",
}
"""Tone of the colours that views name."""

CARD = (
    "w-full rounded-xl border border-slate-200 bg-[#fff] p-4 sm:p-5"
    " dark:border-slate-700 dark:bg-slate-900"
)
QUIET = "text-slate-600 dark:text-slate-400"
STRONG = "text-slate-900 dark:text-slate-100"
CODE = (
    "w-full m-0 rounded-lg bg-slate-100 px-3 py-2 font-mono text-[13px] leading-5"
    " whitespace-pre-wrap break-words text-slate-900 dark:bg-slate-800 dark:text-slate-100"
)


PROSE = (
    f"nicegui-markdown w-full min-w-0 overflow-x-auto text-sm break-words {STRONG}"
    " [&>:first-child]:mt-0 [&>:last-child]:mb-0 [&_a]:text-indigo-700 [&_a]:underline"
    " dark:[&_a]:text-indigo-300 [&_:is(h3,h4,h5,h6)]:text-sm [&_:is(h3,h4,h5,h6)]:font-semibold"
    " [&_:is(h3,h4,h5,h6)]:leading-6 [&_:is(ul,ol)]:pl-6 [&_:is(th,td)]:px-2 [&_:is(th,td)]:py-1"
    " [&_pre]:overflow-x-auto [&_:is(pre,:not(pre)>code)]:rounded"
    " [&_:is(pre,:not(pre)>code)]:bg-slate-100 dark:[&_:is(pre,:not(pre)>code)]:bg-slate-800"
    " [&_pre]:p-2 [&_code]:font-mono [&_code]:text-[13px]"
)


def text(tag: str, content: str, classes: str = "") -> TextElement:
    """Show a text in an element of this tag.

    What would change how the text around it reads, such as a mark for the direction of writing, is
    written out: people decide by what they see.
    """
    made = TextElement(tag=tag, text=printable(content))
    made.classes(classes)
    return made


def heading(content: str, *, level: int = 2) -> TextElement:
    """Show a heading."""
    size = {1: "text-2xl font-semibold tracking-tight", 2: "text-base font-semibold"}
    return text(f"h{level}", content, f"m-0 {size.get(level, 'text-sm font-semibold')} {STRONG}")


def quiet(content: str, classes: str = "") -> TextElement:
    """Show a text that matters less."""
    return text("span", content, f"text-sm {QUIET} {classes}")


def chip(content: str, tone: Tone = "calm") -> TextElement:
    """Show a short state."""
    return text(
        "span",
        content,
        "inline-flex items-center rounded-full px-2 py-0.5 text-xs font-medium whitespace-nowrap"
        f" {TONES[tone]}",
    )


def code(content: str) -> TextElement:
    """Show a text as it is, line by line."""
    return text("pre", content, CODE)


def prose(content: str, classes: str = "") -> ui.html:
    """Show a text that is Markdown; HTML in it stays text, and its images are links."""
    return ui.html(rendered(content)).classes(f"{PROSE} {classes}")


def key_hint(key: str) -> TextElement:
    """Show a key of the keyboard; the element that it is in says what the key does."""
    shown = text(
        "kbd",
        key,
        "rounded border border-slate-300 px-1.5 font-mono text-xs leading-5 text-slate-700"
        " dark:border-slate-600 dark:text-slate-200",
    )
    return shown.props('aria-hidden="true"')


def link(content: str, target: str, classes: str = "") -> ui.link:
    """Link to a page of the desk."""
    colours = "text-indigo-700 dark:text-indigo-300 no-underline hover:underline"
    return ui.link(printable(content), target).classes(f"{colours} {classes}")


def moment(seconds: float, classes: str = "") -> TextElement:
    """Show a time: in the browser's own zone, which it says when it is pointed at."""
    made = text("time", clock(seconds), classes)
    made.props["datetime"] = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    return made


def copied(content: str, classes: str = "") -> TextElement:
    """Show an id that a click copies."""
    made = text("button", content, f"font-mono text-sm break-all text-left cursor-copy {classes}")
    made.props('type="button" title="Copy"')
    return made.on("click", js_handler=_COPY)


_COPY = """(event) => {
  const text = event.currentTarget.textContent;
  const said = (message) => Quasar.Notify.create({ message });
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => said(`Copied: ${text}`));
  else getSelection().selectAllChildren(event.currentTarget), said("Selected: copy it");
}"""
"""Browsers give pages that come over plain http from elsewhere no clipboard."""


def facts(pairs: list[tuple[str, str | Callable[[], object]]]) -> None:
    """Show names and values, as texts or by what draws them; empty values are left out."""
    if not any(value for _, value in pairs):
        return
    with ui.element("dl").classes("m-0 grid w-full grid-cols-[auto_1fr] gap-x-4 gap-y-1 text-sm"):
        for name, value in pairs:
            if value:
                text("dt", name, f"{QUIET} whitespace-nowrap")
                with text("dd", "", f"m-0 min-w-0 break-words {STRONG}"):
                    value() if callable(value) else text("span", value)


def empty(icon: str, title: str, more: str) -> None:
    """Say that there is nothing, and what would be here."""
    with ui.column().classes("w-full items-center gap-2 px-4 py-16 text-center"):
        ui.icon(icon).classes("text-5xl text-slate-400 dark:text-slate-500").props(
            'aria-hidden="true"'
        )
        text("p", title, f"m-0 text-lg font-medium {STRONG}")
        text("p", more, f"m-0 max-w-prose text-sm {QUIET}")


def button(
    label: str, *, tone: Literal["main", "plain", "danger"] = "plain", icon: str | None = None
) -> ui.button:
    """Make a button."""
    looks = {
        "main": "bg-indigo-700 text-white",
        "plain": "bg-slate-200 text-slate-900 dark:bg-slate-700 dark:text-slate-50",
        "danger": "bg-rose-100 text-rose-900 dark:bg-rose-950 dark:text-rose-100",
    }
    made = ui.button(label, icon=icon, color=None)
    made.props("unelevated no-caps")
    return made.classes(f"rounded-lg font-medium {looks[tone]}")


def notice(tone: Tone, content: str, *, role: Literal["status", "alert"] = "status") -> Element:
    """Show a message of a few words in a bar."""
    made = ui.row().classes(f"w-full items-center gap-3 rounded-lg px-4 py-2 {TONES[tone]}")
    with made.props(f'role="{role}"'):
        text("span", content, "text-sm")
    return made


@contextmanager
def open_dialog(
    label: str, *, wide: bool = True, closed: Callable[[], object] | None = None
) -> Generator[ui.dialog]:
    """Open a dialog; the block draws what is in it.

    It belongs to the page rather than to the part whose button was pressed: that part may be
    redrawn while a person types.

    Args:
        label: Its name for screen readers.
        wide: Whether it takes as much width as texts need.
        closed: Called once it is closed, whatever was done in it.
    """
    size = "w-full max-w-xl gap-4" if wide else "gap-3"
    with ui.context.client.content, ui.dialog() as made:
        made.props["aria-label"] = label
        with ui.card().classes(f"{size} rounded-xl p-5"):
            yield made

    def hidden() -> None:
        made.delete()
        if closed is not None:
            closed()

    made.on("hide", hidden)
    made.open()


def actions(
    label: str,
    submit: Callable[[], Awaitable[None]],
    dialog: ui.dialog,
    *,
    is_danger: bool = False,
    focus: bool = False,
) -> None:
    """Draw the end of a dialog: a button that takes it back, and one that does it.

    Args:
        label: What it does.
        submit: Does it.
        dialog: The dialog.
        is_danger: Whether it cannot be taken back.
        focus: Whether the keyboard is at the button first.
    """
    with ui.row().classes("w-full justify-end gap-2"):
        button("Cancel").on_click(dialog.close)
        made = button(label, tone="danger" if is_danger else "main").on_click(submit)
        made.props("data-submit" + (" autofocus" if focus else ""))


def task_url(task_id: str, **query: str) -> str:
    """Return the address of a task's page."""
    more = f"?{urlencode(query)}" if query else ""
    return f"/tasks/{quote(task_id, safe='')}{more}"


def url(path: str, query: dict[str, str]) -> str:
    """Return an address with a query."""
    return f"{path}?{urlencode(query)}" if query else path


def show_address(target: str) -> None:
    """Have the browser show another address for the same page."""
    ui.run_javascript(
        f"history.replaceState(history.state, '', window.path_prefix + {json.dumps(target)})"
    )


PANEL = (
    "m-0 w-full list-none overflow-hidden rounded-xl border border-slate-200 bg-[#fff] p-0"
    " dark:border-slate-700 dark:bg-slate-900"
)
"""Look of a list whose rows share a frame."""

LINE = "border-t border-slate-200 first:border-t-0 dark:border-slate-700"
"""Look of the line between two rows of it."""


class Part:
    """A part of a page that is redrawn only when it has changed.

    Redrawing takes the keyboard focus away, and folds what was unfolded.
    """

    def __init__(self, classes: str = "w-full", tag: str = "div") -> None:
        """Make room for it."""
        self.element = ui.element(tag).classes(classes)
        self._key: object = self  # equal to no key

    def shows(self, key: object) -> bool:
        """Whether it was drawn for an equal key."""
        return key == self._key

    def show(self, key: object, draw: Callable[[], object]) -> None:
        """Draw it, unless it was drawn for an equal key."""
        if self.shows(key):
            return
        self._key = key
        self.element.clear()
        with self.element:
            draw()


class PartList:
    """A list whose items are redrawn one by one."""

    def __init__(self, label: str, *, tag: Literal["ul", "ol"], item: str) -> None:
        """Make an empty list.

        Args:
            label: What it is a list of.
            tag: Its tag.
            item: Classes of each item.
        """
        self.element = ui.element(tag).classes(PANEL)
        self.element.props["aria-label"] = label
        self._item = item
        self._parts: dict[object, Part] = {}

    def show(self, items: Sequence[tuple[object, object, Callable[[], object]]]) -> None:
        """Show these items: the id of each, its key, and what draws it."""
        wanted = {each[0] for each in items}
        for gone in [each for each in self._parts if each not in wanted]:
            self._parts.pop(gone).element.delete()
        order = [*self._parts]
        for k, (name, key, draw) in enumerate(items):
            if name not in self._parts:
                with self.element:
                    self._parts[name] = Part(self._item, "li")
                order.append(name)
            if order[k] != name:
                order.remove(name)
                order.insert(k, name)
                self._parts[name].element.move(target_index=k)
            self._parts[name].show(key, draw)
        self._parts = {name: self._parts[name] for name in order}
        self.element.set_visibility(bool(items))
