"""The guard of a desk: who sends a request, and whether they may do something."""

from __future__ import annotations

import hmac
import inspect
import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection

from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.desk.identity.tokens import (
    ALLOWED,
    ROLES,
    Identity,
    LocalTokens,
    May,
    NotAllowedError,
    NotAuthenticatedError,
    Subject,
    Tokens,
    Verb,
    check_roles,
)
from holdfast.errors import InvalidArgumentError
from holdfast.task.people.decisions import Person
from holdfast.values.checks.ids import check_tenant
from holdfast.values.code.user_calls import yes_or_no

COOKIE = "holdfast_desk"
_HOST_ONLY = "__Host-"
"""Browsers take a cookie of such a name only if it is Secure and of this very host."""

LEAST_SECRET = 16
EVERY = "*"
"""The tenant of those who see all."""

_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """A reverse proxy that authenticates people and names them in a header.

    The header counts only with the secret. The proxy adds the secret to each request, and removes
    it from incoming ones. Clients must not reach the desk around the proxy.

    Args:
        secret: What the proxy sends as `secret_header`; at least 16 characters.
        user_header: Header with the name of the person.
        roles_header: Header with roles and groups, separated by commas; without it, `roles` hold
            for all.
        secret_header: Header with the secret.
        roles: Roles and groups of people for whom the proxy names no roles.
        tenant_header: Header with the tenant of the person, or `*` for one who sees all; a request
            without it is refused. Without such a header, everybody sees all.

    Raises:
        InvalidArgumentError: The secret is short, or a role is not known.
    """

    secret: str = field(repr=False)
    user_header: str = "X-Forwarded-User"
    roles_header: str = ""
    secret_header: str = "X-Desk-Secret"  # noqa: S105  the name of a header
    roles: frozenset[str] = frozenset({"viewer"})
    tenant_header: str = ""

    def __post_init__(self) -> None:
        """Check the secret and the roles."""
        if len(self.secret) < LEAST_SECRET:
            raise InvalidArgumentError(
                f"The proxy's secret has {len(self.secret)} characters; it needs at least"
                f" {LEAST_SECRET}. `openssl rand -hex 32` makes one."
            )
        object.__setattr__(self, "roles", check_roles(self.roles))

    def identity(self, headers: Mapping[str, str]) -> Identity | None:
        """Return whom the proxy names; None when the request has not come through it.

        Raises:
            InvalidArgumentError: The name, a role or the tenant cannot be used.
        """
        sent = headers.get(self.secret_header, "")
        if not hmac.compare_digest(sent.encode(), self.secret.encode()):
            return None
        name = headers.get(self.user_header, "")
        if not name:
            return None
        given = headers.get(self.roles_header, "") if self.roles_header else ""
        named = [role.strip() for role in given.split(",") if role.strip()]
        roles = frozenset(named) or self.roles
        tenant = headers.get(self.tenant_header, "") if self.tenant_header else EVERY
        return Identity(name, roles, "proxy", "" if tenant == EVERY else check_tenant(tenant))


