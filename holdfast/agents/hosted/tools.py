"""Tools that the provider of the Responses API runs itself, inside a model call.

They have the names and fields of the Agents SDK. Nothing of them runs here: an agent passes their
definitions on, and a task records the items that come back.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NotRequired, Required, cast

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from holdfast.agents.items.run_items import RawItem
from holdfast.agents.tools.options import decision_of
from holdfast.agents.tools.tool import Tool
from holdfast.errors import UserError, WrongTypeError
from holdfast.models.agents_sdk import is_asked
from holdfast.models.base import NO_HOSTED, ToolSpec
from holdfast.models.openai.hosted_items import APPROVED, BARE_REJECTION, approval_request
from holdfast.task.data.calls import Outcome
from holdfast.task.data.head import ToolPolicy, server_key
from holdfast.values.base import Json
from holdfast.values.checks import gate
from holdfast.values.checks.gate import check_data, is_array, is_object
from holdfast.values.checks.ids import check_name
from holdfast.values.code.user_calls import invoke, naming
from holdfast.values.messages import ToolCall
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.text.shown import shown
from holdfast.workers.base import AgentWorker

if TYPE_CHECKING:
    from openai.types.responses.file_search_tool_param import Filters, RankingOptions
    from openai.types.responses.tool_param import CodeInterpreter, ImageGeneration
    from openai.types.responses.web_search_tool import Filters as WebSearchToolFilters
    from openai.types.responses.web_search_tool_param import UserLocation
else:  # for typing.get_type_hints: the package takes long to load
    CodeInterpreter = ImageGeneration = UserLocation = Any
    Filters = RankingOptions = WebSearchToolFilters = Any


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


MOST_RESULTS = 50
"""Most results of a file search."""

SECRET = frozenset({"authorization", "headers", "domain_secrets"})
"""Members of a definition that hold secrets: they are sent, and never recorded."""


class HostedTool(ABC):
    """A tool that the provider runs itself."""

    name: ClassVar[str]
    """Type of the tool, by which a tool choice names it."""

    @property
    @abstractmethod
    def definition(self) -> dict[str, Json]:
        """The tool as the Responses API has it, secrets included."""

    @property
    def include(self) -> str:
        """What answers must include for it; empty for nothing."""
        return ""

    @property
    def recorded(self) -> dict[str, Json]:
        """The definition without its secrets, as a task records it."""
        return cast("dict[str, Json]", without_secrets(self.definition))

    def spec(self) -> ToolSpec:
        """Describe the tool for a model, and for the record: without its secrets."""
        return ToolSpec(name=self.name, hosted=self.recorded, include=self.include)

    def with_secrets(self, spec: ToolSpec) -> ToolSpec | None:
        """Put the secrets into a recorded definition of this tool; None if it is another's."""
        told = spec.hosted or {}
        if told == self.recorded:
            return spec.model_copy(update={"hosted": self.definition})
        definition = self.definition
        is_of = told.get("server_label") == definition.get("server_label")
        if spec.name != self.name or not is_of:
            return None
        own = {key: value for key, value in definition.items() if key in SECRET}
        return spec.model_copy(update={"hosted": {**told, **own}})


