"""The commands by which people steer tasks, as they are typed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.arguments import (
    AgentsOption,
    AlwaysOption,
    AppOption,
    ApprovalArgument,
    ByOption,
    InSessionOption,
    KeepOption,
    ReasonOption,
    RoleOption,
    SameOption,
    SessionOption,
    TaskArgument,
    TokenArgument,
    UntilOption,
    WaitOption,
    login_name,
)
from holdfast.cli.exits import EPILOG, ExitCode
from holdfast.cli.options import Common, shared
from holdfast.values.runs.verbs import LISTED, VERBS, Part, Verb, signature_of

if TYPE_CHECKING:
    from holdfast.values.runs.approval_rules import Always

people = typer.Typer(add_completion=False, rich_markup_mode=None)


def _later(
    same: list[str] | None, until: datetime | None, *, always: bool, in_session: bool
) -> bool | Always:
    """Return for which later calls a decision holds as well."""
    from holdfast.values.runs.approval_rules import Always

    if not (always or same or until or in_session):
        return False
    end = until.astimezone() if until else None
    return Always(same=same or (), until=end, scope="session" if in_session else "task")


@people.command(epilog=EPILOG)
@shared
async def inbox(common: Common, by: ByOption = "", role: RoleOption = None) -> ExitCode | None:
    """Go through everything that waits for a person, one keystroke each.

    Without a terminal, keys are the first letters of the lines of stdin: `a`, `r too expensive`.
    Ends with exit code 3 when something was left undecided.
    """
    from holdfast.cli.commands.inbox import inbox_command

    return await inbox_command(common, by=by or login_name(), roles=role)


@people.command(epilog=EPILOG)
@shared
async def approve(
    common: Common,
    *,
    approval: ApprovalArgument,
    arguments: Annotated[
        str | None,
        typer.Option("--arguments", metavar="JSON", help="Run it with these instead."),
    ] = None,
    note: Annotated[str, typer.Option("--note", help="For the auditor.")] = "",
    always: AlwaysOption = False,
    same: SameOption = None,
    until: UntilOption = None,
    in_session: InSessionOption = False,
    by: ByOption = "",
    role: RoleOption = None,
    wait: WaitOption = False,
) -> ExitCode | None:
    """Let a call run; or: it did not happen, run it; or: one more model call."""
    from holdfast.cli.commands.decisions import Decision, decide_command, parse_arguments

    given = None if arguments is None else parse_arguments(arguments)
    later = _later(same, until, always=always, in_session=in_session)
    decision = Decision(
        verb="approve", by=by or login_name(), roles=role, arguments=given, text=note, always=later
    )
    return await decide_command(common, approval, decision, wait=wait)


@people.command(epilog=EPILOG)
@shared
async def rules(
    common: Common,
    task: Annotated[str | None, typer.Argument(metavar="[TASK]", help="All by default.")] = None,
    session: SessionOption = None,
) -> ExitCode | None:
    """List the decisions that hold for later calls, of all tasks and sessions or of one."""
    from holdfast.cli.commands.decisions import rules_command

    return await rules_command(common, task, session)


@people.command(epilog=EPILOG)
@shared
async def revoke(
    common: Common,
    rule: Annotated[str, typer.Argument(metavar="RULE", help="Id as `holdfast rules` lists it.")],
    session: SessionOption = None,
    by: ByOption = "",
) -> ExitCode | None:
    """End a decision for later calls; calls that it has decided stay as they are."""
    from holdfast.cli.commands.decisions import revoke_command

    return await revoke_command(common, rule, session, by=by or login_name())


@people.command(epilog=EPILOG)
@shared
async def reject(
    common: Common,
    *,
    approval: ApprovalArgument,
    reason: Annotated[str, typer.Option("--reason", help="Why; the model reads it.")],
    always: AlwaysOption = False,
    same: SameOption = None,
    until: UntilOption = None,
    in_session: InSessionOption = False,
    by: ByOption = "",
    role: RoleOption = None,
    wait: WaitOption = False,
) -> ExitCode | None:
    """Do not let a call run; or: give it up; or: finish now."""
    from holdfast.cli.commands.decisions import Decision, decide_command

    later = _later(same, until, always=always, in_session=in_session)
    decision = Decision(verb="reject", by=by or login_name(), roles=role, text=reason, always=later)
    return await decide_command(common, approval, decision, wait=wait)


_KINDS: dict[str, Any] = {"flag": bool, "time": datetime, "late": datetime | None}
_DEFAULTS = {"option": "", "flag": False, "late": None}


_SUBJECTS: dict[str, Any] = {"approval": ApprovalArgument, "call": TokenArgument}


def verb_command(verb: Verb) -> Callable[..., Coroutine[Any, Any, ExitCode | None]]:
    """Make the command of a verb: what it is about, the parts of its form, and who asks."""
    declared = VERBS[verb]
    form, on_approval = declared.form or {}, declared.about == "approval"

    async def command(common: Common, **given: Any) -> ExitCode | None:
        from holdfast.cli.commands.decisions import verb_command

        typed, by = given.pop("subject"), given.pop("by") or login_name()
        for name, part in form.items():
            if part.choice:
                given |= {name: part.choice} if given.pop(name) else {}
            elif part.form in ("time", "late"):
                given[name] = given[name] and given[name].astimezone()
        return await verb_command(common, verb, typed, {**given, "by": by})

    taken: dict[str, tuple[Any, Any]] = {
        "common": (Common, ...),
        "subject": (_SUBJECTS.get(declared.about, TaskArgument), ...),
        **{name: _option(name, part) for name, part in form.items()},
        "by": (ByOption, ""),
    }
    if on_approval:
        taken["roles"] = (RoleOption, None)
    if declared.decided:
        taken["wait"] = (WaitOption, False)
    command.__doc__ = declared.does
    vars(command)["__signature__"] = signature_of(taken)
    return command


def list_command() -> Callable[..., Coroutine[Any, Any, ExitCode | None]]:
    """Make the command that lists what waits, with a flag for each kind of list."""

    async def approvals(
        common: Common, task: str | None, by: str, role: list[str] | None, **flags: bool
    ) -> ExitCode | None:
        """List what waits for a person."""
        from holdfast.cli.commands.decisions import approvals_command
        from holdfast.task.people.decisions import Person

        return await approvals_command(common, task, Person(by or login_name(), role or ()), flags)

    task = typer.Argument(metavar="TASK", help="Only of this task.", show_default=False)
    taken: dict[str, tuple[Any, Any]] = {
        "common": (Common, ...),
        "task": (Annotated[str | None, task], None),
        **{flag: _option(flag, Part(means, "flag")) for flag, means in LISTED.items()},
        "by": (ByOption, ""),
        "role": (RoleOption, None),
    }
    vars(approvals)["__signature__"] = signature_of(taken)
    return approvals


def _option(name: str, part: Part) -> tuple[Any, Any]:
    """Return the type of a part on the command line, and its default."""
    if part.form == "word":
        return Annotated[str, typer.Argument(metavar=name.upper(), help=part.help)], ...
    option = typer.Option(f"--{part.choice or name}", help=part.help)
    return Annotated[_KINDS.get(part.form, str), option], _DEFAULTS.get(part.form, ...)


people.command("approvals", epilog=EPILOG)(shared(list_command()))
for _verb, _declared in VERBS.items():
    if _declared.form is not None:
        people.command(_verb.replace("_", "-"), epilog=EPILOG)(shared(verb_command(_verb)))


@people.command(epilog=EPILOG)
@shared
async def undo(
    common: Common,
    *,
    task: TaskArgument,
    keep_residue: KeepOption = False,
    by: ByOption = "",
    reason: ReasonOption = "",
    agents: AgentsOption = None,
    app: AppOption = None,
) -> ExitCode | None:
    """Undo the step in progress, else the last completed one, effects and all."""
    from holdfast.cli.commands.runs import UndoOptions, undo_command

    who = by or login_name()
    options = UndoOptions(keep=keep_residue, by=who, reason=reason, agents=agents, app=app)
    return await undo_command(common, task, options)


@people.command(epilog=EPILOG)
@shared
async def rewind(
    common: Common,
    *,
    task: TaskArgument,
    to: Annotated[str, typer.Option("--to", metavar="STEP", help="Last step to keep.")],
    keep_residue: KeepOption = False,
    by: ByOption = "",
    reason: ReasonOption = "",
    agents: AgentsOption = None,
    app: AppOption = None,
) -> ExitCode | None:
    """Undo all steps after one."""
    from holdfast.cli.commands.runs import UndoOptions, rewind_command

    who = by or login_name()
    options = UndoOptions(keep=keep_residue, by=who, reason=reason, agents=agents, app=app)
    return await rewind_command(common, task, to, options)


@people.command(epilog=EPILOG)
@shared
async def fork(
    common: Common,
    *,
    task: TaskArgument,
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="STEP",
            help="Last step that both share: its id, its number, or ID@BRANCH for an undone one.",
        ),
    ],
    input: Annotated[
        str | None, typer.Option("--input", help="New user input, instead of what was queued.")
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Another agent goes on.")] = None,
    feedback: Annotated[
        str | None, typer.Option("--feedback", help="Said before the next model call.")
    ] = None,
    task_id: Annotated[
        str | None, typer.Option("--task-id", help="Id of the new task; made up by default.")
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", help="Session of the new task; none by default.")
    ] = None,
    by: ByOption = "",
    reason: ReasonOption = "",
    app: AppOption = None,
    agents: AgentsOption = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Run it to its end, as `attach` does.")
    ] = False,
) -> ExitCode | None:
    """Start a new task from a step of this one, open or closed; nothing is run again."""
    from holdfast.cli.commands.runs import ForkOptions, fork_command

    options = ForkOptions(
        at=at,
        input=input,
        agent=agent,
        feedback=feedback,
        task_id=task_id,
        session=session,
        by=by or login_name(),
        reason=reason,
        app=app,
    )
    return await fork_command(common, task, options, agents=agents, wait=wait)


@people.command(epilog=EPILOG)
@shared
async def erase(
    common: Common,
    task: Annotated[
        str,
        typer.Argument(
            metavar="SELECTOR", help="Whole id of a task; or session:NAME, or person:NAME."
        ),
    ],
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why; it is in the certificate.")],
    by: ByOption = "",
    with_forks: Annotated[
        bool, typer.Option("--with-forks", help="Erase tasks that were forked from it as well.")
    ] = False,
    abandon_open: Annotated[
        bool, typer.Option("--abandon-open", help="Undo and abandon tasks that are open.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Erase a session or a person; else they are listed.")
    ] = False,
    app: AppOption = None,
) -> ExitCode | None:
    """Erase a task, a session or a person for good: histories, records, values, turns."""
    from holdfast.cli.commands.keeping import erase_command

    return await erase_command(
        common,
        task,
        app=app,
        by=by or login_name(),
        reason=reason,
        forks="erase" if with_forks else "refuse",
        open_tasks="abandon" if abandon_open else "refuse",
        is_sure=yes,
    )


hold = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
people.add_typer(hold, name="hold", help="Keep what a case needs: it is not erased or deleted.")
SelectorArgument = Annotated[
    str, typer.Argument(metavar="SELECTOR", help="task:ID, session:NAME or person:NAME.")
]
CaseOption = Annotated[str, typer.Option("--case", help="The case that it is held for.")]


@hold.command("add", epilog=EPILOG)
@shared
async def add_hold(
    common: Common,
    selector: SelectorArgument,
    *,
    case: CaseOption,
    reason: ReasonOption = "",
    by: ByOption = "",
    app: AppOption = None,
) -> ExitCode | None:
    """Refuse to erase or delete a task, a session or a person's data."""
    from holdfast.cli.commands.keeping import hold_command

    given = {"case": case, "reason": reason, "by": by or login_name()}
    return await hold_command(common, selector, ends=False, app=app, **given)


