"""`report` and `export`: what an auditor asks of a task, and all evidence in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from html import escape
from pathlib import Path
from typing import NamedTuple

from holdfast.archive.segments import committing_tasks, turns
from holdfast.cli import output
from holdfast.cli.commands.open_questions import TURNLESS, find_task
from holdfast.cli.commands.task_view import Shown, facts_of, read_task
from holdfast.cli.connection import Engine, engine_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.following.timeline import COLUMNS
from holdfast.cli.options import Common
from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.errors import HoldfastError, InvalidArgumentError, NotFoundError
from holdfast.reading.audit.audit import AuditEvent
from holdfast.reading.audit.bundle import write_bundle
from holdfast.reading.audit.verification import Verification
from holdfast.task.data.commands import said_in
from holdfast.task.ledger.recording import CREATED
from holdfast.values.base import Json, as_text
from holdfast.values.checks.gate import as_array, as_object
from holdfast.values.checks.ids import DEFAULT_APP, check_app
from holdfast.values.text.redact import redact
from holdfast.values.text.terminal import printable

UNCERTAIN = ("unknown", "cut off", "running")
"""States of a call that may have had its effect."""

NOTHING_OPEN = "Nothing: each effect is known, and nothing waits for a person."

LONGEST_CELL = 1000


class Section(NamedTuple):
    """A part of a report.

    Attributes:
        title: The question that it answers.
        columns: Names of its columns.
        rows: The answer.
        none: The answer when there are no rows.
    """

    title: str
    columns: Sequence[str]
    rows: list[tuple[str, ...]]
    none: str = ""


async def report_command(common: Common, typed: str, html: Path | None) -> ExitCode:
    """Answer what an auditor asks of a task, as text or as a page.

    Raises:
        InvalidArgumentError: The page cannot be written.
    """
    async with engine_of(common) as engine:
        task_id = await find_task(engine, typed)
        found = await engine.runner().verify(task_id)
        sections = await _sections(engine, task_id, found)
    if html is not None:
        _write(html, _page(task_id, sections))
        output.say(f"Written: {html}")
    elif common.json:
        output.emit({each.title: _as_json(each) for each in sections})
    else:
        for each in sections:
            output.answer(f"\n{each.title}")
            if each.rows:
                output.rows(each.columns, each.rows)
            else:
                output.answer(each.none)
    return ExitCode.OK


def _write(file: Path, page: bytes) -> None:
    try:
        file.write_bytes(page)
    except OSError as error:
        raise InvalidArgumentError(f"The page {str(file)!r} cannot be written: {error}") from error


async def export_command(
    common: Common, tasks: Sequence[str] | None, *, out: Path, session: str | None, app: str | None
) -> ExitCode:
    """Write all evidence of tasks into one file, which can be verified without Holdfast.

    Raises:
        InvalidArgumentError: Nothing is named, or the file cannot be written.
        NotFoundError: The session has no turns.
    """
    if not tasks and session is None:
        msg = "Nothing is named to export."
        raise InvalidArgumentError(msg, remedy="Name tasks, or a session with --session.")
    async with engine_of(common) as engine:
        named = [await find_task(engine, each) for each in tasks or ()]
        taken_back: list[str] = []
        if session is not None:
            held, taken_back = await _of_session(engine, session, app)
            named += held

        async def pages(task_id: str, found: Verification) -> Mapping[str, bytes]:
            return {"report.html": _page(task_id, await _sections(engine, task_id, found))}

        reader = engine.runner().reader
        bundle = await write_bundle(reader, named, out, pages=pages, taken_back=taken_back)
    broken = [name for name, found in bundle.tasks.items() if found]
    if common.json:
        told: dict[str, Json] = {
            "file": str(bundle.file),
            "digest": bundle.digest,
            "tasks": list[Json](bundle.tasks),
            "broken": list[Json](broken),
            "missing": dict(bundle.missing),
            "taken_back": list[Json](taken_back),
        }
        output.emit(told)
    else:
        output.answer(f"{bundle.file}: {len(bundle.tasks)} tasks, digest {bundle.digest}")
        for name in taken_back:
            output.say(f"{name}: the session has taken its turn back.")
        for name, why in bundle.missing.items():
            output.say(f"{name} is not in it: {why}", style="yellow")
        for name in broken:
            output.say(f"The record of {name} is broken; the bundle says where.", style="red")
    return ExitCode.FAILED if broken else ExitCode.OK


async def _of_session(engine: Engine, name: str, app: str | None) -> tuple[list[str], list[str]]:
    """Return the tasks whose turns a session has, and those whose turns it has taken back."""
    runner = engine.runner(app=DEFAULT_APP if app is None else check_app(app))
    state = await runner.reader.session(runner.session(name).id)
    tasks = await committing_tasks(runner.archive, state)
    if not tasks:
        raise NotFoundError(f"Session {name!r} has no turns of tasks.", remedy=TURNLESS)
    held = {each.task for each in await turns(runner.archive, state)}
    return [each for each in tasks if each in held], [each for each in tasks if each not in held]


async def _sections(engine: Engine, task_id: str, found: Verification) -> list[Section]:
    """Read a task, and answer what is asked of it."""
    shown = await read_task(engine, task_id)
    runner = engine.runner()
    events = await runner.audit(task_id)
    open_ = list[tuple[str, ...]]()
    below = [*events, *await _of_children(runner, events, open_)]
    calls = [each for each in below if each.kind == "tool_call" and each.effect != "read"]
    open_[:0] = _open(calls, shown)
    decided = [each for each in events if _is_of_person(each)]
    asked = {each.approval: _call(each) for each in events if each.kind == "asked"}
    is_open = "What is still open in the world?"
    facts = facts_of(shown) | ({"answer": shown.answer} if shown.answer else {})
    effects = ("when (UTC)", "call", "outcome", "result", "approved by", "undone by")
    about = ("when (UTC)", "who", "what", "about", "why")
    return [
        Section("The task", ("what", "is"), [*facts.items()]),
        Section(is_open, ("since (UTC)", "what", "why"), open_, NOTHING_OPEN),
        Section("What did it do outside?", effects, _effects(calls), "Nothing: it only read."),
        Section("Who decided what, and why?", about, _decisions(decided, asked), "No person."),
        Section("What happened, and when?", COLUMNS, shown.timeline, "Nothing yet."),
        Section("What did it cost?", ("model", "calls", "tokens", "dollars"), _costs(below)),
        Section("Is the record intact?", ("finding", "text"), _proof(found)),
    ]


async def _of_children(
    runner: AgentRunner, events: Sequence[AuditEvent], lost: list[tuple[str, ...]]
) -> list[AuditEvent]:
    """Return the events of all tasks that a task has called; add what cannot be read to `lost`."""
    found = list[AuditEvent]()
    for call in events:
        if not call.child:
            continue
        try:
            own = await runner.audit(call.child)
        except HoldfastError as error:
            lost.append(
                (output.clock(call.time), f"task {call.child}", f"it cannot be read: {error}")
            )
            continue
        found += [*own, *await _of_children(runner, own, lost)]
    return found


def _call(event: AuditEvent) -> str:
    proposed = f" (proposed: {event.proposed})" if event.proposed else ""
    return f"{event.tool} {event.arguments}".strip() + proposed


def _open(calls: Sequence[AuditEvent], shown: Shown) -> list[tuple[str, ...]]:
    """Return the effects that may have happened or remain, and what waits for a person."""
    rows = list[tuple[str, ...]]()
    for each in calls:
        if each.undo == "remains":
            rows.append(
                (output.clock(each.time), _call(each), "it is not undone, its step is left")
            )
        elif each.status in UNCERTAIN and each.started:
            rows.append((output.clock(each.time), _call(each), f"{each.status}: it may be done"))
    for asked in shown.approvals:
        rows.append((output.clock(asked.asked), asked.what, "waits for a person"))
    return rows


def _effects(calls: Sequence[AuditEvent]) -> list[tuple[str, ...]]:
    return [
        (output.clock(e.started or e.time), _call(e), e.status, e.result, _let_by(e), e.undone_by)
        for e in calls
        if e.status not in ("not run", "asked")
    ]


def _is_of_person(event: AuditEvent) -> bool:
    """Whether a person asked for something. The effects of an undo show with their calls."""
    if event.kind == CREATED:
        return event.actor != "task"
    return event.kind in ("vote", "expired") or (event.verb != "" and event.kind != "effect_undone")


def _let_by(call: AuditEvent) -> str:
    """Return who let a call run: a person may only have said what had happened."""
    return call.approver if call.decision == "approved" else ""


def _decisions(events: Sequence[AuditEvent], asked: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return what people decided and asked for.

    Args:
        events: Their decisions and commands.
        asked: The calls that approvals asked about, by the approvals' ids.
    """
    rows = list[tuple[str, ...]]()
    for each in events:
        said = as_object(each.body.get("arguments"))
        undone = ", ".join(map(str, as_array(each.body.get("steps")))) or each.step
        about = asked.get(each.approval) or (f"step {undone}" if undone else "")
        edited = f" as {as_text(said['arguments'])}" if "arguments" in said else ""
        refused = " (refused)" if each.status == "refused" else ""
        what = f"{each.decision or each.verb or each.kind}{edited}{refused}"
        why = each.reason or said_in(said)
        rows.append((output.clock(each.time), each.actor, what, about, why))
    return rows


