"""Shell tools: the model asks for commands of the provider's shell call, and they are run here."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NotRequired, cast

from typing_extensions import TypedDict, Unpack

from holdfast.agents.items.run_items import RawItem
from holdfast.agents.local.base import (
    LocalTool,
    OnApproval,
    OnApprovalResult,
    UnusableResultError,
)
from holdfast.agents.tools.arguments import ToolArgumentsError
from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.options import LocalOptions
from holdfast.errors import UserError
from holdfast.values.base import Json
from holdfast.values.checks.gate import data_of, is_array, is_object
from holdfast.values.code.user_calls import invoke
from holdfast.values.messages import CallKind
from holdfast.values.runs.approval_rules import ApprovalRule
from holdfast.values.runs.run_context import RunContextWrapper
from holdfast.values.text.shown import shown

if TYPE_CHECKING:
    from openai.types.responses.response_output_item import LocalShellCall
else:  # for typing.get_type_hints: the package takes long to load
    LocalShellCall = Any


@dataclass
class ShellCallOutcome:
    """How a command ended.

    Attributes:
        type: "exit", or "timeout" if it was cut off.
        exit_code: Its exit code; None if it has none.
    """

    type: Literal["exit", "timeout"]
    exit_code: int | None = None


@dataclass
class ShellCommandOutput:
    """What one command came to.

    Attributes:
        stdout: What it wrote.
        stderr: What it wrote as errors.
        outcome: How it ended.
        command: The command.
        provider_data: Kept for the Agents SDK's programs; not recorded.
    """

    stdout: str = ""
    stderr: str = ""
    outcome: ShellCallOutcome = field(default_factory=lambda: ShellCallOutcome(type="exit"))
    command: str | None = None
    provider_data: dict[str, Any] | None = None

    @property
    def exit_code(self) -> int | None:
        """Exit code of the command."""
        return self.outcome.exit_code

    @property
    def status(self) -> Literal["completed", "timeout"]:
        """Whether the command ended without being stopped."""
        return "timeout" if self.outcome.type == "timeout" else "completed"


@dataclass
class ShellResult:
    """What an executor returns.

    Attributes:
        output: An entry for each command.
        max_output_length: Characters of output that are kept, if the call does not say.
        provider_data: Kept for the Agents SDK's programs; not recorded.
    """

    output: list[ShellCommandOutput]
    max_output_length: int | None = None
    provider_data: dict[str, Any] | None = None


def shell_problem(result: ShellResult) -> str:
    """Say why a result cannot be used, whatever an executor put into it; empty for nothing."""
    output = cast("object", result.output)
    if not isinstance(output, list | tuple):
        return (
            f"the output of a ShellResult is a list of ShellCommandOutput; it was {shown(output)}"
        )
    for i, each in enumerate(cast("list[object]", output)):
        if not isinstance(each, ShellCommandOutput):
            return f"output[{i}] must be a ShellCommandOutput; it was {shown(each)}"
        for name in ("stdout", "stderr"):
            if not isinstance(text := getattr(each, name), str):
                return f"output[{i}].{name} must be a text; it was {shown(text)}"
        ended = cast("object", each.outcome)
        if not isinstance(ended, ShellCallOutcome) or ended.type not in ("exit", "timeout"):
            wanted = 'a ShellCallOutcome of the type "exit" or "timeout"'
            return f"output[{i}].outcome must be {wanted}; it was {shown(ended)}"
        if not _is_count(ended.exit_code):
            return f"output[{i}] must have a whole exit_code; it was {shown(ended.exit_code)}"
    if not _is_count(result.max_output_length):
        return f"max_output_length must be a whole number; it was {shown(result.max_output_length)}"
    return ""


def shell_json(result: ShellResult, wanted: int | None, most_bytes: int) -> str:
    """Write what `shell_call_output` says, as JSON.

    The texts are cut to what is allowed, those of the first commands last; exit codes always stay.

    Args:
        result: A result without a problem.
        wanted: Characters of output that the call allows; None if it does not say.
        most_bytes: Bytes that the JSON may have. Texts longer than fit are cut, and say so.
    """
    limits = [limit for limit in (wanted, result.max_output_length) if limit is not None]
    most = max(min(limits), 0) if limits else None
    told = _told(result.output, most)

    def written(longest: int) -> str:
        output = [
            {
                **each,
                "stdout": _cut(each["stdout"], longest),
                "stderr": _cut(each["stderr"], longest),
            }
            for each in told
        ]
        length = {} if most is None else {"max_output_length": most}
        return json.dumps({"output": output, **length}, ensure_ascii=False, separators=(",", ":"))

    def fits(text: str) -> bool:
        return len(text.encode("utf-8", "surrogatepass")) <= most_bytes

    longest = max((len(each[name]) for each in told for name in ("stdout", "stderr")), default=0)
    whole = written(longest)
    if fits(whole):
        return whole
    least, longest = 0, min(longest, most_bytes)  # a character has at least one byte
    while least < longest:
        middle = (least + longest + 1) // 2
        if fits(written(middle)):
            least = middle
        else:
            longest = middle - 1
    return written(least)


def _is_count(given: object) -> bool:
    return given is None or (isinstance(given, int) and not isinstance(given, bool))


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    note = f"\n[cut: {len(text)} characters in all]"
    return text[: longest - len(note)] + note if longest > len(note) else text[:longest]


def _told(output: list[ShellCommandOutput], most: int | None) -> list[dict[str, Any]]:
    """Write outputs as the API has them, each text cut to what is left of the allowed length."""
    left = most
    told: list[dict[str, Any]] = []
    for each in output:
        texts: list[str] = []
        for text in (each.stdout, each.stderr):
            texts.append(text if left is None else text[:left])
            left = None if left is None else left - len(texts[-1])
        ended = each.outcome
        outcome: dict[str, Json] = {"type": ended.type}
        if ended.type == "exit":
            outcome["exit_code"] = 0 if ended.exit_code is None else ended.exit_code
        told.append({"stdout": texts[0], "stderr": texts[1], "outcome": outcome})
    return told


class ShellToolLocalSkill(TypedDict):
    """A skill in a folder of this machine, that the model knows of."""

    name: str
    description: str
    path: str


class ShellToolLocalEnvironment(TypedDict):
    """The environment of commands that run here."""

    type: Literal["local"]
    skills: NotRequired[list[ShellToolLocalSkill]]


ShellToolEnvironment = ShellToolLocalEnvironment
"""The environments that are served: commands run here."""


@dataclass
class ShellActionRequest:
    """What a shell call asks for.

    Attributes:
        commands: The commands, to be run in their order.
        timeout_ms: Milliseconds that they may take, as the model wishes; None for no wish.
        max_output_length: Characters of output that the model wants at most.
    """

    commands: list[str]
    timeout_ms: int | None = None
    max_output_length: int | None = None


@dataclass
class ShellCallData:
    """A shell call.

    Attributes:
        call_id: The model's id of it.
        action: What it asks for.
        status: Its status, as the provider says.
        raw: The call as an item of the Responses API.
    """

    call_id: str
    action: ShellActionRequest
    status: Literal["in_progress", "completed"] | None = None
    raw: Any | None = None


@dataclass
class ShellCommandRequest:
    """What an executor is given.

    Attributes:
        ctx_wrapper: The ToolContext of the call, with its idempotency key and `is_cancelled`.
        data: The call.
    """

    ctx_wrapper: RunContextWrapper[Any]
    data: ShellCallData


ShellExecutor = Callable[
    [ShellCommandRequest], str | ShellResult | Awaitable[str] | Awaitable[ShellResult]
]
"""Runs the commands of a call; a text counts as the output of a command that succeeded."""

ShellOnApprovalFunctionResult = OnApprovalResult


class ShellTool(LocalTool[ShellActionRequest]):
    """Lets the model run commands by an executor of yours.

    Attributes:
        executor: Runs the commands.
        environment: {"type": "local"}, with skills if there are any. Containers of the provider are
            not served.
    """

    type: ClassVar[Literal["shell"]] = "shell"
    kind: ClassVar[CallKind] = "shell_call"

    def __init__(
        self,
        executor: ShellExecutor | None = None,
        name: str = "shell",
        needs_approval: bool | ApprovalRule | Callable[..., Any] = False,  # noqa: FBT001, FBT002
        on_approval: OnApproval | None = None,
        environment: ShellToolLocalEnvironment | None = None,
        **options: Unpack[LocalOptions],
    ) -> None:
        """Take the executor.

        Args:
            executor: Runs the commands.
            name: Name of the tool in the record, for approvals and guardrails.
            needs_approval: Whether calls need an approval; or a predicate (ctx, action, call_id),
                or an ApprovalRule.
            on_approval: Decides in place of a person: (ctx, approval_item) to {"approve": bool}.
            environment: Where commands run.
            options: Other attributes of `Tool`.

        Raises:
            UserError: There is no executor, or commands would not run here.
        """
        self.environment = _environment(environment)
        if not callable(cast("object", executor)):
            msg = (
                f"ShellTool with local environment requires an executor; it got {shown(executor)}."
            )
            remedy = "Pass a function (request) that runs request.data.action.commands."
            raise UserError(msg, remedy=remedy)
        self.executor = executor
        super().__init__(name, needs_approval=needs_approval, on_approval=on_approval, **options)

    @property
    def definition(self) -> dict[str, Json]:
        """The tool as the Responses API has it."""
        return {"type": "shell", "environment": dict(self.environment)}

    def asked(self, ctx: ToolContext[Any, Any] | None, arguments: str) -> ShellActionRequest:  # noqa: ARG002
        """Read the commands of a call.

        Raises:
            ToolArgumentsError: There are none.
        """
        action = data_of(arguments)
        commands: Json = action.get("commands") if is_object(action) else None
        if not is_array(commands) or not all(isinstance(each, str) for each in commands):
            problem = "its action has no list of commands"
            raise ToolArgumentsError(self.name, (problem,), arguments)
        timeout, most = (_whole(action.get(key)) for key in ("timeout_ms", "max_output_length"))
        return ShellActionRequest(list(commands), timeout, most)

    async def execute(self, ctx: ToolContext[Any, Any], asked: ShellActionRequest) -> str:
        """Have the executor run the commands; returns what `shell_call_output` says, as JSON.

        Raises:
            UnusableResultError: The executor returned no text and no ShellResult that is one.
            Exception: An error of the executor.
        """
        data = ShellCallData(ctx.call_id, asked, "completed", self.raw_call(ctx))
        said: object = await invoke(cast("Any", self.executor), ShellCommandRequest(ctx, data))
        if isinstance(said, str):
            said = ShellResult([ShellCommandOutput(said, outcome=ShellCallOutcome("exit", 0))])
        if not isinstance(said, ShellResult):
            why = f"its executor must return a text or a ShellResult; it returned {shown(said)}"
            raise UnusableResultError(self.name, said, why)
        if problem := shell_problem(said):
            raise UnusableResultError(self.name, said, problem)
        return shell_json(said, asked.max_output_length, self.max_output_bytes)


@dataclass
class LocalShellCommandRequest:
    """What the executor of a LocalShellTool is given.

    Attributes:
        ctx_wrapper: The ToolContext of the call.
        data: The call: `action.command`, `action.env`, `action.working_directory` ...
    """

    ctx_wrapper: RunContextWrapper[Any]
    data: LocalShellCall | RawItem


LocalShellExecutor = Callable[[LocalShellCommandRequest], str | Awaitable[str]]
"""Runs the command of a call, and returns its output."""


class LocalShellTool(LocalTool[dict[str, Json]]):
    """Lets a model of the older `local_shell` run commands; ShellTool is its successor.

    Attributes:
        executor: Runs a command.
    """

    kind: ClassVar[CallKind] = "local_shell_call"

    def __init__(self, executor: LocalShellExecutor, **options: Unpack[LocalOptions]) -> None:
        """Take the executor.

        Raises:
            UserError: It cannot be called.
        """
        if not callable(cast("object", executor)):
            msg = f"LocalShellTool(executor=...) is a function (request); it was {shown(executor)}."
            raise UserError(msg)
        self.executor = executor
        super().__init__("local_shell", needs_approval=False, on_approval=None, **options)

    @property
    def definition(self) -> dict[str, Json]:
        """The tool as the Responses API has it."""
        return {"type": "local_shell"}

    def asked(self, ctx: ToolContext[Any, Any] | None, arguments: str) -> dict[str, Json]:  # noqa: ARG002
        """Read the action of a call.

        Raises:
            ToolArgumentsError: It has no command.
        """
        action = data_of(arguments)
        command: Json = action.get("command") if is_object(action) else None
        if (
            not is_object(action)
            or not is_array(command)
            or not all(isinstance(each, str) for each in command)
        ):
            problem = "its action has no command, a list of texts"
            raise ToolArgumentsError(self.name, (problem,), arguments)
        return action

    async def execute(self, ctx: ToolContext[Any, Any], asked: dict[str, Json]) -> str:  # noqa: ARG002
        """Have the executor run the command.

        Raises:
            UnusableResultError: The executor returned no text.
            Exception: An error of the executor.
        """
        request = LocalShellCommandRequest(ctx, self.raw_call(ctx))
        said: object = await invoke(self.executor, request)
        if not isinstance(said, str):
            why = f"its executor must return a text; it returned {shown(said)}"
            raise UnusableResultError(self.name, said, why)
        return said


def _environment(given: object) -> dict[str, Json]:
    if given is not None and not isinstance(given, Mapping):
        raise UserError(f"ShellTool environment must be a mapping; it was {shown(given)}.")
    made: dict[str, Json] = {"type": "local", **cast("Mapping[str, Json]", given or {})}
    if made["type"] != "local":
        msg = (
            f"ShellTool(environment=...) has type {made['type']!r}: Holdfast runs commands here, by"
            " your executor, and does not serve containers of the provider."
        )
        remedy = (
            "Leave environment out; run a container in the executor, or use CodeInterpreterTool."
        )
        raise UserError(msg, remedy=remedy)
    if problem := _environment_problem(made):
        msg = f"ShellTool(environment=...) cannot be used: {problem}."
        raise UserError(msg, remedy='Give {"type": "local", "skills": [...]}, or leave it out.')
    return made


def _environment_problem(made: dict[str, Json]) -> str:
    unknown = sorted(set(map(str, made)) - {"type", "skills"})
    if unknown:
        return f"it has {', '.join(map(repr, unknown))}; 'type' and 'skills' are all that it may"
    skills: object = made.get("skills", [])
    if not isinstance(skills, list):
        return f"its skills must be a list; they are {shown(skills)}"
    for each in cast("list[object]", skills):
        is_mapping = isinstance(each, Mapping)
        members = dict(cast("Mapping[str, object]", each)) if is_mapping else {}
        if set(members) != _OF_SKILL or not all(isinstance(it, str) for it in members.values()):
            return (
                "each of its skills has a 'name', a 'description' and a 'path', all texts; one is"
                f" {shown(each)}"
            )
    return ""


_OF_SKILL = {"name", "description", "path"}


def _whole(given: Json) -> int | None:
    return given if isinstance(given, int) and not isinstance(given, bool) else None
