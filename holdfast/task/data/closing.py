"""Pages of the ledger, and the input and result of the closing activity, which stores them."""

from __future__ import annotations

from holdfast.task.data.failures import Failure
from holdfast.task.data.records import Entry, OpenState, SegmentRef
from holdfast.task.data.seal import Seal
from holdfast.task.data.state import CommitRef
from holdfast.values.base import ChainRef, Value
from holdfast.values.runs.status import TaskStatus
from holdfast.values.steps import Task


class EntriesRequest(Value):
    """Asks for ledger entries that are not in the archive yet.

    Attributes:
        skip: Entries to skip, counted from the end of the last segment.
        opens: Whether to show the open steps as well.
        task: Whether to describe the task as well.
        hub: Name of the hub of a reader that wants unfinished answers as well.
    """

    skip: int = 0
    opens: bool = False
    task: bool = False
    hub: str = ""


class EntriesPage(Value):
    """A page of the ledger.

    Attributes:
        segment: Newest segment of the archived part, which comes before.
        entries: Entries, oldest first.
        more: Whether there are more.
        opens: The open steps.
        branch: The present branch.
        ledger: Length and digest of the chain of the whole ledger.
        number: Number of the last thing that happened, archived or not.
        task: The task, when it was asked for; of a long input, its beginning.
    """

    segment: SegmentRef | None = None
    entries: tuple[Entry, ...] = ()
    more: bool = False
    opens: tuple[OpenState, ...] = ()
    branch: int = 0
    ledger: ChainRef = ChainRef()
    number: int = 0
    task: Task | None = None


class CloseInput(Value):
    """Input of the closing activity.

    Attributes:
        status: Status that the task closes with.
        at: The transcript.
        commit: Whether the session gets this task's turn.
        failure: Verdict or reason that ended the task, if it is not finished.
        ledger: Length and digest of the ledger that must be stored.
        head: As for `ToolInput`.
        begun: When the workflow task began, in seconds since the epoch; only for `close_here`.
        lanes: How many lanes of the task may have kept an answer in the archive.
    """

    status: TaskStatus
    at: ChainRef = ChainRef()
    commit: bool = False
    failure: Failure | None = None
    ledger: ChainRef = ChainRef()
    head: str = ""
    begun: float = 0.0
    lanes: int = 0


class Closed(Value):
    """Result of the closing activity.

    Attributes:
        seal: The digests of what was stored of the task.
        turn: What its session is to get; None for nothing.
    """

    seal: Seal
    turn: CommitRef | None = None
