"""Files for a model: what a tool returns as one, and how its data is named and written again."""

from __future__ import annotations

import base64
import binascii

from holdfast.errors import InvalidArgumentError
from holdfast.images import data_url, read_data_url, reference, reference_in
from holdfast.messages import FilePart

LARGEST_FILE_BYTES = 20 * 1024 * 1024


def file_data(part: FilePart) -> str:
    """Return the data of a file as items hold it; of one of the archive its `holdfast:` URL."""
    return part.data if part.stored is None else reference(part.stored)


def file_with(data: str, *, url: str = "", file_id: str = "", filename: str = "") -> FilePart:
    """Make the part of a file whose data items hold so."""
    stored = reference_in(data)
    return FilePart(
        kind="file",
        data="" if stored else data,
        stored=stored,
        url=url,
        file_id=file_id,
        filename=filename,
    )


def read_file_data(data: str) -> tuple[str, bytes]:
    """Return the media type and the bytes of `file_data`; the type of plain Base64 is empty.

    Raises:
        InvalidArgumentError: It is neither a `data:` URL nor Base64, or holds more than 20 MB.
    """
    if data[:5].lower() == "data:":
        media_type, found = read_data_url(data)
        media_type = media_type or "application/octet-stream"
    else:
        try:
            media_type, found = "", base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError) as cause:
            msg = f"The data of a file is Base64 or a data: URL; it begins with {data[:20]!r}."
            raise InvalidArgumentError(msg) from cause
    if len(found) > LARGEST_FILE_BYTES:
        msg = f"A file has {len(found)} bytes; {LARGEST_FILE_BYTES} (20 MB) are the most."
        raise InvalidArgumentError(msg)
    return media_type, found


def write_file_data(media_type: str, data: bytes) -> str:
    """Write the bytes of a file as they were given: in a `data:` URL, or as plain Base64."""
    return data_url(media_type, data) if media_type else base64.b64encode(data).decode()
