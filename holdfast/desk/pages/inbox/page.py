"""The page of the inbox."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, cast

from nicegui import background_tasks, ui
from nicegui.element import Element
from nicegui.events import KeyEventArguments, ValueChangeEventArguments

from holdfast.desk.identity.tokens import Verb as DeskVerb
from holdfast.desk.pages import parts
from holdfast.desk.pages.creation import draw_first
from holdfast.desk.pages.frame import TICK_SECONDS, Frame
from holdfast.desk.pages.inbox.card import draw_card, draw_gone
from holdfast.desk.pages.inbox.decisions import Said, Send, ask, decide
from holdfast.desk.pages.parts import QUIET, STRONG
from holdfast.desk.views.cards import Card, Context, card_of, seen_by, waits_for
from holdfast.reading.inbox import InboxFilter, choices
from holdfast.task.data.calls import Approval
from holdfast.task.people.choices import TITLES, Choice, Done, choices_of, title_of
from holdfast.task.people.decisions import Person, cannot_decide
from holdfast.values.checks.gate import data_of
from holdfast.values.checks.ids import task_of
from holdfast.values.runs.verbs import LISTED, VERBS
from holdfast.values.steps import Task
from holdfast.values.text.decided import for_decision
from holdfast.values.text.shown import brief, counted

# The rows of the inbox, which change one by one: the keyboard's place in them is kept.

AT_FIRST = 50
"""Rows that are shown at first; more when they are asked for."""

_CHOSEN = "border-indigo-500 bg-[#fff] dark:bg-slate-800"
_OTHER = "border-transparent hover:bg-[#fff] dark:hover:bg-slate-800"


class Row:
    """One approval in the list."""

    def __init__(
        self, approval: Approval, choose: Callable[[str], None], mark: Callable[[str, bool], None]
    ) -> None:
        """Draw it.

        Args:
            approval: The approval.
            choose: Shows its card.
            mark: Marks it for a decision on several, or takes the mark away.
        """
        self._approval = approval
        self._is_chosen = False
        self._item = ui.element("li").classes("w-full")
        with self._item, ui.row().classes("w-full items-center flex-nowrap gap-0"):
            self._mark = ui.checkbox(on_change=lambda event: mark(approval.id, bool(event.value)))
            self._mark.props["aria-label"] = f"Mark {approval.id}"
            self._mark.props("dense size=sm")
            self._row = ui.element("button").classes(
                f"min-w-0 flex-1 cursor-pointer rounded-lg border-l-4 px-3 py-2 text-left {_OTHER}"
            )
            self._row.props('type="button"').on("click", lambda: choose(approval.id))
            with self._row:
                self._draw()

    def _draw(self) -> None:
        approval = self._approval
        with ui.element("span").classes("flex w-full items-center gap-2"):
            parts.text("span", title_of(approval), f"truncate text-sm font-medium {STRONG}")
            ui.space()
            self._age = parts.text("span", "", f"text-xs whitespace-nowrap {QUIET}")
        what = for_decision(brief(data_of(approval.as_agreed)) or approval.text)
        parts.text("span", what, f"block truncate text-xs {QUIET}")
        with ui.element("span").classes("mt-1 flex items-center gap-2"):
            parts.text("span", approval.agent, f"truncate text-xs {QUIET}")
            if approval.kind != "tool":
                parts.chip(TITLES[approval.kind], "warn")

    def show(self, *, now: float, is_chosen: bool, is_marked: bool) -> None:
        """Show its age, whether its card is the one that is shown, and whether it is marked."""
        age = waits_for(self._approval, now=now)
        if self._age.text != age:
            self._age.text = age
        if self._mark.value != is_marked:
            self._mark.value = is_marked
        if self._is_chosen != is_chosen:
            self._is_chosen = is_chosen
            add, remove = (_CHOSEN, _OTHER) if is_chosen else (_OTHER, _CHOSEN)
            self._row.classes(add, remove=remove)
            self._row.props(
                add="aria-current=true" if is_chosen else None,
                remove=None if is_chosen else "aria-current",
            )

    def delete(self) -> None:
        """Take it out of the list."""
        self._item.delete()


class Rows:
    """The list of what waits."""

    def __init__(self, choose: Callable[[str], None], mark: Callable[[str, bool], None]) -> None:
        """Draw it, empty.

        Args:
            choose: Shows the card of an approval.
            mark: Marks an approval, or takes the mark away.
        """
        self._choose, self._mark = choose, mark
        self._rows: dict[str, Row] = {}
        self._most = AT_FIRST
        self._shown: Sequence[Approval] = ()
        self._list: Element = (
            ui.element("ul")
            .props('aria-label="What waits"')
            .classes("m-0 flex w-full list-none flex-col gap-1 p-0")
        )
        self._more = parts.button("").on_click(self._grow)
        self._more.set_visibility(False)
        self._last: tuple[float, str, frozenset[str]] = (0.0, "", frozenset())

    def show(
        self, shown: Sequence[Approval], *, now: float, chosen: str, marked: frozenset[str]
    ) -> None:
        """Show these approvals.

        Args:
            shown: The approvals, oldest first.
            now: Time, seconds since the epoch.
            chosen: Id of the one whose card is shown.
            marked: Ids of the marked ones.
        """
        self._shown, self._last = shown, (now, chosen, marked)
        wanted = shown[: self._most]
        ids = {each.id for each in wanted}
        for gone in [each for each in self._rows if each not in ids]:
            self._rows.pop(gone).delete()
        if [*self._rows] != [each.id for each in wanted[: len(self._rows)]]:
            self._list.clear()
            self._rows.clear()
        with self._list:
            for approval in wanted[len(self._rows) :]:
                self._rows[approval.id] = Row(approval, self._choose, self._mark)
        for approval_id, row in self._rows.items():
            row.show(now=now, is_chosen=approval_id == chosen, is_marked=approval_id in marked)
        self._more.set_visibility(len(shown) > self._most)
        self._more.text = f"Show more of {len(shown):,}"

    def _grow(self) -> None:
        self._most += AT_FIRST
        now, chosen, marked = self._last
        self.show(self._shown, now=now, chosen=chosen, marked=marked)


def draw_several(
    marked: Sequence[Approval],
    press: Callable[[Choice], None],
    clear: Callable[[], None],
    barred: str,
) -> None:
    """Draw the decisions on all approvals that are marked, if they are calls of one tool.

    Args:
        marked: The approvals.
        press: Called with the decision.
        clear: Takes the marks away.
        barred: Why who looks may not decide one of them; empty when they may decide all.
    """
    look = "w-full gap-2 rounded-lg border border-indigo-300 p-3 dark:border-indigo-700"
    with ui.column().classes(look):
        if len({(each.tool, each.kind) for each in marked}) > 1:
            parts.quiet(f"{len(marked)} marked, of several tools: mark calls of one tool only.")
        else:
            for chosen in choices_of(marked[0]):
                if chosen.verb in ("approve", "reject"):
                    label = f"{chosen.label} ({len(marked)})"
                    made = parts.button(label, tone="danger" if chosen.verb == "reject" else "main")
                    made.on_click(partial(press, chosen)).classes("w-full").set_enabled(not barred)
            if barred:
                parts.quiet(barred)
        parts.button("Clear marks").on_click(clear).props("dense")


# Around the list of the inbox: its filters, the help for keys, and the words for an empty one.

KEYS = (
    ("a", "approve"),
    ("e", "edit the arguments"),
    ("w", "approve, and later calls that fit"),
    ("r", "reject, with a reason"),
    ("v", "give the result yourself"),
    *((each.button[0], each.button[1].lower()) for each in VERBS.values() if each.button),
    ("s", "skip to the next"),
    ("j / k", "next and previous"),
    ("x", "mark for a decision on several"),
    ("?", "this help"),
)
OLDER = {0: "Any age", 60: "Over 1 min", 3600: "Over 1 h", 86400: "Over 1 day"}


def draw_nothing(outside: int) -> None:
    """Say that no approval is shown.

    Args:
        outside: How many the filter leaves out.
    """
    if outside:
        more = f"{counted(outside, 'approval')} wait outside of this filter."
        parts.empty("filter_alt_off", "Nothing fits this filter", more)
    else:
        parts.empty(
            "task_alt",
            "Nothing waits for a person",
            "Calls that need approval, calls that may have happened, used up budgets and undos"
            " come here by themselves.",
        )


class Filters:
    """The filters, which offer the agents and tools of what waits."""

    def __init__(self, filter_by: Callable[..., None]) -> None:
        """Make room for them.

        Args:
            filter_by: Called with what a person has changed.
        """
        self._filter_by = filter_by
        self._row = ui.row().classes("w-full items-center gap-2")
        self._selects: dict[Literal["agent", "tool"], Any] = {}

    def show(self, wanted: InboxFilter, approvals: Sequence[Approval]) -> None:
        """Draw them once, and offer what has come since.

        Args:
            wanted: What they are set to.
            approvals: What they are chosen from.
        """
        if not self._selects:
            with self._row:
                self._draw(wanted)
        for name, made in self._selects.items():
            known = {*choices(approvals, name), cast("str", getattr(wanted, name))} - {""}
            options = {"": f"Any {name}"} | {each: each for each in sorted(known)}
            if made.options != options:
                made.set_options(options)

    def _draw(self, wanted: InboxFilter) -> None:
        search = ui.input(
            placeholder="Search",
            value=wanted.q,
            on_change=lambda event: self._filter_by(q=event.value or ""),
        ).props('dense outlined debounce=200 clearable type=search aria-label="Search"')
        search.classes("w-full sm:w-56")
        names: tuple[Literal["agent", "tool"], ...] = ("agent", "tool")
        for name in names:
            given = cast("str", getattr(wanted, name))
            options = {"": f"Any {name}"} | ({given: given} if given else {})
            self._selects[name] = self._select(name, name.capitalize(), options, given)
        kinds = {"": "Any kind"} | {str(kind): words.capitalize() for kind, words in TITLES.items()}
        self._select("kind", "Kind", kinds, wanted.kind)
        ages = OLDER if wanted.older in OLDER else {**OLDER, wanted.older: f"Over {wanted.older} s"}
        self._select("older", "Age", ages, wanted.older)
        for flag, means in LISTED.items():
            made = ui.checkbox(flag.capitalize(), value=bool(getattr(wanted, flag)))
            made.on_value_change(partial(self._tick, flag)).tooltip(means)

    def _tick(self, flag: str, event: ValueChangeEventArguments[Any]) -> None:
        self._filter_by(**{flag: bool(event.value)})

    def _select(self, name: str, label: str, options: Any, value: object) -> Any:
        made: Any = ui.select(
            options, value=value, on_change=lambda event: self._filter_by(**{name: event.value})
        )
        made.props(f'dense outlined options-dense aria-label="{label}"').classes(
            "w-[calc(50%-0.25rem)] sm:w-[9.5rem]"
        )
        return made


def show_keys(closed: Callable[[], None]) -> None:
    """Show what the keys do; `closed` is called when the dialog is."""
    with parts.open_dialog("Keys", wide=False, closed=closed) as dialog:
        parts.heading("Keys")
        with ui.element("dl").classes("m-0 grid grid-cols-[auto_1fr] gap-x-4 gap-y-2 text-sm"):
            for key, does in KEYS:
                parts.text("dt", key, "font-mono font-semibold")
                parts.text("dd", does, "m-0")
        parts.button("Close", tone="main").on_click(dialog.close).props("autofocus")


BARE_SECONDS = 0.4
"""How long a card waits for what its task says before it is drawn without that."""

SETTLING_SECONDS = 5.0
"""How long what was decided here is not shown: lists are a moment behind.

