"""The artifacts of a task: a fold over its active steps, as its transcript is."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

from holdfast.errors import ErasedError, NotFoundError, TaskNotFoundError
from holdfast.reading.reader import Reader
from holdfast.task.data.calls import Outcome
from holdfast.task.data.records import Entry, OpenState
from holdfast.task.happenings import Fold, OfCall, StepEnded, StepsUndone, happenings
from holdfast.task.step_body import StepBody, StepCall, body_of
from holdfast.values.base import Value
from holdfast.values.messages import Artifact, Blob
from holdfast.values.text.shown import instead, shown


class KeptArtifact(Value):
    """An artifact of a task, with the call that has kept it.

    Attributes:
        name: Its name.
        version: Counts those of its name, from 1.
        media_type: As in "text/csv".
        size: Length in bytes.
        sha256: Digest of the bytes.
        reference: This version as one word, for models and other tasks.
        step_id: The step.
        n: Ordinal of the step; of an open one, the number under which it was opened.
        branch: The step's branch of the ledger.
        tool: The tool that was called.
        call_id: The model's id of the call.
        at: When the call ended, seconds since the epoch; 0 of one that still waits.
    """

    name: str
    version: int
    media_type: str
    size: int
    sha256: str
    reference: str
    step_id: str
    n: int
    branch: int
    tool: str
    call_id: str
    at: float


def artifacts_in(entries: Iterable[Entry], opens: Iterable[OpenState] = ()) -> list[KeptArtifact]:
    """Return the artifacts of the active steps, oldest first, each version.

    Those of one step have the order of its calls, and those of a call that in which they were kept.

    Args:
        entries: The ledger.
        opens: The steps in progress, now or when the task ended.
    """
    counts, found = Counter[str](), list[KeptArtifact]()
    for body, call, outcome in _outcomes(entries, opens):
        for each in outcome.artifacts:
            counts[each.name] += 1
            found.append(_kept(each, counts[each.name], body, call, outcome))
    return found


def _outcomes(
    entries: Iterable[Entry], opens: Iterable[OpenState]
) -> Iterator[tuple[StepBody, StepCall, Outcome]]:
    """Yield the calls of the active steps that have ended, or whose tools have."""
    fold, active = Fold(), list[StepBody]()
    for happening in fold.entries(entries):
        if isinstance(happening, StepEnded):
            active.append(happening.body)
        elif isinstance(happening, StepsUndone):
            active = [body for body in active if body.n < happening.first]
    for body in active:
        yield from ((body, call, call.outcome) for call in body.all_calls() if call.outcome)
    for current in opens:
        body = body_of(current, branch=fold.branch)
        for call in body.all_calls():
            is_present = call.batch == current.batch
            outcome = call.outcome or (current.waiting.get(call.i) if is_present else None)
            if outcome is not None:
                yield body, call, outcome


def _kept(
    artifact: Artifact, version: int, body: StepBody, call: StepCall, outcome: Outcome
) -> KeptArtifact:
    return KeptArtifact(
        name=artifact.name,
        version=version,
        media_type=artifact.media_type,
        size=artifact.stored.size,
        sha256=artifact.stored.sha256,
        reference=artifact.reference,
        step_id=body.step.step_id,
        n=body.n,
        branch=body.branch,
        tool=call.call.name,
        call_id=call.call.id,
        at=outcome.ended,
    )


def newest(found: Sequence[KeptArtifact]) -> list[KeptArtifact]:
    """Return the newest version of each name, oldest first."""
    last = {each.name: each.version for each in found}
    return [each for each in found if each.version == last[each.name]]


def named_in(
    found: Sequence[KeptArtifact], wanted: str, version: int | None = None
) -> KeptArtifact | None:
    """Return an artifact by its reference, or by its name: the newest unless a version is given.

    A file may be named like the reference of another one, which the reference finds all the same.
    """
    named = [each for each in found if each.name == wanted and version in (None, each.version)]
    exact = [each for each in found if each.reference == wanted]
    return next(reversed([*named, *exact]), None)


async def read_artifact(
    reader: Reader, task_id: str, wanted: str, version: int | None = None
) -> tuple[KeptArtifact, bytes]:
    """Return an artifact of a task, and its bytes.

    Raises:
        TaskNotFoundError: No task has this id.
        NotFoundError: It has no such artifact.
        ArchiveError: The archive does not have the bytes, or others; or they were erased.
    """
    known = artifacts_in(*await reader.ledger(task_id))
    found = named_in(known, wanted, version)
    if found is None:
        of = "" if version is None else f" with version {version}"
        hint = instead(wanted, [each.name for each in newest(known)])
        raise NotFoundError(f"Task {task_id!r} has no artifact {shown(wanted)}{of}.{hint}")
    return found, await reader.archive.aget(found.sha256)


async def artifact_for(reader: Reader, task_id: str, wanted: str) -> tuple[Artifact, bytes]:
    """Return an artifact that a task may read: its own, or by its reference that of a near task.

    Near are the tasks above it, and the child tasks of its calls. The reference has digits of the
    digest, so only who was told it can give it.

    Raises:
        NotFoundError: There is no such artifact.
        ArchiveError: As for `read_artifact`.
    """
    entries, opens = await reader.ledger(task_id)
    known = artifacts_in(entries, opens)
    found = named_in(known, wanted)
    if found is None:
        above = [each async for each in _above(reader, task_id)]
        calls = (each.call for each in happenings(entries, opens) if isinstance(each, OfCall))
        for each in dict.fromkeys([*above, *(call.child for call in calls if call.child)]):
            try:
                near = artifacts_in(*await reader.ledger(each))
            except (TaskNotFoundError, ErasedError):
                continue
            if found := next((one for one in near if one.reference == wanted), None):
                break
    if found is None:
        hint = instead(wanted, [each.name for each in newest(known)])
        raise NotFoundError(f"There is no artifact {shown(wanted)} of this task.{hint}")
    stored = Blob(sha256=found.sha256, size=found.size)
    made = Artifact(name=found.name, media_type=found.media_type, stored=stored)
    return made, await reader.archive.aget(found.sha256)


async def _above(reader: Reader, task_id: str) -> AsyncIterator[str]:
    """Yield the tasks for which a task works, the nearest first."""
    while task_id := (await reader.task(task_id)).parent:
        yield task_id
