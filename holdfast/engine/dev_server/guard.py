"""Run a command for as long as the owner holds the other end of standard input.

    python guard.py COMMAND ...

The owner of an in-memory server holds the write end of this process's standard input. However the
owner ends, even by SIGKILL, the kernel closes that end, and this process kills the command. The
alternative, a parent-death signal, is bound to the *thread* that started the process.

Standard library only: it runs isolated, without the user's site packages, in a few milliseconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

GRACE_SECONDS = 5.0


def main(command: list[str]) -> int:
    """Run the command until it ends or standard input is closed; return its exit code."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as child:
        threading.Thread(target=_end_with_stdin, args=(child,), daemon=True).start()
        return child.wait()


def _end_with_stdin(child: subprocess.Popen[bytes]) -> None:
    """Wait for the end of standard input, then kill the child."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    # Nothing to save: the server is in memory, and a graceful stop takes more than a second.
    child.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
