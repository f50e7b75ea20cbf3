"""A codec that encrypts what Temporal's history holds."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from functools import cache

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    ActivitySerializationContext,
    DataConverter,
    DefaultFailureConverter,
    DefaultFailureConverterWithEncodedAttributes,
    FailureConverter,
    PayloadCodec,
    SerializationContext,
    WithSerializationContext,
    WorkflowSerializationContext,
)

from holdfast.archive.bytestore import ENCRYPTED, KEY_ID_BYTES, key_id
from holdfast.archive.encryption.data_keys import DataKey, DataKeys
from holdfast.archive.encryption.hidden_logs import hide_texts
from holdfast.archive.encryption.keys import is_wrong_key
from holdfast.errors import DigestMismatchError
from holdfast.values.text.logs import log

_ENCODING = "encoding"
_NO_SCOPE = "payloads"


class KeysCodec(PayloadCodec, WithSerializationContext):
    """Encrypts each payload with the data key of its workflow: of its task, or its session.

    A payload in plain text passes, such as a signal of the `temporal` command line, or one that was
    written before there were keys.
    """

    def __init__(self, data_keys: DataKeys, scope: str = _NO_SCOPE) -> None:
        """Encrypt with the data key of a scope."""
        self._data_keys = data_keys
        self._scope = scope

    def with_context(self, context: SerializationContext) -> KeysCodec:
        """Return the codec for the payloads of a workflow and its activities."""
        match context:
            case WorkflowSerializationContext(workflow_id=scope) if scope:
                return KeysCodec(self._data_keys, scope)
            case ActivitySerializationContext(workflow_id=scope) if scope:
                return KeysCodec(self._data_keys, scope)
            case _:
                return self

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt payloads.

        Raises:
            ArchiveError: The data key cannot be read or made.
        """
        key = self._data_keys.known(key_id(self._scope))
        if key is None:
            key = await asyncio.to_thread(self._data_keys.of_scope, self._scope)
        return [
            Payload(metadata={_ENCODING: ENCRYPTED}, data=key.seal(each.SerializeToString(), b""))
            for each in payloads
        ]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt payloads; others pass.

        Raises:
            KeyMissingError: One is encrypted with a key that is not here.
            DigestMismatchError: One was changed.
        """
        return [
            self._decoded(each, await self._key(each)) if is_encrypted(each) else each
            for each in payloads
        ]

    async def _key(self, payload: Payload) -> DataKey:
        id = payload.data[:KEY_ID_BYTES]
        key = self._data_keys.known(id)
        return await asyncio.to_thread(self._data_keys.by_id, id) if key is None else key

    def _decoded(self, payload: Payload, key: DataKey) -> Payload:
        try:
            return Payload.FromString(key.open(payload.data, b""))
        except Exception as error:
            if not is_wrong_key(error):
                raise
            msg = "A payload of the history was changed: it cannot be decrypted with its key."
            raise DigestMismatchError(msg) from None


def encrypting(converter: DataConverter, data_keys: DataKeys) -> DataConverter:
    """Return a data converter that encrypts, also the texts of failures.

    A codec of the program's own stays in place of ours, and so does a failure converter that cannot
    encode texts.
    """
    hide_texts()
    if converter.payload_codec is not None:
        return converter
    return dataclasses.replace(
        converter,
        payload_codec=KeysCodec(data_keys),
        failure_converter_class=_encoding(converter.failure_converter_class),
    )


@cache
def _encoding(kind: type[FailureConverter]) -> type[FailureConverter]:
    """Return a failure converter that also puts the texts of failures into a payload."""
    if kind is DefaultFailureConverter:
        return DefaultFailureConverterWithEncodedAttributes
    if not issubclass(kind, DefaultFailureConverter):
        log.warning(
            "The failure converter %r is no DefaultFailureConverter of Temporal: texts of"
            " failures may stay in plain text in the history.",
            kind.__qualname__,
        )
        return kind

    class Encoding(kind):  # type: ignore[valid-type,misc]
        def __init__(self) -> None:
            super().__init__()
            self._encode_common_attributes = True

    return Encoding


def is_encrypted(payload: Payload) -> bool:
    """Whether this codec has encrypted a payload."""
    return payload.metadata.get(_ENCODING) == ENCRYPTED
