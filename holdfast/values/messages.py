"""What models and agents say to each other, in our own compact and provider-neutral form."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from functools import reduce
from operator import add
from typing import Annotated, Literal, cast

from pydantic import AfterValidator, PlainSerializer

from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json, Value
from holdfast.values.text.shown import counted
from holdfast.values.text.shown import shown as shown_value

# Amounts of money: US dollars as exact decimals, never as floats.

NOTHING = Decimal(0)
_SHOWN_PLACES = 4

MOST_DOLLARS = Decimal(10**12)
"""Largest budget and price: beyond it amounts lose cents, and cannot be written for people."""

Amount = Decimal | str | int | float
"""What people write an amount as; a float counts as it is printed."""


def plain(amount: Decimal) -> Decimal:
    """Return an amount without zeros at its end, so that equal amounts are written alike."""
    return amount.normalize() if amount else NOTHING


def as_written(amount: Decimal) -> str:
    """Write an amount with all its digits and without an exponent."""
    return format(amount, "f")


Dollars = Annotated[Decimal, AfterValidator(plain), PlainSerializer(as_written, when_used="json")]
"""An amount in US dollars; text on the wire, because JSON numbers are read as floats."""


def dollars(amount: Decimal) -> str:
    """Write an amount for people: with cents, and more digits where it has them, at most four.

    What is left beyond them is rounded up, so that no cost looks like none.
    """
    step = Decimal(1).scaleb(-_SHOWN_PLACES)
    text = as_written(amount.quantize(step, rounding="ROUND_UP"))
    whole, _, cents = text.partition(".")
    return f"${whole}.{cents.rstrip('0'):0<2}"


Role = Literal["system", "user", "assistant", "tool"]


class Blob(Value):
    """A text too large for the history, kept in the archive under its digest.

    Attributes:
        sha256: Digest of the bytes, 64 hexadecimal digits.
        size: Length in bytes.
        is_json: Whether the bytes are JSON data rather than plain text.
    """

    sha256: str
    size: int
    is_json: bool = False


class Artifact(Value):
    """A file that a tool has kept with its call.

    Attributes:
        name: Its name. Another file of the same name is a newer version of it.
        media_type: As in "text/csv".
        stored: Where the archive keeps its bytes.
    """

    name: str
    media_type: str
    stored: Blob

    @property
    def reference(self) -> str:
        """This version as one word, as "report.csv@1a2b3c4d5e6f": for models and other tasks."""
        return f"{self.name}@{self.stored.sha256[:12]}"


class TextPart(Value):
    """A piece of text in a message of several parts.

    Attributes:
        text: The text; empty when `stored` holds it.
        stored: Where the archive keeps a text too large for history.
    """

    kind: Literal["text"]
    text: str
    stored: Blob | None = None


Detail = Literal["auto", "low", "high", "original"]
"""How closely a model looks at an image."""


class ImageRef(Value):
    """An image, or another file, in the archive.

    Attributes:
        sha256: Digest of the bytes, 64 hexadecimal digits.
        size: Length in bytes.
        media_type: As in "image/png"; empty for a file that was given without.
        mac: Proves that the archive's programs made this reference: no one else can make one of a
            digest. `AgentRunner` and worker processes put it in and refuse a reference without it.
    """

    sha256: str
    size: int
    media_type: str
    mac: str = ""


class ImagePart(Value):
    """An image in a message: by URL, by reference to the archive, or by its id at the provider.

    Attributes:
        url: Address (`https:`), or empty. A `data:` URL becomes a reference before history sees it.
        stored: Where the archive keeps the image's bytes.
        file_id: The provider's id of a file that was uploaded there, or empty.
        detail: How closely the model looks at it.
    """

    kind: Literal["image"]
    url: str = ""
    file_id: str = ""
    stored: ImageRef | None = None
    detail: Detail = "auto"

    def __str__(self) -> str:
        """Describe it in a few words, as in "[image png 12 kB sha256 ab12cd34..]"."""
        if self.stored is not None:
            what = self.stored.media_type.removeprefix("image/")
            size = -(-self.stored.size // 1000)
            return f"[image {what} {size} kB sha256 {self.stored.sha256[:8]}..]"
        if self.file_id:
            return f"[image file {self.file_id[:100]}]"
        return f"[image {self.url[:100]}]" if self.url[:5] != "data:" else "[image]"


class FilePart(Value):
    """A file in a message: by its data, its address or its id at the provider.

    Attributes:
        data: A `data:` URL or Base64, or empty. It becomes a reference before history sees it.
        url: Address, or empty.
        file_id: The provider's id of a file that was uploaded there, or empty.
        filename: Its name, or empty.
        stored: Where the archive keeps the data.
    """

    kind: Literal["file"]
    data: str = ""
    url: str = ""
    file_id: str = ""
    filename: str = ""
    stored: ImageRef | None = None

    def __str__(self) -> str:
        """Describe it in a few words, as in "[file report.pdf 12 kB sha256 ab12cd34..]"."""
        named = f" {self.filename[:100]}" if self.filename else ""
        if self.stored is not None:
            size = -(-self.stored.size // 1000)
            return f"[file{named} {size} kB sha256 {self.stored.sha256[:8]}..]"
        where = self.file_id or self.url
        return f"[file{named}{f' {where[:100]}' if where else ''}]"


Part = TextPart | ImagePart | FilePart
Content = str | Blob | tuple[Part, ...]


CallKind = Literal["", "shell_call", "local_shell_call", "apply_patch_call", "custom_tool_call"]
"""Type of a call's item, where the provider has one for calls of a tool; empty for a function."""


