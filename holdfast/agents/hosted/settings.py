"""Settings of tools that the provider runs, as the Responses API has them."""

from __future__ import annotations

from typing import Literal, Required

from typing_extensions import TypedDict


class WebSearchToolImageSettings(TypedDict, total=False):
    """How images are found by a `WebSearchTool`.

    Attributes:
        max_results: Most of them.
        caption: Whether each has a short text, where there is one.
    """

    max_results: int
    caption: bool


class ImageGenerationToolMask(TypedDict, total=False):
    """Which part of an image is changed: an image, by one of the two.

    Attributes:
        file_id: Id of its file at the provider.
        image_url: The image itself, as a data URL.
    """

    file_id: str
    image_url: str


class ImageGenerationToolConfig(TypedDict, total=False):
    """The configuration of an `ImageGenerationTool`: the fields of the Responses API.

    They are sent as they are; which of them go together depends on the model.

    Attributes:
        type: Type of the tool.
        action: Whether an image is made or changed.
        background: Background of the image.
        input_fidelity: How close it stays to images of the input.
        input_image_mask: Which part of an image is changed.
        model: Model that makes the images, such as "gpt-image-2.5-flare".
        moderation: How strictly the provider looks at them.
        output_compression: Compression in percent.
        output_format: Format of the file.
        partial_images: How many unfinished images a stream has.
        quality: Quality of the image.
        size: Width and height, such as "1024x1024".
    """

    type: Required[Literal["image_generation"]]
    action: Literal["generate", "edit", "auto"]
    background: Literal["transparent", "opaque", "auto"]
    input_fidelity: Literal["high", "low"] | None
    input_image_mask: ImageGenerationToolMask
    model: str
    moderation: Literal["auto", "low"]
    output_compression: int
    output_format: Literal["png", "webp", "jpeg"]
    partial_images: int
    quality: Literal["low", "medium", "high", "xhigh", "max", "auto"]
    size: str
