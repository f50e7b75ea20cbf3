"""References to functions, classes and objects of a program, which a task stores in its data.

Nothing is pickled. A reference is `module:qualified.name`, which a worker process looks up among
the modules that it serves. An object without such a name (a lambda, a local function, an instance)
gets one that only this process can look up: `local:process:number:name`.
"""

from __future__ import annotations

import importlib
import itertools
import uuid
from collections import Counter
from collections.abc import Collection, Generator, Iterable
from contextlib import contextmanager
from typing import Any

from holdfast.errors import NotFoundError

LOCAL = "local"

_PROCESS = uuid.uuid4().hex[:8]
"""Distinguishes local references of this process from those of other processes."""

_numbers = itertools.count(1)
_known: dict[str, Any] = {}
_names: dict[int, str] = {}
_uses: Counter[str] = Counter()


def refer(thing: Any) -> str:
    """Make a reference to an object, and keep the object until `forget` was called as often.

    Args:
        thing: A function, a class, or another object.

    Returns:
        `module:qualified.name` if importing that returns the same object, else a reference for this
        process alone.
    """
    module = getattr(thing, "__module__", None)
    name = getattr(thing, "__qualname__", None)
    named = _names.get(id(thing), "")
    if module and name and _found(module, name) is thing:
        ref = f"{module}:{name}"
    elif _known.get(named) is thing:  # not an object that is gone, whose id Python used again
        ref = named
    else:
        ref = f"{LOCAL}:{_PROCESS}:{next(_numbers)}:{name or type(thing).__qualname__}"
        _names[id(thing)] = ref
    _known[ref] = thing
    _uses[ref] += 1
    return ref


def known(ref: str) -> Any:
    """Return the object of a reference that this process has made; None if it is not kept."""
    return _known.get(ref)


def forget(refs: Iterable[str]) -> None:
    """Release the references of a run that is over."""
    for ref in refs:
        _uses[ref] -= 1
        if _uses[ref] <= 0:
            del _uses[ref]
            _names.pop(id(_known.pop(ref, None)), None)


@contextmanager
def beginning(refs: Iterable[str]) -> Generator[None]:
    """Release the references of a run if the block, which starts the run, raises."""
    try:
        yield
    except BaseException:
        forget(refs)
        raise


def look_up(ref: str, modules: Collection[str]) -> Any:
    """Return the object of a reference.

    Args:
        ref: The reference.
        modules: Names of the modules that this process serves. Only objects that these modules
            define, not import, can be looked up: references come with tasks, and a client that may
            start tasks must not be able to run arbitrary code.

    Raises:
        NotFoundError: It cannot be found here; the text says what to do.
    """
    if ref in _known:  # made in this process, by its own program
        return _known[ref]
    module, _, name = ref.partition(":")
    if module == LOCAL:
        msg = (
            f"The run was given {name.rpartition(':')[2]!r}, which exists only in the process that"
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
    """Return the object that a module defines, not imports, under a name; or None."""
    try:
        thing: Any = importlib.import_module(module)
    except ImportError:
        return None
    for part in name.split("."):
        thing = getattr(thing, part, None)
    own = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    return thing if own == (module, name) else None
