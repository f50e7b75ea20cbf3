"""ReAct with images: in the task's input, in later input, and in tool results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.workers.react import prompt as react_prompt
from holdfast.workers.react.worker import ParseFailureHandler, ReActAgentWorker

if TYPE_CHECKING:
    from holdfast.models.base import ToolSpec

IMAGES = (
    "There may be images: with the question, with a remark, or with what a tool gave. In a text,"
    " [image ...] marks the place of one; the images themselves come after it, in that order. Tools"
    " cannot see them. If a tool needs to know what an image shows, describe that in the tool's"
    " input."
)
"""Rules for images, added to the ReAct format."""


def multimodal_instructions(instructions: str, tools: Sequence[ToolSpec]) -> str:
    """Make the system prompt: that of ReAct, and the rules for images.

    Args:
        instructions: The agent's instructions; may be empty.
        tools: The agent's tools.
    """
    return f"{react_prompt.react_instructions(instructions, tools)}\n\n{IMAGES}"


class MultimodalReActAgentWorker(ReActAgentWorker):
    """ReAct for a model that sees images; the system prompt has rules for them.

    Images come with the task's input, with an input of a later step (then they are part of an
    observation), or as the result of a tool, which returns an `Image` or a list of texts and
    images. The conversation holds references; the session keeps the user's message with its images
    and the answer, so that a later task sees the images too.

    Args:
        max_turns: As for ReActAgentWorker; so are the other arguments.
        on_parse_failure: Makes the observation after a reply that cannot be read.
        prompt: Makes the system prompt.

    Raises:
        InvalidArgumentError: As for ReActAgentWorker.
    """

    def __init__(
        self,
        *,
        max_turns: int | None = None,
        on_parse_failure: ParseFailureHandler | None = None,
        prompt: react_prompt.Prompt = multimodal_instructions,
    ) -> None:
        """Keep the options."""
        super().__init__(max_turns=max_turns, on_parse_failure=on_parse_failure, prompt=prompt)
