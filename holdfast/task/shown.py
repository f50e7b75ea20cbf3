"""What people see of calls, of their effects, and of what was noted: the same words everywhere.

Temporal's queries, the desk, the command line and the audit lay it out, and cut texts as they have
room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from holdfast.task.data.calls import Decided
from holdfast.task.data.head import ToolPolicy
from holdfast.task.data.records import effect_place
from holdfast.task.happenings import CallUndone, Happening, Noted, StepBegan, StepEnded, StepsUndone
from holdfast.task.step_body import StepBody, StepCall
from holdfast.values.checks.gate import as_object
from holdfast.values.messages import ToolCall
from holdfast.values.text.shown import shortened

CallState = Literal["asked", "running", "done", "failed", "unknown", "cut off", "not run"]
"""How far a call has come. "unknown": it may have taken effect. "cut off": its child task was left
before its answer. "not run": it never began, and will not."""

StepState = Literal["running", "failed", "done", "cut off", "undone", "restarted"]
"""How far a step has come. "cut off": its task was closed before its end."""

Policies = Callable[[StepBody, ToolCall], ToolPolicy | None]
"""Returns the rules of a call of a step, as far as they are known."""


def call_state(call: StepCall, *, is_over: bool) -> CallState:
    """Return how far a call has come.

    Args:
        call: The call.
        is_over: Whether nothing more happens in its step.
    """
    if call.outcome is not None:
        never_ran = call.outcome.status == "failed" and call.outcome.attempts <= 0
        return "not run" if never_ran else call.outcome.status
    if call.called is None:
        return "not run" if is_over else "asked"
    if call.called.error:
        return "failed"
    return "running" if not is_over else "cut off" if call.child else "unknown"


@dataclass(frozen=True, kw_only=True)
class ShownCall:
    """A tool call, and what became of its effect.

    Attributes:
        body: Its step.
        call: The call.
        policy: The rules of its tool; None when they are not known.
        undone: How its effect was taken back, if it was.
        is_left: Whether its step was left: undone, or run again from nothing.
    """

    body: StepBody
    call: StepCall
    policy: ToolPolicy | None = None
    undone: CallUndone | None = None
    is_left: bool = False

    @property
    def state(self) -> CallState:
        """How far it has come."""
        return call_state(self.call, is_over=self.body.is_over)

    @property
    def effect(self) -> str:
        """The side effect of its tool: as recorded with it, else by the rules of the tool."""
        recorded = self.call.newest.effect if self.call.newest is not None else ""
        return recorded or (self.policy.effect if self.policy is not None else "")

    @property
    def acts(self) -> bool:
        """Whether it has changed something outside, or may have."""
        return self.call.is_begun and (self.effect != "read" or bool(self.call.child))

    @property
    def remains(self) -> bool:
        """Whether its step was left, and its effect is, or may be, still in the world."""
        is_there = self.state in ("done", "unknown", "cut off") and self.effect != "read"
        return self.is_left and self.undone is None and self.call.is_begun and is_there

    @property
    def decision(self) -> Decided | None:
        """The decision that let it run; without one, the last about it."""
        # Who said afterwards what had happened has not let it run.
        let = [each for each in self.call.decided if each.status == "approved"]
        return (let or self.call.decided or (None,))[-1]


class ShownCalls:
    """The calls of a task, with what undos did of their effects.

    A step that runs again makes calls at the places of its earlier calls. So an undo concerns calls
    of completed steps that come before it, or of others that come after it: they are recorded
    once they are left.

    Attributes:
        calls: The calls, in the order of the ledger.
        undone: What else was taken back: of calls that are not among them, by their places.
    """

    def __init__(
        self, found: Iterable[Happening], policies: Policies = lambda _body, _call: None
    ) -> None:
        """Read what happened.

        Args:
            found: What happened, by `happenings`.
            policies: Returns the rules of calls.
        """
        self.calls: list[ShownCall] = []
        self.undone: dict[str, CallUndone] = {}
        self._standing: dict[str, int] = {}
        self._policies = policies
        for each in found:
            match each:
                case StepBegan(body=body):
                    for call in body.all_calls():
                        self._add(body, call)
                case CallUndone(place=place) if place in self._standing:
                    at = self._standing[place]
                    self.calls[at] = replace(self.calls[at], undone=each)
                case CallUndone(place=place):
                    self.undone[place] = each
                case StepsUndone(first=first):
                    self._leave(first)
                case _:
                    continue

    def _add(self, body: StepBody, call: StepCall) -> None:
        own = effect_place(body.branch, body.key, call.batch, call.i)
        places = [own, *([call.child] if call.child else [])]
        undone = [self.undone.pop(place) for place in places if place in self.undone]
        if body.is_completed:
            self._standing |= dict.fromkeys(places, len(self.calls))
        made = ShownCall(
            body=body,
            call=call,
            policy=self._policies(body, call.call),
            undone=undone[0] if undone else None,
            is_left=body.is_left,
        )
        self.calls.append(made)

    def _leave(self, first: int) -> None:
        """Mark the calls of the completed steps that an undo has taken."""
        for at in self._standing.values():
            if self.calls[at].body.n >= first:
                self.calls[at] = replace(self.calls[at], is_left=True)
        kept = self._standing.items()
        self._standing = {place: at for place, at in kept if not self.calls[at].is_left}


def bodies_in(found: Iterable[Happening]) -> list[StepBody]:
    """List the steps that something happened in, each once, in the order of the ledger."""
    return [each.body for each in found if isinstance(each, StepBegan)]


def step_title(body: StepBody) -> str:
    """Name a step by its ordinal, and by its id where that is not the usual one."""
    own = f" ({body.step.step_id})" if body.step.step_id not in ("", f"s{body.n}") else ""
    return f"Step {body.n}{own}"


def step_state(body: StepBody, *, is_undone: bool) -> StepState:
    """Return how far a step has come; of one that was left, how.

    Args:
        body: The step.
        is_undone: Whether an undo has taken it after its end.
    """
    match body.status:
        case "undone" | "restarted" as left:
            return left
        case _ if is_undone:
            return "undone"
        case _:
            pass
    if body.failure is not None:
        return "failed"
    return "done" if body.is_completed else "cut off" if body.is_over else "running"


def path_of(found: Iterable[Happening], branch: int | None = None) -> list[StepBody]:
    """Return the completed steps that a branch builds on, oldest first.

    Args:
        found: What happened, by `happenings`.
        branch: The branch as it was when it was left; None for the present one.
    """
    path: list[StepBody] = []
    for each in found:
        if isinstance(each, StepEnded):
            path.append(each.body)
        elif isinstance(each, StepsUndone):
            if each.branch == branch:
                return path
            path = [body for body in path if body.n < each.first]
    return path


def undone_steps(found: Sequence[Happening]) -> set[tuple[int, int]]:
    """Return branch and ordinal of each completed step that an undo has taken."""
    ended = {(each.body.branch, each.body.n) for each in found if isinstance(each, StepEnded)}
    return ended - {(body.branch, body.n) for body in path_of(found)}


BAD = frozenset({"damaged", "failed", "undo_failed", "lost"})
"""Kinds of events that say that something went wrong."""

FEW_STEPS = 5
"""As many undone steps are named, so that the reason behind them is seen where a line is cut."""

DETAILS = ("arguments", "result", "note", "text", "input", "step", "names")
"""Fields of a command's body that are shown, apart from its reason."""


