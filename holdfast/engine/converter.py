"""How values become payloads: compact JSON for Holdfast's values, pydantic's JSON for all others.

Payloads that are too large for a history go to the archive.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import functools
import inspect
import json
import os
import traceback
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import temporalio
from pydantic_core import PydanticSerializationError, to_jsonable_python
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverter,
    DefaultPayloadConverter,
    ExternalStorage,
    JSONPlainPayloadConverter,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
)
from temporalio.exceptions import ApplicationError

from holdfast import errors
from holdfast.archive.archive import Archive
from holdfast.archive.bytestore import ENCRYPTED, KEY_ID_BYTES, KEYS_VARIABLE, writing_for
from holdfast.errors import HoldfastError, KeyMissingError, WrongTypeError, behind
from holdfast.task.data.commands import LONGEST_REASON
from holdfast.task.data.head import TaskHead
from holdfast.task.data.state import SessionState, TaskInput
from holdfast.values.base import Json, Value
from holdfast.values.checks.gate import check_known, clean, known_as, misfit_call

UNREADABLE = "UnreadableInputError"
"""Type of the failure of a workflow that was started with an input that cannot be read."""


OF_DATA = (ValueError, TypeError, LookupError)
"""Errors that data cause, in every process. Any other may be this process's alone."""

INPUTS: set[type] = {TaskInput, SessionState}
"""The inputs of workflows; further ones add theirs, see `Opening`."""

THRESHOLD_BYTES = 256 * 1024
"""Size from which a payload goes to the archive. A safety net only: activities store values above
16 KB themselves and pass references."""

DIGEST = "sha256"


class CompactJsonConverter(PydanticJSONPlainPayloadConverter):
    """Pydantic's JSON; fields of Holdfast's values that have their default are left out.

    This keeps the events of a history small.
    """

    def to_payload(self, value: Any) -> Payload | None:
        """Encode one value; lone surrogates, which UTF-8 cannot encode, are replaced."""
        try:
            if not isinstance(value, Value):
                return super().to_payload(value)
            data = value.model_dump_json(exclude_defaults=True).encode()
            return Payload(metadata={"encoding": b"json/plain"}, data=data)
        except (PydanticSerializationError, UnicodeEncodeError):
            plain = value.wire() if isinstance(value, Value) else to_jsonable_python(value)
            return super().to_payload(_cleaned(plain))


def _cleaned(data: Json) -> Json:
    """Return a copy of JSON data without lone surrogates."""
    match data:
        case str(text):
            return clean(text)
        case list():
            return [_cleaned(each) for each in data]  # pyright: ignore[reportUnknownVariableType]
        case dict():
            items = cast("dict[str, Json]", data).items()
            return {clean(key): _cleaned(value) for key, value in items}
        case _:
            return data


_CONVERTERS = tuple(
    CompactJsonConverter() if isinstance(each, JSONPlainPayloadConverter) else each
    for each in DefaultPayloadConverter.default_encoding_payload_converters
)
"""Shared, because Temporal makes a new payload converter for each activity and workflow task, which
would compile pydantic's validators each time."""


class HoldfastPayloadConverter(CompositePayloadConverter):
    """Temporal's default converter with compact pydantic JSON.

    A workflow input that cannot be read fails the workflow, which has not begun yet. Any other
    payload that cannot be read fails the workflow task, which Temporal repeats until a worker
    process can read it, as one with newer code may. So does an input that is encrypted, or of a
    codec that is not here: a run that continues another one, or a session, has much to lose.
    """

    def __init__(self) -> None:
        """Put our JSON converter instead of the default one."""
        super().__init__(*_CONVERTERS)

    def from_payloads(
        self, payloads: Sequence[Payload], type_hints: list[type] | None = None
    ) -> list[Any]:
        """Decode values.

        Raises:
            ApplicationError: The input of a workflow cannot be read. Temporal passes no type hints
                when the number of values is wrong.
            KeyMissingError: One is encrypted, and this process has no keys.
        """
        try:
            values = super().from_payloads(payloads, type_hints)
            if values and isinstance(values[0], TaskInput) and not values[0].has_request:
                _refuse_unknown(json.loads(payloads[0].data))
        except Exception as error:
            codings = [each.metadata.get("encoding", b"") for each in payloads]
            if ENCRYPTED in codings:
                raise _without_keys(payloads[codings.index(ENCRYPTED)]) from None
            if not self.converters.keys() >= {*codings}:
                raise
            is_input = type_hints is None or bool(INPUTS.intersection(type_hints[:1]))
            cause = error if error.__cause__ is None else error.__cause__
            if not is_input or not isinstance(cause, OF_DATA):
                raise
            reason = clean(str(error))[:LONGEST_REASON]
            msg = f"The input cannot be read: {reason}"
            raise ApplicationError(msg, type=UNREADABLE, non_retryable=True) from None
        return values


