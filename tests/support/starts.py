"""Servers of tests, which take half as long to start."""

import os
import sys
from pathlib import Path
from typing import Any

from holdfast.engine.dev_server import ephemeral, server
from holdfast.engine.dev_server.command import find_cli, server_command


def start_quickly(directory: Path) -> None:
    """Have servers that this process starts take their checksum of an empty file.

    A server first reads its whole program, of 156 MB, for a checksum. It opens the file that has
    the name of its program. So that name goes to another file while the program is open, and
    servers are started from what is open.

    Args:
        directory: Where the other file is for as long as this process lives.
    """
    if sys.platform != "linux":
        return
    program, name = str(find_cli()), directory / "temporal"
    try:
        name.hardlink_to(program)
    except OSError:  # on another device: a copy for each process would cost more than it saves
        return
    if not os.access(name, os.X_OK):  # on a device from which nothing is run
        return
    opened = f"/proc/{os.getpid()}/fd/{os.open(name, os.O_RDONLY)}"
    name.unlink()
    name.touch()

    def command(*given: Any, **options: Any) -> list[str]:
        found, *flags = server_command(*given, **options)
        return [opened if found == program else found, *flags]

    for module in (ephemeral, server):
        setattr(module, "server_command", command)  # noqa: B010  a module's own name
