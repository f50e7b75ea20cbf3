"""Signing in with an OpenID provider: the authorization code flow with PKCE, by authlib.

What a sign-in must remember until the provider sends the browser back (state, nonce, the PKCE
verifier) is in a signed cookie of that browser, so any desk process may finish it. Who has signed
in has a session like that of a token; the provider's tokens are not kept.
"""

from __future__ import annotations

import json
import os
import secrets
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self, cast
from urllib.parse import urlsplit

import httpx2
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.starlette_client import OAuth
from fastapi import APIRouter, Request
from itsdangerous import BadSignature, TimestampSigner
from joserfc.errors import JoseError
from starlette.responses import Response

from holdfast.desk.identity.guard import EVERY, Guard, is_https
from holdfast.desk.identity.login import local_path, login_page, signed_in
from holdfast.desk.identity.protection import LOGIN, Rates, too_many
from holdfast.desk.identity.tokens import OIDC_SESSION, Identity, NotAllowedError, check_roles
from holdfast.errors import InvalidArgumentError
from holdfast.values.base import canonical, digest
from holdfast.values.checks.gate import as_array
from holdfast.values.checks.ids import check_tenant
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown

SECRET_VARIABLE = "HOLDFAST_OIDC_SECRET"  # noqa: S105  the name of a variable
BEGIN, BACK = f"{LOGIN}/oidc", f"{LOGIN}/oidc/callback"
STATE_COOKIE = "holdfast_oidc"
STATE_SECONDS = 600
LOOK_UP_SECONDS = 10.0

oidc = APIRouter(include_in_schema=False)


