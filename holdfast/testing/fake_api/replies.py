"""The replies of the fake API. They are data, so that a script may be a file.

reply("Hello")                          text
call("add", {"a": 1, "b": 2})           one tool call
calls([("add", {...}), ("sub", {...})]) parallel tool calls
refuse("I cannot")                      a refusal
reply("", items=[hosted("web_search_call", ...)])
                                        what the provider's own tools did
reply("", items=[ask_approval("crm", "pay", {...})])
                                        the provider asks for an approval
raw({...})                              a body given word by word
fail(429, retry_after=2)                an error of the API
slow(0.5, then=reply("late"))           answer after a while
hang()                                  hold the request until release()
paced(reply("..."), hold_after=3)       a stream that is held, or cut
cut()                                   the connection ends in the middle of the body
malformed()                             status 200, and a body that is not JSON
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, cast

from pydantic import BeforeValidator, Field, TypeAdapter

from holdfast.errors import InvalidArgumentError
from holdfast.models.openai.hosted_items import SEARCH_CALL, SEARCH_OUTPUT
from holdfast.values.base import Json, Strict
from holdfast.values.checks.gate import check_arguments
from holdfast.values.messages import Usage
from holdfast.values.text.shown import shown


class _Matched(Strict):
    """A reply that may wait for its request.

    Attributes:
        match: A text that the last user message or the request's body must hold; empty for any.
    """

    match: str = ""


Wanted = tuple[str, Mapping[str, Json] | str] | tuple[str, Mapping[str, Json] | str, str]
"""A tool call: name, arguments, and the tool's namespace if it has one."""


class CallSpec(Strict):
    """One tool call of a scripted answer.

    Attributes:
        name: Tool name.
        arguments: The arguments, or a text to be sent as it is (malformed JSON, for example).
        id: Call id; empty for the next of "call_1", "call_2", ...
        namespace: Namespace of the tool; empty for none (Responses API only).
    """

    name: str
    arguments: dict[str, Json] | str = Field(default_factory=dict[str, Json])
    id: str = ""
    namespace: str = ""

    @property
    def argument_text(self) -> str:
        """The arguments as the model would write them."""
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps(self.arguments, ensure_ascii=False)


class Answer(_Matched):
    """Text, tool calls or both.

    Attributes:
        text: The text; empty for none.
        calls: The tool calls, in order.
        reasoning: Summary of a reasoning item before the rest (Responses API only).
        items: Items of the provider's own tools before the text (Responses API only).
        finish: "length" for an answer cut off by the token limit.
        usage: What the answer cost; None counts four bytes as a token.
    """

    kind: Literal["answer"] = "answer"
    text: str = ""
    calls: tuple[CallSpec, ...] = ()
    reasoning: str = ""
    items: tuple[dict[str, Json], ...] = ()
    finish: Literal["", "length", "content_filter"] = ""
    usage: Usage | None = None


class Refusal(_Matched):
    """The model declines."""

    kind: Literal["refusal"] = "refusal"
    text: str


class Raw(_Matched):
    """A body given word by word."""

    kind: Literal["raw"] = "raw"
    body: dict[str, Json]


class Fail(_Matched):
    """An error of the API.

    Attributes:
        status: HTTP status.
        message: The provider's message.
        code: Error code, such as "insufficient_quota".
        retry_after: Seconds for the Retry-After header.
        headers: More response headers.
    """

    kind: Literal["fail"] = "fail"
    status: int
    message: str = "scripted failure"
    code: str | None = None
    retry_after: float | None = None
    headers: dict[str, str] = Field(default_factory=dict[str, str])


def as_reply(given: Reply | str) -> Reply:
    """Take a plain text for a text answer."""
    return Answer(text=given) if isinstance(given, str) else given


TEXT = BeforeValidator(as_reply)
"""A text is a text answer, in JSON as well."""


