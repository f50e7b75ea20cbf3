"""Tokens of the desk, and the sessions of browsers: kept only as digests, revoked by name.

A token is 32 random bytes, so a plain digest of it cannot be guessed; a slow hash would protect
passwords, and the desk has no passwords.
"""

from __future__ import annotations

import atexit
import getpass
import hashlib
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, Self, cast, get_args

from filelock import FileLock
from pydantic import ValidationError

from holdfast.archive.bytestore import make_directory, write_private
from holdfast.client.agent_runner.base import check_role
from holdfast.errors import HoldfastError, InvalidArgumentError, NotFoundError
from holdfast.values.base import Strict, Value
from holdfast.values.checks.gate import SecondsOrNone, check_arguments
from holdfast.values.checks.ids import check_name, check_tenant
from holdfast.values.runs import verbs
from holdfast.values.runs.verbs import VERBS
from holdfast.values.text.logs import log
from holdfast.values.text.shown import shown

Role = Literal["viewer", "operator", "approver", "custodian"]
"""What a person may do: read, run and steer, decide approvals, erase."""

ROLES = cast("tuple[Role, ...]", get_args(Role))

Verb = Literal[
    verbs.Verb,
    "read",
    "create",
    "run",
    "finalize",
    "undo",
    "rewind",
    "fork",
    "send_event",
    "approve_always",
    "edit",
    "reject_always",
    "erase",
]
"""What can be done with the desk."""

READ: Verb = "read"

BUSY_VERBS: Mapping[str, Verb] = {"interrupt": "abandon", "merge": "feedback"}
"""What a new task does with the one that has the floor in its session, by its `on_busy`."""

NEAR = 0.85
"""How like a role's name is that of a group which is taken for a typing error."""


def _of_role(role: Role, *more: Verb) -> frozenset[Verb]:
    return frozenset({*(verb for verb, each in VERBS.items() if each.role == role), READ, *more})


ALLOWED: Mapping[Role, frozenset[Verb]] = {
    "viewer": frozenset((READ,)),
    "operator": _of_role(
        "operator", "create", "run", "finalize", "undo", "rewind", "fork", "send_event"
    ),
    "approver": _of_role("approver", "approve_always", "edit", "reject_always"),
    "custodian": frozenset((READ, "erase")),
}
"""The verbs that each role allows. Every role may read."""


class NotAuthenticatedError(HoldfastError):
    """No one is known to have sent a request: it has no valid token and no trusted header."""


class NotAllowedError(HoldfastError):
    """The sender of a request is known, and may not do this."""


@dataclass(frozen=True)
class Identity:
    """A person or program that uses the desk.

    Attributes:
        name: The name that is recorded as `by`.
        roles: What it may do, and its groups: other names, as an ApprovalRule has them behind
            "role:".
        source: How it is known: "local", "token", "proxy" or "oidc".
        tenant: The only tenant whose tasks, sessions and schedules it sees; empty for an identity
            that sees all.
    """

    name: str
    roles: frozenset[str] = frozenset({"viewer"})
    source: Literal["local", "token", "proxy", "oidc"] = "token"
    tenant: str = ""

    def __post_init__(self) -> None:
        """Check what is given: applications make identities of their own.

        Raises:
            InvalidArgumentError: The name, a role or the tenant cannot be used.
        """
        check_identity(self.name)
        object.__setattr__(self, "roles", check_roles(self.roles))
        if self.tenant != "":  # so that None is refused, and does not see all
            check_tenant(self.tenant)

    def can(self, verb: Verb) -> bool:
        """Whether one of the roles allows a verb; who is of a tenant erases nothing.

        To find what is of a person, an erasure reads the records of all.
        """
        if verb == "erase" and self.tenant:
            return False
        return any(verb in each for role, each in ALLOWED.items() if role in self.roles)

    @property
    def key(self) -> str:
        """What tells it apart: two tenants may have one name each."""
        return f"{self.tenant}\0{self.name}" if self.tenant else self.name

    @property
    def groups(self) -> frozenset[str]:
        """The roles that rules of tools ask for."""
        return self.roles - {*ROLES}


class Subject(str):
    """What something is done with, by its id; empty for nothing in particular.

    Attributes:
        tenant: The tenant whose it is; empty for no one's.
    """

    __slots__ = ("tenant",)

    tenant: str

    def __new__(cls, id: str, tenant: str = "") -> Self:
        """Take the id of a task, an approval or a session."""
        made = super().__new__(cls, id)
        made.tenant = tenant
        return made


May = Callable[[Identity, str, Subject], bool | Awaitable[bool]]
"""Decides whether an identity may do something: called with the identity, the verb, and the id of
the task, approval or session (empty for none), which has its `tenant`. It is asked besides the
roles: both must agree."""


def check_identity(name: object) -> str:
    """Return the name of an identity.

    Raises:
        InvalidArgumentError: It is not text of printable characters, or too long to be recorded.
    """
    return check_name("The name of an identity", name)


