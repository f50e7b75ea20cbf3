"""Plans of sub-tasks, as data: reading, checking, merging and ordering them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from pydantic import ValidationError, field_validator

from holdfast.errors import InvalidArgumentError
from holdfast.models.base import OutputSpec
from holdfast.values.base import Json, Value
from holdfast.values.checks.gate import clean, is_array, is_object
from holdfast.values.checks.lenient_json import NotReadableError, read_value
from holdfast.values.steps import circle

DEFAULT_NAME = "default"
"""Name of the one sub-task that replaces a plan that could not be read."""

LONGEST_SLUG = 40

MOST_BRACKETS = 1000
"""Most opening brackets of an answer that are tried as the beginning of JSON and fail."""

_THOUGHTS = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_NOTHING_LEFT = re.compile(r"(?:\A|\n)[ \t]*(?:```\w*\s*)?\[\s*\]\s*(?:```\s*)?\Z")

_TEXT: dict[str, Json] = {"type": "string"}
PLAN_OUTPUT = OutputSpec(
    name="plan",
    json_schema={
        "type": "object",
        "properties": {
            "sub_tasks": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": _TEXT,
                        "input": _TEXT,
                        "expected_output": _TEXT,
                        "dependencies": {"type": "array", "items": _TEXT},
                    },
                    "required": ["name", "input", "expected_output", "dependencies"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["sub_tasks"],
        "additionalProperties": False,
    },
)


class SubTask(Value):
    """One part of a plan.

    Attributes:
        name: Unique in its plan.
        input: Instructions for the sub-task.
        expected_output: Description of the result.
        dependencies: Names of the sub-tasks whose results it needs.
    """

    name: str
    input: str
    expected_output: str = ""
    dependencies: tuple[str, ...] = ()

    @field_validator("name", "input", "expected_output")
    @classmethod
    def _tidy(cls, text: str) -> str:
        return clean(text).strip()

    @field_validator("name", "input")
    @classmethod
    def _says_something(cls, text: str) -> str:
        if not text:
            raise ValueError("must not be empty")
        return text

    @field_validator("dependencies")
    @classmethod
    def _each_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(clean(name).strip() for name in names))


class Plan(Value):
    """Sub-tasks, in the order in which the model wrote them."""

    sub_tasks: tuple[SubTask, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all sub-tasks."""
        return tuple(each.name for each in self.sub_tasks)


def default_plan(request: str) -> Plan:
    """Make a plan of one sub-task: the whole request."""
    return Plan(sub_tasks=(SubTask(name=DEFAULT_NAME, input=request or "Go on."),))


def read_plan(text: str) -> Plan:
    """Read a plan out of a model's answer: JSON alone, fenced, or somewhere in the text.

    JSON with small faults is read too, see `lenient_json`. Of several plans in a text the last one
    counts, because drafts come first; a `<think>` block at the beginning is skipped. Dependencies
    are checked later, by `check`.

    Args:
        text: The answer; `{"sub_tasks": [...]}` or the list alone. An empty list alone must be the
            last line.

    Raises:
        InvalidArgumentError: It holds no plan; the text is a message for the model.
    """
    text = _THOUGHTS.sub("", text, count=1)
    found = [each for value in _json_values(text) if (each := _listed(value)) is not None]
    if _NOTHING_LEFT.search(text):
        return Plan()
    if not found:
        raise InvalidArgumentError('The answer holds no JSON object with a list "sub_tasks".')
    try:
        return Plan.model_validate({"sub_tasks": _tidied(found[-1])})
    except ValidationError as error:
        raise InvalidArgumentError(_in_words(error)) from error


def _json_values(text: str) -> Iterator[Json]:
    """Yield each JSON object or list in a text, without the ones nested in them."""
    decoder, at, left = json.JSONDecoder(), 0, MOST_BRACKETS
    while left and (opening := re.compile(r"[{\[]").search(text, at)):
        try:
            value, at = _json_value(decoder, text, opening.start())
        except NotReadableError:
            at, left = opening.end(), left - 1
        except RecursionError:  # endless brackets: the rest of the text holds no plan either
            return
        else:
            yield value


def _json_value(decoder: json.JSONDecoder, text: str, at: int) -> tuple[Json, int]:
    """Read a value as JSON or, if it has small faults, as `lenient_json` reads it.

    Raises:
        NotReadableError: It cannot be read as either.
        RecursionError: It is nested too deeply.
    """
    try:
        return decoder.raw_decode(text, at)
    except ValueError:
        return read_value(text, at)


