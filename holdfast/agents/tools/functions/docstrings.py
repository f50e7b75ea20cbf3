"""Reads docstrings: what a tool does, and what its parameters mean."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from holdfast.errors import DeclarationError
from holdfast.values.text.shown import shown

DocstringStyle = Literal["google", "numpy", "sphinx"]
"""Google: "Args:"; NumPy: "Parameters" above dashes; Sphinx: ":param x:"."""

_OPTIONS: Any = {name: {"warnings": False} for name in get_args(DocstringStyle)}
_HEADING_AFTER_TEXT = re.compile(
    r"(?<=\S\n)(?=(?:args|arguments|params|parameters):[ \t]*\n[ \t])", re.IGNORECASE
)
"""Where a section of parameters lacks the empty line above it, without which it counts as text."""
_HEADING = re.compile(r"(?:args|arguments|params|parameters):[ \t]*\n[ \t]", re.IGNORECASE)
"""A section of parameters at the beginning."""


@dataclass
class FuncDocumentation:
    """What a docstring says of a function.

    Attributes:
        name: Name of the function.
        description: Its docstring without the sections on parameters, results and errors; None
            without a docstring.
        param_descriptions: Parameter to text; None without any.
    """

    name: str
    description: str | None
    param_descriptions: dict[str, str] | None


def generate_func_documentation(
    func: Callable[..., Any], style: DocstringStyle | None = None
) -> FuncDocumentation:
    """Read the docstring of a function.

    Args:
        func: The function.
        style: Style of its docstring; None to find it out.

    Raises:
        DeclarationError: There is no such style.
    """
    said, about = read_docstring(inspect.getdoc(func) or "", style)
    name = str(getattr(func, "__name__", type(func).__name__))
    return FuncDocumentation(name, said or None, about or None)


def documentation_of(
    function: Callable[..., Any], source: Any, style: DocstringStyle | None
) -> tuple[str, dict[str, str]]:
    """Return the description of a function and its parameters.

    A callable object is described by its class, and its parameters by its `__call__`, if both have
    a docstring; else both by the one that there is.

    Args:
        function: The function, partial, method or callable object.
        source: The plain function behind it.
        style: Style of the docstrings; None to find it out.

    Raises:
        DeclarationError: There is no such style.
    """
    said, about = read_docstring(inspect.getdoc(source) or "", style)
    if inspect.isroutine(function) or isinstance(function, functools.partial | type):
        return said, about
    if source is not inspect.unwrap(type(function).__call__):  # a wrapper of a function
        return said, about
    whole, fallback = read_docstring(inspect.getdoc(type(function)) or "", style)
    return whole or said, about or fallback


def read_docstring(text: str, style: DocstringStyle | None = None) -> tuple[str, dict[str, str]]:
    """Split a docstring (Google, NumPy or Sphinx style) into description and parameters.

    Returns:
        The description, without the sections on results and errors, and parameter to text.

    Raises:
        DeclarationError: There is no such style.
    """
    if style is not None and style not in get_args(DocstringStyle):
        known = ", ".join(map(repr, get_args(DocstringStyle)))
        msg = f"docstring_style={shown(style)} is not one of {known}; None finds it out."
        raise DeclarationError(msg)
    if len(text.splitlines()) <= 1:
        return text, {}
    import griffe  # `import holdfast` stays light

    said: list[str] = []
    about: dict[str, str] = {}
    if style is None and _HEADING.match(text):  # griffe looks for one below other text
        style = "google"
    text = _HEADING_AFTER_TEXT.sub("\n", text)
    # griffe takes the first line out of the indentation, also that of a section that begins there.
    doc = griffe.Docstring("\n" + text, lineno=1)
    if style is None:
        sections = griffe.parse_auto(doc, per_style_options=_OPTIONS)
    else:
        sections = doc.parse(style, warnings=False)
    for section in sections:
        match section:
            case griffe.DocstringSectionText():
                said.append(section.value)
            case griffe.DocstringSectionAdmonition():
                said.append(f"{section.title}: {section.value.description}")
            case griffe.DocstringSectionParameters():
                about |= {
                    p.name.lstrip("*"): " ".join(p.description.split()) for p in section.value
                }
            case _:
                pass
    return "\n\n".join(said), about
