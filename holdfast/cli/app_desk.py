"""The commands of the desk as they are typed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.arguments import AppOption
from holdfast.cli.exits import EPILOG, ExitCode
from holdfast.cli.options import Common, shared

TokensOption = Annotated[
    Path | None,
    typer.Option(
        "--tokens",
        help="File of the tokens; in the data directory by default. [env: HOLDFAST_DESK_TOKENS]",
    ),
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Person or program.")]

desk = typer.Typer(add_completion=False, rich_markup_mode=None, invoke_without_command=True)
token = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
desk.add_typer(token, name="token", help="Make, list and revoke the desk's tokens.")


@desk.callback(epilog=EPILOG)
@shared
async def serve(
    common: Common,
    ctx: typer.Context,
    *,
    host: Annotated[str, typer.Option("--host", help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0: any.")] = 8400,
    app: AppOption = None,
    tokens: TokensOption = None,
    oidc: Annotated[
        Path | None,
        typer.Option("--oidc", envvar="HOLDFAST_OIDC", help="TOML file of an OpenID provider."),
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


@token.command(epilog=EPILOG)
@shared
async def make(
    common: Common,
    name: NameArgument,
    role: Annotated[
        list[str] | None,
        typer.Option(
            "--role", help="viewer, operator, approver, custodian; groups of rules; repeatable."
        ),
    ] = None,
    days: Annotated[
        float | None,
        typer.Option("--days", min=0.0, help="How long it holds; for ever by default."),
    ] = None,
    *,
    tenant: Annotated[
        str, typer.Option("--tenant", help="Only this tenant's tasks; all by default.")
    ] = "",
    tokens: TokensOption = None,
) -> ExitCode | None:
    """Make a token and print it."""
    from holdfast.cli.commands.servers import token_make_command

    return await token_make_command(
        common, name, roles=role or [], days=days, tenant=tenant, tokens=tokens
    )


@token.command("list", epilog=EPILOG)
@shared
async def list_(common: Common, tokens: TokensOption = None) -> ExitCode | None:
    """List the tokens, without their secrets."""
    from holdfast.cli.commands.servers import token_list_command

    return await token_list_command(common, tokens)


@token.command(epilog=EPILOG)
@shared
async def revoke(
    common: Common, name: NameArgument, tokens: TokensOption = None
) -> ExitCode | None:
    """Revoke all tokens of a name, at once."""
    from holdfast.cli.commands.servers import token_revoke_command

    return await token_revoke_command(common, name, tokens)
