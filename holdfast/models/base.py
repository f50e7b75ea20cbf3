"""The protocol of a model, of a model that streams, and the checks of every model's answer."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, WrapSerializer

from holdfast.errors import (
    HoldfastError,
    ModelRequestError,
    ModelUnavailableError,
    UserError,
    WrongTypeError,
    behind,
)
from holdfast.values.base import Json, Value
from holdfast.values.checks import gate
from holdfast.values.checks.gate import MOST_CALLS, clean
from holdfast.values.messages import (
    ANSWERED,
    Message,
    TextPart,
    ToolCall,
    Usage,
    last_text,
)
from holdfast.values.runs.retries import LOCKED, wait_in
from holdfast.values.settings import ModelSettings
from holdfast.values.text.shown import shown


class ToolSpec(Value):
    """What a model reads about a tool.

    Attributes:
        name: Tool name, 1 to 64 characters of letters, digits, `_` and `-`; after the name of its
            namespace if it has one: "crm.lookup".
        description: What it does, for the model.
        parameters: JSON Schema of the arguments object.
        strict: Whether the schema follows the provider's strict rules and may be enforced.
        hosted: Of a tool that the provider runs itself: its definition, as the Responses API has
            it. None for a function, which is described by the rest.
        include: Of such a tool: what answers must include for it, as "file_search_call.results".
        namespace: Namespace that the tool belongs to; empty for none.
        namespace_description: What tools of that namespace are for, for the model.
        deferred: Whether the model sees it only once the provider's tool search has loaded it.
    """

    name: str
    description: str = ""
    parameters: dict[str, Json] = Field(default_factory=dict[str, Json])
    strict: bool = False
    hosted: dict[str, Json] | None = None
    include: str = ""
    namespace: str = ""
    namespace_description: str = ""
    deferred: bool = False

    @property
    def bare_name(self) -> str:
        """Tool name without its namespace."""
        return self.name.removeprefix(f"{self.namespace}.") if self.namespace else self.name

    @property
    def is_of_provider(self) -> bool:
        """Whether only the Responses API knows it: it is hosted, namespaced or deferred."""
        return self.hosted is not None or bool(self.namespace) or self.deferred


class OutputSpec(Value):
    """The structure that the final answer must have.

    Attributes:
        name: Name of the structure.
        json_schema: JSON Schema of the answer.
        strict: Whether the provider may enforce it.
    """

    name: str
    json_schema: dict[str, Json]
    strict: bool = True


class ModelRequest(Value):
    """One model call.

    Attributes:
        model: Model name, as the provider knows it.
        instructions: System prompt; empty for none.
        messages: The conversation, oldest first; contents are text or parts, never references.
        tools: Tools that the model may call.
        tool_choice: "auto", "none", "required" or a tool's name; sent only when there are tools.
        settings: Sampling and transport settings.
        output: Structure of the answer, or None for text.
        previous_response_id: The provider's id of the answer that this call goes on from: the
            messages are those after it. Empty for none.
        conversation_id: The provider's conversation that the messages are added to; empty for none.
        prompt: The provider's stored prompt to use, {"id": ..., "version": ..., "variables": ...}.
        leaves_model: Whether that prompt chooses the model.
    """

    model: str
    instructions: str = ""
    messages: tuple[Message, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    settings: ModelSettings = ModelSettings()
    output: OutputSpec | None = None
    previous_response_id: str = ""
    conversation_id: str = ""
    prompt: dict[str, Json] | None = None
    leaves_model: bool = False

    @property
    def functions(self) -> tuple[ToolSpec, ...]:
        """The tools that are functions; all of them, for a model without tools of its own."""
        return tuple(tool for tool in self.tools if tool.hosted is None)


def _with_role(given: object) -> object:
    """Read a message that is the assistant's unless it names another role."""
    if not isinstance(given, dict):
        return given
    return {"role": "assistant", **cast("dict[str, Json]", given)}


