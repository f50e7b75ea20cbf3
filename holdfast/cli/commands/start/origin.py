"""Where this installation of Holdfast came from, so that a new project asks for the same one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from holdfast.values.code.extras import DISTRIBUTION


@dataclass(frozen=True)
class Origin:
    """Where an installation came from.

    Attributes:
        url: A direct URL as in a requirement, without credentials; empty for a package index.
        version: Installed version; empty where there are no metadata, as in a bare checkout.
        directory: The directory of this machine that it was installed from, if any.
        archive: The same for a wheel or an sdist.
    """

    url: str = ""
    version: str = ""
    directory: Path | None = None
    archive: Path | None = None

    def requirement(self, *extras: str) -> str:
        """Return the requirement of the same Holdfast with some extras."""
        name = f"{DISTRIBUTION}[{','.join(extras)}]"
        if self.url:
            return f"{name} @ {self.url}"
        return f"{name}=={self.version}" if self.version else name


def origin() -> Origin:
    """Read where Holdfast was installed from: `direct_url.json` of PEP 610.

    In a checkout, what a build left there is found as well, which has no such file.
    """
    installed = [*metadata.distributions(name=DISTRIBUTION)]
    version = installed[0].version if installed else ""
    direct = next(filter(None, (each.read_text("direct_url.json") for each in installed)), None)
    if direct is None:
        return Origin(version=version)
    told: dict[str, Any] = json.loads(direct)
    url = _public(told["url"])
    local = urlsplit(url)
    path = Path(unquote(local.path)) if local.scheme == "file" else None
    return Origin(
        url=_pinned(url, told),
        version=version,
        directory=path if "dir_info" in told else None,
        archive=path if "archive_info" in told else None,
    )


def _pinned(url: str, told: dict[str, Any]) -> str:
    """Return the URL of a requirement: with the commit or the digest, and the folder, if any."""
    if vcs := told.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    hashes: dict[str, str] = told.get("archive_info", {}).get("hashes", {})
    parts = [f"{name}={digest}" for name, digest in hashes.items()][:1]
    if folder := told.get("subdirectory"):
        parts.append(f"subdirectory={folder}")
    return f"{url}#{'&'.join(parts)}" if parts else url


def _public(url: str) -> str:
    """Return a URL without its credentials; the user of ssh is not a credential."""
    parts = urlsplit(url)
    known, _, host = parts.netloc.rpartition("@")
    user = known.partition(":")[0] if parts.scheme == "ssh" else ""
    return urlunsplit((parts.scheme, f"{user}@{host}" if user else host, parts.path, "", ""))
