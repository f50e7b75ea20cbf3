"""`erase`, `hold` and `retention`: what goes for good, and what must stay."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, cast

from holdfast.archive.holds import Hold
from holdfast.cli import output
from holdfast.cli.connection import engine_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.client.agent_runner.erasing import SELECTOR
from holdfast.errors import CommandRefusedError


async def erase_command(
    common: Common,
    typed: str,
    *,
    app: str | None,
    by: str,
    reason: str,
    with_forks: bool,
    abandon_open: bool,
    yes: bool,
) -> ExitCode:
    """Erase a task, a session or a person, and print what of it remains elsewhere.

    The id of a task must be whole, because an erasure cannot be taken back. For the same reason it
    lists what goes with a session or a person, and stops there unless the user is sure.

    Raises:
        CommandRefusedError: One of the tasks is open, has forks, is held, or belongs to another.
    """
    forks: Literal["refuse", "erase"] = "erase" if with_forks else "refuse"
    open_tasks: Literal["refuse", "abandon"] = "abandon" if abandon_open else "refuse"
    found = SELECTOR.fullmatch(typed)
    named: dict[str, Any] = {found[1]: found[2]} if found else {"task": typed}
    async with engine_of(common) as engine:
        runner = engine.runner(app=app)
        if not (yes or "task" in named):
            plan = await runner.plan_erasure(**named, forks=forks)
            given = plan.erasure
            lines: list[tuple[str, str]] = [("session", each) for each in given.sessions]
            lines += [("task", each) for each in given.tasks if each not in plan.opens]
            lines += [("open task", each) for each in plan.opens]
            lines += [("fork", each) for some in plan.forks.values() for each in some]
            lines += [("unreadable task", each) for each in given.unread]
            if common.json:
                output.emit([list(each) for each in lines])
            else:
                output.rows(("what", "id"), lines)
            msg = "Nothing was erased."
            raise CommandRefusedError(msg, remedy="To erase all of this, say the same with --yes.")
        done = await runner.erase(**named, by=by, reason=reason, forks=forks, open_tasks=open_tasks)
    if common.json:
        output.emit(done)
        return ExitCode.OK
    output.answer(f"{typed} was erased. What remains elsewhere:")
    for each in cast("list[str]", done["remains"]):
        output.answer(f"  {each}")
    return ExitCode.OK


async def hold_command(
    common: Common, selector: str, *, app: str | None, ends: bool = False, **given: str
) -> ExitCode:
    """Hold something for a case, or end that."""
    async with engine_of(common) as engine:
        runner = engine.runner(app=app)
        found = await (runner.end_hold if ends else runner.hold)(selector, **given)
    if not ends:
        output.say(
            "The archive is in no bucket with Object Lock: other tools can delete what is held."
            if found.locked is None
            else f"Object Lock: {found.locked} files have a legal hold of S3."
        )
    return _told(common, [found])


end_hold_command = partial(hold_command, ends=True)


async def holds_command(common: Common, *, ended: bool) -> ExitCode:
    """List what is held."""
    async with engine_of(common) as engine:
        return _told(common, await engine.runner().list_holds(ended=ended))


def _told(common: Common, found: list[Hold]) -> ExitCode:
    data = [each.wire() for each in found]
    rows = [
        (
            f"{each.kind}:{each.name}",
            each.case,
            f"{each.by}, {output.clock(each.at)}",
            each.reason,
            f"{each.ended_by}, {output.clock(each.ended_at)}" if each.ended_by else "",
        )
        for each in found
    ]
    columns = ("held", "case", "by (UTC)", "why", "ended by (UTC)")
    return output.listed(data, "Nothing is held.", columns, rows, as_json=common.json)


async def retention_command(
    common: Common,
    *,
    app: str | None,
    agent: str = "",
    days: float | None = None,
    rate: float = 0.0,
    by: str = "",
) -> ExitCode:
    """Set the retention of an agent, or end it if there are no days; then list all."""
    async with engine_of(common) as engine:
        runner = engine.runner(app=app)
        if days is not None:
            await runner.set_retention(agent, days, rate=rate, by=by)
        elif agent:
            await runner.end_retention(agent)
        found = await runner.list_retentions()
    data = [each.wire() for each in found]
    rows = [(each.agent, f"{each.days:g}", f"{each.rate:g}", each.by) for each in found]
    columns = ("agent", "days", "tasks a minute", "set by")
    return output.listed(data, "All is kept.", columns, rows, as_json=common.json)
