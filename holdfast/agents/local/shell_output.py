"""What commands of a shell call came to, and its text for the record and the provider."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from holdfast.values.base import Json
from holdfast.values.text.shown import shown


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