@hold.command("end", epilog=EPILOG)
@shared
async def end_hold(
    common: Common,
    selector: SelectorArgument,
    *,
    case: CaseOption,
    reason: ReasonOption = "",
    by: ByOption = "",
    app: AppOption = None,
) -> ExitCode | None:
    """End a hold; the record that there was one stays."""
    from holdfast.cli.commands.keeping import hold_command

    given = {"case": case, "reason": reason, "by": by or login_name()}
    return await hold_command(common, selector, ends=True, app=app, **given)


@hold.command("list", epilog=EPILOG)
@shared
async def list_holds(
    common: Common,
    *,
    ended: Annotated[bool, typer.Option("--ended", help="Also what is not held now.")] = False,
) -> ExitCode | None:
    """List what is held, for which case, by whom and why."""
    from holdfast.cli.commands.keeping import holds_command

    return await holds_command(common, ended=ended)


retention = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
people.add_typer(retention, name="retention", help="Erase closed tasks after some days.")
RetainedOption = Annotated[str, typer.Option("--agent", help="The agent of the tasks.")]


@retention.command("set", epilog=EPILOG)
@shared
async def set_retention(
    common: Common,
    *,
    agent: RetainedOption,
    days: Annotated[float, typer.Option("--days", help="Days since a task was closed.")],
    rate: Annotated[float, typer.Option("--rate", help="Most tasks in a minute.")] = 60.0,
    by: ByOption = "",
    app: AppOption = None,
) -> ExitCode | None:
    """Erase closed tasks of an agent after some days, each night, with certificates."""
    from holdfast.cli.commands.keeping import retention_command

    who = by or login_name()
    return await retention_command(common, agent, days, app=app, rate=rate, by=who)