@dataclass
class WebSearchTool(HostedTool):
    """Lets the model search the web.

    Attributes:
        user_location: Where the user is, for results that depend on it.
        filters: Which pages are searched: a dict, or the object of `openai.types`.
        search_context_size: How much of what is found the model reads.
        external_web_access: Whether pages are fetched as they are now; None leaves it to the API.
        search_content_types: Whether texts, images or both are looked for; None leaves it to the
            API, which looks for texts. What is found with images becomes part of the record.
        image_settings: How images are found.

    Raises:
        UserError: A field is not data of the API: the text says which.
    """

    name: ClassVar[str] = "web_search"
    user_location: UserLocation | None = None
    filters: WebSearchToolFilters | dict[str, Any] | None = None
    search_context_size: Literal["low", "medium", "high"] = "medium"
    external_web_access: bool | None = None
    search_content_types: list[Literal["text", "image"]] | None = None
    image_settings: WebSearchToolImageSettings | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        gate.check_fields(WebSearchTool, self, ("search_content_types", "image_settings"))
        check_fields(self)

    @property
    def include(self) -> str:
        """What answers must include for it."""
        finds_images = "image" in (self.search_content_types or ())
        return "web_search_call.results" if finds_images else ""

    @property
    def definition(self) -> dict[str, Json]:
        """The tool as the Responses API has it."""
        return given_members(
            type="web_search",
            filters=self.filters,
            user_location=self.user_location,
            search_context_size=self.search_context_size,
            external_web_access=self.external_web_access,
            search_content_types=self.search_content_types,
            image_settings=self.image_settings,
        )


@dataclass
class FileSearchTool(HostedTool):
    """Lets the model search vector stores of the provider.

    Attributes:
        vector_store_ids: Their ids.
        max_num_results: Most results, from 1 to 50; None or 0 leaves it to the API.
        include_search_results: Whether answers have what was found, which becomes part of the
            record.
        ranking_options: How results are ranked.
        filters: Which files are searched, by their attributes.

    Raises:
        UserError: A field is not data of the API.
    """

    name: ClassVar[str] = "file_search"
    vector_store_ids: list[str]
    max_num_results: Annotated[int, Field(ge=0, le=MOST_RESULTS)] | None = None
    include_search_results: bool = False
    ranking_options: RankingOptions | None = None
    filters: Filters | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        gate.check_fields(FileSearchTool, self, ("vector_store_ids", "max_num_results"))
        check_fields(self)

    @property
    def include(self) -> str:
        """What answers must include for it."""
        return "file_search_call.results" if self.include_search_results else ""

    @property
    def definition(self) -> dict[str, Json]:
        """The tool as the Responses API has it."""
        return given_members(
            type="file_search",
            vector_store_ids=list(self.vector_store_ids),
            max_num_results=self.max_num_results or None,
            ranking_options=self.ranking_options or None,
            filters=self.filters or None,
        )


class _Configured(HostedTool):
    """A tool that is given as the Responses API has it.

    Attributes:
        tool_config: The tool.
    """

    tool_config: Any

    def __post_init__(self) -> None:
        """Check the configuration.

        Raises:
            UserError: It is not JSON data, or it is another tool.
        """
        kind = checked_config(self, self.tool_config).get("type", self.name)
        if kind != self.name:
            what = f"{type(self).__name__}(tool_config=...)"
            raise UserError(f"{what} has type {kind!r}; it must be {self.name!r}.")

    @property
    def definition(self) -> dict[str, Json]:
        """The tool as the Responses API has it."""
        return {"type": self.name, **cast("dict[str, Json]", plain_data(self.tool_config))}


@dataclass
class CodeInterpreterTool(_Configured):
    """Lets the model run code in a container of the provider.

    Attributes:
        tool_config: The tool as the Responses API has it, with its container.

    Raises:
        UserError: It is not such data.
    """

    name: ClassVar[str] = "code_interpreter"
    tool_config: CodeInterpreter = field(repr=False)


@dataclass
class ImageGenerationTool(_Configured):
    """Lets the model make images.

    Attributes:
        tool_config: The tool as the Responses API has it.

    Raises:
        UserError: It is not such data.
    """

    name: ClassVar[str] = "image_generation"
    tool_config: ImageGenerationToolConfig | ImageGeneration = field(
        default_factory=lambda: ImageGenerationToolConfig(type="image_generation")
    )


