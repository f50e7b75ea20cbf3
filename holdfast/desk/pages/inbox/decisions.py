"""Dialogs of decisions: a reason, a result, edited arguments, and the second question."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from nicegui import ui

from holdfast.client.agent_runner.approvals import decide as send_decision
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.desk.pages import parts
from holdfast.desk.pages.inbox.card import draw_arguments
from holdfast.desk.pages.parts import QUIET
from holdfast.desk.views.cards import Card, Field, differences, parsed
from holdfast.desk.views.words import cut
from holdfast.errors import (
    CommandRefusedError,
    InvalidArgumentError,
    NotFoundError,
    TaskClosedError,
)
from holdfast.task.data.calls import Approval
from holdfast.task.people.choices import Choice, Done
from holdfast.task.people.decisions import Person
from holdfast.values.base import Json
from holdfast.values.runs.approval_rules import Always
from holdfast.values.text.terminal import printable


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a person adds to a decision.

    Attributes:
        text: The reason, the result or the note.
        arguments: Edited arguments.
        always: For which later calls it holds as well.
        until: A time, seconds since the epoch; 0 for none.
    """

    text: str = ""
    until: float = 0.0
    arguments: dict[str, Json] | None = None
    always: bool | Always = False


Send = Callable[[Said], Awaitable[None]]
"""Sends a decision."""

LASTING = {
    0: "Until it is revoked",
    3600: "For one hour",
    86_400: "For one day",
    7 * 86_400: "For one week",
}
"""How long a decision holds for later calls, in seconds; 0 is without an end."""

_TITLES = {"reason": "Reason", "result": "Result for the agent", "arguments": "", "": ""}


async def decide(
    runner: AgentRunner, approval: Approval, verb: Done, person: Person, said: Said
) -> bool:
    """Send a decision.

    Args:
        runner: Sends it.
        approval: What is decided.
        verb: How.
        person: Who decides.
        said: What this person adds.

    Returns:
        Whether there was something to decide: another person may have decided it meanwhile.

    Raises:
        HoldfastError: It was refused, or could not be sent.
    """
    try:
        await send_decision(runner, approval, verb, person.name, roles=person.roles, **vars(said))
    except (TaskClosedError, NotFoundError):
        return False
    except CommandRefusedError as error:
        if not error.is_decided:
            raise
        return False
    return True


def ask(
    card: Card, chosen: Choice, send: Send, closed: Callable[[], None], others: Sequence[Card] = ()
) -> None:
    """Open the dialog of a decision.

    Args:
        card: What is decided.
        chosen: The decision.
        send: Sends it.
        closed: Called when the dialog is closed, whatever was done.
        others: What else is decided at once: all of it is shown in whole.
    """
    cards = [card, *others]
    times = f" ({len(cards)} calls)" if others else ""
    with parts.open_dialog(chosen.verb, closed=closed) as dialog:
        parts.heading(chosen.label + times)
        parts.text("p", chosen.more, f"m-0 text-sm {QUIET}")
        for each in cards if others else ():
            parts.text("p", each.id, f"m-0 text-xs font-mono break-all {QUIET}")
            draw_arguments(each)
        if chosen.asks == "arguments":
            _Edit(card, chosen, send, dialog).draw()
        elif chosen.asks == "later":
            _later(card, chosen, send, dialog)
        elif chosen.asks == "time":
            _time(chosen, send, dialog)
        elif chosen.asks:
            _typed(chosen, send, dialog)
        else:
            _sure(chosen, lambda: send(Said()), dialog)


def _typed(chosen: Choice, send: Send, dialog: ui.dialog) -> None:
    title = _TITLES[chosen.asks]
    given = ui.textarea(title).props("outlined autogrow autofocus").classes("w-full")

    async def submit() -> None:
        said = (given.value or "").strip()
        if not said:
            given.props(f'error error-message="{title} is needed, so nothing was decided."')
            return
        dialog.close()
        await send(Said(text=said))

    given.on("keydown.ctrl.enter", submit)
    parts.actions(chosen.label, submit, dialog, is_danger=chosen.verb == "reject")


def _later(card: Card, chosen: Choice, send: Send, dialog: ui.dialog) -> None:
    """Ask for which later calls a decision holds as well."""
    if chosen.warning:
        parts.notice("bad", chosen.warning, role="alert")
    same: dict[str, ui.checkbox] = {}
    for name in card.arguments:
        shown = next((each.text for each in card.fields if each.name == name), "")
        said = printable(cut(f"Only where {name} is {shown}"))
        same[name] = ui.checkbox(said, value=True)
    where: Any = None
    if card.session:
        scopes = {"task": "In this task", "session": f"In all tasks of session {card.session}"}
        where = ui.select(scopes, label="Where", value="task").props("outlined")
        where.classes("w-full")
    until = _lasting(LASTING)

    async def submit() -> None:
        dialog.close()
        names = [name for name, each in same.items() if each.value]
        scope: Any = "task" if where is None else where.value
        await send(Said(always=Always(same=names, until=until() or None, scope=scope)))

    parts.actions(chosen.label, submit, dialog, is_danger=bool(chosen.warning), focus=True)


def _lasting(offered: Mapping[int, str]) -> Callable[[], float]:
    """Ask how long; return what tells the time that is chosen, 0 for no end."""
    made: Any = ui.select({**offered}, label="How long", value=min(offered)).props("outlined")
    made.classes("w-full")
    return lambda: time.time() + made.value if made.value else 0.0