@dataclass(frozen=True, kw_only=True)
class OIDC:
    """An OpenID provider whose people may sign in to a desk.

    Args:
        issuer: URL of the provider; its `/.well-known/openid-configuration` says the rest.
        client_id: The desk's id there. Register the address of the desk with `/login/oidc/callback`
            behind it.
        roles: Group to the roles and groups that it gives: {"ops": ["operator"]}. Others may not
            sign in.
        tenants: Group to the tenant whose tasks it sees, or to `*` for all. Others may not sign in
            then; without such a map, everybody sees all.
        client_secret: The desk's secret there; empty for a public client.
        name_claim: Claim with the name that is recorded as `by`. An `email` must be verified.
        groups_claim: Claim with the list of groups.
        scopes: Scopes that are asked for.
        label: What the sign-in page calls the provider.

    Raises:
        InvalidArgumentError: The issuer is not https, or a role or a tenant cannot be used.
    """

    issuer: str
    client_id: str
    roles: Mapping[str, Iterable[str]]
    tenants: Mapping[str, str] = field(default_factory=dict[str, str])
    client_secret: str = field(default="", repr=False)
    name_claim: str = "email"
    groups_claim: str = "groups"
    scopes: str = "openid profile email"
    label: str = "your organisation"

    def __post_init__(self) -> None:
        """Check what was given."""
        at = urlsplit(self.issuer)
        is_here = at.scheme == "http" and at.hostname in ("localhost", "127.0.0.1")
        if not (is_here or (at.scheme == "https" and at.hostname)):
            msg = f"The issuer of an OpenID provider is an https URL; it was {shown(self.issuer)}."
            raise InvalidArgumentError(msg)
        if not all(
            isinstance(cast("object", each), Mapping) for each in (self.roles, self.tenants)
        ):
            msg = 'roles and tenants say what groups give, as {"ops": ["operator"]}, {"a": "acme"}.'
            raise InvalidArgumentError(msg)
        given = {**self.roles}
        if not given:
            msg = 'roles must say what groups may do, as {"ops": ["operator"]}; it is empty.'
            raise InvalidArgumentError(msg)
        known = {each: frozenset((r,) if isinstance(r, str) else r) for each, r in given.items()}
        check_roles(role for roles in known.values() for role in roles)
        for tenant in self.tenants.values():
            if tenant != EVERY:
                check_tenant(tenant)
        object.__setattr__(self, "roles", known)

    @property
    def named(self) -> str:
        """A name of the provider and of what it may give: another one ends all sessions."""
        roles = {group: sorted(each) for group, each in self.roles.items()}
        facts = [self.issuer, self.client_id, self.name_claim, roles, dict(self.tenants)]
        return f"{OIDC_SESSION}{digest(canonical(facts))}"

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a provider from a TOML file; its secret is in `HOLDFAST_OIDC_SECRET`.

        Raises:
            InvalidArgumentError: The file cannot be read, or has other fields.
        """
        try:
            found = tomllib.loads(file.read_text("utf-8"))
        except (OSError, ValueError) as error:
            msg = f"The OpenID provider in {str(file)!r} cannot be read: {error}."
            raise InvalidArgumentError(msg) from None
        known = {each.name for each in fields(cls)} - {"client_secret"}
        needed = {"issuer", "client_id", "roles"}
        if odd := sorted(({*found} - known) | (needed - {*found})):
            raise InvalidArgumentError(
                f"{str(file)!r} has wrong or missing fields: {', '.join(odd)}. Fields are:"
                f" {', '.join(sorted(known))}. The secret is in {SECRET_VARIABLE}."
            )
        return cls(**found, client_secret=os.environ.get(SECRET_VARIABLE, ""))

    def identity(self, claims: Mapping[str, Any]) -> Identity:
        """Return whom the provider names.

        Raises:
            NotAllowedError: They have no name, or no group that gives a role or one tenant.
        """
        name = claims.get(self.name_claim)
        if not isinstance(name, str) or not name:
            raise NotAllowedError(f"The provider gives no {self.name_claim!r}, which is your name.")
        if self.name_claim == "email" and claims.get("email_verified") not in (True, "true"):
            raise NotAllowedError(f"The provider has not verified the address {shown(name)}.")
        groups = {each for each in as_array(claims.get(self.groups_claim)) if isinstance(each, str)}
        roles = frozenset(role for each in groups & {*self.roles} for role in self.roles[each])
        tenants = {self.tenants[each] for each in groups & {*self.tenants}} or {""}
        try:
            known = Identity(name, roles, "oidc")
        except InvalidArgumentError as error:
            raise NotAllowedError(f"No group of {shown(name)} gives a role here: {error}") from None
        if not self.tenants or EVERY in tenants:
            return known
        [tenant, *more] = sorted(tenants)
        if not tenant or more:
            which = "several tenants" if more else "no tenant"
            raise NotAllowedError(f"The groups of {shown(name)} give {which} here; one is needed.")
        return replace(known, tenant=tenant)


class Provider:
    """A provider as the desk asks it.

    Attributes:
        given: How it was declared.
    """

    def __init__(self, given: OIDC) -> None:
        """Ask nothing yet."""
        self.given = given
        known: Any = OAuth()
        self.client: Any = known.register(
            "provider",
            server_metadata_url=f"{given.issuer.rstrip('/')}/.well-known/openid-configuration",
            client_id=given.client_id,
            client_secret=given.client_secret or None,
            client_kwargs={
                "scope": given.scopes,
                "code_challenge_method": "S256",
                "timeout": LOOK_UP_SECONDS,
            },
        )
        # All desks with the same secret can finish a sign-in that one has begun.
        key = f"holdfast {given.client_id} {given.client_secret}" if given.client_secret else ""
        self._signer = TimestampSigner(key or secrets.token_hex(32), salt="holdfast.oidc")

    def kept(self, request: Request) -> dict[str, Any]:
        """Return what a browser brings back; empty when that is too old, or not this desk's."""
        try:
            signed = request.cookies.get(STATE_COOKIE, "")
            found: dict[str, Any] = json.loads(self._signer.unsign(signed, max_age=STATE_SECONDS))
        except BadSignature:
            return {}
        return found

    def keep(self, answer: Response, request: Request, state: Mapping[str, Any]) -> None:
        """Have a browser keep something until it comes back."""
        answer.set_cookie(
            STATE_COOKIE,
            self._signer.sign(json.dumps(state)).decode(),
            max_age=STATE_SECONDS,
            path=f"{request.scope.get('root_path', '')}{BEGIN}",
            secure=is_https(request),
            httponly=True,
            samesite="lax",
        )

    async def claims(self, request: Request) -> Mapping[str, Any]:
        """Return what the provider says of who comes back from it: state, nonce and token fit."""
        await self.ensure_issuer()
        said = self.client.server_metadata
        algorithms = said.get("id_token_signing_alg_values_supported") or ["RS256"]
        said["id_token_signing_alg_values_supported"] = [
            each for each in algorithms if each != "none" and not str(each).startswith("HS")
        ]
        expected = {"iss": {"values": [said["issuer"]]}, "aud": {"values": [self.given.client_id]}}
        token = await self.client.authorize_access_token(request, claims_options=expected)
        claims: dict[str, Any] = dict(token.get("userinfo") or {})
        if not claims:
            raise NotAllowedError("The provider sent no ID token: the scope `openid` is missing.")
        wanted = {self.given.name_claim, self.given.groups_claim}
        wanted |= {"email_verified"} if self.given.name_claim == "email" else set[str]()
        if not wanted <= {*claims} and "userinfo_endpoint" in self.client.server_metadata:
            more = dict(await self.client.userinfo(token=token))
            if more.get("sub") == claims["sub"]:  # OpenID Connect Core 1.0, 5.3.2
                claims = {**more, **claims}
        return claims

    async def ensure_issuer(self) -> None:
        """Return if the provider's description is that of the issuer.

        Raises:
            NotAllowedError: It is another's.
        """
        said = str((await self.client.load_server_metadata()).get("issuer", ""))
        if said.rstrip("/") != self.given.issuer.rstrip("/"):
            msg = f"The description at {self.given.issuer!r} is that of the issuer {shown(said)}."
            raise NotAllowedError(msg)