def check_served(
    agent: str,
    what: Sequence[str],
    model: object,
    worker: AgentWorker,
    functions: Sequence[str] = (),
) -> None:
    """Refuse what the provider serves for an agent whose model or worker cannot pass it on.

    Args:
        agent: Name of the agent.
        what: Names of its hosted tools, and "prompt" for a stored prompt.
        model: Its model; a name whose API is known only later is not refused.
        worker: Its worker.
        functions: Names of its functions that are in a namespace or deferred: only the API is
            offered them so; a worker that describes tools in a text needs none.

    Raises:
        UserError: There is such a thing.
    """
    wanted = [*what, *(functions if worker.offers_hosted else ())]
    if not wanted:
        return
    names = ", ".join(wanted)
    if isinstance(model, str):
        serves = model != "offline" and not model.startswith("chat:")
    else:
        serves = model is None or is_asked(model) or bool(getattr(model, "serves_hosted", False))
    if not serves:
        kind = repr(model) if isinstance(model, str) else type(model).__name__
        kind = "one of several" if isinstance(model, tuple) else kind
        raise UserError(
            f"Agent {agent!r} has {names}, which only the Responses API of OpenAI has; its model"
            f" is {kind}.",
            remedy=NO_HOSTED,
        )
    tools = [name for name in what if name != "prompt"]
    if tools and not worker.offers_hosted:
        msg = (
            f"Agent {agent!r} has {', '.join(tools)}, but {type(worker).__name__} has the model"
            " call tools by text, so it could never use them."
        )
        remedy = "Use FunctionCallingAgentWorker, the default, or function tools."
        raise UserError(msg, remedy=remedy)


def without_secrets(data: Json) -> Json:
    """Return a definition without what is secret in it, also deep inside."""
    if is_object(data):
        return {key: without_secrets(data[key]) for key in data if key not in SECRET}
    return [without_secrets(each) for each in data] if is_array(data) else data


def plain_data(given: object) -> Json:
    """Return what a field was given as JSON data: objects of `openai.types` become dicts."""
    if isinstance(given, BaseModel):
        return given.model_dump(mode="json", exclude_unset=True)
    return dict(cast("Mapping[str, Json]", given)) if isinstance(given, Mapping) else given


def checked_config(tool: object, config: object) -> dict[str, Json]:
    """Return the configuration of a tool as data.

    Raises:
        UserError: It is not a JSON object.
    """
    what = type(tool).__name__
    data = plain_data(config)
    if not is_object(data):
        raise WrongTypeError(
            f"{what}(tool_config=...) is the tool as the Responses API has it, a dict; it was"
            f" {shown(config)}."
        )
    if wrong := gate.flaw(data, "tool_config"):  # it may hold secrets: it is not shown
        raise UserError(f"{what} cannot use its tool_config: it is sent as JSON, and {wrong}")
    return data


def check_fields(tool: HostedTool) -> None:
    """Refuse a tool with a field that is not data of the API.

    Raises:
        UserError: There is one.
    """
    for name, value in tool.definition.items():
        check_data(type(tool).__name__, name, value)


def given_members(**members: Any) -> dict[str, Json]:
    """Return the members of a definition that are given, as data."""
    return {key: plain_data(value) for key, value in members.items() if value is not None}


@dataclass
class ToolSearchTool(HostedTool):
    """Lets the model search the agent's deferred tools, and load the ones it needs.

    Deferred are functions with `defer_loading=True`, alone or in a namespace, and a HostedMCPTool
    with `"defer_loading": True`. Tools of a namespace that are not deferred can be called at once.

    Attributes:
        description: What the search is for, for the model.
        execution: Who searches: the provider ("server"), also when it is None. With "client" the
            API leaves it to its caller, and a model that searches ends the run.
        parameters: JSON Schema of the search's arguments, for "client".

    Raises:
        UserError: A field is not data of the API.
    """

    name: ClassVar[str] = "tool_search"
    description: str | None = None
    execution: Literal["server", "client"] | None = None
    parameters: object | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        gate.check_fields(ToolSearchTool, self, ("description", "execution"))
        check_fields(self)

    @property
    def definition(self) -> dict[str, Json]:
        """The tool as the Responses API has it."""
        return given_members(
            type=self.name,
            description=self.description,
            execution=self.execution,
            parameters=self.parameters,
        )


