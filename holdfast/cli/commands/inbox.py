"""`inbox`: a sweep over everything that waits for a person, one keystroke each."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Literal

from holdfast.cli import output
from holdfast.cli.commands.decisions import Decision, parse_arguments, show_call
from holdfast.cli.commands.open_questions import Waiting, waiting_in
from holdfast.cli.connection import Engine, engine_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.keyboard import EndOfInputError, Keyboard
from holdfast.cli.options import Common
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.errors import (
    CommandRefusedError,
    EngineError,
    InvalidArgumentError,
    NotFoundError,
    TaskClosedError,
)
from holdfast.task.data.calls import Approval, asked_for
from holdfast.task.people.approvals import decided_by
from holdfast.task.people.choices import Choice, asked_twice, choices_of
from holdfast.task.people.decisions import is_whole
from holdfast.values.base import Json
from holdfast.values.checks.gate import data_of
from holdfast.values.checks.ids import task_of
from holdfast.values.text.decided import exact
from holdfast.values.text.shown import age, pretty, shortened

Result = Literal["decided", "skipped", "gone"]

ALWAYS = {"s": "skip", "q": "quit", "?": "help"}
MORE = {"s": "skip: it goes on waiting", "q": "quit: the rest goes on waiting", "?": "help"}
NOTHING = "Nothing was given, so nothing was decided."
DONE = {"approve": "approved", "edit": "edited", "reject": "rejected", "respond": "responded"}


async def inbox_command(common: Common, *, by: str, role: Sequence[str] | None) -> ExitCode:
    """Show what waits, oldest first, and take a decision on each."""
    async with engine_of(common) as engine:
        runner = engine.runner()
        found = await runner.pending_approvals()
        if not found:
            output.say("Nothing waits for a person.")
            return ExitCode.OK
        sweep = _Sweep(
            engine=engine,
            runner=runner,
            keyboard=Keyboard(),
            by=by,
            roles=role,
            as_json=common.json,
        )
        results: list[Result] = []
        try:
            for place, approval in enumerate(found, 1):
                results.append(await sweep.take(approval, f"{place} of {len(found)}"))
        except EndOfInputError:
            output.say("")
    decided, gone = results.count("decided"), results.count("gone")
    left = len(found) - decided - gone
    output.say(f"{decided} decided, {left} left" + (f", {gone} gone" if gone else ""))
    return ExitCode.WAITING if left else ExitCode.OK


@dataclass(frozen=True, kw_only=True)
class _Sweep:
    """One pass of a person over the open approvals."""

    engine: Engine
    runner: AgentRunner
    keyboard: Keyboard
    by: str
    roles: Sequence[str] | None
    as_json: bool
    silent: set[str] = field(default_factory=set[str])

    async def take(self, listed: Approval, place: str) -> Result:
        """Show one approval and ask until it is decided or skipped.

        Raises:
            EndOfInputError: The person quits.
        """
        shown = await self._open(listed.id)
        if shown is not None and shown.approval.kind == "unread":
            _show(shown, place)
            return "skipped"
        if shown is None:
            return await self._gone(listed)
        _show(shown, place)
        asked = shown.approval
        keys = _keys(asked)
        labels = {key: choice.label for key, choice in keys.items()} | ALWAYS
        short = ", ".join(f"{key} {text}" for key, text in labels.items())
        while True:
            key, rest = self.keyboard.key(f"{short} > ")
            if key == "q":
                raise EndOfInputError
            if key == "s":
                self._print(shown, "skipped", "")
                return "skipped"
            if key not in keys:
                _help(keys)
                continue
            result = await self._decide(shown, keys[key], rest)
            if result is not None:
                return result

    async def _decide(self, shown: Waiting, choice: Choice, rest: str) -> Result | None:
        """Take one decision; None to ask again."""
        try:
            decision = self._decision(shown, choice, rest)
            if decision is None or not self._is_meant(shown.approval, choice, decision):
                return None
            receipt = await decision.send(self.runner, shown.approval)
        except InvalidArgumentError as error:
            output.say(f"error: {error}", style="red")
            return None
        except (CommandRefusedError, TaskClosedError, NotFoundError) as error:
            if await self._open(shown.approval.id) is None:
                return await self._gone(shown.approval)
            output.say(f"error: {error}", style="red")
            return None
        self._print(shown, DONE.get(choice.verb, choice.verb), receipt.status, decision)
        return "decided" if choice.verb in DONE else "skipped"

    def _decision(self, shown: Waiting, choice: Choice, rest: str) -> Decision | None:
        """Ask for the details of a decision; None when the person takes it back."""
        of_person = partial(Decision, by=self.by, roles=self.roles)
        match choice.verb:
            case "edit":
                arguments = self._edited(shown, rest)
                if arguments is None:
                    return None
                return of_person(verb="approve", arguments=arguments)
            case "reject":
                return of_person(verb="reject", text=rest or self._said("Reason: "))
            case "respond":
                return of_person(verb="respond", text=rest or self._said("Result: "))
            case "approve":
                return of_person(verb="approve", text=rest)
            case verb:
                until = _time(rest or self._said("Until (as 2027-01-31 14:00): "))
                return of_person(verb=verb, until=until)

    def _is_meant(self, approval: Approval, choice: Choice, decision: Decision) -> bool:
        """Ask again before a decision that cannot be undone, and show edited arguments."""
        question = choice.warning
        if decision.arguments is not None:
            question = "These are the arguments that you have edited."
            output.say(f"  {approval.tool} runs with:")
            text = json.dumps(decision.arguments, indent=2, ensure_ascii=False)
            output.say(f"    {exact(text)}".replace("\n", "\n    "), style="cyan")
        if not question:
            return True
        key, _ = self.keyboard.key(f"{question} Press y if you mean it > ")
        if key.lower() == "y":
            return True
        output.say("That was not y, so nothing was decided.")
        return False

    def _said(self, question: str) -> str:
        text = self.keyboard.line(question)
        if not text:
            raise InvalidArgumentError(NOTHING)
        return text

    def _edited(self, shown: Waiting, rest: str) -> dict[str, Json] | None:
        if not shown.is_whole:
            msg = "Without a worker up, only the beginning of these arguments is known."
            raise InvalidArgumentError(msg)
        text = rest or self.keyboard.edit(pretty(data_of(shown.approval.as_agreed)))
        if not text.strip():
            raise InvalidArgumentError(NOTHING)
        arguments = parse_arguments(text)
        if arguments == data_of(shown.approval.as_agreed):
            output.say("The arguments are as they were: approve with a, or edit again.")
            return None
        return arguments

    async def _open(self, approval_id: str) -> Waiting | None:
        waiting = await waiting_in(self.engine, task_of(approval_id), silent=self.silent)
        return next((each for each in waiting if each.approval.id == approval_id), None)

    async def _gone(self, approval: Approval) -> Result:
        """Print that the approval was decided elsewhere."""
        try:
            who = decided_by(await self.runner.ledger(task_of(approval.id)), approval.id)
        except (EngineError, NotFoundError):
            who = ""
        output.say(f"{approval.id} does not wait any more ({who or 'its step or task is over'}).")
        if self.as_json:
            output.emit({"approval": approval.id, "decision": "gone", "text": who})
        return "gone"

    def _print(
        self, shown: Waiting, what: str, status: str, decision: Decision | None = None
    ) -> None:
        approval = shown.approval
        if self.as_json:
            data: dict[str, Json] = {
                "approval": approval.id,
                "task_id": shown.task_id,
                "agent": shown.agent,
                "kind": approval.kind,
                "tool": approval.tool,
                "decision": what,
                "by": self.by,
                "status": status,
                "text": decision.text if decision else "",
                "arguments": decision.arguments if decision else None,
            }
            output.emit(data)
        elif status:
            late = " (recorded; it takes effect when a worker is up)" * (status == "recorded")
            output.answer(f"{approval.id} {what} by {self.by}{late}")


def _show(shown: Waiting, place: str) -> None:
    approval, now = shown.approval, time.time()
    output.say(f"\n{place}: {asked_for(approval.kind, approval.tool)}", style="bold")
    facts = {
        "approval": approval.id,
        "task": shown.task_id,
        "asked for": shortened(shown.input),
        "agent": shown.agent,
        "tool": approval.tool,
        "known": approval.text,
        **approval.about,
        "escalated": f"to {', '.join(approval.escalate_to)}" if approval.escalated else "",
        "since": f"{output.clock(approval.asked)} UTC, {age(now - approval.asked)} ago",
        "expires": f"in {age(approval.expires - now)}" if approval.expires else "never",
    }
    for name, text in facts.items():
        if text:
            output.say(f"  {name:<9} {text}")
    if approval.arguments:
        show_call(approval)


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        msg = f"{text!r} is not a time: write it as 2027-01-31 14:00, in local time."
        raise InvalidArgumentError(msg) from None


def _keys(approval: Approval) -> dict[str, Choice]:
    """Return what a person can do here with an approval, by key."""
    unseen = "" if is_whole(approval) else "Only the beginning of the call is shown."
    found = asked_twice(choices_of(approval), unseen)
    return {choice.key: choice for choice in found if choice.asks != "later"}


def _help(keys: Mapping[str, Choice]) -> None:
    for key, text in ({key: choice.more for key, choice in keys.items()} | MORE).items():
        output.say(f"  {key}  {text}")