def _without_keys(payload: Payload) -> KeyMissingError:
    return KeyMissingError(
        f"A payload is encrypted with the data key {payload.data[:KEY_ID_BYTES].hex()!r} of the"
        " archive, and this process has no keys. Nothing was changed.",
        remedy=f"Set {KEYS_VARIABLE} as in the processes that use it. What waits goes on with a"
        " worker that has the keys.",
    )


def _refuse_unknown(given: dict[str, Json]) -> None:
    """Refuse fields that nothing reads in the input of a task that has no request.

    Next to a request an unknown field may be one that newer clients send, and is ignored; without
    one it is where the request went, and the task would begin with nothing to do.

    Raises:
        WrongTypeError: There is such a field; the text names the nearest one.
    """
    parts = (("the input of a task", given, TaskInput), ("its head", given["head"], TaskHead))
    for what, part, kind in parts:
        try:
            check_known(f"fields of {what}", part, kind.model_fields)
        except WrongTypeError as error:
            msg = f"it says nothing in 'input'. {error} Nothing has begun: start the task again."
            raise WrongTypeError(msg) from None


def telling(converter: DataConverter) -> DataConverter:
    """Return a data converter for a replay in this process: why it fails is not encrypted."""
    if not issubclass(converter.failure_converter_class, DefaultFailureConverter):
        return converter
    return dataclasses.replace(converter, failure_converter_class=DefaultFailureConverter)


def holdfast_converter(current: DataConverter | None = None) -> DataConverter:
    """Return a data converter with our payload converter; the rest of `current` is kept."""
    return dataclasses.replace(
        current or DataConverter.default, payload_converter_class=HoldfastPayloadConverter
    )


DRIVER = "holdfast.archive.archive"
"""The name of the driver below."""


class ArchiveStorageDriver(StorageDriver):
    """Stores payloads under the SHA-256 of their bytes, so that equal payloads are stored once."""

    def __init__(self, archive: Archive) -> None:
        """Store into, and read from, this archive."""
        self._archive = archive

    def name(self) -> str:
        """Return the name recorded in histories: it can never change."""
        return DRIVER

    def type(self) -> str:
        """Return the driver's type, which is also its name."""
        return DRIVER

    async def store(
        self, context: StorageDriverStoreContext, payloads: Sequence[Payload]
    ) -> list[StorageDriverClaim]:
        """Store payloads; return one claim each, in their order.

        Raises:
            ArchiveError: The archive cannot be written.
        """
        whole = [each.SerializeToString(deterministic=True) for each in payloads]
        target = context.target
        scope = target.id if isinstance(target, StorageDriverWorkflowInfo) else ""
        with writing_for(scope or ""):
            digests = await asyncio.gather(*map(self._archive.aput, whole))
        return [StorageDriverClaim(claim_data={DIGEST: each}) for each in digests]

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """Return the payloads of claims, in their order.

        Raises:
            BlobMissingError: The archive lacks one, so it is not the archive it was stored in.
            DigestMismatchError: A stored payload was changed.
        """
        del context
        blobs = await asyncio.gather(
            *(self._archive.aget(each.claim_data[DIGEST]) for each in claims)
        )
        return [Payload.FromString(each) for each in blobs]