class Slow(_Matched):
    """Wait before answering.

    Attributes:
        seconds: How long.
        then: The answer; None takes the next of the script when the time is over.
    """

    kind: Literal["slow"] = "slow"
    seconds: float
    then: Annotated[Reply | None, TEXT] = None


class Hang(_Matched):
    """Hold the request until it is released or its client goes away.

    Attributes:
        then: The answer after the release; None takes the next of the script then.
    """

    kind: Literal["hang"] = "hang"
    then: Annotated[Reply | None, TEXT] = None


class Paced(_Matched):
    """An answer in a stream that is held or cut; without streaming it comes whole.

    Attributes:
        then: The answer.
        piece: Characters of a delta.
        hold_after: Hold the stream after this many deltas, until it is released.
        cut_after: End the connection after this many deltas.
    """

    kind: Literal["paced"] = "paced"
    then: Annotated[Answer | Refusal, TEXT]
    piece: int = 8
    hold_after: int | None = None
    cut_after: int | None = None


class Cut(_Matched):
    """Send half of an answer, then end the connection."""

    kind: Literal["cut"] = "cut"


class Malformed(_Matched):
    """Status 200 and a body that is not JSON."""

    kind: Literal["malformed"] = "malformed"
    body: str = "<html>this is not JSON</html>"


Reply = Annotated[
    Answer | Refusal | Raw | Fail | Slow | Hang | Paced | Cut | Malformed,
    Field(discriminator="kind"),
]
"""One answer of the fake API, as `reply`, `call`, `fail` and the other functions make it."""
Slow.model_rebuild()
Hang.model_rebuild()

_SCRIPT: TypeAdapter[list[Reply]] = TypeAdapter(list[Annotated[Reply, TEXT]])


def read_script(text: str | bytes) -> list[Reply]:
    """Read a script: a JSON list of replies, or of texts.

    Raises:
        pydantic.ValidationError: It is not one.
    """
    return _SCRIPT.validate_json(text)


def hosted(kind: str, **members: Json) -> dict[str, Json]:
    """Make an item of a tool of the provider, for `reply(items=...)` and its like.

    Args:
        kind: Type of the item, as "web_search_call" or "mcp_call".
        members: Its other members. Without an `id` it gets one; `status` is "completed" and
            `execution` "server" where items of the type have one.
    """
    check_arguments(hosted, kind=kind)
    usual: dict[str, Json] = {"status": "completed"} if kind in _WITH_STATUS else {}
    usual |= {"execution": "server"} if kind in (SEARCH_CALL, SEARCH_OUTPUT) else {}
    return {"type": kind, **usual, **members}


_WITH_STATUS = frozenset(
    {
        "code_interpreter_call",
        "file_search_call",
        "image_generation_call",
        "mcp_call",
        "web_search_call",
        SEARCH_CALL,
        SEARCH_OUTPUT,
    }
)


def ask_approval(
    server: str, tool: str, arguments: Mapping[str, Json] | None = None, *, id: str = ""
) -> dict[str, Json]:
    """Make the item by which the provider asks for an approval of a call of an MCP server."""
    check_arguments(ask_approval, server=server, tool=tool, id=id)
    said = _arguments(arguments)
    text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    named = {"id": id} if id else {}
    return hosted("mcp_approval_request", server_label=server, name=tool, arguments=text, **named)


def reply(
    text: str,
    *,
    reasoning: str = "",
    items: Iterable[Mapping[str, Json]] = (),
    finish: Literal["", "length", "content_filter"] = "",
    usage: Usage | None = None,
    match: str = "",
) -> Answer:
    """Answer with text."""
    return Answer(
        text=text, reasoning=reasoning, items=_items(items), finish=finish, usage=usage, match=match
    )


def call(
    tool: str,
    arguments: Mapping[str, Json] | str | None = None,
    *,
    text: str = "",
    reasoning: str = "",
    items: Iterable[Mapping[str, Json]] = (),
    id: str = "",
    namespace: str = "",
    usage: Usage | None = None,
    match: str = "",
) -> Answer:
    """Ask for one tool call."""
    spec = CallSpec(name=tool, arguments=_arguments(arguments), id=id, namespace=namespace)
    return Answer(
        calls=(spec,), text=text, reasoning=reasoning, items=_items(items), usage=usage, match=match
    )


