"""Signing in with a token in a browser: a cookie that no script can read holds the session."""

from __future__ import annotations

import time
from html import escape
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from holdfast.desk.identity.guard import Guard, cookie_name, is_https, sessions_of
from holdfast.desk.identity.protection import Rates, too_many
from holdfast.desk.identity.tokens import SESSION_SECONDS

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
<p>{hint}</p>{other}</main><script>
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {{
  history.replaceState(null, "", location.pathname + location.search);
  document.getElementById("token").value = given;
  document.forms[0].submit();
}}
</script></body></html>"""
"""The token may be behind a `#`: a browser sends that part of an address to no server."""


@login.get("/login")
async def form(request: Request, next: str = "/") -> Response:  # noqa: A002  the name in the URL
    """Ask for a token."""
    return login_page(request, "", next)


@login.post("/login")
async def sign_in(request: Request) -> Response:
    """Begin a session with a token that is known, and go on to the page that was wanted.

    Sign-ins are counted for who signs in, and guesses for where they come from: behind a proxy, all
    come from one address, and someone's guesses must not keep the others out.
    """
    given = parse_qs((await request.body()).decode("utf-8", "replace"))
    token = given.get("token", [""])[0].strip()
    wanted = given.get("next", ["/"])[0]
    guard: Guard = request.app.state.guard
    tokens = guard.tokens
    known = None if tokens is None else tokens.identity(token)
    rates: Rates = request.app.state.rates
    address = request.client.host if request.client else ""
    if wait := rates.wait(f"account {known.key}" if known else address):
        return too_many(wait)
    if tokens is None or known is None:
        return login_page(request, "This token is not known, or it has ended.", wanted, 401)
    return signed_in(request, tokens.begin_session(token), wanted)


def signed_in(request: Request, session: str, wanted: str) -> Response:
    """Give a browser its session, and have it go on to the page that was wanted."""
    root = request.scope.get("root_path", "")
    answer = RedirectResponse(root + local_path(wanted), 303)
    answer.set_cookie(
        cookie_name(request),
        session,
        max_age=SESSION_SECONDS,
        path="/" if is_https(request) else root or "/",
        secure=is_https(request),
        httponly=True,
        samesite="lax",  # a link in a message leads to its card; only reads come this way
    )
    return answer


@login.post("/logout")
async def sign_out(request: Request) -> Response:
    """End the session; pages that are open with it end, in other tabs as well."""
    root = request.scope.get("root_path", "")
    guard: Guard = request.app.state.guard
    tokens = guard.tokens
    answer = RedirectResponse(f"{root}/login", 303)
    for name, session in sessions_of(request).items():
        if tokens is not None and (known := tokens.session_identity(session)) is not None:
            tokens.end_session(session)
            guard.sign_out(known.key, time.monotonic())
        is_secure = is_https(request)
        answer.delete_cookie(name, path="/" if is_secure else root or "/", secure=is_secure)
    return answer


def login_page(request: Request, message: str, wanted: str, status: int = 200) -> Response:
    """Return the page to sign in at, with what went wrong."""
    guard: Guard = request.app.state.guard
    shown = {"message": message, "next": local_path(wanted), "hint": guard.hint()}
    known = {name: escape(each, quote=True) for name, each in shown.items()}
    text = _PAGE.format(**known, other=_other(request, shown["next"]))
    return HTMLResponse(text, status)


def _other(request: Request, wanted: str) -> str:
    """Return the link to the OpenID provider, if there is one."""
    provider = getattr(request.app.state, "provider", None)
    if provider is None:
        return ""
    root = request.scope.get("root_path", "")
    to = escape(f"{root}/login/oidc?next={quote(wanted, safe='/')}", quote=True)
    return f'<p><a href="{to}">Sign in with {escape(provider.given.label)}</a></p>'


def local_path(wanted: str) -> str:
    r"""Return a path of this desk; a path that a browser takes for another host (`//`, `/\`)."""
    is_path = wanted.startswith("/") and wanted[1:2] not in ("/", "\\")
    return wanted if is_path and wanted.isprintable() else "/"
