"""Programs as processes that have imported holdfast already: forks of one process.

Half of the time of a short program is its imports. This file is run in two ways. Without arguments
for a program it is the process that forks, for all test processes of a run. With them it is a
client: it gives that process its arguments, directory, environment and files, and ends as its fork
ends. Who kills the client kills the fork. A client imports little, so that it costs little.
"""

import json
import os
import signal
import socket
import sys
from contextlib import suppress


def command(*arguments: str) -> list[str]:
    """Return the command line of a process that is as `python ARGUMENTS`.

    Args:
        arguments: `-c` and code, `-m` and a module, or a file; then those of the program.
    """
    return [sys.executable, "-I", "-S", __file__, _address(), *arguments]


def bare_environment() -> dict[str, str]:
    """Return the environment without what names servers and keys."""
    hidden = ("TEMPORAL_", "HOLDFAST_", "OPENAI_")
    return {name: text for name, text in os.environ.items() if not name.startswith(hidden)}


def programs() -> str:
    """Return a directory with the programs `python` and `holdfast`, for a PATH."""
    from pathlib import Path

    directory = Path(_address()).with_name("bin")
    directory.mkdir(exist_ok=True)
    for name, more in (("python", ()), ("holdfast", ("-m", "holdfast.cli"))):
        new = directory / f"{name}.{os.getpid()}"
        new.write_text(f'#!/bin/sh\nexec {" ".join(command(*more))} "$@"\n', "utf-8")
        new.chmod(0o755)
        new.replace(directory / name)
    return str(directory)


LEASE = b"lease\n"
"""What a test process sends. The process that forks ends with the last of them, and all forks."""
_lease: list[socket.socket] = []


def _address() -> str:
    """Return the path of the socket of the process that forks; start it if there is none."""
    import atexit
    import subprocess
    import tempfile
    from pathlib import Path

    from filelock import FileLock

    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
    directory = Path(tempfile.gettempdir(), f"holdfast-forks-{run[:12]}")
    path = str(directory / "socket")
    if _lease:
        return path
    lease = socket.socket(socket.AF_UNIX)
    directory.mkdir(exist_ok=True)
    with FileLock(directory / "lock"):
        if lease.connect_ex(path) == 0:
            lease.send(LEASE)
        else:
            lease.close()
            lease, given = socket.socketpair()
            forks = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forked", path],
                cwd=__file__.removesuffix("tests/support/forked.py"),
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # no fork would have the others
                stdin=given.fileno(),
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            given.close()
            assert forks.stdout is not None
            forks.stdout.readline()
            forks.stdout.close()
            forks.returncode = 0  # nobody waits for it: it ends with the last test process
    _lease.append(lease)
    atexit.register(lease.close)
    return path


# ---- the client


def be_client(path: str, arguments: list[str]) -> int:
    """Have a program run, and return its exit code, or end by the signal that ended it."""
    with socket.socket(socket.AF_UNIX) as forks:
        forks.connect(path)
        directory = os.getcwd()  # noqa: PTH109  a client does not import pathlib
        asked = {"arguments": arguments, "directory": directory, "environment": {**os.environ}}
        socket.send_fds(forks, [json.dumps(asked).encode() + b"\n"], [0, 1, 2])
        answers = forks.makefile()
        pid = int(answers.readline())

        def forward(number: int, _: object) -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, forward)
        code = int(answers.readline())
    if code < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


# ---- the process that forks


def import_all(directory: str) -> None:
    """Import what programs do; nothing of it may start a thread, which no fork would have."""
    import functools
    import gc
    import importlib
    import pathlib
    import pkgutil
    import threading

    import holdfast

    own = [each.name for each in pkgutil.walk_packages(holdfast.__path__, "holdfast.")]
    for module in (*own, "llama_index.core", "opentelemetry.sdk.trace.export"):
        if not module.endswith("__main__"):
            importlib.import_module(module)
    importlib.import_module("tests.support.certificates").share_certificates()
    importlib.import_module("tests.support.starts").start_quickly(pathlib.Path(directory))
    typer = vars(importlib.import_module("typer.main"))
    typer["get_command"] = functools.cache(typer["get_command"])
    typer["get_command"](importlib.import_module("holdfast.cli.app").app)
    importlib.import_module("openai").AsyncOpenAI(api_key="any")  # reads the certificates
    assert threading.active_count() == 1
    gc.freeze()


