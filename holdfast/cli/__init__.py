"""The command line. Heavy imports happen inside the commands, so that `--help` is quick."""

from __future__ import annotations


def main() -> None:
    """Run the command that the process's arguments name."""
    from holdfast.cli.app import app

    app()