def _without_role(message: Message, whole: SerializerFunctionWrapHandler) -> dict[str, Json]:
    """Leave out the role of every answer: history keeps it for each turn."""
    data: dict[str, Json] = whole(message)
    if message.role == "assistant":
        data.pop("role", None)
    return data


class ModelAnswer(Value):
    """What a model answered.

    Attributes:
        message: The assistant message, with its tool calls; on the wire without its role.
        usage: Cost of this call; `requests` is 1.
        failed: How many attempts of it had failed before, where `ModelSettings.retry` makes them.
        model: Model name reported by the provider.
        response_id: The provider's id of this answer.
        finish: Why the model stopped: "stop", "tool_calls", "length", "content_filter".
        refusal: The model's words when it refused, else empty.
        is_incomplete: Whether the provider gives it up as incomplete, or it ended before it began.
        at: When the call ended by the clock of its worker, seconds since the epoch.
        took: Seconds that the call took.
        waited: Seconds that it waited before for its turn at the provider.
        prices: By which prices its cost was computed: a table or a package, with a version.
        repeated: Ids of calls of earlier turns that the model made once more; they were left out.
        flaw: Why a run with the rules of the Agents SDK cannot go on with it: a call has no id, or
            that of an earlier call. Empty for nothing.
        unread: Why nothing of it could be read: it has only its usage. Empty for others.
        tried: Of an agent with several models: why each of those before this one did not answer.
        asked: Of such an agent: name under which this model was asked. It is not recorded, as it
            serves to price the answer.
        open_calls: The calls of such an answer, as `Message.open_calls` has them: a provider that
            keeps the conversation waits for their results.
        has_unique_ids: Whether the model gives each call of a conversation an id of its own. It is
            not recorded, as it serves to find what the two above say.
        parsed: The validated object, when `ctx.call_model` was given a type. It is not recorded,
            but made from the recorded text.
    """

    message: Annotated[Message, BeforeValidator(_with_role), WrapSerializer(_without_role)]
    usage: Usage = Usage()
    failed: int = 0
    model: str = ""
    response_id: str = ""
    finish: str = "stop"
    refusal: str = ""
    is_incomplete: bool = False
    at: float = 0.0
    took: float = 0.0
    waited: float = 0.0
    prices: str = ""
    repeated: tuple[str, ...] = ()
    flaw: str = ""
    unread: str = ""
    tried: tuple[str, ...] = ()
    asked: str = Field(default="", exclude=True)
    open_calls: tuple[ToolCall, ...] = ()
    has_unique_ids: bool = Field(default=False, exclude=True)
    parsed: Any = Field(default=None, exclude=True)

    @property
    def is_cut_off(self) -> bool:
        """Whether a limit or a filter ended it, so that its calls may lack some of their end."""
        return self.finish in ("length", "content_filter")

    @property
    def is_blank(self) -> bool:
        """Whether it has nothing to go on with: at most blanks and reasoning."""
        if self.text.strip() or self.message.calls or self.refusal or self.repeated:
            return False
        kinds = {str(item.get("type") or "message") for item in self.message.items}
        is_work = "message" not in kinds and any(kind.endswith("_call") for kind in kinds)
        return not self.is_incomplete and not is_work

    @property
    def text(self) -> str:
        """The text of the answer; of its last message, when it holds several."""
        return last_text(self.message)


@runtime_checkable
class Model(Protocol):
    """Something that answers one model request.

    Implementations make exactly one attempt: retries belong to Temporal. They raise
    ModelUnavailableError for what may pass with time and ModelRequestError for the rest.
    """

    @property
    def name(self) -> str:
        """Model name, recorded with every task."""
        ...

    async def respond(self, request: ModelRequest) -> ModelAnswer:
        """Answer one request."""
        ...


AMONG = ", "
"""Between the names of several models: the first that can answers."""


