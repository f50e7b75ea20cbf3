"""The commands by which people steer tasks, as they are typed."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

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
    UntilOption,
    WaitOption,
    login_name,
)
from holdfast.cli.exits import EPILOG, ExitCode
from holdfast.cli.options import Common, shared

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
async def approvals(
    common: Common,
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="Only of this task.", show_default=False)
    ] = None,
    *,
    mine: Annotated[bool, typer.Option("--mine", help="Only what you can decide.")] = False,
    by: ByOption = "",
    role: RoleOption = None,
) -> ExitCode | None:
    """List what waits for a person."""
    from holdfast.cli.commands.decisions import approvals_command
    from holdfast.task.people.deciders import Person

    person = Person(by or login_name(), role or ()) if mine else None
    return await approvals_command(common, task, person)


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


@people.command(epilog=EPILOG)
@shared
async def respond(
    common: Common,
    *,
    approval: ApprovalArgument,
    result: Annotated[str, typer.Argument(metavar="RESULT", help="What the model reads.")],
    by: ByOption = "",
    role: RoleOption = None,
    wait: WaitOption = False,
) -> ExitCode | None:
    """Give a result in place of the tool; or: it happened, with this result."""
    from holdfast.cli.commands.decisions import Decision, decide_command

    decision = Decision(verb="respond", by=by or login_name(), roles=role, text=result)
    return await decide_command(common, approval, decision, wait=wait)


@people.command(epilog=EPILOG)
@shared
async def feedback(
    common: Common,
    *,
    task: TaskArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The message to the model.")],
    queued: Annotated[
        bool, typer.Option("--queued", help="As the next input, once the task has its answer.")
    ] = False,
    by: ByOption = "",
) -> ExitCode | None:
    """Say something to the model; nothing is interrupted."""
    from holdfast.cli.commands.control import feedback_command

    return await feedback_command(common, task, text, queued=queued, by=by or login_name())


@people.command("edit-step", epilog=EPILOG)
@shared
async def edit_step(
    common: Common,
    *,
    task: TaskArgument,
    step: Annotated[str, typer.Argument(metavar="STEP", help="Id of a step that is to come.")],
    input: Annotated[str, typer.Argument(metavar="INPUT", help="Its new input.")],
    by: ByOption = "",
    reason: ReasonOption = "",
) -> ExitCode | None:
    """Change the input of an upcoming step."""
    from holdfast.cli.commands.control import edit_step_command

    who = by or login_name()
    return await edit_step_command(common, task, step, input, by=who, reason=reason)


@people.command("drop-step", epilog=EPILOG)
@shared
async def drop_step(
    common: Common,
    *,
    task: TaskArgument,
    step: Annotated[str, typer.Argument(metavar="STEP", help="Id of a step that is to come.")],
    by: ByOption = "",
    reason: ReasonOption = "",
) -> ExitCode | None:
    """Take an upcoming step out of the queue."""
    from holdfast.cli.commands.control import drop_step_command

    return await drop_step_command(common, task, step, by=by or login_name(), reason=reason)


@people.command(epilog=EPILOG)
@shared
async def pause(
    common: Common, task: TaskArgument, by: ByOption = "", reason: ReasonOption = ""
) -> ExitCode | None:
    """Let no further step of a task begin."""
    from holdfast.cli.commands.control import pause_command

    return await pause_command(common, task, by=by or login_name(), reason=reason)


@people.command(epilog=EPILOG)
@shared
async def resume(
    common: Common, task: TaskArgument, by: ByOption = "", reason: ReasonOption = ""
) -> ExitCode | None:
    """Let the steps of a paused task begin again."""
    from holdfast.cli.commands.control import resume_command

    return await resume_command(common, task, by=by or login_name(), reason=reason)


@people.command(epilog=EPILOG)
@shared
async def abandon(
    common: Common,
    task: TaskArgument,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the task.")],
    by: ByOption = "",
    force: Annotated[
        bool, typer.Option("--force", help="End a task in which workflow code fails.")
    ] = False,
) -> ExitCode | None:
    """End a task without an answer; nothing reaches its session."""
    from holdfast.cli.commands.control import abandon_command

    who = by or login_name()
    return await abandon_command(common, task, by=who, reason=reason, force=force)


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
    from holdfast.cli.commands.time_travel import UndoOptions, undo_command

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
    from holdfast.cli.commands.time_travel import UndoOptions, rewind_command

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
    from holdfast.cli.commands.time_travel import ForkOptions, fork_command

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
async def audit(
    common: Common,
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="Id of a task, or the beginning of one.")
    ] = "",
    *,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            "--secret", metavar="TEXT", help="Replace this text wherever it occurs; repeatable."
        ),
    ] = None,
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
