"""The decisions of a RunState, as they are sent: those on one call before standing ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from holdfast.agents.runs.state import RunState
from holdfast.agents.runs.state_form import Decision
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.errors import CommandRefusedError, TaskClosedError, TaskNotFoundError
from holdfast.task.data.calls import Approval
from holdfast.task.data.records import Entry, EventRecord
from holdfast.values.checks.json_shapes import is_object
from holdfast.values.text.shown import time_shown


@dataclass(frozen=True, kw_only=True)
class _Settled:
    """How an approval was settled, by the ledger of its task.

    Attributes:
        verb: "approve", "reject" or "respond"; empty when it was withdrawn.
        by: Who decided; empty when it expired.
        at: When, seconds since the epoch.
        always: Whether the decision holds for later calls of the tool as well.
        edited: Whether the arguments were edited.
    """

    verb: str
    by: str = ""
    at: float = 0.0
    always: bool = False
    edited: bool = False

    def agrees_with(self, decision: Decision) -> bool:
        """Whether a decision of a state has the same effect."""
        same = self.verb == decision.verb and not self.edited
        return same and (self.always or not decision.always)

    @property
    def in_words(self) -> str:
        """The decision, for the text of an error."""
        match self.verb:
            case "approve":
                how = "approved with other arguments" if self.edited else "approved"
                done = how if self.always else f"{how} for this one call"
            case "reject":
                done = "rejected" if self.always or self.by else "rejected, for want of a decision"
            case "respond":
                done = "given a result"
            case _:
                return "withdrawn: its step was undone, or its task ended"
        when = time_shown(self.at)
        return f"{done} by {self.by} at {when}" if self.by else f"{done} at {when}"


async def checked_decisions(
    engine: AgentRunner, state: RunState, by: str, *, is_over: bool
) -> list[tuple[Approval, Decision]]:
    """Return the decisions of a state that must be sent, each with what it decides.

    Equal ones that were made before, here or elsewhere, stand.

    Args:
        engine: The engine.
        state: The state.
        by: Who decides.
        is_over: Whether the run's task is closed: its outcome then explains withdrawn approvals.

    Raises:
        CommandRefusedError: A call was decided otherwise before. Nothing was sent then.
    """
    decisions = _in_order(state.decisions)
    asked = await engine.pending_approvals(state.task_id) if decisions else []
    waiting = {approval.id: approval for approval in asked}
    gone = [decision for decision in decisions if decision.approval not in waiting]
    settled = await _settled(engine, gone)
    for decision in gone:
        found = settled.get(decision.approval)
        withdrawn = found is None or not found.verb
        if not (is_over and withdrawn) and not (found and found.agrees_with(decision)):
            raise await _refused(engine, decision, found, by)
    return [(waiting[each.approval], each) for each in decisions if each.approval in waiting]


def _in_order(decisions: Sequence[Decision]) -> list[Decision]:
    """Order decisions: those on one call, then for each tool the last standing one."""
    standing = {_scope(each): each for each in decisions if each.always}
    last = list(standing.values())
    exact = [each.model_copy(update={"always": False}) for each in decisions if each not in last]
    return [*exact, *last]


def _scope(decision: Decision) -> tuple[str, str]:
    """Return the calls for which a standing decision holds: (task, tool)."""
    return decision.approval.rpartition(":")[0], decision.tool


async def send_decision(
    engine: AgentRunner, approval: Approval, decision: Decision, by: str
) -> None:
    """Send one decision on a call that waited when the approvals were read.

    Raises:
        CommandRefusedError: It was decided otherwise, or has changed since it was shown.
    """
    try:
        await _command(engine, approval, decision, by)
    except (TaskClosedError, TaskNotFoundError):
        return  # the run's outcome says why
    except CommandRefusedError as error:
        task_id = approval.id.rpartition(":")[0]
        if any(each.id == approval.id for each in await engine.pending_approvals(task_id)):
            raise
        found = (await _settled(engine, [decision])).get(approval.id)
        if found is None or not found.agrees_with(decision):
            raise CommandRefusedError(_words(decision, found)) from error


async def _command(engine: AgentRunner, approval: Approval, decision: Decision, by: str) -> None:
    if decision.digest:
        approval = approval.model_copy(update={"digest": decision.digest})
    if decision.verb == "approve":
        await engine.approve(approval, by, always=decision.always)
    else:
        message, always = decision.message, decision.always
        await engine.reject(approval, by, "", message=message, always=always)


async def _refused(
    engine: AgentRunner, decision: Decision, found: _Settled | None, by: str
) -> CommandRefusedError:
    """Send a decision that the task will refuse, so that its audit has it; return the error."""
    text = f"{_words(decision, found)} Nothing that the state decides was sent."
    gone = Approval(id=decision.approval, kind="tool", n=0, i=0, branch=0, asked=0.0)
    with suppress(CommandRefusedError, TaskClosedError, TaskNotFoundError):
        await _command(engine, gone, decision, by)
    return CommandRefusedError(text)


def _words(decision: Decision, found: _Settled | None) -> str:
    wanted = f"{decision.verb} it{' and all later calls' if decision.always else ''}"
    what = f"{decision.tool} ({decision.approval!r})" if decision.tool else repr(decision.approval)
    how = found.in_words if found is not None else "never asked about"
    return (
        f"The decision on {what} was refused: it was {how}, and the state says to {wanted}. The"
        " first decision counts; RunState.of(task_id) goes on without another decision."
    )


async def _settled(engine: AgentRunner, decisions: Iterable[Decision]) -> dict[str, _Settled]:
    """Read how the approvals of decisions were settled, by id."""
    found: dict[str, _Settled] = {}
    for task_id in {decision.approval.rpartition(":")[0] for decision in decisions}:
        with suppress(TaskNotFoundError):
            found |= _fold(await engine.reader.entries(task_id))
    return found


def _fold(entries: Iterable[Entry]) -> dict[str, _Settled]:
    """Fold a ledger: the approvals of a task that are settled, by id."""
    # Events only: a happening that is a command has no more than the event, and steps say nothing
    # of how an approval was settled.
    found: dict[str, _Settled] = {}
    for event in (entry.event for entry in entries if entry.event is not None):
        said: object = event.body.get("arguments")
        about = str(event.body.get("id", ""))
        match event.kind:
            case "command" if is_object(said) and "approval" in said:
                found[str(said["approval"])] = _of_command(event, said)
            case "standing":
                verb = str(event.body.get("verb", ""))
                found[about] = _Settled(verb=verb, by=event.by, at=event.at, always=True)
            case "expired":
                found[about] = _Settled(verb="reject", at=event.at)
            case "withdrawn":
                found[about] = _Settled(verb="", at=event.at)
            case "vote":  # others must approve as well
                found.pop(str(said["approval"]) if is_object(said) else "", None)
            case "refused" if isinstance(said, str):  # edited arguments that did not fit
                found.pop(about, None)
            case _:
                pass
    return found


def _of_command(event: EventRecord, said: Mapping[str, object]) -> _Settled:
    return _Settled(
        verb=str(event.body.get("verb", "")),
        by=event.by,
        at=event.at,
        always=said.get("always") is True,
        edited=said.get("arguments") is not None,
    )
