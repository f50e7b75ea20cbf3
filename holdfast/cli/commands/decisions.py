"""`approvals`, `approve`, `rules`, `revoke`, and the commands of the other verbs."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn, cast

from holdfast.cli import output
from holdfast.cli.commands.open_questions import find_approval, find_task, print_output, waiting_in
from holdfast.cli.connection import engine_of, until_stopped
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.client.agent_runner.approvals import ApprovalLike, decide, open_approvals
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.errors import (
    CommandRefusedError,
    EngineError,
    InvalidArgumentError,
    NotFoundError,
    NoWorkerError,
    StepNotFoundError,
    TaskClosedError,
    message_of,
)
from holdfast.reading.inbox import InboxFilter
from holdfast.task.data.calls import Approval
from holdfast.task.data.commands import Receipt
from holdfast.task.data.records import Entry
from holdfast.task.people.approvals import decided_by
from holdfast.task.people.choices import Done
from holdfast.task.people.decisions import Person, is_whole, refused
from holdfast.task.refusals import NOT_UPCOMING
from holdfast.task.undo import UNDONE
from holdfast.values.base import Json
from holdfast.values.checks.gate import data_of
from holdfast.values.checks.ids import task_of
from holdfast.values.runs.approval_rules import ROLE, Always, Until
from holdfast.values.runs.status import CLOSED
from holdfast.values.runs.verbs import VERBS, Verb
from holdfast.values.steps import Task, TaskStepOutput
from holdfast.values.text.decided import exact
from holdfast.values.text.shown import age, pretty, shortened, time_shown

AGAIN_SECONDS = 0.2
WORKER_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A decision, as it is typed.

    Attributes:
        verb: The decision.
        by: Who decided.
        arguments: Edited arguments, of approve.
        text: The note of approve, the reason of reject, the result of respond.
        roles: Roles of the person who decides.
        always: Whether approve or reject holds for later calls as well, and for which.
        until: Until when, for another verb.
    """

    verb: Done
    by: str
    arguments: dict[str, Json] | None = None
    text: str = ""
    roles: Sequence[str] | None = None
    always: bool | Always = False
    until: Until = 0.0

    async def send(self, runner: AgentRunner, approval: ApprovalLike) -> Receipt:
        """Send it to the task, as `decide` does."""
        return await decide(runner, approval, **vars(self))


def parse_arguments(text: str, what: str = "The arguments") -> dict[str, Json]:
    """Read the arguments of a call, or other data; the tool's schema is checked by the worker.

    Raises:
        InvalidArgumentError: They are not a JSON object.
    """
    try:
        data: Json = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as cause:
        raise InvalidArgumentError(f"{what} must be a JSON object: {cause}") from cause
    if not isinstance(data, dict):
        raise InvalidArgumentError(f"{what} must be a JSON object, not {type(data).__name__}.")
    return cast("dict[str, Json]", data)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


async def approvals_command(
    common: Common, typed: str | None, person: Person, flags: Mapping[str, bool]
) -> ExitCode:
    """List what waits for a person, oldest first, as the flags say."""
    async with engine_of(common) as engine:
        if typed is None:
            waiting = await open_approvals(engine.runner())
        else:
            of_task = await waiting_in(engine, await find_task(engine, typed))
            waiting = [each.approval for each in of_task]
    wanted, now = InboxFilter.model_validate(flags), time.time()
    found = [each for each in waiting if wanted.takes(each, person, now=now)]
    data = [{"task_id": task_of(each.id), **each.model_dump(mode="json")} for each in found]
    rows = [
        (
            a.id,
            a.agent,
            a.kind,
            shortened(a.what, 80),
            _deciders(a),
            age(now - a.asked),
            age(a.expires - now) if a.expires else "never",
        )
        for a in found
    ]
    columns = ("approval", "agent", "kind", "what", "decides", "since", "expires")
    output.listed(data, "Nothing waits for a person.", columns, rows, as_json=common.json)
    if found and not common.json:
        output.say(f"Decide: holdfast inbox{common.arguments()}")
    return ExitCode.OK


def _deciders(approval: Approval) -> str:
    """Return who may decide, and who has approved so far, for a list."""
    who = approval.about.get("decides", "anybody")
    so_far = [f"{name} {text}" for name, text in approval.about.items() if name != "decides"]
    return f"{who} ({', '.join(so_far)})" if so_far else who


async def rules_command(common: Common, typed: str | None, session: str | None = None) -> ExitCode:
    """List the decisions that hold for later calls: of a task, of a session, or all."""
    if typed is not None and session is not None:
        raise InvalidArgumentError("A rule is of a task or of a session: name one of them.")
    async with engine_of(common) as engine:
        runner = engine.runner()
        if session is not None:
            found = await runner.session(session).standing_rules()
        else:
            task = None if typed is None else await find_task(engine, typed)
            found = await runner.standing_rules(task)
    data = [rule.model_dump(mode="json") for rule in found]
    rows = [
        (
            rule.id,
            rule.verb,
            rule.tool,
            shortened(json.dumps(rule.values), 60) if rule.values else "all calls",
            f"session {rule.session}" if rule.session else "its task",
            rule.by,
            time_shown(rule.until) if rule.until else "it is revoked",
        )
        for rule in found
    ]
    columns = ("rule", "decision", "tool", "values", "holds in", "by", "until")
    none = "No decision holds for later calls."
    return output.listed(data, none, columns, rows, as_json=common.json)


