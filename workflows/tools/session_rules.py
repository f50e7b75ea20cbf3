"""Decisions for later calls in a whole session: the session keeps them, its tasks ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from holdfast.task.data.calls import StandingRule
from holdfast.task.data.head import SessionRef
from holdfast.task.data.wire import KeepInput, RecallInput
from holdfast.task.ledger.ledger import Ledger
from holdfast.task.people import standing
from holdfast.workflows.activity_calls import PATIENT, failure_of, now

ONE_ATTEMPT = timedelta(seconds=30)
LONGEST_RECALL = timedelta(minutes=1)
"""How long to ask the session before a person: without an answer a call never runs."""


async def recall(ledger: Ledger, n: int, i: int) -> Sequence[StandingRule]:
    """Ask the task's session for its decisions on such a call; none when it cannot answer."""
    session = ledger.given.head.session
    if session is None:
        return ()
    wanted = RecallInput(
        session=session.id, tool=ledger.at(n).calls[i].name, agent=standing.agent_of(ledger, n)
    )
    try:
        found: list[StandingRule] = await workflow.execute_activity(
            "session_rules",
            wanted,
            result_type=list[StandingRule],
            start_to_close_timeout=ONE_ATTEMPT,
            schedule_to_close_timeout=LONGEST_RECALL,
            retry_policy=PATIENT,
            summary=wanted.tool,
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        workflow.logger.warning("%s has not said its rules: %s", session.id, error.cause)
        return ()
    return [rule for rule in found if rule.stands(now())]


async def hand_over(ledger: Ledger, session: SessionRef) -> None:
    """Bring decisions that hold in a session to it, one by one. Runs until it is cancelled.

    A decision that is revoked in transit is brought once more, with who has revoked it.
    """
    while True:
        await workflow.wait_condition(lambda: bool(ledger.s.to_session))
        rule, is_taken = ledger.s.to_session[0], True
        try:
            await workflow.execute_activity(
                "keep_rule",
                KeepInput(session=session, rule=rule),
                start_to_close_timeout=ONE_ATTEMPT,
                retry_policy=PATIENT,
                summary=f"{rule.verb} {rule.tool}",
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                return
            text = f"The session has not taken the rule, which ends here: {failure_of(error).text}"
            ledger.note("refused", now=now(), by=rule.by, text=text, body={"rule": rule.id})
            is_taken = False
        left = tuple(
            each
            for each in ledger.s.to_session
            if each.id != rule.id or (is_taken and each != rule)
        )
        ledger.change(to_session=left)
