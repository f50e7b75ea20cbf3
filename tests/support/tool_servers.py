"""MCP servers of tests: how they are started, and what they have recorded."""

from collections import Counter
from pathlib import Path
from typing import Any

from holdfast.mcp import MCPServerStdio
from tests.support import forked

PROGRAM = Path(__file__).with_name("mcp_server.py")


class Place:
    """The directory of a server: what it recorded, and files that change it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def params(self) -> Any:
        """Return how the server is started."""
        command, *arguments = forked.command(str(PROGRAM), str(self.path))
        return {"command": command, "args": arguments}

    def stdio(self, **options: Any) -> MCPServerStdio:
        """Describe the server as a process of its own."""
        options.setdefault("name", "test")
        options.setdefault("client_session_timeout_seconds", 60)
        return MCPServerStdio(self.params, **options)

    @property
    def calls(self) -> Counter[str]:
        """Count the calls that have begun."""
        return Counter(self._lines("calls"))

    @property
    def pids(self) -> list[int]:
        """List the processes that were started, oldest first."""
        return [int(pid) for pid in self._lines("pids")]

    def set(self, name: str, text: str = "") -> None:
        """Write a file that changes the server."""
        (self.path / name).write_text(text)

    def unset(self, name: str) -> None:
        """Remove such a file."""
        (self.path / name).unlink()

    def _lines(self, name: str) -> list[str]:
        path = self.path / name
        return path.read_text().split() if path.exists() else []
