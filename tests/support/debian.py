"""Programs of the tests that Debian has as packages: a browser, a reverse proxy, Prometheus' tool.

`python -m tests.support.debian` gets those that are missing. Root installs chromium; everything
else is unpacked into `.build`, with the libraries that the machine lacks: a server that is
installed would start, too.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUILD = Path(__file__).parents[2] / ".build"


@dataclass(frozen=True)
class Package:
    """A package of Debian, with one program.

    Attributes:
        name: The name of the package.
        inside: Where the package has the program.
        is_server: Whether the package, once it is installed, starts a server.
    """

    name: str
    inside: str
    is_server: bool = False

    @property
    def elsewhere(self) -> str:
        """The environment variable with the path of another such program."""
        return f"HOLDFAST_{self.command.upper().replace('-', '_')}"

    @property
    def command(self) -> str:
        """The name of the program on the PATH."""
        return Path(self.inside).name

    @property
    def _home(self) -> Path:
        return BUILD / self.name

    @property
    def _unpacked(self) -> Path:
        return self._home / "root"

    @property
    def _done(self) -> Path:
        return self._home / ".installed"

    def find(self) -> str:
        """Return the path of the program; empty when there is none yet."""
        named = os.environ.get(self.elsewhere) or shutil.which(self.command)
        return named or (str(self._unpacked / self.inside) if self._done.exists() else "")

    def program(self) -> str:
        """Return the path of the program, which must be there."""
        found = self.find()
        assert found, f"there is no {self.command}: make tools"
        return found

    def environment(self) -> dict[str, Any]:
        """Return the environment in which the program finds its libraries and fonts."""
        given: dict[str, Any] = {**os.environ}
        if self.find() != str(self._unpacked / self.inside):
            return given
        found = {str(each.parent) for each in (self._unpacked / "usr" / "lib").rglob("*.so*")}
        found |= {str(each.parent) for each in (self._unpacked / "lib").rglob("*.so*")}
        paths = [*sorted(found), os.environ.get("LD_LIBRARY_PATH", "")]
        given["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
        if (self._unpacked / "etc" / "fonts").exists():  # otherwise the machine has fonts
            given["FONTCONFIG_SYSROOT"] = str(self._unpacked)
        return given

    def get(self) -> None:
        """Get the program, unless there is one."""
        if self.find():
            return
        if shutil.which("apt-get") is None:
            sys.exit(
                f"error: the tests need {self.command}, and there is no apt-get to get it."
                f" Install it, or name its program: {self.elsewhere}=/path/to/{self.command}"
            )
        sys.stderr.write(f"getting {self.name} for the tests\n")
        self.install() if os.geteuid() == 0 and not self.is_server else self.unpack()
        if not self.find():
            sys.exit(f"error: {self.name} was installed and is not found")

    def install(self) -> None:
        """Install the package for all users of the machine."""
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        _run("apt-get", "update", "--quiet", env=quiet)
        options = ("--yes", "--quiet", "--no-install-recommends")
        _run("apt-get", "install", *options, self.name, env=quiet)

    def unpack(self) -> None:
        """Unpack the package, with what the machine lacks for it, without being root."""
        shutil.rmtree(self._home, ignore_errors=True)
        lists, cache, packages = (self._home / name for name in ("lists", "cache", "packages"))
        for each in (lists / "partial", cache / "archives" / "partial", packages, self._unpacked):
            each.mkdir(parents=True)
        own = ["-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={cache}"]
        if os.geteuid() == 0:  # the machine's own lists are written, and mostly new
            own = ["-o", "APT::Sandbox::User=root"]
        _run("apt-get", *own, "update", "--quiet")
        wanted = ["install", "--simulate", "--no-install-recommends", self.name]
        said = _run("apt-get", *own, *wanted)
        names = [line.split()[1] for line in said.splitlines() if line.startswith("Inst ")]
        _run("apt-get", *own, "download", "--quiet", *names, cwd=packages)
        for package in sorted(packages.glob("*.deb")):
            _run("dpkg-deb", "--extract", str(package), str(self._unpacked))
        for each in (lists, cache, packages):
            shutil.rmtree(each)
        self._done.touch()


CHROMIUM = Package("chromium-headless-shell", "usr/lib/chromium/chromium-headless-shell")
"""Chromium without a window: it needs a third less CPU for the same pages."""
NGINX = Package("nginx", "usr/sbin/nginx", is_server=True)
PROMTOOL = Package("prometheus", "usr/bin/promtool", is_server=True)


def _run(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, check=False, text=True, capture_output=True)
    if done.returncode:
        msg = f"error: {' '.join(command[:4])} ... failed:\n{done.stdout}{done.stderr}"
        raise SystemExit(msg)
    return done.stdout


if __name__ == "__main__":
    for package in (CHROMIUM, NGINX, PROMTOOL):
        package.get()