def _listed(value: Json) -> list[Json] | None:
    """Return the sub-tasks of a value that looks like a plan, also inside of `{"plan": ...}`."""
    if is_object(value):
        listed = value.get("sub_tasks", value.get("plan"))
        return listed if is_array(listed) else _listed(listed)
    if not is_array(value) or not value:
        return None
    return value if all(is_object(item) and "name" in item for item in value) else None


def _tidied(sub_tasks: list[Json]) -> list[Json]:
    """Convert the fields of sub-tasks to the types of `SubTask`, where the meaning is clear."""
    names = [str(each.get("name")).strip() for each in sub_tasks if is_object(each)]
    return [_tidy(each, names) if is_object(each) else each for each in sub_tasks]


def _tidy(sub_task: dict[str, Json], names: Collection[str]) -> dict[str, Json]:
    tidied = {key: value for key, value in sub_task.items() if value is not None}
    if "name" in tidied:
        tidied["name"] = _as_text(tidied["name"])
    needs = _as_text(tidied.get("dependencies", []))
    if isinstance(needs, str):
        one = needs.strip()
        needs = [one] if one in names else [each for each in one.split(",") if each.strip()]
    tidied["dependencies"] = [_as_text(each) for each in needs] if is_array(needs) else needs
    return tidied


def _as_text(value: Json) -> Json:
    """Return a number as text, because models number their sub-tasks; other values unchanged."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else value


def _in_words(error: ValidationError) -> str:
    places = (".".join(map(str, each["loc"])) + ": " + each["msg"] for each in error.errors())
    return "The plan is not of the form asked for: " + "; ".join(places) + "."


def check(plan: Plan) -> None:
    """Check that every sub-task of a plan can be run.

    Raises:
        InvalidArgumentError: No sub-tasks, a name used twice, an unknown dependency, or a cycle;
            the text lists all problems, as a message for the model.
    """
    names = plan.names
    twice = sorted({name for name in names if names.count(name) > 1})
    problems = [f"The name {name!r} is used more than once." for name in twice]
    problems += [
        f"Sub-task {each.name!r} depends on {missing!r}, but no sub-task has that name."
        for each in plan.sub_tasks
        for missing in each.dependencies
        if missing not in names
    ]
    if not problems and (ring := circle({e.name: e.dependencies for e in plan.sub_tasks})):
        problems.append(f"Sub-tasks wait for each other: {' -> '.join(map(repr, ring))}.")
    if not names:
        problems.append("The plan has no sub-tasks.")
    if problems:
        raise InvalidArgumentError(" ".join(problems))


def ready(plan: Plan, done: Collection[str]) -> tuple[SubTask, ...]:
    """Return the sub-tasks that can run now: not done, with all dependencies done."""
    return tuple(
        each
        for each in plan.sub_tasks
        if each.name not in done and all(name in done for name in each.dependencies)
    )


def terminal(plan: Plan) -> tuple[str, ...]:
    """Return the names of the sub-tasks that no other one depends on, in the plan's order."""
    needed = {name for each in plan.sub_tasks for name in each.dependencies}
    return tuple(name for name in plan.names if name not in needed)


def merge(plan: Plan, done: Collection[str], refined: Plan) -> Plan:
    """Replace the remaining sub-tasks of a plan; finished ones stay.

    Args:
        plan: The plan so far.
        done: Names of its sub-tasks that are done.
        refined: The new remaining sub-tasks; one whose name is done already is skipped. An empty
            plan means that nothing is left to do.

    Raises:
        InvalidArgumentError: The merged plan cannot be run: see `check`.
    """
    kept = tuple(each for each in plan.sub_tasks if each.name in done)
    rest = tuple(each for each in refined.sub_tasks if each.name not in done)
    merged = Plan(sub_tasks=(*kept, *rest))
    check(merged)
    return merged


def step_ids(prefix: str, names: Sequence[str], taken: Mapping[str, str]) -> dict[str, str]:
    """Make a unique step id for each sub-task, and return the ids of all, by name.

    Args:
        prefix: Prefix of the ids of this plan.
        names: Names of sub-tasks that get their steps now.
        taken: Name to step id, for sub-tasks that have a step already.
    """
    ids = dict(taken)
    for name in names:
        slug = re.sub(r"\W+", "-", name.lower())[:LONGEST_SLUG].strip("-") or "sub-task"
        used, number, step_id = set(ids.values()), 1, f"{prefix}:{slug}"
        while step_id in used:
            number += 1
            step_id = f"{prefix}:{slug}-{number}"
        ids[name] = step_id
    return ids
