"""Sockets at which programs listen."""

import socket

import pytest

from holdfast.engine.listening import listening_socket


def test_a_port_is_taken_from_the_start() -> None:
    with listening_socket("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            listening_socket("127.0.0.1", port)
        with socket.create_connection(("127.0.0.1", port)):
            pass
    listening_socket("127.0.0.1", port).close()