def check_roles(given: Iterable[str]) -> frozenset[str]:
    """Return roles and names of groups, checked.

    Raises:
        InvalidArgumentError: There is no role, or one is misspelt.
    """
    roles = frozenset((given,) if isinstance(given, str) else given)
    groups = roles - {*ROLES}
    for each in sorted(groups):
        check_role(each)
        if near := get_close_matches(each.casefold(), ROLES, n=1, cutoff=NEAR):
            raise InvalidArgumentError(f"There is no role {each!r}. Did you mean {near[0]!r}?")
    if roles == groups:
        what = ", ".join(map(shown, sorted(groups))) or "no role"
        raise InvalidArgumentError(
            f"Roles are {', '.join(ROLES)}; {what} was given. Give one of them, and names of groups"
            " as well: those are for the people of an ApprovalRule."
        )
    return roles


PREFIX = "hfd_"
SESSION_PREFIX = "hfs_"
OIDC_SESSION = "oidc:"
"""With it begins `session_of` of a session that has no token; its provider follows."""

SESSION_SECONDS = 12 * 3600
MOST_SESSIONS = 50
"""Browsers that may be signed in with one token; the oldest is signed out."""

LOCAL_FILE = "desk-local-token"
"""File of the local user's token."""

_BYTES = 32


class TokenRecord(Value):
    """A token or a session, without its secret.

    Attributes:
        name: The identity that it stands for.
        roles: What that may do, and its groups.
        digest: SHA-256 of the secret, in hex.
        created: When it was made, seconds since the epoch.
        expires: When it ends; 0 for never.
        session_of: Digest of the token that has signed in, for a session; it ends with its token.
            Of one that an OpenID provider has begun, what names the provider.
        tenant: The tenant whose tasks it sees; empty for all.
    """

    name: str
    roles: tuple[str, ...]
    digest: str
    created: float = 0.0
    expires: float = 0.0
    session_of: str = ""
    tenant: str = ""


class _Kept(Strict):
    tokens: tuple[TokenRecord, ...] = ()


class Tokens:
    """The tokens of a desk, in a file that only its owner can read.

    The file is read again when it has changed, so that a token is known, or no longer known, as
    soon as `holdfast desk token` has returned.

    Attributes:
        provider: Names the OpenID provider whose sessions count, with what it was declared to
            allow; empty for none.
    """

    source: Literal["token", "local"] = "token"

    def __init__(self, file: Path) -> None:
        """Use this file, which need not exist."""
        self.file = file
        self.provider = ""
        self._read: tuple[tuple[int, int, int], dict[str, TokenRecord]] | None = None

    def now(self) -> Tokens:
        """Return the tokens that count now."""
        return self

    def make(
        self, name: str, roles: Iterable[str], *, expires: SecondsOrNone = 0.0, tenant: str = ""
    ) -> str:
        """Make a token and return it; it cannot be shown again.

        Args:
            name: The identity that it stands for.
            roles: Some of `ROLES`, and names of groups.
            expires: When it ends, seconds since the epoch; 0 for never.
            tenant: The only tenant whose tasks it sees; empty for all.

        Raises:
            InvalidArgumentError: The name, the time, the tenant or a role cannot be used.
        """
        check_arguments(Tokens.make, expires=expires)
        token = PREFIX + secrets.token_urlsafe(_BYTES)
        record = TokenRecord(
            name=check_identity(name),
            roles=tuple(sorted(check_roles(roles))),
            digest=_digest(token),
            created=time.time(),
            expires=expires or 0.0,
            tenant=check_tenant(tenant) if tenant else "",
        )
        self._change(lambda before: [*before, record])
        return token

    def list(self) -> list[TokenRecord]:
        """List the tokens, oldest first.

        Raises:
            InvalidArgumentError: The file is damaged.
        """
        tokens = (record for record in self._known().values() if not record.session_of)
        return sorted(tokens, key=lambda record: record.created)

    def revoke(self, name: str) -> int:
        """Revoke all tokens of an identity, with their sessions; return how many tokens these were.

        Raises:
            NotFoundError: It has none.
        """
        found = self.list()
        count = sum(record.name == name for record in found)
        if not any(record.name == name for record in self._known().values()):
            known = ", ".join(sorted({record.name for record in found})) or "none"
            raise NotFoundError(f"There is no token of {name!r}. Tokens are of: {known}.")
        self._change(lambda before: [record for record in before if record.name != name])
        return count

    def identity(self, token: str) -> Identity | None:
        """Return whose token it is; None for one that is unknown, revoked or expired."""
        record = _valid(token, self._known())
        return None if record is None or record.session_of else self._identity(record)

    def session_identity(self, session: str) -> Identity | None:
        """Return who has signed in with this session; None where it has ended, or its token has."""
        known = self._known()
        record = _valid(session, known)
        if record is None or not record.session_of:  # a token is no session
            return None
        if record.session_of not in (*known, self.provider):
            return None
        return self._identity(record)

    def begin_session(self, token: str) -> str:
        """Sign a browser in: return what its cookie holds, which is not a token.

        Raises:
            NotFoundError: The token is not known.
        """
        record = _valid(token, self._known())
        if record is None or record.session_of:
            raise NotFoundError("The token is not known, or it has ended.")
        return self._begin(record)

    def begin_session_of(self, visitor: Identity) -> str:
        """Sign a browser in whose person an OpenID provider has named; return as above."""
        roles = tuple(sorted(visitor.roles))
        record = TokenRecord(
            name=visitor.name, roles=roles, digest=self.provider, tenant=visitor.tenant
        )
        return self._begin(record)

    def _begin(self, record: TokenRecord) -> str:
        session = SESSION_PREFIX + secrets.token_urlsafe(_BYTES)
        now = time.time()
        ends = min(now + SESSION_SECONDS, record.expires or float("inf"))
        facts = {"digest": _digest(session), "created": now, "expires": ends}
        made = record.model_copy(update={**facts, "session_of": record.digest})

        def add(before: Sequence[TokenRecord]) -> Iterable[TokenRecord]:
            alike = (made.session_of, made.name)
            own = [each for each in before if (each.session_of, each.name) == alike]
            left = own[: max(0, len(own) + 1 - MOST_SESSIONS)]
            return [*(each for each in before if each not in left), made]

        self._change(add)
        return session

    def end_session(self, session: str) -> None:
        """Sign a browser out."""
        digest = _digest(session)
        self._change(
            lambda before: [r for r in before if not (r.session_of and r.digest == digest)]
        )

    def _identity(self, record: TokenRecord) -> Identity:
        source = "oidc" if record.session_of.startswith(OIDC_SESSION) else self.source
        return Identity(record.name, frozenset(record.roles), source, record.tenant)

    def _known(self) -> dict[str, TokenRecord]:
        try:
            stat = self.file.stat()
        except FileNotFoundError:
            return {}
        state = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if self._read is None or self._read[0] != state:
            try:
                kept = _Kept.model_validate_json(self.file.read_bytes())
            except ValidationError as error:
                raise InvalidArgumentError(
                    f"The tokens in {str(self.file)!r} cannot be read ({error.error_count()}"
                    " errors). Put the file back from a copy, or delete it and make new tokens."
                ) from None
            self._read = state, {record.digest: record for record in kept.tokens}
        return self._read[1]

    def _change(self, change: Callable[[Sequence[TokenRecord]], Iterable[TokenRecord]]) -> None:
        """Replace the records; two processes at once do not lose what either has changed."""
        with self._lock():
            now = time.time()
            before = [r for r in self._known().values() if not (r.session_of and r.expires <= now)]
            kept = _Kept(tokens=tuple(change(before)))
            write_private(self.file, json.dumps(kept.wire(), indent=1).encode())

    def _lock(self) -> FileLock:
        make_directory(self.file.parent)
        return FileLock(f"{self.file}.lock", mode=0o600, is_singleton=True)


