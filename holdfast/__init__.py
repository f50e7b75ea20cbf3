"""Holdfast: durable agents on Temporal.

Importing this package loads nothing else of it: each name is loaded at its first use, so that a
program, a command and a worker process pay for what they use. `__init__.pyi` is the table of the
names. What only programs of the OpenAI Agents SDK use is in `holdfast.agents_sdk`.
"""

from __future__ import annotations

from pathlib import Path

if not Path(__file__).with_name("workflows").is_dir():  # a checkout without symbolic links
    __path__.append(str(Path(__file__).parent.parent))

from holdfast.values.code.stub_names import load, missing_name, stub_names

_PLACES = stub_names(__file__)

__all__ = list(_PLACES)  # pyright: ignore[reportUnsupportedDunderAll]  the stub names them


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    """Load a name of the package at its first use.

    Raises:
        ImportError: It is a name of the Agents SDK, asked for by an import statement; the text says
            where it is, or what to use instead.
        AttributeError: There is no such name; of the SDK's names, the text says the same.
    """
    if name not in _PLACES:
        from holdfast.agents_sdk.absent_names import instead_in_holdfast

        raise missing_name(__name__, name, instead_in_holdfast(name), _PLACES)
    globals()[name] = found = load(_PLACES[name])
    return found
