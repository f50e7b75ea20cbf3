"""The frame of each page: navigation, theme, what is missing, and errors of verbs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from nicegui import background_tasks, ui
from starlette.requests import Request

from holdfast.desk.identity.tokens import (
    READ,
    Identity,
    NotAllowedError,
    NotAuthenticatedError,
    Verb,
)
from holdfast.desk.pages import parts
from holdfast.desk.pages.feed import Desk
from holdfast.desk.pages.parts import STRONG, TONES
from holdfast.errors import ConnectError, HoldfastError, NoWorkerError, message_of
from holdfast.reading.inbox import InboxFilter
from holdfast.task.data.calls import Approval
from holdfast.values.text.terminal import printable

# What browsers do by themselves: times in their own zone, and no buttons without a connection.

HEAD = """<style>
  #popup {
    inset: 3.5rem 0 auto 0; margin: 0; padding: 0.5rem 1rem; border: 0; border-radius: 0;
    flex-direction: row; justify-content: center; gap: 0.25rem; font-size: 0.875rem;
    background: #fef3c7; color: #78350f; transition: none;
  }
  .body--dark #popup { background: #451a03; color: #fde68a }
  #popup[aria-hidden="false"] { transition: visibility 0s 1s }
  #popup > span { font-weight: normal }
  #popup > span::before { content: none }
  #popup > span:last-child { font-size: 0 }
  #popup > span:last-child::after {
    content: "Buttons are off until it is back; the page continues on its own.";
    font-size: 0.875rem;
  }
  [data-off] { opacity: 0.5; cursor: not-allowed }
</style><script>
addEventListener("load", () => {
  const lost = '#popup[aria-hidden="false"], [data-cut="true"]';
  const buttons = ":is(main, .q-dialog) button:enabled";
  const each = (what, act) => document.querySelectorAll(what).forEach(act);
  const turn = (isOff) => (it) => { it.disabled = isOff; it.toggleAttribute("data-off", isOff); };
  const tell = (it) => {
    const at = new Date(it.dateTime), now = new Date();
    const year = at.getFullYear() === now.getFullYear() ? undefined : "numeric";
    const day = { day: "numeric", month: "short", year };
    const time = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
    const isToday = at.toDateString() === now.toDateString();
    it.textContent = at.toLocaleString("en-GB", isToday ? time : { ...day, ...time });
    it.title = at.toLocaleString("en-GB", { dateStyle: "full", timeStyle: "long" });
  };
  const look = () => {
    each("time:not([title])", tell);
    if (document.querySelector(lost)) each(buttons, turn(true));
    else each("[data-off]", turn(false));
  };
  const seen = ["aria-hidden", "data-cut"];
  new MutationObserver(look).observe(document.body,
    { subtree: true, childList: true, attributes: true, attributeFilter: seen });
  look();
});
</script>"""


TICK_SECONDS = 0.7
"""How often a page looks for what is new."""

SLOW_SECONDS = 0.25
"""A reading that takes longer makes its page look less often."""

REST = 4
"""How many times as long as such a reading a page rests."""

LONGEST_REST_SECONDS = 10.0

CHECK_SECONDS = 1.0
"""How often an open page asks whether who looks at it still may."""

PAGES = (
    ("inbox", "Inbox", "/", "inbox"),
    ("tasks", "Tasks", "/tasks", "list_alt"),
    ("compare", "Compare", "/compare", "compare_arrows"),
    ("sessions", "Sessions", "/sessions", "forum"),
    ("workers", "Workers", "/workers", "dns"),
)
COUNTING = ("inbox", "tasks")
"""Pages that read themselves what waits for a person."""

SUBJECTS = ("task_id", "name", "card", "left", "right")
"""Parts of a page's address that say what it shows: a task, a session, an approval, two tasks."""


