"""Programs that tests run to their end."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

Environment = Mapping[str, str] | None


def ran(
    command: Sequence[str],
    directory: Path | None = None,
    environment: Environment = None,
    *,
    input: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, however that is."""
    return subprocess.run(
        command,
        cwd=directory,
        env=environment,
        input=input,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def printed_by(
    command: Sequence[str],
    directory: Path | None = None,
    environment: Environment = None,
    **more: str,
) -> str:
    """Run a program that must succeed; return what it printed."""
    done = ran(command, directory, environment, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
