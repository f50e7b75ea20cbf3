"""The commands by which people steer tasks, as they are typed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

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
    TargetArgument,
    TaskArgument,
    TokenArgument,
    UntilOption,
    WaitOption,
)
from holdfast.cli.exits import EPILOG, ExitCode
from holdfast.cli.options import Common, command, group, shared
from holdfast.values.runs.verbs import LISTED, VERBS, Part, Verb, signature_of

people = group()


@command(people, "commands.inbox.inbox_command")
def inbox(by: ByOption = "", role: RoleOption = None) -> None:
    """Go through everything that waits for a person, one keystroke each.

    Without a terminal, keys are the first letters of the lines of stdin: `a`, `r too expensive`.
    Ends with exit code 3 when something was left undecided.
    """


@command(people, "commands.decisions.approve_command")
def approve(
    *,
    approval: ApprovalArgument,
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="Run it with these instead.")
    ] = None,
    note: Annotated[str, typer.Option(help="For the auditor.")] = "",
    always: AlwaysOption = False,
    same: SameOption = None,
    until: UntilOption = None,
    in_session: InSessionOption = False,
    by: ByOption = "",
    role: RoleOption = None,
    wait: WaitOption = False,
) -> None:
    """Let a call run; or: it did not happen, run it; or: one more model call."""


@command(people, "commands.decisions.rules_command")
def rules(
    typed: Annotated[str | None, typer.Argument(metavar="[TASK]", help="All by default.")] = None,
    session: SessionOption = None,
) -> None:
    """List the decisions that hold for later calls, of all tasks and sessions or of one."""


@command(people, "commands.decisions.revoke_command")
def revoke(
    rule: Annotated[str, typer.Argument(metavar="RULE", help="Id as `holdfast rules` lists it.")],
    session: SessionOption = None,
    by: ByOption = "",
) -> None:
    """End a decision for later calls; calls that it has decided stay as they are."""


@command(people, "commands.decisions.reject_command")
def reject(
    *,
    approval: ApprovalArgument,
    reason: Annotated[str, typer.Option(help="Why; the model reads it.")],
    always: AlwaysOption = False,
    same: SameOption = None,
    until: UntilOption = None,
    in_session: InSessionOption = False,
    by: ByOption = "",
    role: RoleOption = None,
    wait: WaitOption = False,
) -> None:
    """Do not let a call run; or: give it up; or: finish now."""


_KINDS: dict[str, Any] = {"flag": bool, "time": datetime, "late": datetime | None}
_DEFAULTS = {"option": "", "flag": False, "late": None}


_SUBJECTS: dict[str, Any] = {"approval": ApprovalArgument, "call": TokenArgument}


def verb_command(verb: Verb) -> Callable[..., Coroutine[Any, Any, ExitCode | None]]:
    """Make the command of a verb: what it is about, the parts of its form, and who asks."""
    declared = VERBS[verb]
    form, on_approval = declared.form or {}, declared.about == "approval"

    async def command(common: Common, **given: Any) -> ExitCode | None:
        from holdfast.cli.commands.decisions import verb_command

        typed, by = given.pop("subject"), given.pop("by")
        for name, part in form.items():
            if part.choice:
                given |= {name: part.choice} if given.pop(name) else {}
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

        return await approvals_command(common, task, Person(by, role or ()), flags)

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


@command(people, "commands.runs.undo_command")
def undo(
    *,
    typed: TaskArgument,
    keep_residue: KeepOption = False,
    by: ByOption = "",
    reason: ReasonOption = "",
    agents: AgentsOption = None,
    app: AppOption = None,
) -> None:
    """Undo the step in progress, else the last completed one, effects and all."""


@command(people, "commands.runs.undo_command")
def rewind(
    *,
    typed: TaskArgument,
    to: Annotated[str, typer.Option(metavar="STEP", help="Last step to keep.")],
    keep_residue: KeepOption = False,
    by: ByOption = "",
    reason: ReasonOption = "",
    agents: AgentsOption = None,
    app: AppOption = None,
) -> None:
    """Undo all steps after one."""


@command(people, "commands.runs.fork_command")
def fork(
    *,
    typed: TaskArgument,
    at: Annotated[
        str,
        typer.Option(
            metavar="STEP",
            help="Last step that both share: its id, its number, or ID@BRANCH for an undone one.",
        ),
    ],
    input: Annotated[
        str | None, typer.Option(help="New user input, instead of what was queued.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Another agent goes on.")] = None,
    feedback: Annotated[str | None, typer.Option(help="Said before the next model call.")] = None,
    task_id: Annotated[
        str | None, typer.Option(help="Id of the new task; made up by default.")
    ] = None,
    session: Annotated[
        str | None, typer.Option(help="Session of the new task; none by default.")
    ] = None,
    by: ByOption = "",
    reason: ReasonOption = "",
    app: AppOption = None,
    agents: AgentsOption = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Run it to its end, as `attach` does.")
    ] = False,
) -> None:
    """Start a new task from a step of this one, open or closed; nothing is run again."""


@command(people, "commands.keeping.erase_command")
def erase(
    typed: Annotated[
        str,
        typer.Argument(
            metavar="SELECTOR", help="Whole id of a task; or session:NAME, or person:NAME."
        ),
    ],
    *,
    reason: Annotated[str, typer.Option(help="Why; it is in the certificate.")],
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
) -> None:
    """Erase a task, a session or a person for good: histories, records, values, turns."""


hold = group("hold", people, "Keep what a case needs: it is not erased or deleted.")
ENDS_HOLD = "End a hold; the record that there was one stays."


@command(hold, "commands.keeping.end_hold_command", "end", ENDS_HOLD)
@command(hold, "commands.keeping.hold_command", "add")
def add_hold(
    selector: Annotated[
        str, typer.Argument(metavar="SELECTOR", help="task:ID, session:NAME or person:NAME.")
    ],
    *,
    case: Annotated[str, typer.Option("--case", help="The case that it is held for.")],
    reason: ReasonOption = "",
    by: ByOption = "",
    app: AppOption = None,
) -> None:
    """Refuse to erase or delete a task, a session or a person's data."""


