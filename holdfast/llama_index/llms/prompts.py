"""Prompts by LlamaIndex's names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.errors import InvalidArgumentError
from holdfast.llama_index.llms.messages import chat_message, to_message
from holdfast.values.messages import Message
from holdfast.values.text.shown import shown

_FIELD = re.compile(r"\{\{|\}\}|\{([A-Za-z_]\w*)\}")


class PromptTemplate:
    """A text with `{names}` to be filled in; `{{` and `}}` are braces.

    Attributes:
        template: The text.
    """

    def __init__(self, template: str, **known: Any) -> None:
        """Take the text, and what is known of its names already."""
        self.template = template
        self.known = known

    @property
    def template_vars(self) -> list[str]:
        """The names, in order."""
        return list(dict.fromkeys(name for name in _FIELD.findall(self.template) if name))

    def partial_format(self, **known: Any) -> PromptTemplate:
        """Return the template with some names filled in."""
        return PromptTemplate(self.template, **{**self.known, **known})

    def format(self, llm: Any = None, **values: Any) -> str:
        """Fill the names in."""
        del llm
        return filled(self.template, {**self.known, **values})

    def format_messages(self, llm: Any = None, **values: Any) -> list[Any]:
        """Fill the names in, as a user message."""
        return [chat_message(Message(role="user", content=self.format(llm, **values)))]

    def as_query_component(self, partial: Mapping[str, Any] | None = None) -> PromptTemplate:
        """Return the template, some names filled in, for a QueryPipeline."""
        return self.partial_format(**dict(partial or {}))

    def get_template(self, llm: Any = None) -> str:
        """Return the text."""
        del llm
        return self.template


class ChatPromptTemplate:
    """Messages with `{names}` to be filled in.

    Attributes:
        message_templates: The messages.
    """

    def __init__(self, message_templates: Sequence[Any], **known: Any) -> None:
        """Take the messages, and what is known of their names already."""
        self.message_templates = list(message_templates)
        self.known = known

    def format_messages(self, llm: Any = None, **values: Any) -> list[Any]:
        """Fill the names in."""
        del llm
        known = {**self.known, **values}
        read = [to_message(each) for each in self.message_templates]
        texts = [each.model_copy(update={"content": filled(each.text, known)}) for each in read]
        return [chat_message(each) for each in texts]


def filled(template: str, values: Mapping[str, Any]) -> str:
    """Fill in the names of a template; those without a value stay."""

    def fill(found: re.Match[str]) -> str:
        if found[0] in ("{{", "}}"):
            return found[0][0]
        return str(values[found[1]]) if found[1] in values else found[0]

    return _FIELD.sub(fill, template)


def template_text(prompt: Any) -> str:
    """Return the text of a prompt given as a text, or as anybody's template.

    Raises:
        InvalidArgumentError: It is neither.
    """
    if isinstance(prompt, str):
        return prompt
    get = getattr(prompt, "get_template", None)
    text = get() if callable(get) else getattr(prompt, "template", None)
    if isinstance(text, str):
        return text
    msg = f"{shown(prompt)} is not a prompt. Pass a text or a PromptTemplate."
    raise InvalidArgumentError(msg)
