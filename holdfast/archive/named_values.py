"""Which values of the archive recorded data name, found by type: data of users may look alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from pydantic import BaseModel

from holdfast.task.data.head import CallerSession, SessionRef, TaskHead
from holdfast.task.data.state import CommitRef
from holdfast.values.messages import Blob, ImageRef
from holdfast.values.steps import HistoryRef


class Named(NamedTuple):
    """A value of the archive that something names.

    Attributes:
        sha256: Its digest.
        holds_messages: Whether it is a list of messages, which may name others.
    """

    sha256: str
    holds_messages: bool = False


def named(value: object) -> Iterator[Named]:
    """Yield what a recorded value names, and all values in it."""
    match value:
        case Blob() | ImageRef():
            yield Named(value.sha256)
        case HistoryRef() | CommitRef():
            if value.sha256:  # a reset of a session has none
                yield Named(value.sha256, holds_messages=True)
        case BaseModel():
            yield from _by_itself(value)
            for name in type(value).model_fields:
                yield from named(getattr(value, name))
        case dict():
            for each in cast("Mapping[object, object]", value).values():
                yield from named(each)
        case list() | tuple():
            for each in cast("Sequence[object]", value):
                yield from named(each)
        case _:
            return


def _by_itself(value: BaseModel) -> Iterator[Named]:
    """Yield what a value names by a digest alone."""
    match value:
        case TaskHead():
            if value.snapshot:
                yield Named(value.snapshot)
            if value.history:
                yield Named(value.history, holds_messages=True)
        case CallerSession():
            if value.adds:
                yield Named(value.adds)
        case SessionRef():
            if value.adds:
                yield Named(value.adds, holds_messages=True)
        case _:
            return
