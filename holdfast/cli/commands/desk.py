"""`desk` and `desk token`: pages for people, an API for programs, and who may use them."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli import output
from holdfast.cli.connection import engine_of, until_stopped
from holdfast.cli.exits import ExitCode, InterruptedByUserError
from holdfast.cli.options import Common
from holdfast.errors import InvalidArgumentError, ServerStartError
from holdfast.serving.observed.health import health_served
from holdfast.serving.observed.logs import begin_logging
from holdfast.serving.worker_process import begun_metrics, measuring
from holdfast.values.code.extras import needing

if TYPE_CHECKING:
    from holdfast.desk.identity.tokens import Tokens

TOKENS = "desk-tokens.json"
FILE_VARIABLE = "HOLDFAST_DESK_TOKENS"
DAY_SECONDS = 86_400


async def desk_command(
    common: Common, *, host: str, port: int, app: str | None, tokens: Path | None
) -> ExitCode:
    """Serve the desk until Ctrl-C."""
    with needing("desk", "`holdfast desk`", error=ServerStartError):
        from holdfast.desk.server import desk_served
    begin_logging(logging.WARNING)
    meters = begun_metrics()
    async with health_served() as health, engine_of(common, new=True) as engine:
        serving = desk_served(
            engine.runner(app=app), tokens=token_file(common, tokens), host=host, port=port
        )
        async with serving as url:
            measuring(meters, engine.archive)
            health.serves(engine.client, engine.archive)
            if common.json:
                output.emit({"desk": url, "address": engine.address})
            output.say(f"The desk is at {url}", style="bold")
            output.say("Ctrl-C stops it; the tasks go on.")
            with suppress(InterruptedByUserError):
                await until_stopped(_forever())
    return ExitCode.OK


async def token_make_command(
    common: Common, name: str, *, roles: list[str], days: float | None, tokens: Path | None
) -> ExitCode:
    """Make a token and print it: it is not kept, and cannot be shown again."""
    file = token_file(common, tokens)
    expires = 0.0 if days is None else time.time() + days * DAY_SECONDS
    token = _tokens(file).make(name, roles or ["viewer"], expires=expires)
    if common.json:
        output.emit({"name": name, "roles": sorted(roles or ["viewer"]), "token": token})
    else:
        output.answer(token)
    output.say(f"It is kept as a digest in {str(file)!r} and cannot be shown again.")
    return ExitCode.OK


async def token_list_command(common: Common, tokens: Path | None) -> ExitCode:
    """List the tokens, without their secrets."""
    found = _tokens(token_file(common, tokens)).list()
    if common.json:
        output.emit(
            [{"name": each.name, "roles": [*each.roles], "expires": each.expires} for each in found]
        )
        return ExitCode.OK
    for each in found:
        ends = time.strftime("%Y-%m-%d", time.gmtime(each.expires)) if each.expires else "never"
        output.answer(f"{each.name}  {', '.join(each.roles)}  ends: {ends}")
    if not found:
        output.say("There are no tokens: the desk serves only the user of its own machine.")
    return ExitCode.OK


async def token_revoke_command(common: Common, name: str, tokens: Path | None) -> ExitCode:
    """Revoke all tokens of a name, at once."""
    count = _tokens(token_file(common, tokens)).revoke(name)
    if common.json:
        output.emit({"name": name, "revoked": count})
    output.say(f"{count} {'token' if count == 1 else 'tokens'} of {name} revoked.")
    return ExitCode.OK


def token_file(common: Common, given: Path | None) -> Path:
    """Return the file of the tokens.

    Raises:
        InvalidArgumentError: A cluster is named, and no file.
    """
    named = given or (Path(found) if (found := os.environ.get(FILE_VARIABLE)) else None)
    if named is not None:
        return named
    directory = common.embedded
    if directory is None:
        msg = (
            "A cluster has no directory for the desk's tokens: name their file with --tokens or"
            " HOLDFAST_DESK_TOKENS."
        )
        raise InvalidArgumentError(msg)
    return directory / TOKENS


def tokens_of(common: Common) -> Tokens | None:
    """Return the tokens of the desk next to which a command runs; None where no file is named."""
    if common.embedded is None and not os.environ.get(FILE_VARIABLE):
        return None
    return _tokens(token_file(common, None))


def _tokens(file: Path) -> Tokens:
    with needing("desk", "`holdfast desk`", error=ServerStartError):
        from holdfast.desk.identity import tokens
    return tokens.Tokens(file)


async def _forever() -> None:
    await asyncio.Event().wait()
