"""Runs commands of `holdfast` as processes that have imported it already: forks of this one.

Half of the time of a short command is the imports. Reads one JSON object a line: `arguments`,
`directory`, `environment`, and the files `in`, `out` and `err`; answers each with its exit code.
"""

import importlib
import json
import os
import pkgutil
import sys
import traceback
from typing import Any

import holdfast.cli


def import_all() -> None:
    """Import what any command does; nothing of it may start a thread, which no fork would have."""
    for module in pkgutil.iter_modules(holdfast.cli.__path__, "holdfast.cli."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for module in pkgutil.iter_modules(holdfast.__path__, "holdfast."):
        if not module.ispkg:
            importlib.import_module(module.name)


def become(command: dict[str, Any]) -> None:
    """Be the process of a command, as `python -m holdfast.cli` is. It does not return."""
    os.chdir(command["directory"])
    os.environ.clear()
    os.environ.update(command["environment"])
    for number, name in enumerate(("in", "out", "err")):
        os.dup2(os.open(command[name], os.O_RDWR | os.O_CREAT), number)
    sys.argv = ["holdfast", *command["arguments"]]
    sys.path.insert(0, command["directory"])
    holdfast.cli.main()


def main() -> None:
    """Serve until stdin ends."""
    import_all()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                become(json.loads(line))
            except Exception:  # noqa: BLE001  as Python ends a process by an error
                traceback.print_exc()
            finally:
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(f"{code}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
