"""`audit`: every event of a task as JSON lines; whether a task or a session is intact."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.cli import output
from holdfast.cli.commands.open_questions import TURNLESS, find_task
from holdfast.cli.connection import engine_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.errors import InvalidArgumentError, NotFoundError
from holdfast.reading.audit.verification import NO_SESSION, Verification
from holdfast.values.base import Json
from holdfast.values.checks.ids import DEFAULT_APP, check_app


async def audit_command(
    common: Common,
    typed: str,
    *,
    secret: Sequence[str] | None,
    verify: bool,
    session: str | None,
    app: str | None,
) -> ExitCode:
    """Print the events of a task, oldest first; or verify it, or a session."""
    if session is not None:
        return await verify_session_command(common, session, typed=typed, app=app)
    if verify:
        return await verify_command(common, typed)
    async with engine_of(common) as engine:
        task_id = await find_task(engine, typed)
        events = await engine.runner().audit(task_id, secrets=secret or [])
    for event in events:
        output.emit(event.model_dump(mode="json"))
    return ExitCode.OK


async def record_command(common: Common, typed: str, *, secret: Sequence[str] | None) -> ExitCode:
    """Print a task as a case to be replayed.

    Raises:
        InvalidArgumentError: The task cannot be replayed; the text says why.
    """
    from holdfast.testing.cases import record_run

    async with engine_of(common) as engine:
        task_id = await find_task(engine, typed)
        case = await record_run(engine.runner(), task_id, secrets=secret or [])
    output.answer(case.to_json().rstrip("\n"))
    return ExitCode.OK


async def verify_command(common: Common, typed: str) -> ExitCode:
    """Recompute the digest chain of a task, and print where it breaks."""
    async with engine_of(common) as engine:
        task_id = await find_task(engine, typed)
        found = await engine.runner().verify(task_id)
    return _print(common, f"The record of {task_id}", found, {"task_id": task_id})


async def verify_session_command(
    common: Common, name: str, *, typed: str, app: str | None
) -> ExitCode:
    """Compare a session's turns with the digests in the session itself.

    Raises:
        InvalidArgumentError: A task is named as well.
        NotFoundError: There is no such session.
    """
    if typed:
        msg = f"Name a task or a session: {typed!r} is a task, and --session names {name!r}."
        raise InvalidArgumentError(msg)
    async with engine_of(common) as engine:
        app = DEFAULT_APP if app is None else check_app(app)
        found = await engine.runner(app=app).session(name).verify()
    if NO_SESSION in found.unproved:
        msg = f"There is no session {name!r} of app {app!r}: it has no turns, or was deleted."
        raise NotFoundError(msg, remedy=TURNLESS)
    return _print(common, f"Session {name}", found, {"session": name})


def _print(common: Common, what: str, found: Verification, names: dict[str, Json]) -> ExitCode:
    """Print the findings of a verification, and what it proved."""
    if common.json:
        findings = [finding.model_dump(mode="json") for finding in found]
        proof: Json = {"proved": found.proved, "unproved": found.unproved}
        output.emit({**names, "intact": not found, "findings": findings, **proof})
    else:
        if not found:
            output.answer(f"{what} is intact.")
        for each in found:
            where = f"step {each.step} on branch {each.branch}: " if each.step else ""
            output.answer(f"{where}{each.text}")
        for text in found.proved:
            output.answer(f"proved: {text}")
        for text in found.unproved:
            output.answer(f"not proved: {text}")
    if found:
        places = "one place" if len(found) == 1 else f"{len(found)} places"
        output.say(f"error: {what} is broken at {places}.", style="red")
    return ExitCode.FAILED if found else ExitCode.OK