KEPT_BY_ONE = (
    "A conversation that the provider of one model keeps cannot go on with another model: name one"
    " model, or leave out previous_response_id, conversation_id and auto_previous_response_id."
)


def check_model(model: Any) -> None:
    """Refuse what is neither a model, nor a model's name, nor several of these, nor None.

    Raises:
        WrongTypeError: It is something else.
    """
    if model is None or isinstance(model, str):
        return
    if isinstance(cast("object", model), tuple) and model:
        for each in cast("tuple[object, ...]", model):
            check_model(each)
        return
    if isinstance(model, type) or not (
        isinstance(model, Model) or callable(getattr(model, "get_response", None))
    ):
        raise WrongTypeError(
            f"model={shown(model)} ({type(model).__name__}) is not a model. Pass a name, as"
            ' "gpt-5-mini", a list of names, or an object with `name` and `async def'
            " respond(request)`, or with the Agents SDK's `get_response`."
        )


HOSTED_CHOICES = frozenset(
    {
        "code_interpreter",
        "file_search",
        "image_generation",
        "mcp",
        "web_search",
        "web_search_preview",
    }
)
"""Types of tools of the provider that a tool choice may name."""


class Delta(NamedTuple):
    """A piece of an answer that is still being made.

    Attributes:
        kind: What it is a piece of; "call" begins a tool call, "arguments" goes on with one. "item"
            is a whole item of a tool of the provider.
        text: The piece; empty for "call", JSON text for "item".
        place: Which tool call, for "call" and "arguments": any number that tells it apart.
        id: The model's id of the call, or of the item.
        name: Tool name, for "call"; type of the item, for "item".
        namespace: Namespace of the tool, for "call"; empty for none.
    """

    kind: Literal["text", "reasoning", "refusal", "call", "arguments", "item"]
    text: str = ""
    place: int = 0
    id: str = ""
    name: str = ""
    namespace: str = ""


Tell = Callable[[Delta], None]
"""Called with each piece of an answer, in order. It returns at once and never raises."""


@runtime_checkable
class StreamingModel(Model, Protocol):
    """A model that can stream its answer. The answer of any other model comes in one piece."""

    async def stream(self, request: ModelRequest, tell: Tell) -> ModelAnswer:
        """Answer one request as `respond` does, and pass each piece to `tell` as it comes.

        Only the returned answer counts: pieces of an attempt that fails are void.
        """
        ...


async def streamed(model: Model, request: ModelRequest, tell: Tell) -> ModelAnswer:
    """Answer one request for a model around another one, in pieces if that one can.

    Raises:
        ModelUnavailableError: It may pass with time.
        ModelRequestError: A person must fix the cause.
    """
    if isinstance(model, StreamingModel):
        return await model.stream(request, tell)
    return await model.respond(request)


V = TypeVar("V", bound=Value)

MOST_TOKENS = 2**53
"""Most tokens that an answer may count: more is an error, and not every reader has room."""


def admitted(answer: Any, model: str) -> ModelAnswer:
    """Return an answer that can be kept, sent on and read again; lone surrogates are replaced.

    Called before the answer is recorded, so that the call is repeated if the answer is refused.

    Raises:
        ModelUnavailableError: It is not an answer, or holds data that the history cannot hold.
    """
    if not isinstance(answer, ModelAnswer) or answer.message.role != "assistant":
        raise _malformed(model, f"it is not a ModelAnswer of an assistant, but {shown(answer)}")
    said = answer.message
    calls = [[call.id, call.name, call.arguments, call.namespace] for call in said.calls]
    about = [answer.model, answer.response_id, answer.finish]
    texts = (*about, answer.refusal, said.text, *itertools.chain.from_iterable(calls))
    if not gate.is_unicode("".join(texts)):
        return admitted(_cleaned(answer), model)
    # What stays in the history whatever its size.
    kept = {"calls": calls, "items": list(said.items), "about": [*about, *said.item_ids]}
    wrong = gate.flaw(kept, "it")
    if len(calls) > MOST_CALLS:
        wrong = f"it asks for {len(calls)} tool calls at once; {MOST_CALLS} are the most"
    usage = answer.usage
    counts = usage.model_dump().values()
    if min(counts) < 0 or max(counts) > MOST_TOKENS:
        wrong, usage = "its usage holds a number that is not a count of tokens", ANSWERED
    if wrong:
        raise _malformed(model, wrong, usage, said.open_calls)
    return answer