async def revoke_command(
    common: Common, rule: str, session: str | None = None, *, by: str
) -> ExitCode:
    """End a decision for later calls of a task, or of a session."""
    async with engine_of(common) as engine:
        task, _, number = rule.rpartition(":")
        if session is not None:
            wanted = rule
            receipt = await engine.runner().session(session).revoke_rule(rule, by)
        else:
            wanted = f"{await find_task(engine, task or rule)}:{number}"
            receipt = await engine.runner().revoke_rule(wanted, by)
    if common.json:
        output.emit({"rule": wanted, **receipt.model_dump(mode="json")})
    output.say(f"revoke is {receipt.status} for {wanted}.")
    return ExitCode.OK


async def verb_command(
    common: Common, verb: Verb, typed: str, given: Mapping[str, Any]
) -> ExitCode:
    """Send a task a verb; it is recorded even when no worker is up.

    Args:
        common: Where the task is.
        verb: The verb.
        typed: The task or the approval that it is about.
        given: The arguments of the client's method; `wait` for a decision.
    """
    declared = VERBS[verb]
    if declared.decided:
        [text] = (given[name] for name in declared.form or ())
        decision = Decision(verb=verb, by=given["by"], roles=given["roles"], text=text)
        return await decide_command(common, typed, decision, wait=given["wait"])
    async with engine_of(common) as engine:
        if declared.about == "approval":
            subject, _, _ = await find_approval(engine, typed)
            about: dict[str, Json] = {"approval": subject, "task_id": task_of(subject)}
        elif declared.about == "call":
            subject, about = typed, {"task_id": task_of(task_of(typed))}
        else:
            subject = await find_task(engine, typed)
            about = {"task_id": subject}
        with _finding(given.get("step")):
            send = getattr(engine.runner(), declared.method or verb)
            receipt: Receipt = await send(subject, **given)
    if common.json:
        output.emit({**about, "by": given["by"], **receipt.model_dump(mode="json")})
    _say(receipt, subject)
    return ExitCode.OK


@contextmanager
def _finding(step: str | None) -> Generator[None]:
    """Tell a step that is not there from other reasons for which a task refuses a command.

    Raises:
        StepNotFoundError: The task has no such step to come.
    """
    try:
        yield
    except CommandRefusedError as error:
        if step is None or NOT_UPCOMING.format(step) not in str(error):
            raise
        raise StepNotFoundError(*error.args) from error


def _say(receipt: Receipt, subject: str) -> None:
    name = receipt.verb.replace("_", "-")
    is_applied = receipt.status != "recorded"
    late = "recorded; it takes effect when a worker is up."
    output.say(f"{name} is applied to {subject}." if is_applied else f"{name} is {late}")


async def approve_command(
    common: Common, approval: str, *, arguments: str | None, note: str, wait: bool, **given: Any
) -> ExitCode:
    """Approve a call, perhaps with other arguments."""
    edited = None if arguments is None else parse_arguments(arguments)
    decision = _decision("approve", note, arguments=edited, **given)
    return await decide_command(common, approval, decision, wait=wait)


async def reject_command(
    common: Common, approval: str, *, reason: str, wait: bool, **given: Any
) -> ExitCode:
    """Reject a call."""
    return await decide_command(common, approval, _decision("reject", reason, **given), wait=wait)


def _decision(
    verb: Done,
    text: str,
    *,
    by: str,
    role: list[str] | None,
    always: bool,
    same: list[str] | None,
    until: datetime | None,
    in_session: bool,
    arguments: dict[str, Json] | None = None,
) -> Decision:
    """Return a decision as it is typed, and for which later calls it holds as well."""
    later: bool | Always = False
    if always or same or until or in_session:
        later = Always(same=same or (), until=until, scope="session" if in_session else "task")
    return Decision(verb=verb, by=by, roles=role, arguments=arguments, text=text, always=later)


async def decide_command(common: Common, typed: str, decision: Decision, *, wait: bool) -> ExitCode:
    """Decide one approval; the decision is recorded even when no worker is up."""
    async with engine_of(common) as engine:
        approval_id, known, task_id = await find_approval(engine, typed)
        runner = engine.runner()
        wanted: ApprovalLike = approval_id
        is_as_asked = decision.verb == "approve" and decision.arguments is None
        if is_as_asked and known and known.arguments and not known.bound:
            wanted = known  # what is printed is what is approved
            output.say(f"{approval_id} is a call of {known.tool or 'no tool'}:")
            show_call(known)
        try:
            receipt = await decision.send(runner, wanted)
        except (CommandRefusedError, TaskClosedError) as error:
            if known is not None and (remedy := _of_group(known, decision)):
                raise CommandRefusedError(str(error), remedy=remedy) from None
            raise await _with_who(runner, approval_id, error) from None
        facts: dict[str, Json] = {
            "approval": approval_id,
            "task_id": task_of(approval_id),
            "by": decision.by,
            **receipt.model_dump(mode="json"),
        }
        _say(receipt, approval_id)
        if known and known.expires and receipt.status == "recorded":
            output.say(f"It counts if the server had it before {time_shown(known.expires)}.")
        if not wait:
            if common.json:
                output.emit(facts)
            return ExitCode.OK
        asked = known or Approval(id=approval_id)
        task, got = await until_stopped(_settled(runner, task_id, asked, time.time()))
    if common.json:
        output.emit({**facts, "task_status": task.status, "output": got.model_dump(mode="json")})
    return _print_settled(common, task, got)


