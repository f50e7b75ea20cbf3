"""The browser of the tests: Debian's chromium, from its own packages.

`python -m tests.support.chromium` gets it where there is none: root installs the package, others
unpack it, with the libraries that the machine lacks, into `.build/chromium`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HOME = Path(__file__).parents[2] / ".build" / "chromium"
UNPACKED = HOME / "root"
PROGRAM = UNPACKED / "usr" / "lib" / "chromium" / "chromium"
DONE = HOME / ".installed"
ELSEWHERE = "HOLDFAST_CHROMIUM"
"""Environment variable with the path of another chromium."""


def find() -> str | None:
    """Return the path of the browser; None when there is none yet."""
    named = os.environ.get(ELSEWHERE) or shutil.which("chromium")
    if named:
        return named
    return str(PROGRAM) if DONE.exists() else None


def environment() -> dict[str, str | float | bool]:
    """Return the environment in which the browser finds its libraries and fonts."""
    given: dict[str, str | float | bool] = {**os.environ}
    if find() != str(PROGRAM):
        return given
    found = {str(each.parent) for each in (UNPACKED / "usr" / "lib").rglob("*.so*")}
    found |= {str(each.parent) for each in (UNPACKED / "lib").rglob("*.so*")}
    paths = [*sorted(found), os.environ.get("LD_LIBRARY_PATH", "")]
    given["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
    if (UNPACKED / "etc" / "fonts").exists():  # otherwise the machine has fonts of its own
        given["FONTCONFIG_SYSROOT"] = str(UNPACKED)
    return given


def install() -> None:
    """Install the browser for all users of the machine."""
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    _run("apt-get", "update", "--quiet", env=quiet)
    options = ("--yes", "--quiet", "--no-install-recommends")
    _run("apt-get", "install", *options, "chromium", env=quiet)


def unpack(*options: str) -> None:
    """Unpack the browser, with what the machine lacks for it, without being root.

    Args:
        options: More options of apt.
    """
    shutil.rmtree(HOME, ignore_errors=True)
    lists, cache, packages = HOME / "lists", HOME / "cache", HOME / "packages"
    for each in (lists / "partial", cache / "archives" / "partial", packages, UNPACKED):
        each.mkdir(parents=True)
    own = ["-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={cache}", *options]
    _run("apt-get", *own, "update", "--quiet")
    wanted = ["install", "--simulate", "--no-install-recommends", "chromium"]
    said = _run("apt-get", *own, *wanted)
    names = [line.split()[1] for line in said.splitlines() if line.startswith("Inst ")]
    _run("apt-get", *own, "download", "--quiet", *names, cwd=packages)
    for package in sorted(packages.glob("*.deb")):
        _run("dpkg-deb", "--extract", str(package), str(UNPACKED))
    for each in (lists, cache, packages):
        shutil.rmtree(each)
    DONE.touch()


def _run(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, check=False, text=True, capture_output=True)
    if done.returncode:
        msg = f"error: {' '.join(command[:4])} ... failed:\n{done.stdout}{done.stderr}"
        raise SystemExit(msg)
    return done.stdout


def main() -> None:
    """Get the browser, unless there is one."""
    if find() is not None:
        return
    if shutil.which("apt-get") is None:
        sys.exit(
            "error: the tests of the desk need chromium, and there is no apt-get to get it."
            f" Install it, or name its program: {ELSEWHERE}=/path/to/chromium"
        )
    sys.stderr.write("getting chromium for the tests of the desk\n")
    install() if os.geteuid() == 0 else unpack()
    if find() is None:
        sys.exit("error: chromium was installed and is not found")


if __name__ == "__main__":
    main()
