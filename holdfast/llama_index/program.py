"""One run of a program, and the names of what it makes: started again after a kill, it goes on.

LlamaIndex's programs name neither their agents nor their tasks. So names are made of the program,
of its run, and of what is asked: the same lines give the same names. A run that was killed, or was
ended by an error, is gone on with when the program is started again: what has its answer is read,
what was in the middle goes on, and nothing is paid for twice, but for model calls inside a step of
the program's own that was cut off. A run that came to its end is over, and the next start is a new
one.

A file in the data directory stands for each run that is not over.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import secrets
import sys
import threading
from collections import Counter
from pathlib import Path

from holdfast.client.runner.engines import engines
from holdfast.values.text.logs import log

PROGRAM = "HOLDFAST_PROGRAM"
"""Variable with the program's name, where its file's name will not do."""

RUN = "HOLDFAST_RUN"
"""Variable with a run's name; "new" begins one whatever happened before."""

LONGEST = 40
_ODD = re.compile(r"[^A-Za-z0-9_-]+")


class Program:
    """A run of this process's program.

    Attributes:
        name: The program.
        run: The run.
    """

    def __init__(self, directory: Path) -> None:
        """Begin a run, or go on with one that was not ended.

        Args:
            directory: The data directory.
        """
        self._mark: Path | None = None
        self._lock = threading.Lock()
        self._kinds: Counter[str] = Counter()
        self._asked: Counter[tuple[str, str]] = Counter()
        self.run = secrets.token_hex(3)
        named = program_name()
        self.name = named or f"session-{self.run}"
        given = os.environ.get(RUN, "")
        if given and given != "new":
            self.run = _ODD.sub("-", given)[:LONGEST]
        elif named:
            self._begin(directory / "programs", resumes=given != "new")

    def _begin(self, directory: Path, *, resumes: bool) -> None:
        """Find a run whose process is gone, and put a mark for this one."""
        from holdfast.engine.dev_server.process import is_alive, start_time

        directory.mkdir(parents=True, exist_ok=True)
        pid = os.getpid()
        tail = f"{pid}-{int(start_time(pid) or 0)}"
        for found in sorted(directory.glob(f"{self.name}.*.*")) if resumes else ():
            run, _, owner = found.name.removeprefix(f"{self.name}.").partition(".")
            was, _, started = owner.partition("-")
            if not (was.isdigit() and started.isdigit()) or is_alive(int(was), float(started)):
                continue
            mark = found.with_name(f"{self.name}.{run}.{tail}")
            try:
                found.rename(mark)
            except FileNotFoundError:  # another process goes on with it
                continue
            self.run = run
            log.warning(
                "Going on with run %s of %s, which did not come to its end. Set %s=new to begin"
                " again.",
                run,
                self.name,
                RUN,
            )
            break
        else:
            mark = directory / f"{self.name}.{self.run}.{tail}"
            mark.touch()
        self._mark = mark
        atexit.register(self.end)

    def end(self) -> None:
        """Note that the run came to its end, unless an error ended the process."""
        if self._mark is None or (_has_failed() and not _is_interactive()):
            return
        mark, self._mark = self._mark, None
        mark.unlink(missing_ok=True)

    def agent(self, kind: str) -> str:
        """Name the next agent of a kind, such as "react"."""
        with self._lock:
            self._kinds[kind] += 1
            count = self._kinds[kind]
        return f"{self.name}.{kind}" if count == 1 else f"{self.name}.{kind}-{count}"

    def task(self, agent: str, asked: str) -> str:
        """Name the next task of an agent: the n-th one that asks this.

        Args:
            agent: Name of the agent.
            asked: What decides the answer: the input, the agent's instructions and so on.
        """
        digest = hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        with self._lock:
            self._asked[agent, digest] += 1
            count = self._asked[agent, digest]
        return f"{agent}.{self.run}.{digest}" + (f"-{count}" if count > 1 else "")

    def session(self, agent: str) -> str:
        """Name an agent's conversation in this run."""
        return f"{agent}.{self.run}"


def program_name() -> str:
    """Name this program, so that two of them in one directory differ; empty if it has no file."""
    given = os.environ.get(PROGRAM) or os.environ.get("JPY_SESSION_NAME") or ""
    if not given:
        given = str(getattr(sys.modules.get("__main__"), "__file__", None) or "")
    if not given:
        return ""
    path = Path(given)
    digest = hashlib.sha256(str(path.absolute()).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{_ODD.sub('-', path.stem)[:LONGEST]}-{digest}"


def _has_failed() -> bool:
    """Whether an error that nothing caught ends this process."""
    return any(getattr(sys, name, None) is not None for name in ("last_exc", "last_value"))


def _is_interactive() -> bool:
    """Whether a person types the lines, who goes on after an error."""
    return hasattr(sys, "ps1") or "ipykernel" in sys.modules


class Current:
    """The run of this process, begun when it is first asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: Program | None = None

    def get(self) -> Program:
        """Return the run."""
        with self._lock:
            if self._made is None:
                self._made = Program(engines.directory)
            return self._made


_current = Current()


def current_program() -> Program:
    """Return the run of this process."""
    return _current.get()