def _costs(events: Sequence[AuditEvent]) -> list[tuple[str, ...]]:
    rows, calls = list[tuple[str, ...]](), [each for each in events if each.kind == "model_call"]
    for model in sorted({str(each.body.get("model", "")) for each in calls}):
        of_it = [each for each in calls if str(each.body.get("model", "")) == model]
        known = [each.cost for each in of_it if each.cost is not None]
        cost = str(sum(known, Decimal(0))) if len(known) == len(of_it) else "not known"
        rows.append((model, str(len(of_it)), str(sum(each.tokens for each in of_it)), cost))
    return rows


def _proof(found: Verification) -> list[tuple[str, ...]]:
    wrong = [
        ("broken", f"step {each.step}: {each.text}" if each.step else each.text) for each in found
    ]
    proved = [("proved", each) for each in found.proved]
    return [*wrong, *proved, *(("not proved", each) for each in found.unproved)]


def _as_json(section: Section) -> list[Json]:
    return [dict(zip(section.columns, row, strict=True)) for row in section.rows]


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3em .8em .3em 0; overflow-wrap: anywhere;
         border-bottom: 1px solid #8884; white-space: pre-wrap; }
@media print { h2 { break-after: avoid; } tr { break-inside: avoid; } }
"""


def _page(task_id: str, sections: Sequence[Section]) -> bytes:
    """Return a page that needs nothing else: no script, no image, no network."""
    parts = [f"<h1>Report of task {_cell(task_id)}</h1>"]
    for each in sections:
        parts.append(f"<h2>{_cell(each.title)}</h2>")
        if not each.rows:
            parts.append(f"<p>{_cell(each.none)}</p>")
            continue
        head = "".join(f"<th>{_cell(name)}</th>" for name in each.columns)
        rows = ("".join(f"<td>{_cell(cell)}</td>" for cell in row) for row in each.rows)
        body = "".join(f"<tr>{row}</tr>\n" for row in rows)
        parts.append(f"<table><tr>{head}</tr>\n{body}</table>")
    whole = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>Report of task {_cell(task_id)}</title><style>{_STYLE}</style></head>"
        f"<body>\n{whole}\n</body></html>\n"
    ).encode("utf-8", "replace")


def _cell(text: str) -> str:
    shown = redact(text)
    cut = shown if len(shown) <= LONGEST_CELL else f"{shown[:LONGEST_CELL]}\u2026"
    return escape(printable(cut))