def tool_namespace(
    *, name: str, description: str | None, tools: Sequence[Tool[..., Any]]
) -> list[Tool[..., Any]]:
    """Return copies of function tools that form a namespace, which the model knows by its name.

    A task knows them by name and namespace, "crm.lookup" for tool lookup in namespace crm: two
    namespaces may have tools of one name.

    Args:
        name: Name of the namespace.
        description: What its tools are for, for the model.
        tools: The tools. They stay as they are.

    Raises:
        UserError: The name or description says nothing, a tool is not a function tool, or has the
            name of the namespace.
        WrongTypeError: `tools` is not a list.
    """
    for what, given in (("namespace name", name), ("description", description)):
        said: object = given
        if not isinstance(said, str) or not said.strip():
            raise UserError(f"tool_namespace() requires a non-empty {what}; it was {shown(said)}.")
    listed: object = tools
    if not isinstance(listed, list | tuple):
        msg = f"tool_namespace(tools=...) is a list of function tools; it was {shown(listed)}."
        raise WrongTypeError(msg)
    return [_inside(tool, name.strip(), (description or "").strip()) for tool in tools]


def _inside(tool: Tool[..., Any], namespace: str, description: str) -> Tool[..., Any]:
    given = cast("object", tool)
    if not isinstance(given, Tool) or given.policy().call_kind:
        msg = f"tool_namespace() only supports FunctionTool instances; it was given {shown(given)}."  # pyright: ignore[reportUnknownArgumentType]  anything is shown
        raise UserError(msg, remedy="Make a tool of a function with @tool or function_tool().")
    made = copy.copy(tool)
    made.namespace = namespace
    made.namespace_description = description
    return made


def is_searched(tool: object) -> bool:
    """Whether a tool is a function that only the Responses API can offer."""
    return isinstance(tool, Tool) and bool(tool.namespace or tool.defer_loading)


def check_names_apart(agent: str, tools: Iterable[object]) -> None:
    """Refuse tools of one name that a call could not tell apart, because of a namespace.

    Of several plain tools of one name, the last is offered.

    Args:
        agent: Name of the agent, for the error message.
        tools: Its tools.

    Raises:
        UserError: Two of a namespace have one name, or a deferred tool has that of another tool.
    """
    owners: dict[str, Tool[..., Any]] = {}
    for each in tools:
        if not isinstance(each, Tool) or each.is_enabled is False:
            continue
        tool = cast("Tool[..., Any]", each)
        other = owners.setdefault(tool.qualified_name, tool)
        if other is not tool and (is_searched(tool) or is_searched(other)):
            raise UserError(
                f"Ambiguous function tool configuration of agent {agent!r}: the qualified name"
                f" `{tool.qualified_name}` is used by multiple tools, and tool search could load"
                " either.",
                remedy="Rename one with name=, or put it into a namespace.",
            )


if TYPE_CHECKING:
    from openai.types.responses.tool_param import Mcp
else:  # for typing.get_type_hints: the package takes long to load
    Mcp = Any


@dataclass
class MCPToolApprovalRequest:
    """A request of the provider for an approval.

    Attributes:
        ctx_wrapper: The run's context.
        data: The request: `id`, `server_label`, `name` and `arguments` (JSON text).
    """

    ctx_wrapper: RunContextWrapper[Any]
    data: RawItem


class MCPToolApprovalFunctionResult(TypedDict):
    """What an approval function decides.

    Attributes:
        approve: Whether the provider may run the call.
        reason: Why not, for the model.
    """

    approve: bool
    reason: NotRequired[str]


MCPToolApprovalFunction = Callable[
    [MCPToolApprovalRequest],
    "MCPToolApprovalFunctionResult | Awaitable[MCPToolApprovalFunctionResult | None] | None",
]
"""Decides on a request for an approval; returns None to have a person decide."""


