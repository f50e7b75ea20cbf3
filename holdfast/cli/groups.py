"""The help of all commands in groups, and usage errors as one line or as JSON."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

from typer.core import TyperGroup

from holdfast.cli import output
from holdfast.cli.exits import ExitCode
from holdfast.values.runs.verbs import VERBS

GROUPS = {
    "Begin": ("init", "doctor", "keys"),
    "Run tasks": ("demo", "run", "attach", "step", "finalize", "schedule", "event"),
    "See what there is": (
        *("tasks", "show", "sessions", "approvals"),
        *("audit", "report", "export", "record", "eval", "artifacts"),
    ),
    "Decide and steer": (
        "inbox",
        "approve",
        "reject",
        "rules",
        "revoke",
        *(verb.replace("_", "-") for verb, each in VERBS.items() if each.form is not None),
    ),
    "Go back, and elsewhere": ("undo", "rewind", "fork"),
    "Keep and erase": ("erase", "hold", "retention"),
    "Servers and workers": (
        *("dev", "desk", "mcp", "worker", "deploys", "metrics"),
        *("codec", "archive", "gc", "backup", "restore", "stop"),
    ),
}
"""Every command, in the order of the help."""


class Commands(TyperGroup):
    """The program: its commands in groups, and `--json` for usage errors as well."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands under the heading of their group."""
        del ctx
        widest = max(map(len, self.commands))
        for heading, names in GROUPS.items():
            with formatter.section(heading):
                rows = [
                    (name.ljust(widest), self.commands[name].get_short_help_str(limit=90))
                    for name in names
                ]
                formatter.write_dl(rows)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command that is named; a usage error is JSON where JSON is asked for."""
        given = sys.argv[1:] if args is None else args
        run = functools.partial(super().main, args, prog_name, complete_var)
        if not standalone_mode or "--json" not in given:
            return run(standalone_mode, windows_expand_args, **extra)
        try:
            code = run(False, windows_expand_args, **extra)
        except Exception as error:
            found: Any = error  # of click, or of typer's own copy of it
            if not hasattr(found, "format_message"):
                raise
            found.show()
            facts = {"type": type(error).__name__, "message": found.format_message()}
            output.emit({"error": facts, "exit_code": ExitCode.USAGE})
            sys.exit(ExitCode.USAGE)
        sys.exit(code if isinstance(code, int) else ExitCode.OK)