@oidc.get(BEGIN)
async def begin(request: Request, next: str = "/") -> Response:  # noqa: A002  the name in the URL
    """Send the browser to the provider."""
    provider: Provider = request.app.state.provider
    scheme = "https" if is_https(request) else request.url.scheme
    root = request.scope.get("root_path", "")
    back = f"{scheme}://{request.headers.get('host', '')}{root}{BACK}"
    request.scope["session"] = state = dict[str, Any]()
    try:
        await provider.ensure_issuer()
        answer: Response = await provider.client.authorize_redirect(request, back)
    except _FAILURES as error:
        return _failed(request, error, next)
    provider.keep(answer, request, {**state, "next": local_path(next)})
    return answer


@oidc.get(BACK)
async def end(request: Request) -> Response:
    """Begin a session for who comes back from the provider."""
    provider: Provider = request.app.state.provider
    request.scope["session"] = state = provider.kept(request)
    # Who has begun nothing here costs nothing, and shall keep nobody else out.
    if state and (wait := _too_often(request)):
        return too_many(wait)
    wanted = str(state.get("next", "/"))
    try:
        visitor = provider.given.identity(await provider.claims(request))
    except _FAILURES as error:
        return _failed(request, error, wanted)
    guard: Guard = request.app.state.guard
    tokens = guard.tokens
    assert tokens is not None  # noqa: S101  a desk with a provider has a file for its sessions
    answer = signed_in(request, tokens.begin_session_of(visitor), wanted)
    answer.delete_cookie(STATE_COOKIE, path=f"{request.scope.get('root_path', '')}{BEGIN}")
    return answer


def _too_often(request: Request) -> float:
    rates: Rates = request.app.state.rates
    return rates.wait(request.client.host if request.client else "")


_FAILURES = (
    *(AuthlibBaseError, JoseError, NotAllowedError, httpx2.HTTPError),
    *(RuntimeError, ValueError, KeyError),  # of a description or an answer that is none
)


def _failed(request: Request, error: Exception, wanted: str) -> Response:
    """Return the page that says why a sign-in has failed, without what the provider sent."""
    match error:
        case NotAllowedError():
            status, said = 403, str(error)
        case httpx2.HTTPError() | RuntimeError() | ValueError() | KeyError():
            status, said = 503, "The provider does not answer as it should. Try again later."
        case AuthlibBaseError(error="mismatching_state"):
            status = 401
            said = "This sign-in was begun elsewhere, or more than 10 minutes ago. Begin it again."
        case AuthlibBaseError(error="access_denied"):
            status, said = 403, "The provider has refused to sign you in."
        case _:
            status, said = 401, "The provider's answer cannot be trusted. Begin the sign-in again."
    kind = getattr(error, "error", "") or type(error).__name__
    log.warning("A sign-in by OpenID failed: %s", shown(kind))
    return login_page(request, said, wanted, status)
