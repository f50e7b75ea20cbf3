"""Programs that tests run to their end."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def printed_by(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> str:
    """Run a program that must succeed; return what it printed."""
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
