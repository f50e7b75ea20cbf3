"""Chat messages and prompts by LlamaIndex's names, and how they become Holdfast's and back.

A program that has imported llama-index-core gets that package's own messages; any other gets the
small ones of this module, which look the same.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, Field

from holdfast.errors import InvalidArgumentError
from holdfast.values.messages import ImagePart, Message, Part, TextPart, ToolCall
from holdfast.values.parts.images import Image
from holdfast.values.text.shown import shown

CORE = "llama_index.core"


class MessageRole(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"
    FUNCTION = "function"
    TOOL = "tool"
    CHATBOT = "chatbot"
    MODEL = "model"


class ChatMessage(BaseModel):
    """One entry of a conversation.

    Attributes:
        role: Who speaks.
        content: The text.
        additional_kwargs: Tool calls ("tool_calls") or the call that is answered ("tool_call_id"),
            and what else it was made with.
    """

    role: MessageRole = MessageRole.USER
    content: str | None = ""
    additional_kwargs: dict[str, Any] = Field(default_factory=dict)

    def __init__(
        self,
        content: str | None = "",
        role: MessageRole | str = MessageRole.USER,
        additional_kwargs: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        """Make a message; its role may be given as text.

        Raises:
            InvalidArgumentError: It is given blocks.
        """
        if "blocks" in others:
            msg = "This ChatMessage has no blocks. Give its text as content=, or use LlamaIndex's."
            raise InvalidArgumentError(msg)
        extra = {**others, **(additional_kwargs or {})}
        super().__init__(role=MessageRole(role), content=content, additional_kwargs=extra)

    @classmethod
    def from_str(cls, content: str, role: MessageRole | str = MessageRole.USER) -> ChatMessage:
        """Make a message of a text."""
        return cls(role=MessageRole(role), content=content)

    def __str__(self) -> str:
        """Say who says what."""
        return f"{self.role.value}: {self.content}"


def to_message(given: Any) -> Message:
    """Read anybody's chat message: ours, LlamaIndex's, a dict, or a plain text of the user.

    Raises:
        InvalidArgumentError: It is not one.
    """
    if isinstance(given, Message):
        return given
    if isinstance(given, str):
        return Message(role="user", content=given)
    if isinstance(given, Mapping):
        fields = cast("Mapping[str, Any]", given)
        try:
            given = ChatMessage(**fields)
        except ValueError as error:
            msg = f"{shown(dict(fields))} is not a chat message: {error}"
            raise InvalidArgumentError(msg) from error
    role = str(getattr(getattr(given, "role", None), "value", getattr(given, "role", "")))
    known = {"developer": "system", "function": "tool", "chatbot": "assistant"}
    role = {**known, "model": "assistant"}.get(role, role)
    if role not in ("system", "user", "assistant", "tool"):
        raise InvalidArgumentError(f"{shown(given)} is not a chat message: its role is {role!r}.")
    extra: Mapping[str, Any] = getattr(given, "additional_kwargs", None) or {}
    return Message(
        role=cast("Any", role),
        content=_content(given),
        calls=tuple(_calls(given, extra)),
        call_id=str(extra.get("tool_call_id", "")) if role == "tool" else "",
    )


def _content(given: Any) -> str | tuple[Part, ...]:
    """Return the text of a message, or its parts when there are images."""
    blocks = getattr(given, "blocks", None) or ()
    if not any(getattr(block, "block_type", "") == "image" for block in blocks):
        return str(given.content or "")
    parts: list[Part] = []
    for block in blocks:
        if getattr(block, "block_type", "") == "image":
            parts.append(ImagePart(kind="image", url=image_url(block)))
        elif getattr(block, "text", ""):
            parts.append(TextPart(kind="text", text=block.text))
    return tuple(parts)


def image_url(given: Any) -> str:
    """Return the address of an image block, or its bytes as a `data:` URL."""
    if getattr(given, "url", None):
        return str(given.url)
    data = given.resolve_image(as_base64=True).read()
    kind = getattr(given, "image_mimetype", None) or "image/png"
    return f"data:{kind};base64,{data.decode()}"


def _calls(given: Any, extra: Mapping[str, Any]) -> Iterator[ToolCall]:
    """Read the tool calls of a message, from its blocks or in OpenAI's form."""
    found = False
    for block in getattr(given, "blocks", None) or ():
        if getattr(block, "block_type", "") == "tool_call":
            found = True
            wanted = block.tool_kwargs
            text = wanted if isinstance(wanted, str) else json.dumps(wanted)
            yield ToolCall(id=str(block.tool_call_id or ""), name=block.tool_name, arguments=text)
    for call in () if found else extra.get("tool_calls") or ():
        known: Any = call
        read: Any = known if hasattr(known, "keys") else known.model_dump()
        function = read["function"]
        yield ToolCall(id=read["id"], name=function["name"], arguments=function["arguments"])


