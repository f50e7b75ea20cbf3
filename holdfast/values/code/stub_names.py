"""The public names of a package that loads each at its first use: its stub is the table of them."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

_IMPORT = re.compile(r"^from ([\w.]+) import (?:\(([^)]*)\)|(.+))$", re.MULTILINE)
_NAME = re.compile(r"(\w+) as (\w+)")


def stub_names(package_file: str) -> dict[str, tuple[str, str]]:
    """Return where each name is that the stub of a package exports: its module, its name there.

    A stub exports what it imports as itself: `from package.module import name as name`.

    Args:
        package_file: The package's `__init__.py`, whose stub is next to it.
    """
    found = _IMPORT.findall(Path(package_file).with_suffix(".pyi").read_text("utf-8"))
    return {
        here: (module, there)
        for module, many, one in found
        for there, here in _NAME.findall(many or one)
    }


def late_names(
    package: str, package_file: str, instead: Callable[[str], str] = lambda _: ""
) -> tuple[list[str], Callable[[], list[str]], Callable[[str], object]]:
    """Return `__all__`, `__dir__` and `__getattr__` of a package with a stub.

    Args:
        package: Its `__name__`.
        package_file: Its `__file__`.
        instead: Returns what to use instead of a name that the package does not have, as a
            sentence; empty to suggest a name that is spelled like it.
    """
    places = stub_names(package_file)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places})

    def get(name: str) -> object:
        if name not in places:
            raise missing_name(package, name, instead(name), places)
        found = load(places[name])
        setattr(sys.modules[package], name, found)
        return found

    return list(places), names, get


def load(place: tuple[str, str]) -> object:
    """Import what is in a place, a module or something in it, and return it."""
    module, name = importlib.import_module(place[0]), place[1]
    is_in_it = hasattr(module, name)
    return getattr(module, name) if is_in_it else importlib.import_module(f"{place[0]}.{name}")


def missing_name(
    package: str, name: str, instead: str, names: Iterable[str] = ()
) -> AttributeError | ImportError:
    """Return the error of a package's `__getattr__` that has no such name.

    It is an ImportError where an import statement asked: of an AttributeError, `from holdfast
    import name` would not show the text.

    Args:
        package: The package.
        name: The name that was asked for.
        instead: What to use instead, as a sentence; if it is empty, a name is suggested.
        names: The package's names, for the suggestion.
    """
    if not instead:
        from holdfast.values.text.shown import did_you_mean

        hint = "" if name.startswith("_") else did_you_mean(name, names).replace(" ", ". ", 1)
        return AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
    msg = f"{package} has no {name}: {instead}."
    # An import statement asks the package's __getattr__ for its names in this function.
    asks = sys._getframe(2).f_code.co_name  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return ImportError(msg, name=name) if asks == "_handle_fromlist" else AttributeError(msg)
