"""Builds the site of the documentation into .build/site: `make docs`.

Stages the pages, makes those that come from the code, runs MkDocs strictly, and checks the result.
Nothing is requested from another host.
"""

from __future__ import annotations

import os
import subprocess
import sys

from website import check, generated, llms, prose
from website.errors import SiteError
from website.stage import ROOT, Stage


def build() -> None:
    """Build the site.

    Raises:
        SiteError: A page is harder to read than it may be, a link leads nowhere, a public name has
            no docstring, MkDocs warns, or a page would load something from another host.
    """
    prose.check()
    Stage().copy()
    generated.make()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    # Silences an advertisement of the theme, which strict builds would take for a warning.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--config-file", str(ROOT / "website" / "mkdocs.yml")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        msg = f"MkDocs refused the pages:\n{done.stdout}{done.stderr}"
        raise SiteError(msg)
    llms.write()
    check.check()


def main() -> None:
    """Build the site and say where it is."""
    try:
        build()
    except SiteError as error:
        sys.exit(f"error: {error}")
    print("The site is in .build/site: open .build/site/index.html, or `make docs-serve`.")


if __name__ == "__main__":
    main()
