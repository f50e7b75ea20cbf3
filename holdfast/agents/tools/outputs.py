"""Outputs of tools that are texts, images and files, under the names of the Agents SDK."""

from __future__ import annotations

from typing import Literal, NotRequired, Self

from pydantic import model_validator
from typing_extensions import TypedDict

from holdfast.values.base import Worded

Detail = Literal["low", "high", "auto"]


class ToolOutputText(Worded):
    """A text for the model, next to images and files."""

    type: Literal["text"] = "text"
    text: str


class ToolOutputTextDict(TypedDict, total=False):
    """The same as a dict."""

    type: Literal["text"]
    text: str


class ToolOutputImage(Worded):
    """An image for the model.

    Attributes:
        image_url: A URL of any kind that the provider reads, "data:" included.
        file_id: An uploaded file.
        detail: How closely the model looks at it.

    Raises:
        InvalidArgumentError: There is neither a URL nor a file.
    """

    type: Literal["image"] = "image"
    image_url: str | None = None
    file_id: str | None = None
    detail: Detail | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.image_url is None and self.file_id is None:
            raise ValueError("an image needs image_url or file_id")
        return self


class ToolOutputImageDict(TypedDict, total=False):
    """The same as a dict."""

    type: Literal["image"]
    image_url: NotRequired[str]
    file_id: NotRequired[str]
    detail: NotRequired[Detail]


class ToolOutputFileContent(Worded):
    """A file for the model.

    Attributes:
        file_data: Its content in base64.
        file_url: Where the provider finds it.
        file_id: An uploaded file.
        filename: Its name; with file_data.

    Raises:
        InvalidArgumentError: There is nothing that says which file.
    """

    type: Literal["file"] = "file"
    file_data: str | None = None
    file_url: str | None = None
    file_id: str | None = None
    filename: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.file_data is None and self.file_url is None and self.file_id is None:
            raise ValueError("a file needs file_data, file_url or file_id")
        return self


class ToolOutputFileContentDict(TypedDict, total=False):
    """The same as a dict."""

    type: Literal["file"]
    file_data: NotRequired[str]
    file_url: NotRequired[str]
    file_id: NotRequired[str]
    filename: NotRequired[str]
