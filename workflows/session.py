"""The session workflow: an agent's conversational memory, which only finalized tasks extend."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RawValue

from holdfast.wire import CommitRef, SessionState

ROLL_EVENTS = 2000
INDEX_SIZE = 500
RECENT_KEPT = 1000


@workflow.defn(name="Session", sandboxed=False)
class Session:
    """One session. It keeps references; the messages are in the archive."""

    @workflow.init
    def __init__(self, state: SessionState) -> None:
        """Begin empty, or go on after continue-as-new."""
        self.s = state

    @workflow.run
    async def run(self, state: SessionState) -> None:
        """Live for ever; commits arrive as signals."""
        del state
        await workflow.wait_condition(self._rolls)
        while len(self.s.commits) > INDEX_SIZE:
            full = self.s.commits[:INDEX_SIZE]
            sha256 = await workflow.execute_activity(
                "index", list(full), result_type=str, start_to_close_timeout=timedelta(minutes=2)
            )
            self._change(
                commits=self.s.commits[INDEX_SIZE:],
                older=(*self.s.older, sha256),
                base=self.s.base + INDEX_SIZE,
            )
        workflow.continue_as_new(self.s)

    def _rolls(self) -> bool:
        info = workflow.info()
        long = info.get_current_history_length() >= ROLL_EVENTS
        return long or info.is_continue_as_new_suggested()

    def _change(self, **fields: object) -> None:
        self.s = self.s.model_copy(update=fields)

    @workflow.signal
    def commit(self, raw: RawValue) -> None:
        """Append a task's turn; a task that has committed already is dropped."""
        try:
            turn = CommitRef.model_validate_json(raw.payload.data)
        except ValueError as error:  # an error here would block the session for ever
            workflow.logger.warning("A commit that cannot be read was dropped: %s", error)
            return
        if turn.task and turn.task in self.s.recent:
            return
        recent = (*self.s.recent, turn.task)[-RECENT_KEPT:] if turn.task else self.s.recent
        self._change(commits=(*self.s.commits, turn), recent=recent)

    @workflow.query
    def state(self) -> SessionState:
        """Show the turns."""
        return self.s.model_copy(update={"recent": ()})