class ToolCall(Value):
    """A model's wish to call a tool.

    Attributes:
        id: The provider's id of this call, given back with its result.
        name: Tool name, after that of its namespace if it has one: "crm.lookup".
        arguments: The arguments exactly as the model wrote them, normally a JSON object.
        server: Of a call that an MCP server of the provider is to run, and for which the provider
            asks for an approval: the label of the server, with which the name begins. Empty for a
            call that is run here.
        kind: Type of its item, unless a function call: "shell_call", "apply_patch_call" ... Its
            arguments are then what the item asks for: the action, the operation, the text.
        namespace: Namespace by which the model called it; empty for none. A single tool that tool
            search has loaded is called in a namespace of its own name; the name here leaves that
            out.
    """

    id: str
    name: str
    arguments: str = "{}"
    server: str = ""
    kind: CallKind = ""
    namespace: str = ""

    @property
    def bare_name(self) -> str:
        """Tool name without its namespace, or the label of the provider's server."""
        before = self.server or self.namespace
        return self.name.removeprefix(f"{before}.") if before else self.name


def qualified_name(name: str, namespace: str) -> str:
    """Return the name by which a task knows a tool of a namespace; see `ToolCall.namespace`."""
    return name if namespace in ("", name) else f"{namespace}.{name}"


