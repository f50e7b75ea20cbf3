"""Approvals of tasks: what waits for people, their decisions, and those for later calls."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import cast

from temporalio.client import WorkflowExecution

from holdfast.client.agent_runner.base import (
    RunnerBase,
    TaskLike,
    check_own,
    id_of,
    people_of,
    roles_of,
)
from holdfast.engine.search_attributes import HF_APPROVALS, HF_RULES, OPEN_TASKS
from holdfast.errors import CommandRefusedError, EngineError, HoldfastError, InvalidArgumentError
from holdfast.reading.inbox import InboxFilter
from holdfast.reading.queries import server_errors
from holdfast.reading.visibility import waiting_in
from holdfast.task.data.calls import Approval, StandingRule
from holdfast.task.data.commands import NOT_OPEN, Receipt
from holdfast.task.data.wire import INLINE_BYTES
from holdfast.task.people.choices import Done
from holdfast.values.base import Json, canonical, same_json
from holdfast.values.checks import gate
from holdfast.values.checks.gate import check_arguments
from holdfast.values.checks.ids import approval_parts, check_by, session_id
from holdfast.values.code.some_at_once import some_at_once
from holdfast.values.runs.approval_rules import Always, Until, are_one, seconds_of
from holdfast.values.runs.verbs import DECIDED, VERBS, Verb
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown

ApprovalLike = Approval | str
CHECKS = 100
AGAIN_SECONDS = 0.05
LISTED_SECONDS = 10.0
"""How long a list over all tasks waits for one. A lost worker's queue holds a question so long;
without a limit, one task whose worker hangs would keep the whole list for a minute."""


class TaskApprovals(RunnerBase):
    """The part of AgentRunner that decides approvals.

    `by` names who acts; it is recorded. An approval is given as an Approval or by its id.
    """

    async def pending_approvals(
        self, task: TaskLike | None = None, *, snoozed: bool = False
    ) -> list[Approval]:
        """List what waits for a person, of one task or of all.

        What is snoozed is in the list of its task; in that of all tasks with `snoozed`.

        For all tasks this is one query of Temporal's visibility store, which is up to a second
        behind; long arguments are cut to 500 characters there. A task with more than 20 open
        approvals is queried for the others. While no worker process is up, one approval of kind
        "unread" says how many are not listed.
        """
        if task is not None:
            return [a for a in await self._read.approvals(id_of(task)) if a.status == "open"]
        check_arguments(TaskApprovals.pending_approvals, snoozed=snoozed)
        wanted = InboxFilter(snoozed=snoozed)
        found = await open_approvals(self)
        return [approval for approval in found if wanted.takes(approval, now=time.time())]

    async def approve(
        self,
        approval: ApprovalLike,
        by: str,
        arguments: Mapping[str, Json] | str | None = None,
        note: str | None = None,
        *,
        always: bool | Always = False,
        roles: Iterable[str] | None = None,
        request_id: str | None = None,
    ) -> Receipt:
        """Let a call run, as proposed or with edited arguments; the model sees an edit.

        For a call of unknown outcome: run it, it did not happen. For a budget: one more model call.

        Args:
            approval: The approval.
            by: Who decides.
            arguments: Arguments that replace the proposed ones; checked against the tool's schema.
            note: A note for the auditor.
            always: Whether this approves later calls of the tool in this task as well, until a step
                is undone; `Always(...)` says which of them, and until when.
            roles: Roles of who decides, for the rule of the tool; by default the ones that the
                handle's map gives them.
            request_id: Names this request: sent again with the same id, it has one effect.

        Raises:
            InvalidArgumentError: The arguments are not JSON data, or larger than 16 KB.
            CommandRefusedError: It was decided already, is of an undone branch, or the arguments do
                not fit, or the person may not decide; then it stays open.
        """
        check_arguments(TaskApprovals.approve, arguments=arguments, note=note, always=always)
        body: dict[str, Json] = {"note": note or "", **(_always(always) if always else {})}
        if arguments is not None:
            body["arguments"] = arguments if isinstance(arguments, str) else dict(arguments)
        receipt = await self._decide(approval, "approve", by, body, roles, request_id=request_id)
        if arguments is not None and receipt.status == "applied":
            await self._await_check(approval, body["arguments"])
        return receipt

    async def reject(
        self,
        approval: ApprovalLike,
        by: str,
        reason: str,
        *,
        message: str | None = None,
        always: bool | Always = False,
        roles: Iterable[str] | None = None,
        request_id: str | None = None,
    ) -> Receipt:
        """Do not let a call run; the model sees the reason.

        For a call of unknown outcome: give it up. For a budget: finish now.

        Args:
            approval: The approval.
            by: Who decides.
            reason: Why.
            message: The text that the model sees in place of the reason, word for word.
            always: Whether this rejects later calls of the tool in this task as well, until a step
                is undone; `Always(...)` says which of them, and until when.
            roles: Roles of who decides, for the rule of the tool; by default the ones that the
                handle's map gives them.
            request_id: Names this request: sent again with the same id, it has one effect.

        Raises:
            CommandRefusedError: It was decided already, or is of an undone branch.
        """
        check_arguments(TaskApprovals.reject, reason=reason, message=message, always=always)
        body: dict[str, Json] = {"reason": reason, **({"message": message} if message else {})}
        body |= _always(always)
        return await self._decide(approval, "reject", by, body, roles, request_id=request_id)

    async def respond(
        self,
        approval: ApprovalLike,
        by: str,
        result: Json,
        *,
        roles: Iterable[str] | None = None,
        request_id: str | None = None,
    ) -> Receipt:
        """Give a result in place of the tool. A call of unknown outcome has happened, with it.

        Args:
            approval: The approval.
            by: Who decides.
            result: The result, JSON data.
            roles: As for `approve`.
            request_id: Names this request: sent again with the same id, it has one effect.

        Raises:
            InvalidArgumentError: The result is not JSON data, or larger than 16 KB.
            CommandRefusedError: It was decided already, or is of an undone branch.
        """
        body: dict[str, Json] = {"result": result}
        return await self._decide(approval, "respond", by, body, roles, request_id=request_id)

    async def snooze(
        self,
        approval: ApprovalLike,
        by: str,
        until: Until,
        *,
        reason: str = "",
        roles: Iterable[str] | None = None,
    ) -> Receipt:
        """Leave an approval out of the lists of all tasks until a time, without a notification.

        It comes back at that time, or with the next vote or escalation. It can still be decided,
        and still expires. Another snooze replaces this one.

        Args:
            approval: The approval.
            by: Who asks for it: a person who may decide it.
            until: When it comes back; a datetime with a time zone, or seconds since the epoch.
            reason: Why.
            roles: As for `approve`.

        Raises:
            CommandRefusedError: The time is over, or not before the approval expires; the approval
                no longer waits, or the person may not decide it.
        """
        check_arguments(TaskApprovals.snooze, until=until, reason=reason)
        body: dict[str, Json] = {"until": seconds_of(until)}
        body |= {"reason": reason} if reason else {}
        return await self._decide(approval, "snooze", by, body, roles)

    async def uncover(
        self, approval: ApprovalLike, by: str, *, roles: Iterable[str] | None = None
    ) -> Receipt:
        """Record that a person is shown the secrets of a call that others see hidden.

        Args:
            approval: The approval, whose `arguments` always have them.
            by: Who is shown them.
            roles: As for `approve`.

        Raises:
            CommandRefusedError: It does not wait any more, or the person may not decide it.
        """
        return await self._decide(approval, "uncover", by, {}, roles)

    def roles_of(self, person: str) -> list[str]:
        """List the roles of a person by the map that this handle was given, sorted."""
        return roles_of(self._roles, check_by(person))

    def people_asked(self, approval: Approval) -> list[str]:
        """List who may decide an approval, by name: roles by the map that this handle was given.

        Empty when anybody may.

        Raises:
            InvalidArgumentError: The approval is an id, or anything else but an `Approval`.
        """
        check_arguments(TaskApprovals.people_asked, approval=approval)
        people = (people_of(self._roles, each) for each in approval.may_decide)
        found = dict.fromkeys(person for each in people for person in each)
        asker = approval.asker if approval.not_asker else ""
        return [person for person in found if not are_one(person, asker)]

    async def standing_rules(self, task: TaskLike | None = None) -> list[StandingRule]:
        """List the decisions that hold for later calls, oldest first.

        Args:
            task: List only this task's decisions, including ones in transit to its session.
                `session(name)` lists the session's own. None for all open tasks and all sessions of
                the app. They are found by Temporal's visibility store, which is up to a second
                behind, and each is asked.

        Raises:
            NoWorkerError: No worker process is up to answer for the one task. In a list over all,
                owners that cannot answer are left out, each with a warning in the log.
        """
        if task is not None:
            return await self._read.standing_rules(id_of(task))
        query = f"{HF_RULES.name} > 0 AND ExecutionStatus = 'Running'"
        with server_errors():
            listed = self.client.list_workflows(query, page_size=1000)
            ids = [found.id async for found in listed]
        rules_of = await some_at_once(self._listed, ids)
        own = [rule for rules in rules_of for rule in rules]
        ended = {rule.id for rule in own if not rule.stands(time.time())}
        return [rule for id, rule in {rule.id: rule for rule in own}.items() if id not in ended]

    async def _listed(self, owner: str) -> list[StandingRule]:
        """List the rules of a task or session that are of this app; none where it cannot answer."""
        try:
            async with asyncio.timeout(LISTED_SECONDS):
                rules = await self._read.standing_rules(owner)
        except (HoldfastError, TimeoutError) as error:  # as of another app that nobody serves now
            why = str(error) or "it gives no answer"
            log.warning("The standing rules of %r are not listed: %s", owner, why)
            return []
        return [rule for rule in rules if self._is_own(rule, owner)]

    def _is_own(self, rule: StandingRule, owner: str) -> bool:
        """Whether a rule is of a task or of a session of this app, or in transit between them."""
        is_here = not rule.session or session_id(self.app, rule.session) == owner
        return is_here or approval_parts(rule.id)[0] == owner

    async def revoke_rule(self, rule: StandingRule | str, by: str) -> Receipt:
        """End a decision for later calls; calls that it has decided stay as they are.

        Args:
            rule: The rule, or its id: that of the approval with which it was given. An id names a
                rule of its task; one of a session is given as it was listed, or revoked by
                `session(name).revoke_rule`.
            by: Who revokes it.

        Raises:
            CommandRefusedError: The task or session has no such rule, or an undo has ended it.
        """
        if isinstance(rule, StandingRule) and rule.session:
            return await self.session(rule.session).revoke_rule(rule, by)
        wanted = rule.id if isinstance(rule, StandingRule) else rule
        task_id, _ = approval_parts(wanted)
        return await self._tasks.command(task_id, "revoke", by=by, body={"rule": wanted})

    async def _decide(
        self,
        approval: ApprovalLike,
        verb: Verb,
        by: str,
        body: dict[str, Json],
        roles: Iterable[str] | None,
        *,
        request_id: str | None = None,
    ) -> Receipt:
        task_id, wanted = _parts(approval)
        if not by:
            raise InvalidArgumentError("A decision needs the name of who decides: by=...")
        sent: dict[str, Json] = {**body, "approval": wanted}
        if roles is not None or self._roles:
            has = roles_of(self._roles, check_by(by)) if roles is None else check_own(roles)
            sent |= {"roles": list[Json](has)} if has else {}
        gate.check(sent, "The decision")
        if (size := len(canonical(sent))) > INLINE_BYTES:
            msg = f"A decision may have at most 16 KB; this one has {size} bytes."
            raise InvalidArgumentError(f"{msg} Nothing was decided.")
        if isinstance(approval, Approval) and verb in DECIDED:
            sent["digest"] = approval.bound or approval.digest
        try:
            return await self._tasks.command(task_id, verb, by=by, body=sent, request_id=request_id)
        except CommandRefusedError as error:
            # A query can show an approval before a workflow task has opened it. A decision that
            # comes with that workflow task is handled before its other events: send it again.
            known = await self._find(task_id, wanted) if NOT_OPEN in str(error) else None
            if known is None or known.status != "open":
                raise
        return await self._tasks.command(task_id, verb, by=by, body=sent)

    async def _find(self, task_id: str, wanted: str) -> Approval | None:
        known = await self._read.approvals(task_id)
        return next((each for each in known if each.id == wanted), None)

    async def _await_check(self, approval: ApprovalLike, edited: Json) -> None:
        """Wait until edited arguments were checked.

        Raises:
            CommandRefusedError: They do not fit, or could not be checked.
        """
        task_id, wanted = _parts(approval)
        for _ in range(CHECKS):
            try:
                found = await self._find(task_id, wanted)
            except EngineError:  # the decision is recorded; its outcome can be read later
                return
            if found is None or found.status not in ("checking", "open"):
                return
            text = edited if isinstance(edited, str) else json.dumps(edited)
            if found.votes and same_json(text, found.agreed or found.arguments):
                return  # it is one of the votes that it needs
            if found.status == "open":
                raise CommandRefusedError(f"{found.text} Approval {wanted!r} stays open.")
            await asyncio.sleep(AGAIN_SECONDS)


async def decide(
    runner: TaskApprovals,
    approval: ApprovalLike,
    verb: Done,
    by: str,
    *,
    roles: Iterable[str] | None = None,
    arguments: dict[str, Json] | None = None,
    text: str = "",
    always: bool | Always = False,
    until: Until = 0.0,
) -> Receipt:
    """Send a decision as a person makes it.

    Args:
        runner: Sends it.
        approval: What is decided.
        verb: How.
        by: Who decides.
        roles: Roles of who decides.
        arguments: Edited arguments.
        text: The note of approve, the reason of reject, the result of respond.
        always: Whether approve or reject holds for later calls as well, and for which.
        until: Until when, for a verb that wants a time.

    Raises:
        CommandRefusedError: It was decided already, or the arguments do not fit.
    """
    if verb in ("approve", "edit", "always"):
        note, always = text or None, always or verb == "always"
        return await runner.approve(approval, by, arguments, note, roles=roles, always=always)
    if verb == "reject":
        return await runner.reject(approval, by, text, roles=roles, always=always)
    send: Callable[..., Awaitable[Receipt]] = getattr(
        runner, VERBS[cast("Verb", verb)].method or verb
    )
    return await send(approval, by, until or text, roles=roles)


async def open_approvals(runner: RunnerBase) -> list[Approval]:
    """List the open approvals of all tasks, oldest first, those included that no list shows."""
    query = f"{OPEN_TASKS} AND {HF_APPROVALS.name} > 0"
    with server_errors():
        listed = [each async for each in runner.client.list_workflows(query, page_size=1000)]
    # Side by side: a task that no worker serves is waited for.
    asked = await some_at_once(partial(_asked_of, runner), listed)
    return sorted(chain.from_iterable(asked), key=lambda approval: approval.asked)


async def _asked_of(runner: RunnerBase, execution: WorkflowExecution) -> list[Approval]:
    """List the open approvals of a task; those of its memo alone when it cannot answer."""
    shown = await waiting_in(execution)
    if not any(each.kind == "unread" for each in shown):
        return shown
    try:
        async with asyncio.timeout(LISTED_SECONDS):
            asked = await runner.reader.approvals(execution.id)
    except (HoldfastError, TimeoutError):  # no worker process is up, or the task has just ended
        return shown
    return [approval for approval in asked if approval.status == "open"]


def _always(given: bool | Always) -> dict[str, Json]:  # noqa: FBT001  it is an argument as given
    if isinstance(given, Always):
        until = cast("Json", given.until)
        bounds: dict[str, Json] = {"same": list[Json](given.same), "until": until}
        return {"always": bounds | ({"scope": "session"} if given.scope == "session" else {})}
    return {"always": True} if given else {}


def _parts(approval: ApprovalLike) -> tuple[str, str]:
    """Return the id of the task, and the approval's id within it."""
    given = cast("object", approval)
    if not isinstance(given, Approval | str):
        msg = f"approval must be an Approval or its id; it was {shown(given)}."
        raise InvalidArgumentError(msg)
    return approval_parts(given if isinstance(given, str) else given.id)
