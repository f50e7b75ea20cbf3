"""The commands of the desk as they are typed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.arguments import AppOption
from holdfast.cli.exits import EPILOG, ExitCode
from holdfast.cli.options import Common, command, group, shared

TokensOption = Annotated[
    Path | None,
    typer.Option(
        "--tokens",
        help="File of the tokens; in the data directory by default. [env: HOLDFAST_DESK_TOKENS]",
    ),
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Person or program.")]

desk = typer.Typer(add_completion=False, rich_markup_mode=None, invoke_without_command=True)
token = group("token", desk, "Make, list and revoke the desk's tokens.")


@desk.callback(epilog=EPILOG)
@shared
async def serve(
    common: Common,
    ctx: typer.Context,
    *,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any.")] = 8400,
    app: AppOption = None,
    tokens: TokensOption = None,
    oidc: Annotated[
        Path | None, typer.Option(envvar="HOLDFAST_OIDC", help="TOML file of an OpenID provider.")
    ] = None,
) -> ExitCode | None:
    """Serve every task in a browser, an inbox for people, and an API for programs."""
    if ctx.invoked_subcommand is not None:  # what was given here holds there, too
        sources = {name: ctx.get_parameter_source(name) for name in ctx.params}
        typed = (
            name for name, source in sources.items() if source and source.name == "COMMANDLINE"
        )
        given = {name: ctx.params[name] for name in typed}
        ctx.default_map = {"token": dict.fromkeys(("make", "list", "revoke"), given)}
        return None
    from holdfast.cli.commands.servers import desk_command

    return await desk_command(common, host=host, port=port, app=app, tokens=tokens, oidc=oidc)


@command(token, "commands.servers.token_make_command")
def make(
    name: NameArgument,
    role: Annotated[
        list[str] | None,
        typer.Option(help="viewer, operator, approver, custodian; groups of rules; repeatable."),
    ] = None,
    days: Annotated[
        float | None, typer.Option(min=0.0, help="How long it holds; for ever by default.")
    ] = None,
    *,
    tenant: Annotated[str, typer.Option(help="Only this tenant's tasks; all by default.")] = "",
    tokens: TokensOption = None,
) -> None:
    """Make a token and print it."""


@command(token, "commands.servers.token_list_command", "list")
def list_(tokens: TokensOption = None) -> None:
    """List the tokens, without their secrets."""


@command(token, "commands.servers.token_revoke_command")
def revoke(name: NameArgument, tokens: TokensOption = None) -> None:
    """Revoke all tokens of a name, at once."""