@dataclass
class Frame:
    """A page that is open in a browser.

    Attributes:
        desk: What all pages share.
        visitor: Who looks at it.
        request: The request by which it was opened.
        skeleton: What is shown until something was read.
    """

    desk: Desk
    visitor: Identity
    request: Request
    _banner: ui.row
    _words: Any
    _count: Any
    skeleton: ui.column | None = None
    _said: str = ""
    _is_cut: bool = False
    _rests_until: float = 0.0
    _checked_at: float = 0.0
    _opened_at: float = field(default_factory=time.monotonic)
    _is_ended: bool = False
    _acting: set[tuple[Verb, str]] = field(default_factory=set[tuple[Verb, str]])

    def can(self, verb: Verb) -> bool:
        """Whether a role of who looks at the page allows a verb: buttons of others are not drawn.

        What the application itself forbids is known when it is tried.
        """
        return self.visitor.can(verb)

    async def act(
        self, verb: Verb, subject: str, run: Callable[[str], Awaitable[Any]], done: str
    ) -> bool:
        """Do something in the name of the visitor, and say how it went.

        Args:
            verb: What is done, for the rules of who may do what.
            subject: Id of the task or of the approval; empty for a task that is created.
            run: Does it; its argument is the name to be recorded.
            done: What is said afterwards.

        Returns:
            Whether it was done.
        """
        asked = (verb, subject)
        if asked in self._acting:
            ui.notify("This is being done.")
            return False
        self._acting.add(asked)
        with self._banner:  # the dialog that it was asked in may be gone before it is done
            try:
                visitor = await self._known()
                await self.desk.guard.ensure(visitor, verb, subject)
                await run(visitor.name)
            except TimeoutError:
                ui.notify(_NO_ANSWER, type="negative", multi_line=True, timeout=8000)
                return False
            except HoldfastError as error:
                said = printable(message_of(error))
                ui.notify(said, type="negative", multi_line=True, timeout=8000)
                return False
            finally:
                self._acting.discard(asked)
                self.desk.feed.forget()
            if done:
                ui.notify(done, type="positive")
            return True

    async def look(self, read: Callable[[], Awaitable[None]], *, at_once: bool = False) -> None:
        """Read what is new; when something is missing, say so and keep what is shown.

        Args:
            read: Reads and draws it.
            at_once: Whether it is read now, also when it took long the last time: without, what
                takes long is read less often.
        """
        began = time.monotonic()
        if self._is_ended or (began < self._rests_until and not at_once):
            return
        if not self._is_seen():
            return
        self._is_cut = False
        try:
            await self._check(began)
            await read()
        except NoWorkerError as error:
            self.say(f"No worker process serves {error.queue}. {_KEPT}")
        except (NotAuthenticatedError, NotAllowedError):
            self._end()
        except ConnectError:
            self._is_cut = True
            self.say(f"Connection lost: the Temporal server does not answer. {_OFF}")
        except TimeoutError:
            self.say(f"No worker process has answered in time. {_KEPT}")
        except HoldfastError as error:
            self.say(f"{error} {_KEPT}")
        else:
            self.say("")
            took = time.monotonic() - began
            self._rests_until = began + took + min(took * REST, LONGEST_REST_SECONDS)
            if took < SLOW_SECONDS:
                self._rests_until = 0.0
        self.loaded()

    def loaded(self) -> None:
        """Take away what is shown until a page has read something."""
        if self.skeleton is not None:
            self.skeleton.delete()
            self.skeleton = None

    def _is_seen(self) -> bool:
        """Whether a browser is connected: one that was closed is kept for a while, and costs."""
        client: Any = self._banner.client
        return bool(client.has_socket_connection)

    async def _check(self, now: float) -> None:
        """Return if who looks at the page still may: a token can be revoked meanwhile.

        Raises:
            NotAuthenticatedError: They are no longer known.
            NotAllowedError: They may no longer read.
        """
        if now - self._checked_at < CHECK_SECONDS:
            return
        visitor = await self._known()
        known = {**self.request.query_params, **self.request.path_params}
        for subject in ("", *(known[each] for each in SUBJECTS if each in known)):
            await self.desk.guard.ensure(visitor, READ, subject)
        self._checked_at = now

    async def _known(self) -> Identity:
        """Return who looks at the page now.

        Raises:
            NotAuthenticatedError: They are no longer known, or have signed out in another tab.
        """
        visitor = await self.desk.guard.visitor(self.request)
        is_other = visitor.tenant != self.visitor.tenant
        if is_other or self.desk.guard.has_signed_out(visitor.key, self._opened_at):
            msg = "You have signed out, or are of another tenant now: sign in again."
            raise NotAuthenticatedError(msg)
        return visitor

    def _end(self) -> None:
        """Show nothing and take no orders from now on; reload the page, which says why."""
        self._is_ended = True
        client: Any = ui.context.client
        ui.run_javascript("location.reload()")

        async def forget() -> None:
            await asyncio.sleep(GOING_SECONDS)
            if not client.is_deleted:
                client.delete()

        create: Any = getattr(background_tasks, "create")  # noqa: B009  its type is partly unknown
        create(forget())

    def slot(self) -> ui.row:
        """Return an element that is there as long as the page is, to do things in its name."""
        return self._banner

    def say(self, missing: str) -> None:
        """Show what is missing; an empty text hides the bar."""
        if missing == self._said:
            return
        self._said = missing
        self._words.text = missing
        self._banner.props(f"data-cut={str(self._is_cut).lower()}")
        self._banner.set_visibility(bool(missing))

    async def count_waiting(self) -> None:
        """Show how much waits for a person, for pages that do not read it themselves."""
        if self._is_ended or not self._is_seen():
            return
        with suppress(HoldfastError):  # what is missing is said by what the page itself reads
            self.count(await self.desk.feed.waiting())

    def count(self, found: Sequence[Approval]) -> None:
        """Show how many approvals the inbox lists."""
        waiting = sum(InboxFilter().takes(each, now=time.time()) for each in found)
        self._count.text = f"{waiting}"
        self._count.set_visibility(waiting > 0)


