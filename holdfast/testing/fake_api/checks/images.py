"""Checks of images for both endpoints, with the API's messages."""

from __future__ import annotations

from typing import get_args

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json
from holdfast.values.messages import Detail
from holdfast.values.parts.images import MEDIA_TYPES, read_data_url, sniff


def image_problem(url: Json, detail: Json, where: str) -> str:
    """Return why the API would refuse an image, or empty.

    Args:
        url: Its address.
        detail: The detail level; None when it is not given.
        where: Path of the parameter that holds the address.
    """
    if detail is not None and detail not in get_args(Detail):
        return f"Invalid value: {detail!r}. Supported values are: {get_args(Detail)}."
    if not isinstance(url, str):
        return f"Missing required parameter: '{where}'."
    if url[:5].lower() != "data:":
        is_web = url[:8].lower() == "https://" or url[:7].lower() == "http://"
        return "" if is_web else f"Invalid '{where}'. Expected a valid URL, but got {url[:60]!r}."
    try:
        media_type, data = read_data_url(url)
    except InvalidArgumentError:
        return f"Invalid '{where}'. Expected a base64-encoded data URL with an image MIME type."
    if media_type not in MEDIA_TYPES or not sniff(data):
        return (
            "You uploaded an unsupported image. The image must have one of these"
            f" formats: {list(MEDIA_TYPES)}."
        )
    return ""