def archive_storage(archive: Archive) -> ExternalStorage:
    """Return the setting for `DataConverter.external_storage`."""
    return ExternalStorage(
        drivers=[ArchiveStorageDriver(archive)], payload_size_threshold=THRESHOLD_BYTES
    )


# Shortens tracebacks of Holdfast's errors to the caller's code, without Holdfast's own frames.

C = TypeVar("C", bound=type[Any])
E = TypeVar("E", bound=BaseException)


def shortened(error: E) -> E:
    """Remove the traceback of an error, and of each of its causes, if it has no user's frame.

    The error's text says what to do, and the caller's frames are added as it is raised again. A
    traceback with a function of the user's is kept, and so are all with HOLDFAST_DEBUG=1.
    """
    if os.environ.get("HOLDFAST_DEBUG") == "1":
        return error
    each: BaseException | None = error
    seen: set[int] = set()
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        frames = (frame for frame, _ in traceback.walk_tb(each.__traceback__))
        if all(frame.f_code.co_filename.startswith(_PLUMBING) for frame in frames):
            each.with_traceback(None)
        is_shown = each.__cause__ is not None or not each.__suppress_context__
        each = behind(each) if is_shown else None
    return error


def without_plumbing(kind: C) -> C:
    """Wrap the public methods of a class: their errors have short tracebacks, and the class's name.

    A call that does not fit is refused in the name of this class, also of an inherited method.
    """
    for name in dir(kind):
        if name.startswith("_") and name != "__init__":
            continue
        static: Any = inspect.getattr_static(kind, name)
        known = kind.__name__ if name == "__init__" else f"{kind.__name__}.{name}"
        if type(static) in (classmethod, staticmethod):
            setattr(kind, name, type(static)(_wrapped(static.__func__, known)))
        elif inspect.isfunction(static):
            setattr(kind, name, _wrapped(static, known))
    return kind


def _wrapped(method: Any, known: str) -> Callable[..., Any]:
    """Return a method that shortens the errors of the given one, if it is async."""
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def call(*args: Any, **options: Any) -> Any:
            try:
                return await method(*args, **options)
            except HoldfastError as error:
                raise shortened(error)  # noqa: B904  it is the same error
            except TypeError as error:
                if (wrong := misfit_call(error, known, method, options)) is None:
                    raise
                raise wrong from None

        return call
    named: Callable[..., Any] = known_as(known)(method)
    if inspect.isasyncgenfunction(method):

        @functools.wraps(method)
        async def items(*args: Any, **options: Any) -> AsyncGenerator[Any]:
            try:
                async with aclosing(named(*args, **options)) as given:
                    async for item in given:
                        yield item
            except HoldfastError as error:
                raise shortened(error)  # noqa: B904  as above

        return items
    return named


_PLUMBING = (
    contextlib.__file__,
    *(
        f"{Path(file).parent}{os.sep}"
        for file in (
            errors.__file__,  # of this package
            asyncio.__file__,
            concurrent.futures.__file__,
            temporalio.__file__,
        )
        if file
    ),
)


# Input check of workflows: an unreadable input ends the run at once.


class Opening:
    """A workflow that takes one input of its own type.

    Temporal makes the workflow with whatever a client has sent. An exception here would fail its
    first workflow task again and again; nothing has begun yet, so the run ends instead.
    """

    takes: type[Any] = object

    def __init_subclass__(cls) -> None:
        """Let the converter end runs with another input."""
        INPUTS.add(cls.takes)

    if not TYPE_CHECKING:  # it has no signature: it sees whatever was sent

        def __new__(cls, *given: object) -> Self:
            """Check the input before `__init__` uses it.

            Raises:
                ApplicationError: It is not one value of the right type.
            """
            if len(given) != 1 or not isinstance(given[0], cls.takes):
                found = ", ".join(type(each).__name__ for each in given) or "nothing"
                _refuse(f"It takes one {cls.takes.__name__}; it was started with: {found}.")
            return super().__new__(cls)


def _refuse(reason: str) -> None:
    kind = workflow.info().workflow_type
    msg = f"{kind} was started by hand with an input that it cannot read. {reason}"
    raise ApplicationError(msg, type=UNREADABLE, non_retryable=True)