@command(hold, "commands.keeping.holds_command", "list")
def list_holds(
    *, ended: Annotated[bool, typer.Option("--ended", help="Also what is not held now.")] = False
) -> None:
    """List what is held, for which case, by whom and why."""


retention = group("retention", people, "Erase closed tasks after some days.")
RetainedOption = Annotated[str, typer.Option("--agent", help="The agent of the tasks.")]


@command(retention, "commands.keeping.retention_command", "set")
def set_retention(
    *,
    agent: RetainedOption,
    days: Annotated[float, typer.Option(help="Days since a task was closed.")],
    rate: Annotated[float, typer.Option(help="Most tasks in a minute.")] = 60.0,
    by: ByOption = "",
    app: AppOption = None,
) -> None:
    """Erase closed tasks of an agent after some days, each night, with certificates."""


@command(retention, "commands.keeping.retention_command", "list")
def list_retentions(app: AppOption = None) -> None:
    """List how long closed tasks are kept."""


@command(retention, "commands.keeping.retention_command", "end")
def end_retention(*, agent: RetainedOption, app: AppOption = None) -> None:
    """Keep the closed tasks of an agent again."""


SecretOption = Annotated[
    list[str] | None,
    typer.Option(
        "--secret", metavar="TEXT", help="Replace this text wherever it occurs; repeatable."
    ),
]


@command(people, "commands.audit.audit_command")
def audit(
    typed: TaskArgument = "",
    *,
    secret: SecretOption = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Compute the digest chain again; exit code 1 if it breaks."),
    ] = False,
    session: Annotated[
        str | None, typer.Option(metavar="NAME", help="Verify this session, and no task.")
    ] = None,
    app: AppOption = None,
) -> None:
    """Print every event of a task as JSON lines, oldest first."""


@command(people, "commands.lists.report.report_command")
def report(
    typed: TaskArgument,
    *,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page in place of text.")
    ] = None,
) -> None:
    """Answer an auditor: who did what, when, why, what it cost, and what is still open."""


@command(people, "commands.audit.record_command")
def record(typed: TaskArgument, *, secret: SecretOption = None) -> None:
    """Print a task as a case, which `holdfast.testing.replay_run` runs again as a test."""


@command(people, "commands.evals.eval_command", "eval")
def evaluate(
    *,
    folder: Annotated[Path, typer.Argument(help="Of cases that `holdfast record` has made.")],
    target: TargetArgument,
    judges: Annotated[
        str, typer.Option(metavar="MODULE:JUDGES", help="A function, or a list of them.")
    ],
    runs: Annotated[
        list[str] | None,
        typer.Option(metavar="TOOL", help="Its code runs; else the cases have its results."),
    ] = None,
    least: Annotated[
        float, typer.Option(min=0, max=1, help="The score with which a judge passes a case.")
    ] = 0.5,
    max_turns: Annotated[int, typer.Option(min=1, help="Most model calls of a case.")] = 30,
) -> None:
    """Run recorded cases with the agent's own model, and judge each; 1 when one does not pass."""


@command(people, "commands.lists.report.export_command")
def export(
    tasks: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TASK]...", help="Ids of tasks, or the beginnings of them."),
    ] = None,
    *,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write the bundle.")
    ],
    session: Annotated[
        str | None, typer.Option(metavar="NAME", help="The tasks whose turns it has.")
    ] = None,
    app: AppOption = None,
) -> None:
    """Write all evidence of tasks into one file, which is verified without Holdfast."""