class Guard:
    """Decides who sends a request, and what they may do.

    Without tokens and without a proxy, the desk serves one local user, named by the login name, who
    may do everything. They have a token of their own, and it counts only in requests from and to a
    loopback address that no proxy has forwarded.
    """

    def __init__(
        self,
        tokens: Tokens | None = None,
        proxy: Proxy | None = None,
        may: May | None = None,
        tenant_of: Callable[[str], Awaitable[str]] | None = None,
    ) -> None:
        """Make a guard.

        Args:
            tokens: The tokens that are accepted.
            proxy: The reverse proxy that is trusted.
            may: Decides next to the roles.
            tenant_of: Finds the tenant of a task, an approval or a session, for `may`.
        """
        self._tokens = tokens
        self._proxy = proxy
        self._may = may
        self._tenant_of = tenant_of
        self._signed_out: dict[str, float] = {}

    @property
    def tokens(self) -> Tokens | None:
        """The tokens that are accepted now."""
        return self._tokens and self._tokens.now()

    @property
    def is_local(self) -> bool:
        """Whether only the local user is served."""
        return isinstance(self.tokens, LocalTokens)

    async def visitor(self, request: HTTPConnection) -> Identity:
        """Return who sends a request.

        Raises:
            NotAuthenticatedError: They are not known.
        """
        if not self.serves(request):
            raise NotAuthenticatedError(_LOCAL_ONLY)
        found = self._known(request)
        if found is None:
            raise NotAuthenticatedError(self.hint())
        return found

    def serves(self, request: HTTPConnection) -> bool:
        """Whether someone who sends a request from there may sign in."""
        client = request.client.host if request.client else ""
        is_forwarded = any(name in request.headers for name in _FORWARDED)
        is_here = is_loopback(client) and is_loopback(host_of(request))
        return not self.is_local or (is_here and not is_forwarded)

    def hint(self) -> str:
        """Say how a request gets an identity."""
        tokens = self.tokens
        if not isinstance(tokens, LocalTokens):
            return _UNKNOWN
        tokens.own()
        return _LOCAL.format(tokens.token_file)

    def sign_out(self, key: str, at: float) -> None:
        """End the pages that someone has open, also in other tabs.

        Args:
            key: Who signs out.
            at: When, by the monotonic clock of this process.
        """
        self._signed_out[key] = at

    def has_signed_out(self, key: str, since: float) -> bool:
        """Whether someone has signed out since a time of the monotonic clock of this process."""
        return self._signed_out.get(key, -1.0) >= since

    async def allows(self, visitor: Identity, verb: Verb, subject: str) -> bool:
        """Whether an identity may do this with a task or an approval.

        Who decides for later calls as well, must be allowed to decide this one as well.

        Raises:
            UserError: The application's own `may` returned neither True nor False.
            Exception: What it raised.
        """
        one = _THIS_ONE.get(verb)
        if not visitor.can(verb) or (one and not await self.allows(visitor, one, subject)):
            return False
        if self._may is None:
            return True
        about = self._tenant_of(subject) if subject and self._tenant_of else None
        # By another name, as the short one of a session, a tenant's visitor names what is its own.
        tenant = await about or visitor.tenant if about else ""
        answer = self._may(visitor, verb, Subject(subject, tenant))
        return yes_or_no(self._may, await answer if inspect.isawaitable(answer) else answer)

    async def barred(self, visitor: Identity, verb: Verb, subject: str) -> str:
        """Return why an identity may not do this with a task or an approval; empty when it may."""
        if await self.allows(visitor, verb, subject):
            return ""
        why = "a rule of the application forbids it"
        if not visitor.can(verb):
            needed = " or ".join(role for role in ROLES if verb in ALLOWED[role])
            roles = " and ".join(sorted(visitor.roles))
            why = f"that needs the role {needed}, and {visitor.name} has the role {roles}"
        what = f"{verb.replace('_', ' ')} {subject}".rstrip()
        return f"{visitor.name} may not {what}: {why}."

    def person(self, visitor: Identity, runner: AgentRunner) -> Person:
        """Return a visitor as the rules of tools see them: with all of their groups."""
        return Person(visitor.name, sorted(visitor.groups | {*runner.roles_of(visitor.name)}))

    async def ensure(self, visitor: Identity, verb: Verb, subject: str) -> None:
        """Return if an identity may do this.

        Raises:
            NotAllowedError: It may not.
        """
        if msg := await self.barred(visitor, verb, subject):
            raise NotAllowedError(msg)

    def _known(self, request: HTTPConnection) -> Identity | None:
        try:
            found = self._proxy.identity(request.headers) if self._proxy else None
        except InvalidArgumentError as error:
            raise NotAuthenticatedError(*error.args) from None
        tokens = self.tokens
        if found is not None or tokens is None:
            return found
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return tokens.identity(token.strip())
        known = map(tokens.session_identity, sessions_of(request).values())
        return next((each for each in known if each is not None), None)


_THIS_ONE: dict[Verb, Verb] = {"approve_always": "approve", "reject_always": "reject"}


def is_https(request: HTTPConnection) -> bool:
    """Whether a browser reaches the desk by https: by what it says itself, or a proxy before it.

    Anybody can send these headers. They only make a cookie stricter, so there is nothing to gain.
    """
    says = (request.headers.get(name, "") for name in ("x-forwarded-proto", "origin"))
    return request.url.scheme in ("https", "wss") or any(each.startswith("https") for each in says)


def cookie_name(request: HTTPConnection) -> str:
    """Return the name of the cookie: desks on several ports of a host must not share one."""
    port = request.url.port
    name = f"{COOKIE}_{port}" if port else COOKIE
    return f"{_HOST_ONLY}{name}" if is_https(request) else name


def sessions_of(request: HTTPConnection) -> dict[str, str]:
    """Return the cookies that may be sessions; over https, only ones that no other host can set."""
    prefixes = (f"{_HOST_ONLY}{COOKIE}", *(() if is_https(request) else (COOKIE,)))
    return {name: text for name, text in request.cookies.items() if name.startswith(prefixes)}


def host_of(request: HTTPConnection) -> str:
    """Return the host that a request is for, without its port."""
    host = request.headers.get("host", "")
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by address or by the name that always means it."""
    if host in ("localhost", "localhost."):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_UNKNOWN = (
    "No one is known to have sent this request. Send a token as `Authorization: Bearer ...`, or"
    " sign in at /login; `holdfast desk token make NAME --role operator` makes a token."
)
_LOCAL_ONLY = (
    "This desk serves only its own machine: it has neither tokens nor a proxy. Open it by a"
    " loopback address, or give it tokens (`holdfast desk token make NAME`), to be reached from"
    " elsewhere."
)
_LOCAL = (
    "This desk serves only the user of its machine. Open the address that was printed when it"
    " started, or send the token in {} as `Authorization: Bearer ...`."
)