def _time(chosen: Choice, send: Send, dialog: ui.dialog) -> None:
    """Ask for a time."""
    until = _lasting({seconds: text for seconds, text in LASTING.items() if seconds})

    async def submit() -> None:
        dialog.close()
        await send(Said(until=until()))

    parts.actions(chosen.label, submit, dialog, focus=True)


def _sure(chosen: Choice, send: Callable[[], Awaitable[None]], dialog: ui.dialog) -> None:
    """Ask a second time."""
    if chosen.warning:
        parts.notice("bad", chosen.warning, role="alert")

    async def submit() -> None:
        dialog.close()
        await send()

    parts.actions(
        f"Yes: {chosen.label}", submit, dialog, is_danger=bool(chosen.warning), focus=True
    )


_HIDDEN = "A secret in it is hidden. Left empty, it stays; what you type replaces the whole."


class _Edit:
    """The dialog that edits the arguments of a call, typed as its schema says."""

    def __init__(self, card: Card, chosen: Choice, send: Send, dialog: ui.dialog) -> None:
        self._card, self._chosen, self._send, self._dialog = card, chosen, send, dialog
        self._inputs: dict[str, tuple[Field, Any, object]] = {}
        self._whole: Any = None
        self._said: Any = None
        self._body: Any = None

    def draw(self) -> None:
        self._body = ui.column().classes("w-full gap-3")
        with self._body:
            if not self._card.is_whole:
                parts.notice(
                    "warn", "Only the beginning of the arguments is known without a worker."
                )
                parts.actions("Close", self._cancel, self._dialog)
                return
            if self._card.fields:
                for k, field in enumerate(self._card.fields):
                    self._field(field, is_first=k == 0)
            else:
                given = "" if self._card.is_secret else self._card.raw
                self._whole = ui.textarea("Arguments (JSON)", value=given)
                self._whole.props("outlined autogrow autofocus").classes("w-full font-mono")
            self._said = parts.text("p", "", "m-0 text-sm text-rose-700 dark:text-rose-300")
            self._said.props('role="alert"')
            parts.actions("Review the change", self._review, self._dialog)

    async def _cancel(self) -> None:
        self._dialog.close()

    def _field(self, field: Field, *, is_first: bool) -> None:
        label = f"{field.name}{' *' if field.is_required else ''} ({field.type})"
        made: Any
        initial: object
        match field.kind:
            case "boolean":
                initial = bool(field.value)
                made = ui.switch(label, value=bool(field.value))
            case "choice":
                initial = field.value
                options = [*field.choices, *([] if field.value in field.choices else [field.value])]
                made = ui.select(options, label=label, value=field.value).props("outlined")
            case "integer" | "number":
                initial = "" if field.is_secret else field.text
                made = ui.input(label, value=initial).props("outlined type=number")
                made.props("step=1" if field.kind == "integer" else "step=any")
            case _:
                initial = "" if field.is_secret else field.text
                made = ui.textarea(label, value=initial).props("outlined autogrow")
        made.classes("w-full" + (" font-mono" if field.kind == "json" else ""))
        hint = _HIDDEN if field.is_secret else field.description
        if hint:  # as a value: a text of properties could hold code
            made.props["hint"] = hint
        made.props("autofocus" if is_first else "")
        made.on("keydown.ctrl.enter", self._review)
        self._inputs[field.name] = (field, made, initial)

    def _arguments(self) -> dict[str, Json]:
        """Return the arguments as they are typed; what was not touched stays as it was.

        Raises:
            InvalidArgumentError: One is not of its type.
        """
        if self._whole is not None:
            return _object(cast("str", self._whole.value or ""))
        given = self._card.arguments
        found: dict[str, Json] = {}
        for name, (field, made, initial) in self._inputs.items():
            value = made.value
            if value == initial:
                if name in given:
                    found[name] = given[name]
            elif field.kind in ("boolean", "choice"):
                found[name] = value
            elif value == "" and field.kind != "text":
                if field.is_nullable:
                    found[name] = None
            else:
                found[name] = parsed(str(value or ""), field)
        return found

    async def _review(self) -> None:
        """Show the change, and ask whether it is meant."""
        try:
            arguments = self._arguments()
        except InvalidArgumentError as error:
            self._said.text = str(error)
            return
        changed = differences(self._card.arguments, arguments)
        if not changed:
            self._said.text = (
                "The arguments are as they were: change one, or run the call as it is."
            )
            return
        self._body.clear()
        with self._body:
            for each in changed:
                parts.heading(each.name, level=3)
                with ui.element("div").classes("grid w-full grid-cols-1 gap-2 sm:grid-cols-2"):
                    parts.code(f"- {each.old or 'left out'}").classes(
                        "text-rose-800 dark:text-rose-300"
                    )
                    parts.code(f"+ {each.new or 'left out'}").classes(
                        "text-emerald-800 dark:text-emerald-300"
                    )
            _sure(self._chosen, lambda: self._send(Said(arguments=arguments)), self._dialog)


def _object(typed: str) -> dict[str, Json]:
    try:
        found: Json = json.loads(typed)
    except (ValueError, RecursionError) as cause:
        raise InvalidArgumentError(f"The arguments must be a JSON object: {cause}") from cause
    if not isinstance(found, dict):
        raise InvalidArgumentError("The arguments must be a JSON object.")
    return cast("dict[str, Json]", found)
