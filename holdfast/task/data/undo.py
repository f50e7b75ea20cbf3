"""An undo as data: the request, its progress, the effects, and the state before each step.

The state is recorded as differences between two versions of a sequence, which lead both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Literal, Self, TypeVar

from pydantic import Field

from holdfast.task.data.commands import UpdateRequest
from holdfast.values.base import ChainRef, Json, Part, Value, canonical
from holdfast.values.messages import Blob, Content, Message, ToolCall, Usage
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.values.steps import TaskStep

T = TypeVar("T")


class Change(Value, Generic[T]):
    """What turns a sequence into another one, and that back into the first.

    It holds only elements that one of the two lacks. So a ledger that records each change of the
    queue can be read forwards from its beginning and backwards from its end, and a step that
    leaves a long queue alone records nothing of it.

    Attributes:
        kept: (first place, number) of elements of the old sequence that stay, in the order in which
            the new one has them.
        gone: Elements that only the old one has, with their places in it, in order.
        come: Elements that only the new one has, with their places in it, in order.
    """

    kept: tuple[tuple[int, int], ...] = ()
    gone: tuple[tuple[int, T], ...] = ()
    come: tuple[tuple[int, T], ...] = ()

    @classmethod
    def if_any(cls, old: Sequence[T], new: Sequence[T], key: Callable[[T], object]) -> Self | None:
        """Return what turns a sequence into another, or None when they are the same."""
        return None if same(old, new) else cls.between(old, new, key)

    @classmethod
    def between(cls, old: Sequence[T], new: Sequence[T], key: Callable[[T], object]) -> Self:
        """Return what turns a sequence into another.

        Args:
            old: The first.
            new: The other.
            key: Names an element: only elements of one name are compared.
        """
        if not old:  # as before a task's first step
            return cls(come=tuple(enumerate(new)))
        head, end = _common(old, new)
        places: dict[object, list[int]] = {}
        for at in range(head, len(old) - end):
            places.setdefault(key(old[at]), []).append(at)
        stays = list(range(head))
        come: list[tuple[int, T]] = []
        for at in range(head, len(new) - end):
            known = places.get(key(new[at]), [])
            place = next((each for each in known if _is_same(old[each], new[at])), None)
            if place is None:
                come.append((at, new[at]))
            else:
                known.remove(place)
                stays.append(place)
        stays += range(len(old) - end, len(old))
        left = sorted(place for unused in places.values() for place in unused)
        gone = tuple((at, old[at]) for at in left)
        return cls(kept=_ranges(stays), gone=gone, come=tuple(come))

    def forward(self, old: Sequence[T]) -> tuple[T, ...]:
        """Return the new sequence.

        Raises:
            RuntimeError: The change is not of this sequence.
        """
        self._check(len(old), self.gone)
        new: list[T] = []
        for at, count in self.kept:
            new += old[at : at + count]
        for at, each in self.come:
            new.insert(at, each)
        return tuple(new)

    def backward(self, new: Sequence[T]) -> tuple[T, ...]:
        """Return the old sequence.

        Raises:
            RuntimeError: The change did not lead to this sequence.
        """
        self._check(len(new), self.come)
        places = {at for at, _ in self.come}
        stayed = iter([each for at, each in enumerate(new) if at not in places])
        old = dict(self.gone)
        for at, count in self.kept:
            old.update((place, next(stayed)) for place in range(at, at + count))
        return tuple(old[at] for at in range(len(old)))

    def _check(self, length: int, lacking: Sequence[object]) -> None:
        wanted = len(lacking)
        for _, count in self.kept:
            wanted += count
        if length != wanted:
            # Going on would restore a queue that never was.
            msg = f"the recorded change is of {wanted} elements, and there are {length}"
            raise RuntimeError(msg)


def same(old: Sequence[object], new: Sequence[object]) -> bool:
    """Whether two sequences have the same elements, to the byte: 1 is not True."""
    return len(old) == len(new) and all(map(_is_same, old, new))


def _common(old: Sequence[object], new: Sequence[object]) -> tuple[int, int]:
    """Return how many elements two sequences share at the beginning, and how many at the end."""
    head, end = 0, 0
    least = min(len(old), len(new))
    while head < least and _is_same(old[head], new[head]):
        head += 1
    while end < least - head and _is_same(old[-1 - end], new[-1 - end]):
        end += 1
    return head, end


def _ranges(places: Sequence[int]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for at in places:
        if found and at == sum(found[-1]):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((at, 1))
    return tuple(found)


def _is_same(old: object, new: object) -> bool:
    """Whether two elements are the same on the wire; unchanged ones are mostly one object."""
    if old is new:
        return True
    if old != new or not (isinstance(old, Value) and isinstance(new, Value)):
        return old == new
    return canonical(old.wire()) == canonical(new.wire())


class Obstacle(Value):
    """An effect that prevents an undo.

    Attributes:
        text: What it is, for people.
        is_unknown: Whether the effect may or may not have taken place, so that a person should
            check it.
    """

    text: str
    is_unknown: bool = False


QueueChange = Change[TaskStep]
"""What changed in the queue."""


class LastOutput(Value):
    """A step that ran next to others and ended the task: its output waits to be joined.

    Attributes:
        n: Number under which it was opened.
        step_id: Its id.
        over_budget: Whether the budget ended it.
    """

    n: int
    step_id: str
    over_budget: bool = False


class Waiting(Value):
    """What waits in a task next to its queue.

    Attributes:
        notes: Messages that wait for the next model call.
        followups: Inputs that wait for the task's answer.
        lasts: Last outputs that wait to be joined, in the order in which their steps were opened.
    """

    notes: tuple[Message, ...] = ()
    followups: tuple[str, ...] = ()
    lasts: tuple[LastOutput, ...] = ()


NotesChange = Change[Message]
FollowupsChange = Change[str]
LastsChange = Change[LastOutput]


class WaitingChange(Value):
    """What changed in what waits next to the queue; None for nothing."""

    notes: NotesChange | None = None
    followups: FollowupsChange | None = None
    lasts: LastsChange | None = None

    @classmethod
    def between(cls, old: Waiting, new: Waiting) -> WaitingChange:
        """Return what turns the one into the other."""
        if old == new:
            return UNCHANGED
        return cls(
            notes=NotesChange.if_any(old.notes, new.notes, key=lambda note: note.text),
            followups=FollowupsChange.if_any(old.followups, new.followups, key=str),
            lasts=LastsChange.if_any(old.lasts, new.lasts, key=lambda last: last.n),
        )

    def forward(self, old: Waiting) -> Waiting:
        """Return what waits after the change."""
        made = {name: each.forward(getattr(old, name)) for name, each in self if each is not None}
        return old.model_copy(update=made)

    def backward(self, new: Waiting) -> Waiting:
        """Return what waited before the change."""
        made = {name: each.backward(getattr(new, name)) for name, each in self if each is not None}
        return new.model_copy(update=made)


NOTHING_WAITS = Waiting()
UNCHANGED = WaitingChange()
"""As nearly every step finds it: made once, not for each."""


class Taken(Value):
    """What a step changed in the queue, next to the steps that it queued at the end.

    Attributes:
        place: Its place in the queue that it found.
        change: The whole change, when it is another one than that this very step is taken from its
            place and the new steps are added: it was begun with another input, a new step took the
            place of one that was not ready, a person changed the queue while it ran.
    """

    place: int = 0
    change: QueueChange | None = None


class FollowUp(Value):
    """The queued step that a request to run a step has added to an answered task.

    Attributes:
        step: Id of the step.
        stored: Its input in the archive, when it is too large for history.
    """

    step: str = ""
    stored: Blob | None = None


NO_FOLLOWUP = FollowUp()
FIRST_TAKEN = Taken()


class Before(Value):
    """The state of a task before a step, which an undo of the step restores.

    For a step that ran next to others it is the state when the step was done, as if no step had
    been open: it and the others are first in the queue then.

    Attributes:
        found: How the queue that it found, the step itself in it, differs from the queue that the
            step before it on its branch left (from an empty one for the first); None for not at
            all. See `holdfast.task.ledger.queue`.
        waiting: How what waited next to the queue differs from what the step before it found.
        serial: Number of the newest step id.
        turns: Answered model calls.
        usage: Cost of the task.
        answered: Whether the task had its answer.
        concluded: Whether the step before was the last one; a follow-up may be queued since.
        transcript: Length and digest of the transcript.
        beside: How many other steps were open.
        last_step: The step that gave the task's answer, as the task kept it for follow-ups.
        answer: The answer of a concluded task; a large one is only named.
        further: Id of the step if the request that ran it has added it to an answered task: an undo
            takes it out of the queue as well, and the task has its answer again.
    """

    found: QueueChange | None = None
    waiting: WaitingChange = UNCHANGED
    serial: int = 1
    turns: int = 0
    usage: Usage = Usage()
    answered: bool = False
    concluded: bool = False
    transcript: ChainRef = ChainRef()
    beside: int = 0
    last_step: TaskStep | None = None
    answer: Json = None
    further: str = ""


class Newest(Value):
    """The newest step of a task, as the client has read it that asks for its undo.

    Attributes:
        branch: The task's branch.
        opened: Number of the step that was begun last on it.
        to: Ordinal of the last step that an undo would keep.
        steps: Ids of the undone ones: the steps in progress, else the last completed one.
    """

    branch: int = 0
    opened: int = 0
    to: int = 0
    steps: tuple[str, ...] = ()


ALL_BUT_THE_LAST = -1
"""In place of the ordinal of the last step to keep."""


class UndoRequest(UpdateRequest):
    """Argument of the `undo` update.

    Attributes:
        to: Ordinal of the last step to keep; -1 for all but the last one.
        step: Id of that step, for people.
        branch: Branch on which that step was run; it and the ordinal name a step of a task. -1 for
            whichever it is.
        newest: What must be undone, as it was seen; the undo is refused when there is more or
            less to be undone by now.
        residue: Whether effects that cannot be undone refuse the undo, or stay knowingly.
        by: Who asks.
        reason: Why.
    """

    to: int = ALL_BUT_THE_LAST
    step: str = ""
    branch: int = -1
    newest: Newest | None = None
    residue: Literal["refuse", "keep"] = "refuse"
    by: str = ""
    reason: str = ""


class UndoState(Part):
    """An undo in progress.

    Attributes:
        asked: The request, `to` made explicit.
        done: Keys of the effects that are undone, `<branch>.<step>.<batch>.<position>`, in order.
        undone: What was undone, in words.
        unclear: Key of each effect that may have been undone in the course of it, to it in words.
        remains: Effects that are not undone.
        check: Effects that a person should check.
        steps: Ids of the steps that were left.
        cut: (step, position) of the open calls that were running when the steps were stopped.
        request: Id of the request.
        number: For an undo ordered by the parent task: number of the order.
        mode: Stage of such an undo: "check" lists the obstacles and then is "held" until the
            parent goes on; "release" ends it with nothing undone.
    """

    asked: UndoRequest
    done: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    unclear: dict[str, str] = Field(default_factory=dict[str, str])
    remains: tuple[str, ...] = ()
    check: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    cut: tuple[tuple[int, int], ...] = ()
    request: str = ""
    number: int = 0
    mode: Literal["", "check", "held", "release"] = ""


class EffectRef(Value):
    """One tool call of a step, as its undo needs it.

    Attributes:
        call: The call, as it ran.
        content: Its result, or where the archive keeps it.
        status: How it ended.
        ran: Whether it was started at all.
        batch: Which of the step's batches of calls it was in.
        i: Its position there.
        child: Id of its child task, for a call of an agent as a tool.
        rule: By which people were asked about it, when the tool's predicate said so.
    """

    call: ToolCall
    content: Content = ""
    status: Literal["done", "failed", "unknown"] = "done"
    ran: bool = True
    batch: int = 0
    i: int = 0
    child: str = ""
    rule: ApprovalRule | None = None


class Undoable(Value):
    """A step as its undo needs it.

    Attributes:
        n: Ordinal.
        step: The step.
        added: Number of messages that it added to the transcript.
        inverse: What undoes its change of extra_state.
        before: The state before it.
        taken: What it changed in the queue.
        queued: Number of steps that it queued.
        effects: Its tool calls, in the order in which the model made them.
        branch: Branch on which it ran.
        key: Number by which its calls are named.
    """

    n: int
    key: int
    step: TaskStep
    added: int = 0
    inverse: dict[str, Json] = Field(default_factory=dict)
    before: Before = Before()
    taken: Taken = Taken()
    queued: int = 0
    effects: tuple[EffectRef, ...] = ()
    branch: int = 0


class UndoInput(Value):
    """Input of the undo activity: one effect.

    Attributes:
        n: Ordinal of the step.
        i: Position of the effect in the step.
        effect: The effect.
        branch: Branch on which it ran.
        step: Id of the step, when it is not "s" and its ordinal.
        agent: Agent that ran the step, when it is not the task's first one.
    """

    n: int
    i: int
    effect: EffectRef
    branch: int = 0
    step: str = ""
    agent: str = ""
