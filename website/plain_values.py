"""Leaves the constructor of all values out of the reference: their fields say what it takes."""

from __future__ import annotations

from typing import Any

import griffe

BASES = ("Value", "Written")


class PlainValues(griffe.Extension):
    """Takes the inherited `__init__(*given, **data)` from the bases of values."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:  # noqa: ARG002  griffe's
        """Change the package once all of it is loaded."""
        for name in BASES:
            pkg["values.base"].members[name].members.pop("__init__", None)
