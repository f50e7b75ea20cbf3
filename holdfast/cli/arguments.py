"""Arguments and options that several commands take, each written once."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer


def _or_user(ctx: typer.Context, given: str) -> str:
    """Return a name as it is given, else that of the user of this computer.

    Raises:
        BadParameter: The name is empty, as of a variable that is not set.
    """
    import getpass

    if given:
        return given
    source = ctx.get_parameter_source("by")
    if source is not None and source.name == "COMMANDLINE":
        raise typer.BadParameter("it is empty. Name who asks, or leave --by out for yourself.")
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without names
        return "somebody"


TaskArgument = Annotated[
    str, typer.Argument(metavar="TASK", help="Id of a task, or the beginning of one.")
]
TargetArgument = Annotated[
    str, typer.Argument(metavar="MODULE:AGENTS", help="An Agent or a list of them.")
]
ApprovalArgument = Annotated[
    str,
    typer.Argument(
        metavar="APPROVAL",
        help="Id as `holdfast approvals` lists it, TASK:NUMBER; TASK may be cut short, and is"
        " enough when one thing waits there.",
    ),
]
TokenArgument = Annotated[
    str, typer.Argument(metavar="TOKEN", help="Token of a call, as its tool was given it.")
]
AgentsOption = Annotated[
    str | None,
    typer.Option("--agents", metavar="MODULE:AGENTS", help="Serve these agents here, meanwhile."),
]
AppOption = Annotated[
    str | None,
    typer.Option(
        "--app", envvar="HOLDFAST_APP", help="Name of the app; the first agent's by default."
    ),
]
DeploymentOption = Annotated[
    str | None,
    typer.Option(
        "--deployment",
        metavar="NAME",
        envvar="HOLDFAST_DEPLOYMENT",
        help="Name of a Worker Deployment of Temporal, whose versions are builds of the code.",
    ),
]
QueueOption = Annotated[
    str | None,
    typer.Option(
        "--queue",
        metavar="QUEUE",
        help="Task queue of workers of your own, made with HoldfastPlugin; else the app's.",
    ),
]
ByOption = Annotated[
    str,
    typer.Option("--by", help="Who asks; you by default.", show_default=False, callback=_or_user),
]
AlwaysOption = Annotated[
    bool, typer.Option("--always", help="Later calls of the tool in this task as well.")
]
SameOption = Annotated[
    list[str] | None,
    typer.Option("--same", metavar="NAME", help="Those with the same value of this argument."),
]
UntilOption = Annotated[
    datetime | None, typer.Option("--until", help="Later calls until then, in local time.")
]
InSessionOption = Annotated[
    bool,
    typer.Option(
        "--in-session", help="Later calls of the agent in all tasks of the session, new ones too."
    ),
]
SessionOption = Annotated[
    str | None, typer.Option("--session", metavar="NAME", help="The session that has the rule.")
]
RoleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--role",
        metavar="ROLE",
        help="A role of the person who decides, such as finance.",
        show_default=False,
    ),
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; kept with the task.")]
WaitOption = Annotated[
    bool, typer.Option("--wait", help="Wait for what the decided step gives, then print it.")
]
KeepOption = Annotated[
    bool,
    typer.Option(
        "--keep-residue", help="Leave in the world what cannot be undone; it is recorded."
    ),
]