class LocalTokens(Tokens):
    """The token of the person who is logged in at this machine, in a file that only they can read.

    It is made when it is first needed. Who deletes the file ends it with its sessions. The first
    token of others ends it as well, and it does not come back when theirs are revoked.
    """

    source = "local"

    def __init__(self, directory: Path | None, others: Tokens | None = None) -> None:
        """Keep it in this directory; in one that ends with the process, for None."""
        place = directory or _temporary()
        super().__init__(place / "desk-local.json")
        self.token_file = place / LOCAL_FILE
        self._others, self._is_over = others, False

    def now(self) -> Tokens:
        """Return it, or the others once there are any."""
        if self._others is None:
            return self
        self._is_over = self._is_over or bool(self._others.list())
        return self._others if self._is_over else self

    def own(self) -> str:
        """Return the token; make a new one if it is missing, or if others could read it."""
        kept = self._kept()
        if self.identity(kept) is not None:
            return kept
        with self._lock():
            kept = self._kept()  # another process may have made it meanwhile
            if self.identity(kept) is not None:
                return kept
            self._change(lambda _: ())
            made = self.make(getpass.getuser(), ROLES)
            write_private(self.token_file, f"{made}\n".encode())
        return made

    def _known(self) -> dict[str, TokenRecord]:
        known = super()._known()
        digest = _digest(self._kept())
        return {at: each for at, each in known.items() if digest in (at, each.session_of)}

    def _kept(self) -> str:
        try:
            facts = self.token_file.stat()
            text = self.token_file.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return ""
        if os.name == "posix" and (facts.st_mode & 0o077 or facts.st_uid != os.geteuid()):
            log.warning("others can read %s: the desk makes another token", self.token_file)
            return ""
        return text


def _temporary() -> Path:
    made = tempfile.mkdtemp(prefix="holdfast-desk-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _valid(secret: str, known: Mapping[str, TokenRecord]) -> TokenRecord | None:
    record = known.get(_digest(secret))
    is_over = record is not None and 0 < record.expires <= time.time()
    return None if is_over else record
