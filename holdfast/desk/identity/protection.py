"""Refuses requests that must not reach the desk, before anything of it sees them.

Sources: OWASP Cheat Sheet Series, "Cross-Site Request Forgery Prevention" (Fetch Metadata and
origin checks) and "HTTP Headers".
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from holdfast.desk.identity.guard import Guard
from holdfast.desk.identity.problems import problem, problem_of
from holdfast.desk.identity.tokens import READ
from holdfast.errors import HoldfastError

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
LOGIN = "/login"
OPEN = frozenset({LOGIN, f"{LOGIN}/oidc", f"{LOGIN}/oidc/callback"})
"""Addresses for those who have not signed in."""

API = "/api/"
HOOKS = "/hooks/"
"""Begins the addresses of webhooks: who sends one is known by its signature."""

LONGEST_HOOK = 65_536
"""Most bytes of a webhook: it is read before it is known who sends it."""

VISITOR = "holdfast.desk.visitor"
"""Key in a request's scope of the identity that sends it."""

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_CSP_DATA = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
# The pages' library compiles its templates in the browser and starts by a script in the page.
_CSP_PAGES = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval';"
    " style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:;"
    " connect-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'self';"
    " form-action 'self'"
)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much a sender may ask for.

    Attributes:
        body_bytes: Longest body of a request.
        writes_per_second: Requests other than reads that a sender may send, on average.
        burst: How many of them may come at once.
        reads_per_second: Reads that a sender may send, on average; those of ten seconds may come
            at once.
        open_requests: Requests, streams and sockets of pages that a sender may have open.
    """

    body_bytes: int = 1_048_576
    writes_per_second: float = 20.0
    burst: int = 60
    reads_per_second: float = 200.0
    open_requests: int = 200


class Rates:
    """Counts the requests of senders: a bucket of tokens for each, the idle ones forgotten."""

    MOST = 10_000

    def __init__(self, per_second: float, burst: int) -> None:
        """Allow so many."""
        self._per_second, self._burst = per_second, burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, sender: str) -> float:
        """Count a request; return 0, or the seconds after which one is allowed again."""
        now = time.monotonic()
        left, at = self._left.pop(sender, (float(self._burst), now))
        left = min(left + (now - at) * self._per_second, self._burst)
        allowed = left >= 1
        self._left[sender] = (left - 1 if allowed else left, now)
        while len(self._left) > self.MOST:
            self._left.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._per_second


class Protection:
    """Middleware: authenticates each request, and refuses foreign, large and too many ones."""

    def __init__(self, app: ASGIApp, *, guard: Guard, limits: Limits, rates: Rates) -> None:
        """Protect an application."""
        self._app = app
        self._guard = guard
        self._limits = limits
        self._writes = rates
        self._reads = Rates(limits.reads_per_second, max(1, int(10 * limits.reads_per_second)))
        self._open = Counter[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        sending = _with_headers(send, path_of(scope))
        refusal = await self._refusal(connection)
        if refusal is None:
            await self._serve(scope, receive, sending)
        elif scope["type"] == "websocket":
            await WebSocketClose(1008)(scope, receive, send)
        else:
            await refusal(scope, receive, sending)

    async def _refusal(self, connection: HTTPConnection) -> Response | None:
        """Return the answer to a request that is refused; None for one that is served."""
        scope = connection.scope
        is_write = scope["type"] == "websocket" or scope["method"] not in SAFE
        if is_write and is_foreign(connection):
            return problem(403, _FOREIGN, kind="CrossSite")
        length = connection.headers.get("content-length", "")
        path = path_of(scope)
        most = self._most(path)
        if length.isdecimal() and int(length) > most:
            return problem(413, _too_long(most), headers={"Connection": "close"})
        if path.startswith(HOOKS) and scope["type"] == "http" and scope["method"] == "POST":
            return None  # it counts once its signature is known: strangers take nothing from it
        try:
            if path in OPEN and self._guard.serves(connection):
                return None
            visitor = await self._guard.visitor(connection)
            await self._guard.ensure(visitor, READ, "")
        except HoldfastError as error:
            return self._unknown(connection, path, error)
        scope[VISITOR] = visitor
        if self._open[visitor.key] >= self._limits.open_requests:
            most = self._limits.open_requests
            text = f"{visitor.name} has {most} requests, streams and pages open. End some of them."
            return too_many(1, text)
        rates = self._writes if is_write and scope["type"] == "http" else self._reads
        if wait := rates.wait(visitor.key):
            return too_many(wait)
        return None

    def _unknown(self, connection: HTTPConnection, path: str, error: HoldfastError) -> Response:
        wants_page = "text/html" in connection.headers.get("accept", "")
        is_page = wants_page and not path.startswith(API) and connection.scope["type"] == "http"
        answer = problem_of(error)
        if answer.status_code == 401 and is_page and self._guard.serves(connection):  # noqa: PLR2004
            root = connection.scope.get("root_path", "")
            query = connection.url.query
            wanted = quote(f"{path}?{query}" if query else path, safe="/")
            return RedirectResponse(f"{root}{LOGIN}?next={wanted}", 303)
        return answer

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        got, most = 0, self._most(path_of(scope))

        async def limited() -> Message:
            nonlocal got
            message = await receive()
            got += len(message.get("body", b"")) if message["type"] == "http.request" else 0
            if got > most:
                raise HTTPException(413, _too_long(most), {"Connection": "close"})
            return message

        sender = scope[VISITOR].key if VISITOR in scope else ""
        self._open[sender] += 1
        try:
            await self._app(scope, limited, send)
        finally:
            self._open[sender] -= 1

    def _most(self, path: str) -> int:
        most = self._limits.body_bytes
        return min(most, LONGEST_HOOK) if path.startswith(HOOKS) else most


def _too_long(most: int) -> str:
    return f"A request may have a body of at most {most:,} bytes. Nothing was done."


def too_many(wait: float, text: str = "Too many requests; try again a little later.") -> Response:
    """Answer who has sent too much, and may send more after these seconds."""
    headers = {"Retry-After": str(int(wait) + 1)}
    return problem(429, text, headers=headers)


def path_of(scope: Scope) -> str:
    """Return the path of a request within the desk, also when the desk is mounted elsewhere."""
    path, root = scope["path"], scope.get("root_path", "")
    return path[len(root) :] or "/" if root and path.startswith(root) else path


def is_foreign(connection: HTTPConnection) -> bool:
    """Whether a browser sends a request for a page of another site."""
    site = connection.headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return True
    origin = connection.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != connection.headers.get("host", "")


def _with_headers(send: Send, path: str) -> Send:
    is_data = path.startswith((API, HOOKS))

    async def adding(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                if name != "Cache-Control" or not path.startswith("/_nicegui/"):
                    headers[name] = value
            headers["Content-Security-Policy"] = _CSP_DATA if is_data else _CSP_PAGES
        await send(message)

    return adding


_FOREIGN = (
    "This request comes from a page of another site, and would act as the person who is signed in"
    " here. Send it from the desk's own pages, or from a program without an Origin header."
)