@retention.command("list", epilog=EPILOG)
@shared
async def list_retentions(common: Common, app: AppOption = None) -> ExitCode | None:
    """List how long closed tasks are kept."""
    from holdfast.cli.commands.keeping import retention_command

    return await retention_command(common, "", None, app=app, rate=0, by="")


@retention.command("end", epilog=EPILOG)
@shared
async def end_retention(
    common: Common, *, agent: RetainedOption, app: AppOption = None
) -> ExitCode | None:
    """Keep the closed tasks of an agent again."""
    from holdfast.cli.commands.keeping import retention_command

    return await retention_command(common, agent, None, app=app, rate=0, by="")


SecretOption = Annotated[
    list[str] | None,
    typer.Option(
        "--secret", metavar="TEXT", help="Replace this text wherever it occurs; repeatable."
    ),
]


@people.command(epilog=EPILOG)
@shared
async def audit(
    common: Common,
    task: TaskArgument = "",
    *,
    secret: SecretOption = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Compute the digest chain again; exit code 1 if it breaks."),
    ] = False,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="NAME", help="Verify this session, and no task."),
    ] = None,
    app: AppOption = None,
) -> ExitCode | None:
    """Print every event of a task as JSON lines, oldest first."""
    from holdfast.cli.commands.audit import audit_command, verify_command, verify_session_command

    if session is not None:
        return await verify_session_command(common, session, typed=task, app=app)
    if verify:
        return await verify_command(common, task)
    return await audit_command(common, task, secret or [])