def _of_group(approval: Approval, decision: Decision) -> str:
    """Return how a person says to be of a group who may decide, if that is what is missing."""
    groups = [name.removeprefix(ROLE) for name in approval.may_decide if name.startswith(ROLE)]
    own = decision.roles or ()
    if not groups or not refused(approval, decision.by, own):
        return ""
    if refused(approval, decision.by, groups):
        return ""
    return f"If {decision.by} is of such a group, add --role {shlex.quote(groups[0])}."


def show_call(approval: Approval) -> None:
    """Print all that a call runs with, as far as it is known."""
    text = exact("\n".join([pretty(data_of(approval.as_agreed)), *approval.filled_in]))
    cut = "" if is_whole(approval) else " ... (the rest is shown when a worker is up)"
    output.say(f"    {text}{cut}".replace("\n", "\n    "), style="cyan")


async def _with_who(
    runner: AgentRunner, approval_id: str, error: CommandRefusedError | TaskClosedError
) -> CommandRefusedError | TaskClosedError:
    """Add to a refusal who has decided: a task whose step is over does not know it."""
    with suppress(EngineError, NotFoundError):
        who = decided_by(await runner.ledger(task_of(approval_id)), approval_id)
        is_named = isinstance(error, CommandRefusedError) and error.is_decided
        if who and not is_named:
            error.args = (f"{message_of(error)} {approval_id} was decided already: {who}.",)
    return error


def _print_settled(common: Common, task: Task, got: TaskStepOutput) -> ExitCode:
    code = print_output(common, got)
    if task.status in ("needs_attention", "failed", "abandoned"):
        output.say(f"error: The task is {task.status}: {task.error}", style="red")
        return ExitCode.FAILED
    if code is ExitCode.OK and got.output is not None and str(got) and not common.json:
        output.answer(str(got))
    return code


async def _settled(
    runner: AgentRunner, task_id: str, approval: Approval, sent: float
) -> tuple[Task, TaskStepOutput]:
    """Wait until the decided step is over or cannot go on; return its output.

    Args:
        runner: Reads the task.
        task_id: The task that lists the approval: its own, or the parent task that waits for it.
            `approval.n` is a step of this task.
        approval: The decided approval.
        sent: Time of the decision.
    """
    is_printed = False
    while True:
        try:
            task = await runner.get_task(task_id)
            entries = await runner.ledger(task_id)
            if _is_undone(entries, sent):
                return task, TaskStepOutput()
            got = await _output_of(runner, task_id, approval, entries)
            if got is not None:
                return task, got
            if task.status in CLOSED or task.status == "needs_attention":
                return task, TaskStepOutput()
            waiting = await _waiting_output(runner, task_id, approval)
            if waiting is not None:
                return task, waiting
            await asyncio.sleep(AGAIN_SECONDS)
        except NoWorkerError:
            if not is_printed:
                output.say("Waiting for a worker; Ctrl-C leaves the decision as it is.")
            is_printed = True
            await asyncio.sleep(WORKER_SECONDS)


async def _output_of(
    runner: AgentRunner, task_id: str, approval: Approval, entries: Sequence[Entry]
) -> TaskStepOutput | None:
    """Return the output of the decided step, once it is completed."""
    if approval.kind == "undo":
        return None
    place = (approval.branch, approval.n)
    records = [entry.step for entry in entries if entry.step is not None]
    found = [k for k, record in enumerate(records) if (record.branch, record.key) == place]
    if not found:
        return None
    outputs = await runner.get_completed_steps(task_id, undone=True)
    return outputs[found[-1]]


async def _waiting_output(
    runner: AgentRunner, task_id: str, approval: Approval
) -> TaskStepOutput | None:
    """Return what the same step or undo waits for next; None while it waits for nothing."""
    pending = await runner.pending_approvals(task_id)
    found = [
        each
        for each in pending
        if each.id != approval.id
        and (each.kind == "undo") == (approval.kind == "undo")
        and (each.kind == "undo" or each.n == approval.n)
    ]
    if not found:
        return None
    texts, ids = tuple(each.line for each in found), tuple(each.id for each in found)
    return TaskStepOutput(status="waiting", waiting_for=texts, approvals=ids)


def _is_undone(entries: Sequence[Entry], sent: float) -> bool:
    """Whether an undo has ended since, give or take a second: two clocks are compared."""
    for entry in reversed(entries):
        event = entry.event
        if event is not None and event.kind in (UNDONE, "undo_failed"):
            return event.at >= sent - 1
    return False
