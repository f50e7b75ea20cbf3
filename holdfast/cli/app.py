"""The commands as they are typed; what they do is in the modules that they import."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
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
    login_name,
)
from holdfast.cli.commands.lists.typed import event, schedule
from holdfast.cli.commands.start.typed import start
from holdfast.cli.exits import EPILOG, ExitCode
from holdfast.cli.groups import Commands
from holdfast.cli.options import Common, shared
from holdfast.values.runs.status import OnBusy

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


class Status(StrEnum):
    """The statuses of tasks, as `--status` takes them."""

    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    NEEDS_ATTENTION = "needs_attention"
    ANSWERED = "answered"
    FINISHED = "finished"
    FAILED = "failed"
    ABANDONED = "abandoned"


def _version(given: bool) -> None:
    if given:
        from holdfast.values.version import __version__

        print(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_version, help="Show it."),
    ] = False,
) -> None:
    """Durable agent tasks on Temporal: kill anything, the task goes on."""


@app.command(epilog=EPILOG)
@shared
async def demo(
    common: Common,
    question: Annotated[
        str, typer.Argument(help="Any arithmetic question.")
    ] = "What is (121 * 3) + 42?",
) -> ExitCode | None:
    """Answer a question while the worker process is killed in the middle."""
    from holdfast.cli.demo.command import demo_command

    return await demo_command(common, question)


@app.command(epilog=EPILOG)
@shared
async def dev(
    common: Common,
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
        int | None, typer.Option("--port", min=0, max=65535, help="Port of the desk; else 8400.")
    ] = None,
) -> ExitCode | None:
    """Run server and worker here, for development; Ctrl-C stops both."""
    if reload:
        from holdfast.cli.commands.start.reload import reload_command

        return await reload_command(common, target, app=app, ui=ui, port=port)
    from holdfast.cli.commands.servers import dev_command

    return await dev_command(common, target, app=app, ui=ui, port=port)


@app.command(epilog=EPILOG)
@shared
async def worker(
    common: Common,
    *,
    target: TargetArgument,
    app: AppOption = None,
    deployment: DeploymentOption = None,
    build: Annotated[
        str | None,
        typer.Option(
            "--build", envvar="HOLDFAST_BUILD", help="Name of this build of the code, such as 2.1."
        ),
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
) -> ExitCode | None:
    """Run a worker process; SIGTERM or Ctrl-C lets running calls end, and it exits with 0."""
    from holdfast.cli.commands.servers import worker_command

    return await worker_command(
        common, target, app=app, version=(deployment, build, pin), check=check
    )


@app.command(epilog=EPILOG)
@shared
async def deploys(common: Common, deployment: DeploymentOption = None) -> ExitCode | None:
    """List the builds that workers have, the open tasks of each, and which may be stopped."""
    from holdfast.cli.commands.lists.deploys import deploys_command

    return await deploys_command(common, deployment)


@app.command(epilog=EPILOG)
@shared
async def metrics(common: Common) -> ExitCode | None:
    """Count all tasks for Prometheus or OTLP, where HOLDFAST_METRICS says; one for a namespace."""
    from holdfast.cli.commands.servers import metrics_command

    return await metrics_command(common)


@app.command(epilog=EPILOG)
@shared
async def mcp(
    common: Common,
    *,
    target: TargetArgument,
    http: Annotated[
        bool, typer.Option("--http", help="Serve streamable HTTP; else a client at stdin.")
    ] = False,
    host: Annotated[str, typer.Option("--host", help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0: any.")] = 8500,
    by: Annotated[
        str, typer.Option("--by", help="Who asks and decides; without it, clients decide nothing.")
    ] = "",
    app: AppOption = None,
) -> ExitCode | None:
    """Serve agents as tools to MCP clients; each call is a task."""
    from holdfast.cli.commands.servers import mcp_command

    return await mcp_command(common, target, app=app, http=http, host=host, port=port, by=by)


@app.command(epilog=EPILOG)
@shared
async def run(
    common: Common,
    *,
    agent: Annotated[str, typer.Argument(help="Name of the agent.")],
    question: Annotated[str, typer.Argument(help="What the agent is asked.")],
    session: Annotated[
        str | None, typer.Option("--session", help="Session that remembers the conversation.")
    ] = None,
    on_busy: Annotated[
        OnBusy | None,
        typer.Option("--on-busy", help="While another task of the session runs. Default: queue."),
    ] = None,
    agents: AgentsOption = None,
    app: AppOption = None,
    queue: QueueOption = None,
    task_id: Annotated[
        str | None, typer.Option("--task-id", help="Id of the task; made up by default.")
    ] = None,
    exist_ok: Annotated[
        bool, typer.Option("--exist-ok", help="Go on with the same task if it exists.")
    ] = False,
    max_turns: Annotated[
        int | None,
        typer.Option("--max-turns", min=0, help="Model calls before a person is asked."),
    ] = None,
    max_dollars: Annotated[
        str | None,
        typer.Option("--max-dollars", help="US dollars before a person is asked for more."),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Create the task and leave it to the workers.")
    ] = False,
    manual: Annotated[
        bool, typer.Option("--manual", help="Create the task for `holdfast step`; run nothing.")
    ] = False,
    start_at: Annotated[
        datetime | None,
        typer.Option("--start-at", help="Begin then, in local time; leaves it to the workers."),
    ] = None,
    by: ByOption = "",
) -> ExitCode | None:
    """Create a task and run it to its end; Ctrl-C leaves it running."""
    from holdfast.cli.commands.runs import run_command

    return await run_command(
        common,
        agent,
        question,
        agents=agents,
        app=app,
        queue=queue,
        session=session,
        on_busy=on_busy,
        task_id=task_id,
        exist_ok=exist_ok,
        max_turns=max_turns,
        max_dollars=max_dollars,
        mode="manual" if manual else "detached" if detach or start_at else "watched",
        start_at=start_at and start_at.astimezone(),
        by=by or login_name(),
    )


@app.command(epilog=EPILOG)
@shared
async def attach(
    common: Common, task: TaskArgument, agents: AgentsOption = None, app: AppOption = None
) -> ExitCode | None:
    """Go on with a task to its end, as `run` does; Ctrl-C leaves it running."""
    from holdfast.cli.commands.runs import attach_command

    return await attach_command(common, task, agents=agents, app=app)


@app.command(epilog=EPILOG)
@shared
async def tasks(
    common: Common,
    *,
    status: Annotated[Status | None, typer.Option("--status", help="Only with this one.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Only of this agent.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most tasks to list.")] = 50,
    after: Annotated[
        str, typer.Option("--after", metavar="TOKEN", help="Those after a page, by its token.")
    ] = "",
    cost: Annotated[
        bool, typer.Option("--cost", help="Read each task, and show what it has cost.")
    ] = False,
) -> ExitCode | None:
    """List tasks, newest first."""
    from holdfast.cli.commands.lists.tasks import tasks_command

    chosen = None if status is None else status.value
    return await tasks_command(
        common, status=chosen, agent=agent, limit=limit, after=after, cost=cost
    )


@app.command(epilog=EPILOG)
@shared
async def sessions(
    common: Common,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The session to show; all are listed.")
    ] = None,
    app: AppOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most sessions to list.")] = 50,
) -> ExitCode | None:
    """List sessions, newest first, or show what was said in one."""
    from holdfast.cli.commands.lists.sessions import sessions_command

    return await sessions_command(common, name, app=app, limit=limit)


@app.command(epilog=EPILOG)
@shared
async def show(common: Common, task: TaskArgument) -> ExitCode | None:
    """Show a task as a timeline: steps, calls, waits, decisions, undone steps and cost."""
    from holdfast.cli.commands.task_view import show_command

    return await show_command(common, task)


@app.command(epilog=EPILOG)
@shared
async def artifacts(
    common: Common,
    task: TaskArgument,
    *,
    get: Annotated[
        str | None,
        typer.Option("--get", metavar="NAME", help="Write this one: its name, or its reference."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Where to; else to stdout.")
    ] = None,
    versions: Annotated[bool, typer.Option("--versions", help="List older versions too.")] = False,
) -> ExitCode | None:
    """List the files that the tools of a task have kept, or write one."""
    from holdfast.cli.commands.artifacts import artifacts_command

    return await artifacts_command(common, task, get=get, out=out, versions=versions)


@app.command(epilog=EPILOG)
@shared
async def step(
    common: Common,
    task: TaskArgument,
    input: Annotated[
        str | None, typer.Option("--input", help="New user input for the step.")
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start a failed step again, from nothing.")
    ] = False,
) -> ExitCode | None:
    """Run the next step of a task."""
    from holdfast.cli.commands.runs import step_command

    return await step_command(common, task, input=input, restart=restart)


@app.command(epilog=EPILOG)
@shared
async def finalize(common: Common, task: TaskArgument) -> ExitCode | None:
    """Commit a task that has its answer to its session, and close it."""
    from holdfast.cli.commands.runs import finalize_command

    return await finalize_command(common, task)


app.add_typer(start)
app.add_typer(people)
app.add_typer(desk, name="desk")
app.add_typer(schedule, name="schedule", help="Begin tasks at set times.")
app.add_typer(event, name="event", help="Send an event to the calls that wait for it.")


@app.command(epilog=EPILOG)
@shared
async def stop(common: Common) -> ExitCode | None:
    """Stop the embedded server of the data directory; its tasks stay."""
    from holdfast.cli.commands.servers import stop_command

    return await stop_command(common)
