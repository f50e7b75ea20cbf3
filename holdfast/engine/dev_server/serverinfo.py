"""Address of an embedded server. A module of its own, as it must not need the extra `local`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class ServerInfo:
    """Address and process of a running embedded server.

    Attributes:
        address: host:port of the gRPC frontend, for `Client.connect`.
        pid: Process id of the server.
        ui_url: Temporal's web UI; empty where it was not asked for.
        data_dir: Its directory, or None for a server in memory.
    """

    address: str
    pid: int
    ui_url: str = ""
    data_dir: Path | None = None
