"""The commands as they are typed; what they do is in the modules that they import."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.app_desk import desk
from holdfast.cli.app_people import people
from holdfast.cli.arguments import (
    AgentsOption,
    AppOption,
    ByOption,
    DeploymentOption,
    QueueOption,
    TargetArgument,
    TaskArgument,
)
from holdfast.cli.commands.lists.typed import event, schedule
from holdfast.cli.commands.start.typed import start
from holdfast.cli.exits import EPILOG
from holdfast.cli.groups import Commands
from holdfast.cli.options import command
from holdfast.values.runs.status import OnBusy, TaskStatus

app = typer.Typer(
    name="holdfast",
    cls=Commands,
    help="Durable agent tasks on Temporal: kill anything, the task goes on.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(given: bool) -> None:
    if given:
        from holdfast.values.version import __version__

        print(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Show it.")
    ] = False,
) -> None:
    """Durable agent tasks on Temporal: kill anything, the task goes on."""


@command(app, "demo.command.demo_command")
def demo(
    question: Annotated[
        str, typer.Argument(help="Any arithmetic question.")
    ] = "What is (121 * 3) + 42?",
) -> None:
    """Answer a question while the worker process is killed in the middle."""


@command(app, "commands.start.reload.reload_command")
def dev(
    target: TargetArgument,
    *,
    app: AppOption = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart the worker when Python code changes here.")
    ] = False,
    ui: Annotated[
        bool,
        typer.Option(
            "--ui",
            help="Open also Temporal's web UI. It has no login: it shows every history to all users"
            " of this machine and to web pages that rebind their name.",
        ),
    ] = False,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of the desk; else 8400.")
    ] = None,
) -> None:
    """Run server and worker here, for development; Ctrl-C stops both."""


@command(app, "commands.servers.worker_command")
def worker(
    *,
    target: TargetArgument,
    app: AppOption = None,
    deployment: DeploymentOption = None,
    build: Annotated[
        str | None,
        typer.Option(envvar="HOLDFAST_BUILD", help="Name of this build of the code, such as 2.1."),
    ] = None,
    pin: Annotated[
        bool,
        typer.Option(
            "--pin", envvar="HOLDFAST_PIN", help="Tasks end with the build that they began with."
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="First replay open tasks, and exit if one cannot go on with this code."
            " [env: HOLDFAST_CHECK: how many of each queue; default: 50]",
        ),
    ] = False,
) -> None:
    """Run a worker process; SIGTERM or Ctrl-C lets running calls end, and it exits with 0."""


@command(app, "commands.lists.deploys.deploys_command")
def deploys(deployment: DeploymentOption = None) -> None:
    """List the builds that workers have, the open tasks of each, and which may be stopped."""


@command(app, "commands.servers.metrics_command")
def metrics() -> None:
    """Count all tasks for Prometheus or OTLP, where HOLDFAST_METRICS says; one for a namespace."""


@command(app, "commands.servers.mcp_command")
def mcp(
    *,
    target: TargetArgument,
    http: Annotated[
        bool, typer.Option("--http", help="Serve streamable HTTP; else a client at stdin.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any.")] = 8500,
    by: Annotated[
        str, typer.Option(help="Who asks and decides; without it, clients decide nothing.")
    ] = "",
    app: AppOption = None,
) -> None:
    """Serve agents as tools to MCP clients; each call is a task."""


@command(app, "commands.runs.run_command")
def run(
    *,
    agent: Annotated[str, typer.Argument(help="Name of the agent.")],
    question: Annotated[str, typer.Argument(help="What the agent is asked.")],
    session: Annotated[
        str | None, typer.Option(help="Session that remembers the conversation.")
    ] = None,
    on_busy: Annotated[
        OnBusy | None, typer.Option(help="While another task of the session runs. Default: queue.")
    ] = None,
    agents: AgentsOption = None,
    app: AppOption = None,
    queue: QueueOption = None,
    task_id: Annotated[str | None, typer.Option(help="Id of the task; made up by default.")] = None,
    exist_ok: Annotated[
        bool, typer.Option("--exist-ok", help="Go on with the same task if it exists.")
    ] = False,
    max_turns: Annotated[
        int | None, typer.Option(min=0, help="Model calls before a person is asked.")
    ] = None,
    max_dollars: Annotated[
        str | None, typer.Option(help="US dollars before a person is asked for more.")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Create the task and leave it to the workers.")
    ] = False,
    manual: Annotated[
        bool, typer.Option("--manual", help="Create the task for `holdfast step`; run nothing.")
    ] = False,
    start_at: Annotated[
        datetime | None, typer.Option(help="Begin then, in local time; leaves it to the workers.")
    ] = None,
    by: ByOption = "",
) -> None:
    """Create a task and run it to its end; Ctrl-C leaves it running."""


@command(app, "commands.runs.attach_command")
def attach(typed: TaskArgument, agents: AgentsOption = None, app: AppOption = None) -> None:
    """Go on with a task to its end, as `run` does; Ctrl-C leaves it running."""


@command(app, "commands.lists.tasks.tasks_command")
def tasks(
    *,
    status: Annotated[TaskStatus | None, typer.Option(help="Only with this one.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only of this agent.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most tasks to list.")] = 50,
    after: Annotated[
        str, typer.Option(metavar="TOKEN", help="Those after a page, by its token.")
    ] = "",
    cost: Annotated[
        bool, typer.Option("--cost", help="Read each task, and show what it has cost.")
    ] = False,
) -> None:
    """List tasks, newest first."""


@command(app, "commands.lists.sessions.sessions_command")
def sessions(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The session to show; all are listed.")
    ] = None,
    app: AppOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Most sessions to list.")] = 50,
) -> None:
    """List sessions, newest first, or show what was said in one."""


@command(app, "commands.task_view.show_command")
def show(typed: TaskArgument) -> None:
    """Show a task as a timeline: steps, calls, waits, decisions, undone steps and cost."""


@command(app, "commands.artifacts.artifacts_command")
def artifacts(
    typed: TaskArgument,
    *,
    get: Annotated[
        str | None, typer.Option(metavar="NAME", help="Write this one: its name, or its reference.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Where to; else to stdout.")
    ] = None,
    versions: Annotated[bool, typer.Option("--versions", help="List older versions too.")] = False,
) -> None:
    """List the files that the tools of a task have kept, or write one."""


@command(app, "commands.runs.step_command")
def step(
    typed: TaskArgument,
    input: Annotated[str | None, typer.Option(help="New user input for the step.")] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start a failed step again, from nothing.")
    ] = False,
) -> None:
    """Run the next step of a task."""


@command(app, "commands.runs.finalize_command")
def finalize(typed: TaskArgument) -> None:
    """Commit a task that has its answer to its session, and close it."""


app.add_typer(start)
app.add_typer(people)
app.add_typer(desk, name="desk")
app.add_typer(schedule, name="schedule", help="Begin tasks at set times.")
app.add_typer(event, name="event", help="Send an event to the calls that wait for it.")


@command(app, "commands.servers.stop_command")
def stop() -> None:
    """Stop the embedded server of the data directory; its tasks stay."""