@dataclass
class HostedMCPTool(HostedTool):
    """Lets the model call the tools of an MCP server, which the provider lists and runs.

    Where the server's configuration requires an approval, the provider asks for it before a call;
    a person decides, as about any call that needs approval, unless `on_approval_request` does.

    Attributes:
        tool_config: The server as the Responses API has it: `server_label`, `server_url` or
            `connector_id`, `require_approval`, ... What is secret in it (`authorization`,
            `headers`) is sent and never recorded.
        on_approval_request: Decides on requests for an approval, in a worker process; None, or an
            answer of None, has a person decide.
        effect: "read" if calls of the server change nothing; else an undo reports calls that were
            made as effects that remain.
        approval: Who decides, if not anybody.

    Raises:
        UserError: The configuration is not data of the API, or has no label.
    """

    name: ClassVar[str] = "hosted_mcp"
    tool_config: Mcp = field(repr=False)
    on_approval_request: MCPToolApprovalFunction | None = None
    _: KW_ONLY
    effect: Literal["read", "irreversible"] = "irreversible"
    approval: ApprovalRule | None = None

    def __post_init__(self) -> None:
        """Check the configuration."""
        data = checked_config(self, self.tool_config)
        check_name("server_label of HostedMCPTool", data.get("server_label"))
        if data.get("type", "mcp") != "mcp":
            msg = f"HostedMCPTool(tool_config=...) has type {data['type']!r}; it must be 'mcp'."
            raise UserError(msg)
        decide: object = self.on_approval_request
        if decide is not None and not callable(decide):
            msg = f"on_approval_request must be a function (request); it was {shown(decide)}."
            raise WrongTypeError(msg)
        if self.effect not in ("read", "irreversible"):
            raise UserError(
                "HostedMCPTool(effect=...) is 'read' or 'irreversible': the provider has no undo;"
                f" it was {shown(self.effect)}."
            )

    @property
    def label(self) -> str:
        """Label of the server."""
        return str(plain_data(self.tool_config)["server_label"])

    @property
    def definition(self) -> dict[str, Json]:
        """The server as the Responses API has it, secrets included."""
        return {"type": "mcp", **plain_data(self.tool_config)}

    @property
    def key(self) -> str:
        """Name of its rules among the policies of an agent."""
        return server_key(self.label)

    def policy(self) -> ToolPolicy:
        """Describe as data how a task treats requests for an approval."""
        rule = self.approval
        return ToolPolicy(
            effect=self.effect,
            needs_approval="yes",
            approval=rule,
            approval_seconds=(rule.expires_seconds or 0) if rule is not None else 0,
        )


def servers_of(tools: Sequence[object]) -> tuple[HostedMCPTool, ...]:
    """Return the MCP servers among tools.

    Raises:
        UserError: Two of them have one label.
    """
    found = [tool for tool in tools if isinstance(tool, HostedMCPTool)]
    labels = [server.label for server in found]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise UserError(
            f"More than one HostedMCPTool has the label {', '.join(map(repr, twice))}. A request"
            " for an approval names its server by the label: give each its own."
        )
    return tuple(found)


async def decided_by_code(
    server: HostedMCPTool, call: ToolCall, context: RunContextWrapper[Any]
) -> Outcome | None:
    """Ask a server's own function about a request; None when a person must decide.

    Raises:
        UserError: The function returned something else than a decision.
        Exception: Whatever it raised.
    """
    decide = server.on_approval_request
    if decide is None:
        return None
    asked = MCPToolApprovalRequest(context, RawItem(approval_request(call)))
    what = f"on_approval_request of MCP server {server.label!r}"
    with naming(what, decide):
        said: object = await invoke(decide, asked)
    if said is None:
        return None
    approve, reason = decision_of(what, said)
    if approve:
        return Outcome(content=APPROVED, attempts=0)
    return Outcome(content=reason or BARE_REJECTION, is_error=True, status="failed", attempts=0)
