"""Every name of the OpenAI Agents SDK, for programs that were written for it.

A program is ported by one replaced import: `from holdfast.agents_sdk import ...` has each public
name of `agents`, and those of its modules that programs use. A name that Holdfast does not have is
refused with what to use instead. `__init__.pyi` is the table of the names; each is loaded at its
first use.
"""

from __future__ import annotations

from holdfast.values.code.stub_names import load, missing_name, stub_names

_PLACES = stub_names(__file__)

__all__ = [name for name in _PLACES if name != "AsyncOpenAI"]  # pyright: ignore[reportUnsupportedDunderAll]  the SDK has AsyncOpenAI by chance


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    """Load a name of the package, or one that the installed Agents SDK lends, at its first use.

    Raises:
        ImportError: It is a name of the Agents SDK that is not here, asked for by an import
            statement; the text says what to use.
        AttributeError: There is no such name; of the SDK's names, the text says what to use.
    """
    if name in _PLACES:
        globals()[name] = found = load(_PLACES[name])
        return found
    from holdfast.agents_sdk.absent_names import LENT, instead_of, lent

    cause: ImportError | None = None
    instead = instead_of(name)
    if name in LENT:
        try:
            return lent(name)
        except ImportError as error:
            instead, cause = str(error), error
    raise missing_name(__name__, name, instead, _PLACES) from cause
