"""Signing in with a token in a browser: it is kept in a cookie that no script can read."""

from __future__ import annotations

import time
from html import escape
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from holdfast.desk.identity.guard import COOKIE, Guard
from holdfast.desk.identity.tokens import Tokens

COOKIE_SECONDS = 12 * 3600

login = APIRouter(include_in_schema=False)

_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Sign in · Holdfast</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>:root{{color-scheme:light dark}}body{{font:16px system-ui,sans-serif;max-width:26rem;
margin:15vh auto;padding:0 1rem}}label,input,button{{display:block;width:100%;font:inherit;
box-sizing:border-box;margin-top:.75rem;padding:.5rem}}label{{padding:0}}</style></head>
<body><main><h1>Sign in</h1><p role="alert">{message}</p>
<form method="post"><label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<input type="hidden" name="next" value="{next}">
<button type="submit">Sign in</button></form>
<p>Whoever runs this desk makes a token with <code>holdfast desk token make NAME</code>.</p>
</main></body></html>"""


@login.get("/login")
async def form(next: str = "/") -> Response:  # noqa: A002  the name in the URL
    """Ask for a token."""
    return _page("", next)


@login.post("/login")
async def sign_in(request: Request) -> Response:
    """Keep a token that is known in a cookie, and go on to the page that was wanted."""
    given = parse_qs((await request.body()).decode("utf-8", "replace"))
    token = given.get("token", [""])[0].strip()
    wanted = given.get("next", ["/"])[0]
    tokens: Tokens | None = request.app.state.tokens
    if tokens is None or tokens.identity(token) is None:
        return _page("This token is not known, or it has ended.", wanted, 401)
    root = request.scope.get("root_path", "")
    answer = RedirectResponse(root + _local(wanted), 303)
    answer.set_cookie(
        COOKIE,
        token,
        max_age=COOKIE_SECONDS,
        path=root or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",  # a link in a message leads to its card; only reads come this way
    )
    return answer


@login.post("/logout")
async def sign_out(request: Request) -> Response:
    """Forget the token in this browser; pages that are open with it end, in other tabs as well."""
    root = request.scope.get("root_path", "")
    tokens: Tokens | None = request.app.state.tokens
    known = tokens.identity(request.cookies.get(COOKIE, "")) if tokens is not None else None
    if known is not None:
        guard: Guard = request.app.state.guard
        guard.sign_out(known.name, time.monotonic())
    answer = RedirectResponse(f"{root}/login", 303)
    answer.delete_cookie(COOKIE, path=root or "/")
    return answer


def _page(message: str, wanted: str, status: int = 200) -> Response:
    text = _PAGE.format(message=escape(message), next=escape(_local(wanted), quote=True))
    return HTMLResponse(text, status)


def _local(wanted: str) -> str:
    r"""Return a path of this desk; a path that a browser takes for another host (`//`, `/\`)."""
    is_path = wanted.startswith("/") and wanted[1:2] not in ("/", "\\")
    return wanted if is_path and wanted.isprintable() else "/"
