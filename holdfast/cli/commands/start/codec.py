"""`codec`: decrypts payloads for Temporal's web UI and command line."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Sequence

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.converter import PayloadCodec

from holdfast.archive.encryption.codec import KeysCodec
from holdfast.cli import output
from holdfast.cli.commands.servers import tokens_of
from holdfast.cli.connection import engine_of
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import Common
from holdfast.engine.listening import listening_socket
from holdfast.errors import ArchiveError, InvalidArgumentError, ServerStartError, message_of
from holdfast.serving.observed.logs import begin_logging
from holdfast.values.code.extras import needing

with needing("desk", "`holdfast codec serve`", error=ServerStartError):
    import uvicorn
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.cors import CORSMiddleware
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    from holdfast.desk.identity.tokens import Tokens

Endpoint = Callable[[Request], Awaitable[Response]]
MOST_BYTES = 32 * 1024 * 1024
"""Largest body of a request: Temporal's limit of a page of history, several times."""


async def codec_command(
    common: Common, *, host: str, port: int, origin: Sequence[str] | None
) -> ExitCode:
    """Serve Temporal's protocol of remote codecs until Ctrl-C.

    Raises:
        InvalidArgumentError: There are no keys, or no tokens that guard them.
        ServerStartError: It cannot listen there.
    """
    begin_logging(logging.WARNING)
    tokens = tokens_of(common)
    if tokens is None or not tokens.list():
        raise InvalidArgumentError(
            "Anyone who reaches the codec can read every task, and no token guards it. Make one"
            " with `holdfast desk token make NAME --role viewer`; with a cluster, name the file of"
            " the tokens in HOLDFAST_DESK_TOKENS."
        )
    async with engine_of(common) as engine:
        if engine.archive.encrypted is None:
            raise InvalidArgumentError("There is nothing to decrypt: HOLDFAST_KEYS names no keys.")
        try:
            bound = listening_socket(host, port)
        except OSError as error:
            msg = f"The codec cannot be served at {host}:{port}: {error.strerror}."
            raise ServerStartError(msg) from None
        url = f"http://{host}:{bound.getsockname()[1]}"
        if common.json:
            output.emit({"codec": url})
        output.say(f"The codec is at {url}. Ctrl-C stops it.", style="bold")
        app = codec_app(KeysCodec(engine.archive.encrypted.data_keys), tokens, origin or [])
        config = uvicorn.Config(
            app, log_config=None, log_level="warning", access_log=False, server_header=False
        )
        await uvicorn.Server(config).serve([bound])
    return ExitCode.OK


def codec_app(codec: PayloadCodec, tokens: Tokens, origins: Sequence[str]) -> Starlette:
    """Return the application: `POST /decode` and `POST /encode`, each for one list of payloads.

    Args:
        codec: What decrypts.
        tokens: Who may ask: everybody with a token of the desk, as `Authorization: Bearer TOKEN`.
        origins: Web pages that may ask, such as `https://temporal.example.com`; no others.
    """

    def route(code: Callable[[Sequence[Payload]], Awaitable[list[Payload]]]) -> Endpoint:
        async def answer(request: Request) -> Response:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            if scheme != "Bearer" or tokens.identity(token) is None:
                return _refused("A token of the desk is needed: Authorization: Bearer TOKEN.", 401)
            length = request.headers.get("content-length", "")
            if not length.isdecimal():
                return _refused("The body needs its length: Content-Length.", 400)
            if int(length) > MOST_BYTES:
                return _refused(f"The body has at most {MOST_BYTES} bytes.", 413)
            try:
                given = ParseDict(json.loads(await request.body()), Payloads())
            except (ValueError, TypeError, RecursionError, ParseError):
                return _refused('The body is JSON: {"payloads": [...]}.', 400)
            try:
                return JSONResponse(MessageToDict(Payloads(payloads=await code(given.payloads))))
            except ArchiveError as error:
                return _refused(message_of(error), 503)

        return answer

    async def decode(payloads: Sequence[Payload]) -> list[Payload]:
        found: list[Payload] = []
        for each in payloads:
            try:
                found += await codec.decode([each])
            except ArchiveError as error:  # a row of its own: the others can be read
                text = json.dumps(f"({message_of(error)})")
                found.append(Payload(metadata={"encoding": b"json/plain"}, data=text.encode()))
        return found

    cors = Middleware(
        CORSMiddleware,
        allow_origins=[*origins],
        allow_methods=["POST"],
        allow_headers=["authorization", "content-type", "x-namespace"],
    )
    routes = [
        Route("/decode", route(decode), methods=["POST"]),
        Route("/encode", route(codec.encode), methods=["POST"]),
    ]
    return Starlette(routes=routes, middleware=[cors])


def _refused(text: str, status: int) -> Response:
    return JSONResponse({"error": text}, status_code=status)