class Message(Value):
    """One entry of a conversation.

    Attributes:
        role: Who speaks. `tool` messages answer one call of the assistant message before them.
        content: Text, parts, or a reference to the archive. Agent workers always get text or
            parts: references are resolved before they see a message.
        calls: Tool calls, on assistant messages.
        call_id: The call that a tool message answers.
        is_error: Whether a tool message tells of a failure.
        items: Provider items (reasoning, for example) to be sent back unchanged, before `content`.
        kept: Where the archive keeps items too large for history; `items` then has outlines of
            those of the provider's own tools. Agent workers always get whole items.
        item_ids: The provider's ids of the content and of the calls, in this order, for readers:
            "" for none, shorter where the last have none. Ids that it needs again are in `items`.
            Items that were given with the Agents SDK's "__fake_id__" have that.
    """

    role: Role
    content: Content = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    is_error: bool = False
    items: tuple[dict[str, Json], ...] = ()
    kept: Blob | None = None
    item_ids: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text of this message, parts joined, images left out."""
        match self.content:
            case str(text):
                return text
            case Blob():
                return ""
            case parts:
                return "".join(part.text for part in parts if isinstance(part, TextPart))

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """Its tool calls, each id once, as far as a result must know them."""
        calls = {call.id: call for call in self.calls}.values()
        return tuple(ToolCall(id=c.id, name="", server=c.server, kind=c.kind) for c in calls)

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """The images of this message, in order."""
        if isinstance(self.content, str | Blob):
            return ()
        return tuple(part for part in self.content if isinstance(part, ImagePart))

    @property
    def files(self) -> tuple[FilePart, ...]:
        """The files of this message, in order."""
        if isinstance(self.content, str | Blob):
            return ()
        return tuple(part for part in self.content if isinstance(part, FilePart))


def shown(content: Content) -> str:
    """Return a content as people read it: a placeholder stands for what is not text."""
    match content:
        case str(text):
            return text
        case Blob():
            return f"[{content.size} bytes in the archive as {content.sha256}]"
        case parts:
            return "\n".join(_shown_part(part) for part in parts)


def _shown_part(part: Part) -> str:
    if isinstance(part, ImagePart | FilePart):
        return str(part)
    return part.text if part.stored is None else shown(part.stored)


def last_text(message: Message) -> str:
    """Return the text of an assistant message; of the last one, when it stands for several."""
    if not message.items:
        return message.text
    said = [item for item in message.items if item.get("type", "message") == "message"]
    if not said or "content" not in said[-1]:
        return message.text
    content: Json = said[-1]["content"]
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or part.get("refusal") or "" for part in content)


def user(text: str, images: tuple[ImagePart | FilePart, ...] = ()) -> Message:
    """Make a user message of a text, and of images and files if there are any."""
    if not images:
        return Message(role="user", content=text)
    if not isinstance(cast("object", images), Iterable):
        msg = f"images must be a list of ImageParts; it was {shown_value(images)}."
        raise InvalidArgumentError(msg)
    said = (TextPart(kind="text", text=text),) if text else ()
    return Message(role="user", content=(*said, *images))


def assistant(text: str, *, calls: tuple[ToolCall, ...] = ()) -> Message:
    """Make an assistant message."""
    return Message(role="assistant", content=text, calls=calls)


def system(text: str) -> Message:
    """Make a system note inside the conversation."""
    return Message(role="system", content=text)


class InputTokensDetails(Value):
    """What is known of input tokens, in the form of the Responses API.

    Attributes:
        cached_tokens: Tokens that the provider served from its cache.
        cache_write_tokens: Tokens that it wrote to its cache.
    """

    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputTokensDetails(Value):
    """What is known of output tokens, in the form of the Responses API.

    Attributes:
        reasoning_tokens: Those spent on reasoning.
    """

    reasoning_tokens: int = 0


class Usage(Value):
    """What model calls cost.

    Attributes:
        requests: Number of answered model calls, and of attempts of them that had failed before
            and that `ModelSettings(retry=...)` made again.
        input_tokens: Tokens read, cached ones included.
        output_tokens: Tokens written, reasoning included.
        cached_tokens: Input tokens that the provider served from its cache.
        reasoning_tokens: Output tokens spent on reasoning.
        cache_write_tokens: Input tokens that the provider wrote to its cache.
        paid: US dollars that the calls with a known price cost, priced when they were made.
        priced: Number of these calls. With fewer than `requests`, `paid` is not the whole cost.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0
    paid: Dollars = NOTHING
    priced: int = 0

    @property
    def cost(self) -> Decimal | None:
        """US dollars that all the calls cost; None when the cost of one is not known."""
        return self.paid if self.priced >= self.requests else None

    @property
    def cost_shown(self) -> str:
        """What the calls cost, in words."""
        if self.cost is not None:
            return dollars(self.cost)
        if not self.priced:
            return "cost unknown"
        return f"at least {dollars(self.paid)}, {self.requests - self.priced} of unknown cost"

    @property
    def in_words(self) -> str:
        """Calls and tokens in words, and what they cost, if the price of one is known."""
        calls = counted(self.requests, "model call")
        tokens = f"{self.input_tokens:,} tokens read, {self.output_tokens:,} written"
        is_told = self.input_tokens or self.output_tokens
        paid = self.cost_shown if self.priced else ""
        return ", ".join(filter(None, (calls, tokens if is_told else "", paid)))

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    @property
    def input_tokens_details(self) -> InputTokensDetails:
        """The cached tokens, where the Agents SDK has them."""
        return InputTokensDetails(
            cached_tokens=self.cached_tokens, cache_write_tokens=self.cache_write_tokens
        )

    @property
    def output_tokens_details(self) -> OutputTokensDetails:
        """The reasoning tokens, where the Agents SDK has them."""
        return OutputTokensDetails(reasoning_tokens=self.reasoning_tokens)

    def __add__(self, other: Usage) -> Usage:
        """Sum field by field."""
        more = vars(other)
        sums = {name: mine + more[name] for name, mine in vars(self).items()}
        if sums["paid"]:
            sums["paid"] = plain(sums["paid"])  # a copy is not validated: 0.15 + 0.15 is 0.30
        return self.model_copy(update=sums)

    def __sub__(self, other: Usage) -> Usage:
        """Subtract field by field."""
        return Usage(
            requests=self.requests - other.requests,
            input_tokens=self.input_tokens - other.input_tokens,
            output_tokens=self.output_tokens - other.output_tokens,
            cached_tokens=self.cached_tokens - other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens - other.reasoning_tokens,
            cache_write_tokens=self.cache_write_tokens - other.cache_write_tokens,
            paid=self.paid - other.paid,
            priced=self.priced - other.priced,
        )


ANSWERED = Usage(requests=1)
"""Cost of a model call whose answer says nothing of it."""


def summed(costs: Iterable[Usage]) -> Usage:
    """Sum costs field by field; of one it is the very same value."""
    found = list(costs)
    return reduce(add, found) if found else Usage()


def cost_written(usage: Usage) -> str | None:
    """Write for programs what calls cost, in dollars with all digits; None when it is unknown."""
    return None if usage.cost is None else as_written(usage.cost)