@people.command(epilog=EPILOG)
@shared
async def report(
    common: Common,
    task: TaskArgument,
    *,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page in place of text.")
    ] = None,
) -> ExitCode | None:
    """Answer an auditor: who did what, when, why, what it cost, and what is still open."""
    from holdfast.cli.commands.lists.report import report_command

    return await report_command(common, task, html)


@people.command(epilog=EPILOG)
@shared
async def record(
    common: Common,
    task: TaskArgument,
    *,
    secret: SecretOption = None,
) -> ExitCode | None:
    """Print a task as a case, which `holdfast.testing.replay_run` runs again as a test."""
    from holdfast.cli.commands.audit import record_command

    return await record_command(common, task, secret or [])


@people.command(epilog=EPILOG)
@shared
async def export(
    common: Common,
    tasks: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TASK]...", help="Ids of tasks, or the beginnings of them."),
    ] = None,
    *,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write the bundle.")
    ],
    session: Annotated[
        str | None, typer.Option("--session", metavar="NAME", help="The tasks whose turns it has.")
    ] = None,
    app: AppOption = None,
) -> ExitCode | None:
    """Write all evidence of tasks into one file, which is verified without Holdfast."""
    from holdfast.cli.commands.lists.report import export_command

    return await export_command(common, tasks or [], out, session=session, app=app)
