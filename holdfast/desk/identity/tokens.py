"""Tokens of the desk: made once, kept only as digests, revoked by name.

A token is 32 random bytes, so a plain digest of it cannot be guessed; a slow hash would protect
passwords, which there are none of.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from holdfast.desk.identity.identities import Identity, Role, check_identity, check_roles
from holdfast.errors import InvalidArgumentError, NotFoundError
from holdfast.values.base import Strict, Value
from holdfast.values.code.private_files import write_private

PREFIX = "hfd_"
_BYTES = 32


class TokenRecord(Value):
    """A token, without its secret.

    Attributes:
        name: The identity that it stands for.
        roles: What that may do.
        digest: SHA-256 of the token, in hex.
        created: When it was made, seconds since the epoch.
        expires: When it ends; 0 for never.
    """

    name: str
    roles: tuple[Role, ...]
    digest: str
    created: float = 0.0
    expires: float = 0.0


class _Kept(Strict):
    tokens: tuple[TokenRecord, ...] = ()


class Tokens:
    """The tokens of a desk, in a file that only its owner can read.

    The file is read again when it has changed, so that a token is known, or no longer known, as
    soon as `holdfast desk token` has returned.
    """

    def __init__(self, file: Path) -> None:
        """Use this file, which need not exist."""
        self.file = file
        self._read: tuple[tuple[int, int, int], dict[str, TokenRecord]] | None = None

    def make(self, name: str, roles: Iterable[str], *, expires: float = 0.0) -> str:
        """Make a token and return it; it cannot be shown again.

        Args:
            name: The identity that it stands for.
            roles: "viewer", "operator" or "approver".
            expires: When it ends, seconds since the epoch; 0 for never.

        Raises:
            InvalidArgumentError: The name or a role cannot be used.
        """
        token = PREFIX + secrets.token_urlsafe(_BYTES)
        record = TokenRecord(
            name=check_identity(name),
            roles=tuple(sorted(check_roles(roles))),
            digest=_digest(token),
            created=time.time(),
            expires=expires,
        )
        self._write([*self.list(), record])
        return token

    def list(self) -> list[TokenRecord]:
        """List the tokens, oldest first.

        Raises:
            InvalidArgumentError: The file is damaged.
        """
        return sorted(self._known().values(), key=lambda record: record.created)

    def revoke(self, name: str) -> int:
        """Revoke all tokens of an identity; return how many these were.

        Raises:
            NotFoundError: It has none.
        """
        before = self.list()
        left = [record for record in before if record.name != name]
        if len(left) == len(before):
            known = ", ".join(sorted({record.name for record in before})) or "none"
            msg = f"There is no token of {name!r}. Tokens are of: {known}."
            raise NotFoundError(msg)
        self._write(left)
        return len(before) - len(left)

    def identity(self, token: str) -> Identity | None:
        """Return whose token it is; None for one that is unknown, revoked or expired."""
        digest = _digest(token)
        record = self._known().get(digest)
        if record is None or not hmac.compare_digest(record.digest, digest):
            return None
        if record.expires and record.expires <= time.time():
            return None
        return Identity(record.name, frozenset(record.roles), "token")

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
                msg = (
                    f"The tokens in {str(self.file)!r} cannot be read ({error.error_count()}"
                    " errors). Put the file back from a copy, or delete it and make new tokens."
                )
                raise InvalidArgumentError(msg) from None
            self._read = state, {record.digest: record for record in kept.tokens}
        return self._read[1]

    def _write(self, records: Iterable[TokenRecord]) -> None:
        kept = _Kept(tokens=tuple(records))
        write_private(self.file, json.dumps(kept.wire(), indent=1).encode())


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