def noted_line(noted: Noted) -> str:
    """Return in one line what a ledger notes besides steps: who decided, undid, forked."""
    words, text = _noted_words(noted).rstrip(), noted.event.text
    # The reason of a refusal is among its words.
    return f"{words}: {text}" if text and noted.event.kind != "refused" else words


def _noted_words(noted: Noted) -> str:
    # Undos are read from their own happenings; of the other kinds the body is what the task or a
    # person wrote into the ledger, and is shown as it is.
    event, body = noted.event, noted.event.body
    by = f" by {event.by}" if event.by else ""
    match noted:
        case StepsUndone(steps=steps):
            few = len(steps) <= FEW_STEPS
            named = ", ".join(steps) if few else f"{steps[0]} to {steps[-1]}, {len(steps)} of them"
            words = f"undone{by} steps {named}"
            for name in ("undone", "remains", "check"):
                if texts := body.get(name):
                    words += f"; {name}: {'; '.join(map(str, texts))}"
            return words
        case CallUndone():
            return f"effect undone{by} {body.get('effect', '')}"
        case _:
            pass
    match event.kind:
        case "command" | "refused":
            given = as_object(body.get("arguments"))
            verb = str(body.get("verb", "")).replace("_", "-")
            told = [f"{verb}{by}".strip(), str(given.get("approval", ""))]
            told += ["refused:", event.text] if event.kind == "refused" else []
            told += [f"{name}={shortened(str(given[name]))}" for name in DETAILS if given.get(name)]
            return " ".join(filter(None, told))
        case "lost":
            return f"worker lost in {body.get('tool') or 'a call'}; the call is made again"
        case "undo_failed":
            return f"undo failed{by} {body.get('effect', '')}"
        case "forked":
            return f"forked{by} from {body.get('from', '')} after step {body.get('at', '')}"
        case "expired" | "withdrawn":
            return f"{event.kind} {body.get('id', '')} {body.get('tool', '')}"
        case "probed":
            happened = "happened" if body.get("happened") else "did not happen"
            return f"probed {body.get('tool', '')}: it {happened}"
        case kind:
            return " ".join(filter(None, (kind, str(body.get("status") or "")))) + by
