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
_held: dict[str, Counter[str]] = {}


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


def kept() -> list[Any]:
    """Return the objects of this process that runs in progress have."""
    return [*_known.values()]


def forget(refs: Iterable[str]) -> None:
    """Release the references of a run that is over."""
    for ref in refs:
        _uses[ref] -= 1
        if _uses[ref] <= 0:
            del _uses[ref]
            _names.pop(id(_known.pop(ref, None)), None)


def hold(task_id: str, refs: Iterable[str]) -> None:
    """Note that a task has references of this process, which its end is to release.

    Several callers may wait for one task, and each sees its end: only this note tells what is yet
    to be released, and what other tasks have of the same references.
    """
    _held.setdefault(task_id, Counter()).update(refs)


def take_back(task_id: str, refs: Iterable[str]) -> None:
    """Release references that were held for a task which did not take them."""
    held = _held.get(task_id, Counter[str]())
    for ref in refs:
        if held[ref] > 0:
            held[ref] -= 1
            forget([ref])


def release(task_id: str, refs: Iterable[str] | None = None) -> None:
    """Release what is held for a task: it is over, or some of its code was replaced.

    Args:
        task_id: The task.
        refs: The references to release; None for all.
    """
    held = _held.get(task_id, Counter[str]())
    for ref in set(held if refs is None else refs):
        forget([ref] * held.pop(ref, 0))
    if not held:
        _held.pop(task_id, None)


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
        raise NotFoundError(
            f"The run was given {name.rpartition(':')[2]!r}, which exists only in the process that"
            " started it. The task waits, nothing is lost. To have any worker process run it,"
            " define it at the top level of a module that the workers serve."
        )
    if module not in modules:
        raise NotFoundError(
            f"The run was given {ref!r}, but this worker process serves the modules"
            f" {', '.join(sorted(modules)) or 'none'} only. The task waits, nothing is lost. Define"
            " it in the module of the agents or of their tools."
        )
    found = _found(module, name)
    if found is None:
        raise NotFoundError(
            f"The run was given {ref!r}, which module {module!r} of this worker process lacks. The"
            " task waits, nothing is lost. Put it there and restart the worker process."
        )
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