GOING_SECONDS = 0.5
"""How long a page that has ended may still be told so."""

_NO_ANSWER = "No worker process has answered in time. Look whether it was done, and ask again."
_KEPT = "This is the last known state; the page continues on its own."
_OFF = "Buttons are off until it is back; the page continues on its own."


@contextmanager
def frame(desk: Desk, visitor: Identity, request: Request, current: str) -> Generator[Frame]:
    """Build the frame of a page; the block builds what is in it."""
    ui.dark_mode(None)  # as the browser's system
    ui.add_head_html(HEAD)
    _colours()
    with ui.header(elevated=False).classes(
        "items-center gap-1 border-b border-slate-200 bg-[#fff] px-1 py-0 sm:px-6"
        " dark:border-slate-700 dark:bg-slate-900 flex-nowrap h-14"
    ):
        parts.text(
            "span",
            "Holdfast",
            "mr-2 text-base font-semibold tracking-tight text-slate-900 max-md:hidden sm:mr-6"
            " dark:text-slate-50",
        )
        count = _navigation(current)
        ui.space()
        _account(visitor, request)
    with ui.column().classes("mx-auto w-full max-w-6xl gap-4 px-1 py-2 sm:px-4 sm:py-4"):
        banner = ui.row().classes(
            "fixed inset-x-0 top-14 z-40 items-center justify-center gap-3 px-4 py-2 flex-nowrap"
            f" {TONES['warn']}"
        )
        with banner.props('role="status"'):
            ui.spinner(size="sm").props('aria-hidden="true"')
            words = parts.text("span", "", "text-sm")
        banner.set_visibility(False)
        made = Frame(desk, visitor, request, banner, words, count)
        if current not in COUNTING:
            ui.timer(TICK_SECONDS * 3, made.count_waiting)
        yield made
        with ui.column().classes("w-full gap-3").props('aria-hidden="true"') as made.skeleton:
            for width in ("w-1/3", "w-full", "w-2/3"):
                ui.skeleton().classes(f"h-8 {width} rounded-lg")


def _navigation(current: str) -> Any:
    """Show the links to the pages; return the number next to the inbox."""
    count: Any = None
    with ui.element("nav").props('aria-label="Pages"').classes("flex h-full items-center sm:gap-1"):
        for name, label, target, icon in PAGES:
            is_here = name == current
            here = (
                "bg-slate-200 text-slate-900 dark:bg-slate-700 dark:text-slate-50"
                if is_here
                else "text-slate-700 hover:bg-slate-100 dark:text-slate-300 dark:hover:bg-slate-800"
            )
            made = ui.link(target=target).classes(
                "relative flex items-center rounded-lg px-2 py-1 text-[11px] font-medium flex-col"
                f" no-underline sm:flex-row sm:gap-2 sm:px-2.5 sm:py-1.5 sm:text-sm {here}"
            )
            made.props(f'aria-label="{label}"' + (' aria-current="page"' if is_here else ""))
            with made:
                ui.icon(icon).classes("text-lg").props('aria-hidden="true"')
                parts.text("span", label)
                if name == "inbox":
                    count = parts.text(
                        "span",
                        "",
                        "rounded-full bg-indigo-700 px-1.5 text-xs leading-5 text-white"
                        " max-sm:absolute max-sm:-top-0.5 max-sm:right-0",
                    )
                    count.set_visibility(False)
    return count


def _account(visitor: Identity, request: Request) -> None:
    """Draw the menu of the signed-in person: their name and roles."""
    with ui.button(icon="account_circle", color=None) as made:
        made.props("flat no-caps dense").classes("text-slate-700 dark:text-slate-200")
        made.props["aria-label"] = f"Account: {printable(visitor.name)}"
        parts.text("span", visitor.name, "truncate max-w-40 pl-1 text-sm max-sm:hidden")
        menu = ui.menu().props('role=dialog aria-label="Account"')
        with menu, ui.column().classes("min-w-56 gap-3 p-4"):
            with ui.column().classes("gap-0"):
                parts.text("span", visitor.name, f"text-sm font-medium break-all {STRONG}")
                parts.quiet(f"You may act as {' and '.join(sorted(visitor.roles))}.")
            if visitor.source in ("token", "oidc"):
                _sign_out(request)


def _sign_out(request: Request) -> None:
    """Draw the button that has this browser forget its token."""
    form = ui.element("form").classes("flex")
    form.props["method"], form.props["action"] = "post", f"{request.scope['root_path']}/logout"
    with form:
        parts.button("Sign out", icon="logout").props('dense type="submit"').classes("px-3")


def _colours() -> None:
    ui.colors(
        primary="#4338ca",
        secondary="#475569",
        accent="#4338ca",
        dark="#0f172a",
        dark_page="#020617",
        positive="#15803d",
        negative="#be123c",
        warning="#b45309",
        info="#0369a1",
    )
    ui.query("body").classes("bg-slate-50 dark:bg-slate-950")