class Forks:
    """The process that forks.

    Attributes:
        pids: The fork of each client; 0 for a test process, and for who has not asked yet.
        leases: The test processes.
    """

    def __init__(self, path: str) -> None:
        """Listen at a socket, and for the ends of forks."""
        self._path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(100)
        self._ended, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, self._wake_up)
        starter = socket.socket(fileno=os.dup(0))
        self.pids: dict[socket.socket, int] = {starter: 0}
        self.leases = {starter}

    def _wake_up(self, *_: object) -> None:
        """Let select return."""

    def serve(self) -> list[str]:
        """Fork for each client; return in the fork, with the arguments of its program."""
        import select

        os.write(1, b"ready\n")
        while True:
            for ready in select.select([self._listener, self._ended, *self.pids], [], [])[0]:
                if ready is self._listener:
                    self.pids[ready.accept()[0]] = 0
                elif ready is self._ended:
                    ready.recv(4096)
                    _tell_ends(self.pids)
                elif ready in self.pids:
                    arguments = self._answer(ready)
                    if arguments:
                        return arguments

    def _answer(self, client: socket.socket) -> list[str]:
        asked = _received(client)
        if asked is None:
            self._let_go(client)
        elif asked[0] == LEASE:
            self.leases.add(client)
        else:
            pid = os.fork()
            if pid == 0:
                for each in (self._listener, self._ended, self._wake, *self.pids):
                    each.close()
                return _become(*asked)
            for file in asked[1]:
                os.close(file)
            self.pids[client] = pid
            _tell(client, pid)
        return []

    def _let_go(self, client: socket.socket) -> None:
        """Kill the fork of a client that has gone; with the last test process end all."""
        import shutil
        from pathlib import Path

        gone = [self.pids.pop(client)]
        client.close()
        self.leases.discard(client)
        if not self.leases:
            gone += self.pids.values()
        for pid in filter(None, gone):
            os.kill(pid, signal.SIGKILL)
        if not self.leases:
            shutil.rmtree(Path(self._path).parent)
            os._exit(0)


def _received(client: socket.socket) -> tuple[bytes, list[int]] | None:
    """Receive what a client asks for, and its files; None if it has ended."""
    text, files = b"", list[int]()
    while not text.endswith(b"\n"):
        more, given, _, _ = socket.recv_fds(client, 65536, 3)
        files += given
        if not more:
            return None
        text += more
    return text, files


def _tell(client: socket.socket, number: int) -> None:
    with suppress(BrokenPipeError):
        client.sendall(f"{number}\n".encode())


def _tell_ends(pids: dict[socket.socket, int]) -> None:
    """Tell each client of a fork that has ended its exit code."""
    with suppress(ChildProcessError):
        while (done := os.waitpid(-1, os.WNOHANG))[0]:
            for client in [each for each, pid in pids.items() if pid == done[0]]:
                del pids[client]
                _tell(client, os.waitstatus_to_exitcode(done[1]))
                client.close()


def _become(text: bytes, files: list[int]) -> list[str]:
    """Be the process of a program in its directory, with its environment and files."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked = json.loads(text)
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    given = asked["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path = [*filter(None, given), *(each for each in sys.path[1:] if each not in own)]
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["directory"])
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    buffering = 1 if os.environ.get("PYTHONUNBUFFERED") else -1
    streams = {
        "stdin": open(0, closefd=False),  # noqa: SIM115
        "stdout": open(1, "w", buffering, closefd=False),  # noqa: SIM115
        "stderr": open(2, "w", 1, closefd=False, errors="backslashreplace"),  # noqa: SIM115
    }
    for name, stream in streams.items():
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    arguments: list[str] = asked["arguments"]
    return arguments


def run_and_end(arguments: list[str]) -> None:
    """Run a program, and end as Python does, but leave modules that were imported before the fork.

    To take them apart takes ten times as long as to fork, and shows nothing of the program.
    """
    import atexit
    import gc
    import threading

    code = 0
    try:
        run(arguments)
    except SystemExit as end:
        if isinstance(end.code, str):
            raise
        code = end.code or 0
    threading._shutdown()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    atexit._run_exitfuncs()
    del sys.modules["__main__"]
    gc.collect()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def run(arguments: list[str]) -> None:
    """Run a program as Python does: with code, a module or a file."""
    import runpy
    import types
    from pathlib import Path

    first, *rest = arguments
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if first == "-m":
        sys.argv = rest
        sys.path.insert(0, str(Path.cwd()))
        runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
        return
    if first == "-c":
        text, name = rest.pop(0), "<string>"
        sys.path.insert(0, "")
    else:
        text, name = Path(first).read_text("utf-8"), first
        main.__file__ = str(Path(first).absolute())
        sys.path.insert(0, str(Path(first).resolve().parent))
    sys.argv = [first, *rest]
    exec(compile(text, name, "exec"), main.__dict__)


if __name__ == "__main__":
    address, *its = sys.argv[1:]
    if its:
        sys.exit(be_client(address, its))
    import_all(os.path.dirname(address))  # noqa: PTH120  a client does not import pathlib
    run_and_end(Forks(address).serve())
