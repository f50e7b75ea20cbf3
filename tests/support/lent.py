"""In-memory servers of runners in test processes: namespaces of one server, each lent once.

To start a server takes a second of processor time. What a runner sees of a namespace of its own is
what it sees of a server of its own; tests of servers themselves start theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import pytest

from holdfast.engine import connect
from holdfast.engine.dev_server import command, ephemeral
from holdfast.engine.dev_server.ephemeral import EphemeralServer, ephemeral_server
from holdfast.engine.dev_server.serverinfo import ServerInfo
from holdfast.engine.target import Target, embedded_target

__all__ = ["LENDER", "ephemeral_server", "lend_servers"]

NAMESPACES = 16
"""Of one server; the next one follows once all are used."""

USUAL = command.DYNAMIC_CONFIG


@dataclass(frozen=True, kw_only=True)
class LentInfo(ServerInfo):
    """Address of a namespace on a shared server."""

    namespace: str


class Lent:
    """A namespace, in place of an `EphemeralServer`."""

    def __init__(self, info: LentInfo) -> None:
        self.info = info

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave it: nobody gets it again."""


class Lender:
    """Lends namespaces to the runners of this process."""

    def __init__(self) -> None:
        self._free: list[LentInfo] = []
        self._servers: list[EphemeralServer] = []

    async def lend(self) -> EphemeralServer | Lent:
        """Return a namespace that nobody has used; a server where a test has its settings."""
        if command.DYNAMIC_CONFIG is not USUAL:
            return await ephemeral_server()
        if not self._free:
            names = [f"lent{n}" for n in range(NAMESPACES)]
            flags = [part for name in names for part in ("--namespace", name)]
            usual = ephemeral.server_command  # type: ignore[attr-defined]

            def with_names(*given: Any, **options: Any) -> list[str]:
                return [*usual(*given, **options), *flags]

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(ephemeral, "server_command", with_names)
                server = await ephemeral_server()
            self._servers.append(server)
            at = server.info
            self._free = [
                LentInfo(address=at.address, pid=at.pid, namespace=name) for name in names
            ]
        return Lent(self._free.pop())

    async def stop(self) -> None:
        """Stop the servers."""
        while self._servers:
            await self._servers.pop().stop()


LENDER = Lender()


def lend_servers() -> None:
    """Have all runners of this process that want a server in memory get a namespace."""
    for module, name, made in (
        (ephemeral, "ephemeral_server", LENDER.lend),
        (connect, "embedded_target", _target),
    ):
        setattr(module, name, made)


def _target(server: ServerInfo) -> Target:
    found = embedded_target(server)
    return replace(found, namespace=server.namespace) if isinstance(server, LentInfo) else found