def calls(
    wanted: Iterable[Wanted],
    *,
    text: str = "",
    reasoning: str = "",
    usage: Usage | None = None,
    match: str = "",
) -> Answer:
    """Ask for several tool calls at once."""
    given = cast("object", wanted)
    wanted = list(wanted) if isinstance(given, Iterable) and not isinstance(given, str) else []
    if not all(isinstance(cast("object", each), tuple) and len(each) in (2, 3) for each in wanted):
        wanted = []
    if not wanted and given not in ([], ()):
        said = shown(given)  # pyright: ignore[reportUnknownArgumentType]  anything is shown
        msg = f"calls takes a list of (tool, arguments) or (.., namespace); it was given {said}."
        raise InvalidArgumentError(msg)
    specs = tuple(
        CallSpec(name=name, arguments=_arguments(given), namespace="".join(inside))
        for name, given, *inside in wanted
    )
    return Answer(calls=specs, text=text, reasoning=reasoning, usage=usage, match=match)


def refuse(text: str, *, match: str = "") -> Refusal:
    """Decline."""
    return Refusal(text=text, match=match)


def raw(body: Mapping[str, Json], *, match: str = "") -> Raw:
    """Answer with a body given word by word."""
    check_arguments(raw, body=body)
    return Raw(body=dict(body), match=match)


def fail(
    status: int,
    *,
    message: str = "scripted failure",
    retry_after: float | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
    match: str = "",
) -> Fail:
    """Answer with an error."""
    check_arguments(fail, headers=headers)
    return Fail(
        status=status,
        message=message,
        retry_after=retry_after,
        code=code,
        headers=dict(headers or {}),
        match=match,
    )


def slow(seconds: float, then: Reply | str | None = None, *, match: str = "") -> Slow:
    """Answer after a while; `then=None` takes the next reply when the time is over."""
    return Slow(seconds=seconds, then=None if then is None else as_reply(then), match=match)


def hang(then: Reply | str | None = None, *, match: str = "") -> Hang:
    """Hold a request until `release`; `then=None` takes the next reply after that."""
    return Hang(then=None if then is None else as_reply(then), match=match)


def paced(
    then: Reply | str,
    *,
    piece: int = 8,
    hold_after: int | None = None,
    cut_after: int | None = None,
    match: str = "",
) -> Paced:
    """Answer in pieces; hold the stream until `release`, or cut it, after so many of them."""
    answer = as_reply(then)
    if not isinstance(answer, Answer | Refusal):
        raise InvalidArgumentError(f"Only an answer comes in pieces, not {shown(answer)}.")
    return Paced(then=answer, piece=piece, hold_after=hold_after, cut_after=cut_after, match=match)


def cut(*, match: str = "") -> Cut:
    """End the connection in the middle of the body."""
    return Cut(match=match)


def malformed(body: str = "<html>this is not JSON</html>", *, match: str = "") -> Malformed:
    """Answer with a body that is not JSON."""
    return Malformed(body=body, match=match)


def _items(given: object) -> tuple[dict[str, Json], ...]:
    """Read the argument `items`.

    Raises:
        InvalidArgumentError: It is not a list of objects.
    """
    wanted = given
    if isinstance(given, Iterable) and not isinstance(given, str | Mapping):
        found = tuple(cast("Iterable[object]", given))
        if all(isinstance(each, Mapping) for each in found):
            return tuple(dict(cast("Mapping[str, Json]", each)) for each in found)
    msg = f"items takes a list of items of the Responses API; it was given {shown(wanted)}."
    raise InvalidArgumentError(msg)


def _arguments(given: Mapping[str, Json] | str | None) -> dict[str, Json] | str:
    check_arguments(_arguments, given=given)
    return given if isinstance(given, str) else dict(given or {})