def unread(error: Exception, model: str) -> ModelAnswer:
    """Return an answer that cannot be used: it counts, and the model is asked again.

    Raises:
        HoldfastError: The call was not answered: the error, or the one for an error of the model's.
    """
    if not isinstance(error, ModelUnavailableError) or error.usage is None:
        with foreign_errors(repr(model)):
            raise error
    facts: dict[str, Any] = {"usage": error.usage, "open_calls": error.open_calls}
    return ModelAnswer(message=Message(role="assistant"), model=model, unread=str(error), **facts)


def _cleaned(answer: ModelAnswer) -> ModelAnswer:
    """Replace lone surrogates in the texts of an answer; provider items stay as they are."""
    content = answer.message.content
    if isinstance(content, str):
        content = clean(content)
    elif isinstance(content, tuple):
        content = tuple(
            _with_clean(part, "text") if isinstance(part, TextPart) else part for part in content
        )
    names = ("id", "name", "arguments", "namespace")
    changes: dict[str, object] = {
        "calls": tuple(_with_clean(call, *names) for call in answer.message.calls),
        "content": content,
    }
    made = _with_clean(answer, "model", "response_id", "finish", "refusal")
    return made.model_copy(update={"message": answer.message.model_copy(update=changes)})


def _with_clean(value: V, *names: str) -> V:
    """Replace lone surrogates in these texts of a value."""
    return value.model_copy(update={name: clean(getattr(value, name)) for name in names})


def _malformed(
    model: str, reason: str, usage: Usage = ANSWERED, calls: tuple[ToolCall, ...] = ()
) -> ModelUnavailableError:
    made = ModelUnavailableError(
        f"Model {model!r} sent an answer that cannot be kept: {reason.rstrip('.')}. It was thrown"
        " away, and is asked for again a few times.",
    )
    made.usage, made.open_calls = usage, calls
    return made


_HEALED_BY_TIME = frozenset({408, 409, 425, 429})
NOT_HEALED_BY_TIME = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}
)
"""Error codes that need a person, though their status is that of a busy provider."""

_PASSING = frozenset({"APIError", "ConnectionError", "Timeout", "TimeoutError", "TransportError"})
"""Names of errors of clients that mean, without a status, that the answer did not come whole."""


def is_status_passing(status: int, codes: Collection[str], *, may_repeat: bool = True) -> bool:
    """Whether an error status of a provider may pass with time.

    Args:
        status: The HTTP status.
        codes: `code` and `type` of the provider's error object.
        may_repeat: False if the response's headers say not to repeat it.
    """
    if not NOT_HEALED_BY_TIME.isdisjoint(codes):
        return False
    if LOCKED in codes:
        return True
    is_busy = status in _HEALED_BY_TIME or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return may_repeat and is_busy


_LIMITS = frozenset(
    {"rate_limit_exceeded", "rate_limit_error", "overloaded_error", "server_is_overloaded"}
)
"""Error codes of a provider that refuses work for a while."""

_OVERLOADED = 529


def is_rate_limit(status: int | None, codes: Collection[str], asked: float | None) -> bool:
    """Whether a passing failure is a rate limit or an overload of the provider.

    Args:
        status: The HTTP status, if there was one.
        codes: As for `is_status_passing`.
        asked: Seconds that the provider asks to wait, or None.
    """
    is_away = status == HTTPStatus.SERVICE_UNAVAILABLE and asked is not None
    is_busy = status in (HTTPStatus.TOO_MANY_REQUESTS, _OVERLOADED)
    return is_away or is_busy or not _LIMITS.isdisjoint(codes)