def chat_message(message: Message) -> Any:
    """Write a message as LlamaIndex's ChatMessage, if the program uses it, else as ours."""
    extra: dict[str, Any] = {}
    if message.calls:
        extra["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.calls
        ]
    if message.role == "tool":
        extra["tool_call_id"] = message.call_id
    if CORE in sys.modules:
        from llama_index.core.base.llms import types

        foreign = types.MessageRole(message.role)
        return types.ChatMessage(role=foreign, content=message.text, additional_kwargs=extra)
    return ChatMessage(
        role=MessageRole(message.role), content=message.text, additional_kwargs=extra
    )


def read_image(given: Any) -> Image:
    """Read an image of a task: ours, a path, a URL, or LlamaIndex's ImageDocument.

    Raises:
        InvalidArgumentError: It cannot be read.
    """
    if isinstance(given, Image):
        return given
    if isinstance(given, Path):
        return Image.from_path(given)
    if isinstance(given, str):
        is_url = given.startswith(("http:", "https:", "data:"))
        return Image.from_url(given) if is_url else Image.from_path(given)
    for name in ("image_path", "image_url"):
        if found := getattr(given, name, None):
            return read_image(str(found))
    if callable(getattr(given, "resolve_image", None)):
        return Image.from_url(image_url(given))
    msg = f"{shown(given)} is not an image. Pass an ImageDocument, an Image, a path or a URL."
    raise InvalidArgumentError(msg)


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
    raise InvalidArgumentError(f"{shown(prompt)} is not a prompt. Pass a text or a PromptTemplate.")


class ChatMemoryBuffer:
    """Messages in the order in which they were put.

    Given to an agent, they begin its conversation. Step logic of one's own finds one in its state.
    Nothing is cut: `token_limit` is taken and not used.

    Attributes:
        messages: The messages.
    """

    def __init__(self, messages: Sequence[Any] = ()) -> None:
        """Take the first messages."""
        self.messages = [to_message(each) for each in messages]

    @classmethod
    def from_defaults(
        cls,
        chat_history: Sequence[Any] | None = None,
        llm: Any = None,
        token_limit: int | None = None,
        chat_store: Any = None,
        **_: Any,
    ) -> ChatMemoryBuffer:
        """Make a buffer of a conversation.

        Raises:
            InvalidArgumentError: A store is given, which would not be written to.
        """
        del llm, token_limit
        if chat_store is not None:
            raise InvalidArgumentError(
                "Conversations are kept in sessions, not in a chat_store. Give the agent the name"
                " of one: memory='alice'; and for what was said before, chat_history="
                "chat_store.get_messages(key)."
            )
        return cls(chat_history or ())

    def get_all(self) -> list[Any]:
        """Return all messages, oldest first."""
        return [chat_message(each) for each in self.messages]

    def get(self, input: str | None = None, **_: Any) -> list[Any]:
        """Return all messages, oldest first."""
        del input
        return self.get_all()

    def put(self, message: Any) -> None:
        """Append a message."""
        self.messages.append(to_message(message))

    async def aput(self, message: Any) -> None:
        """Append a message."""
        self.put(message)

    def put_messages(self, messages: Sequence[Any]) -> None:
        """Append messages."""
        self.messages += [to_message(each) for each in messages]

    def set(self, messages: Sequence[Any]) -> None:
        """Replace all messages."""
        self.messages = [to_message(each) for each in messages]

    def reset(self) -> None:
        """Forget all messages."""
        self.messages = []
