"""Make `.venv`, or add to it: `make` calls this with the name of a stage, `demo` or `dev`.

A stage is what its lock file pins, and Holdfast itself, editable. uv installs it in a sixth of the
time that pip takes. uv comes by pip, from a lock of its own; where there is none for the platform,
or where it fails, pip installs the stage.

Nothing is installed yet when this begins, so it needs the standard library alone. It starts in the
Python that the user named, and goes on in that of `.venv`.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import io
import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
UNFINISHED = VENV / ".unfinished"
"""There while packages are installed: what an interrupted installation leaves is not whole."""

INSIDE = "inside"
"""Argument of the process of `.venv`."""

STAGES = {"demo": ("demo",), "dev": ("demo", "dev")}
"""What is installed after each stage: the lock of `dev` holds all of that of `demo`."""

VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "proxy": "ALL_PROXY",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
}
"""pip's settings of where packages are and how they are reached, and uv's variables for them."""


class FailedError(Exception):
    """An installer failed; the text is what it said."""


def main(stage: str) -> None:
    """Install a stage, in a process of `.venv`."""
    if Path(sys.prefix).resolve() != VENV.resolve():
        if INSIDE in sys.argv:
            sys.exit("error: .venv is damaged. Remove it: rm -r .venv")
        make_environment()
        python = str(VENV / "bin" / "python")
        os.execv(python, [python, __file__, stage, INSIDE])
    UNFINISHED.touch()
    failure = None
    try:
        install(stage)
    except FailedError as failed:
        failure = f"\nerror: the stage '{stage}' of .venv cannot be installed.\n{failed}"
    UNFINISHED.unlink()  # after an interrupt, it stays
    sys.exit(failure)


def make_environment() -> None:
    """Make `.venv`, where it is missing or was left half-installed.

    It gets no pip, whose installation takes longer than all the rest: pip runs out of its wheel.
    """
    if UNFINISHED.exists():
        print("An installation was interrupted, so .venv is made again.", flush=True)
        shutil.rmtree(VENV)
    if (VENV / "bin" / "python").exists():
        return
    try:
        import venv

        pip_wheel()
        venv.create(VENV, symlinks=True)
    except (ImportError, OSError, subprocess.CalledProcessError) as error:
        shutil.rmtree(VENV, ignore_errors=True)
        sys.exit(
            f"error: {sys.executable} cannot make a virtual environment: {error}"
            " (on Debian: apt install python3-venv)"
        )


def pip_wheel() -> Path:
    """Return the wheel of pip that comes with Python.

    Raises:
        ImportError: There is none.
    """
    import ensurepip

    shared = sysconfig.get_config_var("WHEEL_PKG_DIR")  # where Fedora and Debian have them
    for place in (shared, Path(ensurepip.__file__).parent / "_bundled"):
        for wheel in Path(place).glob("pip-*.whl") if place else ():
            return wheel
    raise ImportError("it has no wheel of pip")


def install(stage: str) -> None:
    """Install a stage, with a line for each of its steps.

    Raises:
        FailedError: It cannot be installed.
    """
    wanted = {each: digest(each) for each in STAGES[stage]}
    if not is_installed(stage):
        lock = lock_of(stage)
        with tempfile.TemporaryDirectory() as tools:
            with step(1, "uv, which installs the rest"):
                settings = uv_settings(pip("config", "list"))
                uv = uv_of(VENV) or fetched_uv(Path(tools))
            for each in STAGES:
                stamp(each).unlink(missing_ok=True)
            with step(2, f"the packages of {lock.name}"):
                run_installer(uv, settings, ["--require-hashes", "--requirement", str(lock)])
            with step(3, "Holdfast itself"):
                itself = ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
                run_installer(uv, settings, itself)
    for each, text in wanted.items():
        stamp(each).write_text(text, encoding="utf-8")


def lock_of(stage: str) -> Path:
    """Return the lock file of a stage."""
    return ROOT / f"requirements-{stage}.lock"


def stamp(stage: str) -> Path:
    """Return the file that says of what a stage was installed, and to `make`, when."""
    return VENV / f".{stage}"


def digest(stage: str) -> str:
    """Return the digest of what a stage is installed from: its lock, and how Holdfast is built."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    built = project["build-system"], project["project"], project["tool"]["setuptools"]
    return hashlib.sha256(lock_of(stage).read_bytes() + repr(built).encode()).hexdigest()


def is_installed(stage: str) -> bool:
    """Say whether a stage is installed as it is wanted now."""
    known = stamp(stage)
    return known.exists() and known.read_text("utf-8") == digest(stage)


@contextlib.contextmanager
def step(number: int, what: str) -> Generator[None]:
    """Print what is done, and afterwards how long it took."""
    print(f"[{number}/3] {what} ...", end="", flush=True)
    begun = time.monotonic()
    yield
    print(f" {time.monotonic() - begun:.0f} s", flush=True)


def run_installer(uv: Path | None, settings: Mapping[str, str], arguments: Sequence[str]) -> None:
    """Install by uv, else by pip.

    Args:
        uv: The program, if there is one.
        settings: Variables for it; those of the user come first.
        arguments: Those of `pip install`, which both have.

    Raises:
        FailedError: pip failed, too.
    """
    if uv is not None:
        command = [str(uv), "pip", "install", "--quiet", "--python", sys.executable, *arguments]
        # Not hard links into uv's cache: NLTK, which LlamaIndex uses, refuses files that have any.
        variables = {"UV_LINK_MODE": "copy", **settings, **os.environ}
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        print(f" uv failed:\n{done.stderr.strip()}")
    print(" by pip, which takes minutes ...", end="", flush=True)
    pip("install", "--quiet", *arguments)


def uv_of(directory: Path) -> Path | None:
    """Return the program uv of an environment or another place of programs, if it is there."""
    program = directory / "bin" / "uv"
    return program if program.exists() else None


def fetched_uv(directory: Path) -> Path | None:
    """Get uv into a directory; None where that fails, which is said."""
    lock = ["--requirement", str(lock_of("uv"))]
    options = ["--require-hashes", "--only-binary", ":all:", "--no-compile"]
    try:
        pip("install", "--quiet", "--target", str(directory), *options, *lock)
    except FailedError as failed:
        print(f" it cannot be had here:\n{failed}")
    return uv_of(directory)


def uv_settings(listed: str) -> dict[str, str]:
    """Translate what `pip config list` lists into uv's variables.

    All indexes are asked for each package, as pip does it; hashes say what is the right one.
    """
    found = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for section in ("global.", "install.", ":env:."):  # the last one counts
        for line in listed.splitlines():
            name, _, value = line.partition("=")
            variable = VARIABLES.get(name.removeprefix(section))
            if variable is not None:
                found[variable] = " ".join(str(ast.literal_eval(value)).split())
    if "UV_FIND_LINKS" in found:
        found["UV_FIND_LINKS"] = found["UV_FIND_LINKS"].replace(" ", ",")
    return found


def pip(*arguments: str) -> str:
    """Run pip in this process, out of its wheel unless it is installed; return what it printed.

    Raises:
        FailedError: It failed.
    """
    if importlib.util.find_spec("pip") is None:
        sys.path.insert(0, str(pip_wheel()))
    sys.argv = ["pip", "--disable-pip-version-check", *arguments]
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            runpy.run_module("pip", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            code = end.code
        else:
            code = None
    if code:
        raise FailedError(errors.getvalue().strip())
    return out.getvalue()


if __name__ == "__main__":
    main(sys.argv[1])
