"""Sockets at which programs of Holdfast listen."""

from __future__ import annotations

import socket

BACKLOG = 128
"""Connections that wait to be accepted, at most."""


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a TCP socket that listens: clients can connect, and wait to be served.

    It is not bound alone: two sockets could then have one port, and the second would fail later.

    Args:
        host: Address of this machine, of IPv4 or IPv6.
        port: Port; 0 for any.

    Raises:
        OSError: The address is not one of this machine, or the port is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made
