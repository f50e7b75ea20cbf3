"""What must hold after a campaign, whatever was killed: tasks against the world.

Pure: takes the lines of the world and what was read of the tasks, returns violations in words.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from holdfast.reading.audit.audit import AuditEvent, Finding
from tests.soak.world import CallPlace, Line, counts, place_of

ONCE = frozenset({"book", "pay", "sign"})
"""Tools that change the world and are not idempotent."""

READS = frozenset({"look"})
"""Tools that change nothing."""


@dataclass(frozen=True)
class Told:
    """What one task says of itself at the end.

    Attributes:
        status: Its status.
        audit: Its audit.
        findings: Places where its record is not intact.
    """

    status: str
    audit: tuple[AuditEvent, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def cuts_off(self) -> bool:
        """Whether a model call of it was begun whose answer nobody got."""
        return any(e.kind == "model_call" and e.status == "cut off" for e in self.audit)

    def calls(self) -> Iterator[tuple[str, AuditEvent]]:
        """Pair each tool call of the audit with the model's id of it."""
        for event in self.audit:
            if event.kind == "tool_call":
                yield event.call_id, event


def violations(
    lines: list[Line],
    tasks: Mapping[str, Told],
    sessions: Mapping[str, list[str]],
    erased: Collection[str] = (),
) -> list[str]:
    """List what must not be.

    Args:
        lines: What the world saw.
        tasks: What each task says.
        sessions: The texts of the users' messages that each session remembers.
        erased: Tasks that were erased.
    """
    found = [line["text"] for line in lines if line["event"] == "violation"]
    found += lost_tasks(lines, tasks, erased)
    found += doubled_effects(lines)
    found += untold_effects(lines, tasks)
    found += untold_calls(lines, tasks)
    found += effects_against_a_decision(lines)
    found += missing_undos(lines, tasks)
    found += wrong_sessions(lines, tasks, sessions, erased)
    found += [f"{task}: {told.findings}" for task, told in tasks.items() if told.findings]
    return found


def lost_tasks(
    lines: list[Line], tasks: Mapping[str, Told], erased: Collection[str]
) -> Iterator[str]:
    """Name tasks whose creation returned and that are not there, or are not closed at the end."""
    for line in lines:
        if line["event"] == "created" and line["task"] not in {*tasks, *erased}:
            yield f"{line['task']} was created and is lost"
    for task, told in tasks.items():
        if told.status not in {"finished", "abandoned"}:
            yield f"{task} is {told.status}: nobody could end it"


def doubled_effects(lines: list[Line]) -> Iterator[str]:
    """Name calls that took effect more than once, and effects that were taken back twice."""
    for event in ("effect", "cancel"):
        kept = [line for line in lines if line["event"] == event and line["tool"] in ONCE]
        for call, count in counts(kept, event).items():
            if count > 1:
                yield f"{call}: {count} times {event}"


def untold_effects(lines: list[Line], tasks: Mapping[str, Told]) -> Iterator[str]:
    """Name effects in the world that the audit of their task does not tell as a call, once.

    It is done or unknown, whatever became of its step.
    """
    for line in lines:
        if line["event"] != "effect" or line["tool"] not in ONCE or line["task"] not in tasks:
            continue
        told = [e.status for id, e in tasks[line["task"]].calls() if id == line["call"]]
        if sum(status in ("done", "unknown") for status in told) != 1:
            yield f"{place_of(line)} {line['tool']} happened, and its audit says {told}"


def untold_calls(lines: list[Line], tasks: Mapping[str, Told]) -> Iterator[str]:
    """Name calls that were begun, of any tool, and that the audit tells as not run, or twice.

    A read runs in the activity that asked the model. When a worker is lost with it, and the step is
    dropped before another worker has it, the audit tells only that a model call was cut off.
    """
    lines_of = {task: Counter(id for id, _ in told.calls()) for task, told in tasks.items()}
    cut_off = {task for task, told in tasks.items() if told.cuts_off}
    begun = {place_of(line) for line in lines if line["event"] == "start"}
    reads = {place_of(line) for line in lines if line["event"] == "start" and line["tool"] in READS}
    for task, call in sorted(begun):
        if (task, call) in reads and task in cut_off and not lines_of[task][call]:
            continue
        if task in tasks and lines_of[task][call] != 1:
            yield f"{task} {call} was begun, and its audit has {lines_of[task][call]} lines of it"
    for task, told in tasks.items():
        for call, event in told.calls():
            if (task, call) in begun and event.status in ("asked", "not run"):
                yield f"{task} {call} was begun, and its audit says {event.status!r}"


def effects_against_a_decision(lines: list[Line]) -> Iterator[str]:
    """Name signatures that no person had approved with these arguments."""
    approved: dict[CallPlace, set[int]] = {}
    for line in lines:
        if line["event"] == "decides" and line["verb"] == "approve":
            approved.setdefault(place_of(line), set()).add(line["cents"] or 1)
    for line in lines:
        if line["event"] == "effect" and line["tool"] == "sign":
            allowed = approved.get(place_of(line), set())
            if line["cents"] not in allowed:
                yield f"{place_of(line)} signed {line['cents']}, approved were {allowed}"


def missing_undos(lines: list[Line], tasks: Mapping[str, Told]) -> Iterator[str]:
    """Name effects that an audit tells undone more often than the world saw them taken back."""
    seen = Counter(line["task"] for line in lines if line["event"] == "cancel")
    for task, told in tasks.items():
        undone = sum(e.kind == "effect_undone" and e.tool == "book" for e in told.audit)
        if undone > seen[task]:
            yield f"{task}: {undone} effects undone, the world saw {seen[task]}"


def wrong_sessions(
    lines: list[Line],
    tasks: Mapping[str, Told],
    sessions: Mapping[str, list[str]],
    erased: Collection[str],
) -> Iterator[str]:
    """Name tasks that a session does not remember once if finished, and never otherwise."""
    statuses = {each: told.status for each, told in tasks.items()} | dict.fromkeys(erased, "erased")
    for line in lines:
        if line["event"] != "intends" or not line["session"] or line["task"] not in statuses:
            continue
        status = statuses[line["task"]]
        wanted = 1 if status == "finished" else 0
        got = sum(text == line["input"] for text in sessions.get(line["session"], ()))
        if got != wanted:
            yield f"{line['task']} is {status}; session {line['session']} has it {got} times"


def summary(lines: list[Line], tasks: Mapping[str, Told]) -> dict[str, object]:
    """Count what happened, so that a campaign in which nothing did is seen."""
    calls = [event for told in tasks.values() for _, event in told.calls()]
    answers = sum(e.kind == "model_call" for told in tasks.values() for e in told.audit)
    return {
        "tasks": len(tasks),
        "statuses": dict(Counter(told.status for told in tasks.values())),
        "verbs": dict(Counter(line["verb"] for line in lines if line["event"] == "did")),
        "refused": dict(Counter(line["error"] for line in lines if line["event"] == "refused")),
        "gave_up": sum(line["event"] == "gave_up" for line in lines),
        "effects": dict(Counter(line["tool"] for line in lines if line["event"] == "effect")),
        "taken_back": sum(line["event"] == "cancel" for line in lines),
        "calls": dict(Counter(event.status for event in calls)),
        "decisions": dict(Counter(_decided(lines))),
        "model_answers": answers,
    }


def _decided(lines: Iterable[Line]) -> Iterator[str]:
    for line in lines:
        if line["event"] == "decides":
            yield f"{line['kind']}: {line['verb']}"
