"""Code by name: how a task says which function, class or object of a program belongs to a run.

Nothing is pickled. A reference is `module:qualified.name`, which a worker process looks up among
the modules that it serves; what has no such name (a lambda, a local function, an object) gets one
that only this process knows: `local:number:name`.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Collection
from typing import Any

from holdfast.errors import NotFoundError

LOCAL = "local"

_numbers = itertools.count(1)
_local: dict[str, Any] = {}
_names: dict[int, str] = {}


def refer(thing: Any) -> str:
    """Name a piece of code.

    Args:
        thing: A function, a class, or an object.

    Returns:
        `module:qualified.name` when importing that gives the very thing, else a name for this
        process.
    """
    module = getattr(thing, "__module__", None)
    name = getattr(thing, "__qualname__", None)
    if module and name and _found(module, name) is thing:
        return f"{module}:{name}"
    known = _names.get(id(thing))
    if known is not None and _local.get(known) is thing:
        return known
    shown = name or type(thing).__qualname__
    ref = f"{LOCAL}:{next(_numbers)}:{shown}"
    _local[ref] = thing
    _names[id(thing)] = ref
    return ref


def give_name(thing: Any, name: str) -> None:
    """Name a thing that importing may not find, as each process names it that serves its owner."""
    ref = f"{LOCAL}:{name}"
    _local[ref] = thing
    _names[id(thing)] = ref


def forget(ref: str) -> None:
    """Let go of a thing that only this process has a name for."""
    thing = _local.pop(ref, None)
    if thing is not None:
        _names.pop(id(thing), None)


def look_up(ref: str, modules: Collection[str]) -> Any:
    """Return what a reference names.

    Args:
        ref: The reference.
        modules: Names of the modules that this process serves: only their code is run, because a
            reference comes with a task, and whoever may start tasks must not choose what runs.

    Raises:
        NotFoundError: It cannot be found here; the text says what to do.
    """
    if ref in _local:
        return _local[ref]
    module, _, name = ref.partition(":")
    if module == LOCAL:
        msg = (
            f"The run was given {name.partition(':')[2]!r}, which exists only in the process that"
            " started it. The task waits, nothing is lost. To have any worker process run it,"
            " define it at the top level of a module that the workers serve."
        )
        raise NotFoundError(msg)
    if module not in modules:
        msg = (
            f"The run was given {ref!r}, but this worker process serves the modules"
            f" {', '.join(sorted(modules)) or 'none'} only. The task waits, nothing is lost. Define"
            " it in the module of the agents or of their tools."
        )
        raise NotFoundError(msg)
    found = _found(module, name)
    if found is None:
        msg = (
            f"The run was given {ref!r}, which module {module!r} of this worker process lacks. The"
            " task waits, nothing is lost. Put it there and restart the worker process."
        )
        raise NotFoundError(msg)
    return found


def _found(module: str, name: str) -> Any:
    try:
        thing: Any = importlib.import_module(module)
    except ImportError:
        return None
    for part in name.split("."):
        thing = getattr(thing, part, None)
    return thing