What needs more people than one comes again then.
"""

GONE = "gone"
"""What is drawn instead of a card that another person has decided."""

DONE = {
    "approve": "Approved",
    "edit": "Approved with edits",
    "always": "Approved, with later calls",
    "reject": "Rejected",
    "respond": "Answered",
}


def _of(verb: Done) -> DeskVerb:
    """Return what a decision is for the rules of who may do what."""
    return "approve_always" if verb == "always" else verb


class Inbox:
    """The inbox in one browser."""

    def __init__(self, frame: Frame, wanted: InboxFilter, chosen: str) -> None:
        """Draw it.

        Args:
            frame: The frame of the page.
            wanted: Which approvals are shown.
            chosen: Id of the approval to begin with; empty for the oldest.
        """
        self._frame, self._wanted, self._chosen = frame, wanted, chosen
        self._all: list[Approval] = []
        self._shown: list[Approval] = []
        self._card: Card | None = None
        self._drawn = ""
        self._marked: set[str] = set()
        self._mine: dict[str, float] = {}
        self._reading: asyncio.Task[None] | None = None
        self._is_first = True
        self._is_sending = False
        self._uncovered: set[str] = set()
        self._several_of: frozenset[str] = frozenset()
        self._has_tasks = True
        self._draw()

    def _draw(self) -> None:
        with ui.row().classes("w-full items-end justify-between gap-2"):
            parts.heading("Inbox", level=1)
            with ui.row().classes("items-center gap-3"):
                parts.link("Standing rules", parts.url("/rules", {}), "text-sm")
                ui.button(icon="keyboard", on_click=self._help, color=None).props(
                    'flat round dense aria-label="Keys"'
                ).classes("text-slate-700 dark:text-slate-200")
        self._filters = Filters(self._filter)
        with ui.element("div").classes(
            "grid w-full grid-cols-1 items-start gap-4 lg:grid-cols-[20rem_minmax(0,1fr)]"
        ) as self._panes:
            with ui.column().classes("order-2 w-full gap-2 lg:order-1"):
                self._several = ui.column().classes("w-full")
                self._rows = Rows(self._choose, self._mark)
            self._detail = ui.column().classes("order-1 w-full gap-4 lg:order-2")
        self._detail.props('aria-live="polite"')
        self._nothing = parts.Part()
        self._keyboard = ui.keyboard(self._key, repeating=False, ignore=["input", "textarea"])
        ui.timer(TICK_SECONDS, lambda: self._frame.look(self._look))

    async def _look(self) -> None:
        """Read what waits, and draw what has changed."""
        now = time.time()
        found = await self._frame.desk.feed.waiting()
        self._mine = {each: until for each, until in self._mine.items() if until > now}
        self._all = [each for each in found if each.id not in self._mine]
        self._frame.count(self._all)
        self._shown = self._fitting(now)
        if not found and (self._is_first or not self._has_tasks):
            self._has_tasks = bool(await self._frame.desk.runner.list_tasks(limit=1))
        self._marked &= {each.id for each in self._shown}
        self._filters.show(self._wanted, self._all)
        self._draw_list()
        await self._follow()
        self._is_first = False

    async def _follow(self) -> None:
        """Keep the chosen card, unless it was decided; then say by whom."""
        ids = [each.id for each in self._shown]
        if self._chosen in ids:
            if self._drawn != self._chosen or self._has_changed():
                self._choose(self._chosen)
        elif self._drawn == GONE or self._is_sending or self._is_reading:
            return
        elif self._chosen and self._chosen not in {each.id for each in self._all}:
            title = self._card.title if self._card is not None else "This no longer waits"
            if self._card is not None or self._is_first:  # a link may lead to what is decided
                self._card, self._drawn = None, GONE
                who = await self._frame.desk.feed.decided_by(self._chosen)
                self._draw_gone(self._chosen, title, who)
            else:
                self._choose(ids[0] if ids else "")
        elif self._chosen or ids:  # only the filter has changed
            self._choose(ids[0] if ids else "")

    def _has_changed(self) -> bool:
        """Whether others have voted since the card was drawn, or may now."""
        if self._card is None or self._is_sending:
            return False
        old = self._card.approval
        new = next((each for each in self._shown if each.id == old.id), old)
        return (len(old.votes), old.may_decide) < (len(new.votes), new.may_decide)

    @property
    def _is_reading(self) -> bool:
        return self._reading is not None and not self._reading.done()

    def _draw_gone(self, approval_id: str, title: str, who: str) -> None:
        self._detail.clear()
        with self._detail:
            draw_gone(approval_id, title, who)
            if self._shown:
                parts.button("Next", tone="main").on_click(lambda: self._choose(self._shown[0].id))

    # ---- the list

    def _draw_list(self) -> None:
        """Draw what has changed in the list."""
        is_empty = not self._shown
        is_new = is_empty and not self._has_tasks
        self._panes.set_visibility(not is_empty or self._drawn == GONE)
        left_out = len(self._all) if is_empty else None
        first = partial(draw_first, self._frame, has_button=True)
        draw = first if is_new else partial(draw_nothing, left_out or 0)
        self._nothing.show((left_out, is_new), draw if is_empty else lambda: None)
        marked = frozenset(self._marked)
        self._rows.show(self._shown, now=time.time(), chosen=self._chosen, marked=marked)
        if marked != self._several_of:
            self._several_of = marked
            self._draw_several()

    # ---- filters

    def _filter(self, **changes: Any) -> None:
        self._wanted = self._wanted.model_copy(update=changes)
        self._show_address()
        self._shown = self._fitting(time.time())
        self._draw_list()

    def _fitting(self, now: float) -> list[Approval]:
        """Return what the filter takes."""
        return [each for each in self._all if self._wanted.takes(each, self._person, now=now)]

    def _show_address(self) -> None:
        """Have the address lead to what is shown, also for a page that is loaded again."""
        card = {"card": self._chosen} if self._chosen else {}
        parts.show_address(parts.url("/", self._wanted.query | card))

    # ---- one card

    def _choose(self, approval_id: str) -> None:
        """Show a card; what must be read for it comes a moment later."""
        if approval_id != self._chosen:
            self._chosen = approval_id
            self._show_address()
        self._drawn = approval_id
        if self._reading is not None:
            self._reading.cancel()
        found = next((each for each in self._shown if each.id == approval_id), None)
        if found is None:
            self._card = None
            self._detail.clear()
            self._draw_list()
            return
        self._card = None  # no key decides what is not on the screen yet
        self._draw_list()
        create: Any = getattr(background_tasks, "create")  # noqa: B009  its type is partly unknown
        self._reading = create(self._fill(found))

    @property
    def _person(self) -> Person:
        desk = self._frame.desk
        return desk.guard.person(self._frame.visitor, desk.runner)

    async def _fill(self, found: Approval) -> None:
        """Read what a card says, and draw it; without that, if it takes its time."""
        feed, task_id = self._frame.desk.feed, task_of(found.id)
        reading = asyncio.gather(feed.approval(found), feed.context(task_id))
        try:
            approval, context = await asyncio.wait_for(asyncio.shield(reading), BARE_SECONDS)
        except TimeoutError:
            await self._draw_card(found, Context(task=Task(task_id=task_id, agent=found.agent)))
            approval, context = await reading
        if self._drawn == found.id:
            await self._draw_card(approval, context)

    async def _draw_card(self, approval: Approval, context: Context) -> None:
        now = time.time()
        is_uncovered = approval.id in self._uncovered
        found = card_of(approval, context, now=now, is_uncovered=is_uncovered)
        barred = partial(self._frame.desk.guard.barred, self._frame.visitor)
        self._card = await seen_by(self._person, found, barred)
        ids = [each.id for each in self._shown]
        place = f"{ids.index(approval.id) + 1} of {len(ids)}" if approval.id in ids else ""
        self._detail.clear()
        with self._detail:
            asked = ", ".join(self._frame.desk.runner.people_asked(approval))
            draw_card(
                self._card,
                now=now,
                choose=self._press,
                uncover=self._uncover,
                steps=place,
                asked=asked,
            )

    async def _uncover(self) -> None:
        """Show what the chosen card hides, once that is recorded."""
        card = self._card
        if card is None:
            return

        async def run(by: str) -> None:
            runner, roles = self._frame.desk.runner, self._person.roles
            await runner.uncover(card.approval, by, roles=roles)
            self._uncovered.add(card.id)

        if await self._frame.act("uncover", card.id, run, "Recorded, and shown."):
            self._choose(card.id)

    def _press(self, chosen: Choice) -> None:
        """Begin a decision on the card that is shown."""
        card = self._card
        if card is None or self._is_sending:
            return

        async def send(said: Said) -> None:
            await self._send([card.approval], chosen, said)

        if not chosen.asks and not chosen.warning:
            self._run(lambda: send(Said()))
        else:
            self._open(card, chosen, send)

    def _open(self, card: Card, chosen: Choice, send: Send, others: Sequence[Card] = ()) -> None:
        self._keyboard.active = False
        ask(card, chosen, send, self._listen, others)

    def _run(self, work: Callable[[], Awaitable[None]]) -> None:
        ui.timer(0, work, once=True)

    async def _send(self, approvals: list[Approval], chosen: Choice, said: Said) -> None:
        """Send a decision, once, and go on to the next card."""
        if self._is_sending:
            return
        self._is_sending = True
        self._listen()
        with self._frame.slot():
            try:
                gone = await self._send_each(approvals, chosen, said)
            finally:
                self._is_sending = False
            await self._after(approvals, gone)

    async def _send_each(
        self, approvals: list[Approval], chosen: Choice, said: Said
    ) -> list[Approval]:
        """Send a decision on each; return the ones that were decided meanwhile."""
        gone: list[Approval] = []
        done = 0
        for approval in approvals:
            is_done = await self._frame.act(
                _of(chosen.verb), approval.id, self._decision(approval, chosen, said, gone), ""
            )
            if is_done and approval not in gone:
                self._mine[approval.id] = time.time() + SETTLING_SECONDS
                done += 1
        if done:
            what = DONE.get(chosen.verb, chosen.label)
            named = approvals[0].id if len(approvals) == 1 else counted(done, "call")
            ui.notify(f"{what}: {named}", type="positive")
        return gone

    def _decision(
        self, approval: Approval, chosen: Choice, said: Said, gone: list[Approval]
    ) -> Callable[[str], Awaitable[None]]:
        async def run(by: str) -> None:
            runner, person = self._frame.desk.runner, replace(self._person, name=by)
            if not await decide(runner, approval, chosen.verb, person, said):
                gone.append(approval)

        return run

    async def _after(self, approvals: list[Approval], gone: list[Approval]) -> None:
        decided = {each.id for each in approvals if each.id in self._mine}
        left = [each for each in self._shown if each.id not in decided]
        place = next((k for k, each in enumerate(self._shown) if each.id == self._chosen), 0)
        later = [each for each in self._shown[place + 1 :] if each.id not in decided]
        self._shown = left
        self._all = [each for each in self._all if each.id not in decided]
        self._marked -= decided
        self._frame.count(self._all)
        if gone:
            who = await self._frame.desk.feed.decided_by(gone[0].id)
            self._card, self._drawn = None, GONE
            self._draw_gone(gone[0].id, title_of(gone[0]), who)
            self._draw_list()
        elif self._chosen in decided:
            following = later or left
            self._detail.clear()  # the next card comes when it is read; this one is decided
            self._choose(following[0].id if following else "")
        else:
            self._draw_list()

    # ---- several at once

    def _mark(self, approval_id: str, is_on: bool) -> None:  # noqa: FBT001  the value of a checkbox
        if is_on == (approval_id in self._marked):
            return
        (self._marked.add if is_on else self._marked.discard)(approval_id)
        self._draw_list()

    def _draw_several(self) -> None:
        """Draw the decisions on all that are marked."""
        marked = [each for each in self._shown if each.id in self._marked]
        self._several.clear()
        if marked and self._frame.can("approve"):
            barred = next(filter(None, (cannot_decide(each, self._person) for each in marked)), "")
            with self._several:
                draw_several(marked, partial(self._press_several, marked), self._unmark, barred)

    def _press_several(self, marked: list[Approval], chosen: Choice) -> None:
        async def show() -> None:
            whole = await asyncio.gather(*map(self._frame.desk.feed.approval, marked))

            async def send(said: Said) -> None:
                await self._send(whole, chosen, said)

            none, now = Context(task=Task(task_id="")), time.time()
            card, *others = [card_of(each, none, now=now) for each in whole]
            self._open(card, chosen, send, others)

        self._run(show)

    def _unmark(self) -> None:
        self._marked.clear()
        self._draw_list()

    # ---- keys

    def _key(self, event: KeyEventArguments) -> None:
        modifiers = event.modifiers
        if not event.action.keydown or modifiers.ctrl or modifiers.alt or modifiers.meta:
            return
        key = str(event.key)
        match key:
            case "?":
                self._help()
            case "j" | "s" | "ArrowDown":
                self._step(1)
            case "k" | "ArrowUp":
                self._step(-1)
            case "x":
                self._mark(self._chosen, self._chosen not in self._marked)
            case _:
                chosen = self._card.button(key) if self._card is not None else None
                if chosen is not None:
                    self._press(chosen)

    def _step(self, by: int) -> None:
        ids = [each.id for each in self._shown]
        if not ids:
            return
        place = ids.index(self._chosen) + by if self._chosen in ids else 0
        self._choose(ids[place % len(ids)])

    def _help(self) -> None:
        self._keyboard.active = False
        show_keys(self._listen)

    def _listen(self) -> None:
        self._keyboard.active = True