def origins(error: BaseException) -> list[BaseException]:
    """Return an error and what is behind it, nearest to the provider first.

    A library's own error has another status, code and headers than the response that it is about.
    """
    found = [error]
    for each in found:  # grows
        for other in (getattr(each, "original_exception", None), behind(each)):
            if isinstance(other, BaseException) and not any(other is known for known in found):
                found.append(other)
    return found[::-1]


def status_in(error: BaseException) -> int | None:
    """Return the HTTP status of a failure that an error of a client carries."""
    response: Any = getattr(error, "response", None)
    for holder, name in ((error, "status_code"), (error, "code"), (response, "status_code")):
        status: object = getattr(holder, name, None)
        if isinstance(status, int) and 400 <= status < 600:  # noqa: PLR2004  HTTP's errors
            return status
    return None


def foreign_error(error: Exception, text: str) -> ModelUnavailableError | ModelRequestError:
    """Return the error for what another library's model or client raised.

    Args:
        error: What it raised; its status, code and headers are read where it has them.
        text: What happened, for a person.
    """
    chain = origins(error)
    status = next((known for each in chain if (known := status_in(each)) is not None), None)
    codes = {str(getattr(each, name, None)) for each in chain for name in ("code", "type")}
    names = {base.__name__ for each in chain for base in type(each).__mro__}
    is_passing = status is None and not names.isdisjoint(_PASSING)
    if not is_passing and (status is None or not is_status_passing(status, codes)):
        return ModelRequestError(text, status=status)
    asked = wait_in(*chain)
    is_limit = is_rate_limit(status, codes, asked)
    return ModelUnavailableError(text, retry_after=asked, is_limit=is_limit)


@contextmanager
def foreign_errors(model: str) -> Generator[None]:
    """Raise the error for what a model that is not ours raises; ours pass.

    Args:
        model: What raises, for the text.
    """
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        text = f"Model {model} raised {type(error).__name__}: {error}"
        raise foreign_error(error, text) from error


NO_HOSTED = (
    'Use a model of the Responses API, as "gpt-5-mini" or "responses:NAME", or function tools and'
    " instructions."
)
"""What to do where a model has neither tools of the provider nor stored prompts."""


_TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|ContextWindowExceeded"
    r"|context[ _-](length|window|size)"
    r"|(prompt|input|request|messages?)\b[^.]{0,40}\btoo (long|large)"
    r"|exceeds? the maximum number of (input )?tokens|too many (input |total )?tokens"
    r"|reduce the length of",
    re.IGNORECASE,
)


def is_too_long(text: str) -> bool:
    """Whether a provider's refusal says that the request does not fit the context window."""
    return _TOO_LONG.search(text) is not None


def refuse_hosted(model: object, request: ModelRequest) -> None:
    """Refuse a request with tools or a prompt of the provider, if the model cannot pass them on.

    Raises:
        ModelRequestError: It cannot.
        UserError: It cannot, and there are tools of namespaces or deferred ones.
    """
    if getattr(model, "serves_hosted", False):
        return
    names = sorted({tool.name for tool in request.tools if tool.is_of_provider})
    if not names and request.prompt is None:
        return
    is_searched = any(tool.namespace or tool.deferred for tool in request.tools)
    kind = "tools of namespaces or with defer_loading" if is_searched else "hosted tools"
    what = f"{kind} ({', '.join(names)})" if names else "a stored prompt (Agent.prompt)"
    raise (UserError if is_searched else ModelRequestError)(
        f"Model {request.model!r} cannot be asked with {what}: only the Responses API of OpenAI"
        " has them.",
        remedy=NO_HOSTED,
    )
