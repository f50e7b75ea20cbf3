"""Structured final outputs: their JSON Schema for the model, and the validation of its answer."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, from_json, to_json

from holdfast.agents.tools.functions.schema import object_schema, strict_schema, without_titles
from holdfast.errors import InvalidArgumentError, ModelBehaviorError, UserError, message_of
from holdfast.models.base import OutputSpec
from holdfast.values import json_patch as merge_patch
from holdfast.values.base import Json, canonical
from holdfast.values.checks.lenient_json import NotReadableError, read_value
from holdfast.values.text.shown import shown

NAME = "final_output"
"""Name of the structure in requests to a provider."""

WRAPPER = "response"
"""Member that wraps an output that is not an object, because providers require one at the top."""


class AgentOutputSchemaBase(ABC):
    """The structure of an agent's final output. Override the five methods for one of your own."""

    @abstractmethod
    def is_plain_text(self) -> bool:
        """Whether the final output is plain text, so that the model gets no structure."""

    @abstractmethod
    def name(self) -> str:
        """Name of the type, for error messages."""

    @abstractmethod
    def json_schema(self) -> dict[str, Any]:
        """JSON Schema of the model's answer; never asked for with plain text."""

    @abstractmethod
    def is_strict_json_schema(self) -> bool:
        """Whether the provider enforces the schema."""

    @abstractmethod
    def validate_json(self, json_str: str) -> Any:
        """Make the final output of a model's answer.

        Called again, with the same JSON, where the final output of a recorded run is read.

        Raises:
            ModelBehaviorError: The answer does not fit.
        """

    def spec(self) -> OutputSpec:
        """Describe the structure for a model."""
        schema = without_titles(self.json_schema())
        return OutputSpec(name=NAME, json_schema=schema, strict=self.is_strict_json_schema())

    def read(self, text: str) -> Json:
        """Validate a model's answer.

        Returns:
            The final output as JSON data.

        Raises:
            ModelBehaviorError: It is not JSON, or does not fit the type.
        """
        try:
            data = from_json(text, allow_inf_nan=False)
        except ValueError as cause:
            msg = f"Invalid JSON when parsing {text} for {self.name()}; {cause}"
            raise ModelBehaviorError(msg) from cause
        self.validate_json(text)
        return data

    def read_bare(self, text: str) -> Json:
        """Validate JSON text that is the output itself, without a wrapper.

        Raises:
            ModelBehaviorError: It is not JSON, or does not fit the type.
        """
        return self.read(text)

    def load(self, data: Json) -> Any:
        """Make the typed object of a final output's JSON data.

        Raises:
            ModelBehaviorError: The data do not fit the type.
        """
        return self.validate_json(canonical(data).decode())

    def dump(self, value: Any) -> tuple[Json, str]:
        """Write a final output that was made by code, such as an error handler.

        Returns:
            Its JSON data, and its text as a model would have written it.

        Raises:
            UserError: It does not fit the type.
        """
        try:
            text = to_json(value).decode()
            return self.read(text), text
        except (PydanticSerializationError, ValueError, ModelBehaviorError, TypeError) as cause:
            raise _unfit(value, self.name(), cause) from cause


class AgentOutputSchema(AgentOutputSchemaBase):
    """The structure of an agent's final output, made of its type.

    Attributes:
        output_type: A pydantic model, a dataclass, or any type that pydantic can validate.
        strict_json_schema: Whether the provider enforces the schema, and the answer is validated
            without conversions.

    Raises:
        UserError: pydantic cannot describe the type, or OpenAI's strict mode cannot express it.
    """

    def __init__(self, output_type: Any, strict_json_schema: bool = True) -> None:  # noqa: FBT001, FBT002  the Agents SDK's signature
        """Make the schema of a type."""
        check_output_type(output_type)
        self.output_type = output_type
        self.strict_json_schema = strict_json_schema
        self._is_wrapped = not _is_object(output_type)
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(output_type)
            schema = self._adapter.json_schema()
            schema = _wrapped(schema) if self._is_wrapped else object_schema(schema)
            self._schema = strict_schema(schema, what=self.name()) if strict_json_schema else schema
        except (PydanticUserError, SyntaxError, AttributeError, TypeError, RecursionError) as cause:
            msg = f"output_type {self.name()} cannot be described to a model: {cause}"
            raise UserError(msg) from cause
        except InvalidArgumentError as cause:
            remedy = (
                f"Make output_type {self.name()} more precise, or allow it as"
                f" AgentOutputSchema({self.name()}, strict_json_schema=False)."
            )
            raise UserError(message_of(cause), remedy=remedy) from cause

    def name(self) -> str:
        """Name of the type, for error messages."""
        return _type_name(self.output_type)

    def is_plain_text(self) -> bool:
        """Whether the final output is plain text, so that the model gets no structure."""
        return self.output_type is None or self.output_type is str

    def is_strict_json_schema(self) -> bool:
        """Whether the provider enforces the schema."""
        return self.strict_json_schema

    def json_schema(self) -> dict[str, Any]:
        """JSON Schema of the model's answer.

        Raises:
            UserError: The final output is plain text.
        """
        if self.is_plain_text():
            raise UserError("The final output is plain text, for which there is no JSON Schema.")
        return self._schema

    def validate_json(self, json_str: str) -> Any:
        """Make the final output of a model's answer.

        Raises:
            ModelBehaviorError: The answer does not fit.
        """
        return self.load(self.read(json_str))

    def read(self, text: str) -> Json:
        """Validate a model's answer.

        Returns:
            The final output as JSON data, unwrapped.

        Raises:
            ModelBehaviorError: It is not JSON, or does not fit the type.
        """
        try:
            return self._unwrapped(from_json(text, allow_inf_nan=False))
        except (ValueError, TypeError, KeyError) as cause:  # a ValidationError is a ValueError
            for meant in readings(text):
                with suppress(ValueError, TypeError, KeyError):
                    return self._unwrapped(meant)
                with suppress(ValueError):
                    if self._is_wrapped:
                        self.load(meant)
                        return meant
            why = f"no member {WRAPPER!r}" if isinstance(cause, TypeError | KeyError) else cause
            msg = f"Invalid JSON when parsing {text} for {self.name()}; {why}"
            raise ModelBehaviorError(msg) from cause

    def _unwrapped(self, data: Any) -> Json:
        """Return the output that is in a model's data, if it fits."""
        found: Json = data[WRAPPER] if self._is_wrapped else data
        self.load(found)
        return found

    def read_bare(self, text: str) -> Json:
        """Validate JSON text that is the output itself, without a wrapper.

        Raises:
            ModelBehaviorError: It is not JSON, or does not fit the type.
        """
        return self.read(f'{{"{WRAPPER}":{text}}}' if self._is_wrapped else text)

    def load(self, data: Json) -> Any:
        """Make the typed object of a final output's JSON data.

        Fields may be under their aliases, as in the model's answer, or under their names, as in the
        text of `dump`: an alias may be for validation alone, or for serialization alone.

        Raises:
            ValidationError: The data do not fit the type.
        """
        return self._adapter.validate_json(
            canonical(data), strict=self.strict_json_schema or None, by_alias=True, by_name=True
        )

    def dump(self, value: Any) -> tuple[Json, str]:
        """Write a final output that was made by code, such as an error handler.

        Returns:
            Its JSON data, and its text as a model would have written it.

        Raises:
            UserError: It does not fit the type.
        """
        if self._is_wrapped and isinstance(value, dict) and WRAPPER in value:
            value = cast("dict[str, Any]", value)[WRAPPER]
        try:
            text = self._adapter.dump_json(value, warnings="none").decode()
            data = merge_patch.plain(self.read_bare(text), "final output")
        except (PydanticSerializationError, ValueError, ModelBehaviorError, TypeError) as cause:
            raise _unfit(value, self.name(), cause) from cause  # pyright: ignore[reportUnknownArgumentType]  anything is shown
        return data, f'{{"{WRAPPER}":{text}}}' if self._is_wrapped else text


_THOUGHT = re.compile(r"\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL)
_BEGIN = re.compile(r"[{\[]")


def readings(text: str) -> Iterator[Json]:
    """Yield what an answer can only mean that is not the JSON which was asked for.

    It may be in a Markdown fence or among words, begin with a block of thoughts, have the small
    faults that `lenient_json` reads, write whole numbers as 3.0, or be a list of the one object.
    Where a second value follows, or one that is cut off, nothing is yielded.
    """
    text = _THOUGHT.sub("", text, count=1) if _THOUGHT.match(text) else text
    begin = _BEGIN.search(text)
    if begin is None:
        return
    try:
        data, end = read_value(text, begin.start())
    except NotReadableError:
        return
    if _BEGIN.search(text, end):
        return
    yield data
    yield (whole := _whole(data))
    if isinstance(data, list) and len(whole) == 1:
        yield whole[0]


def _whole(data: Any) -> Any:
    """Return JSON data with whole numbers for those like 3.0."""
    match data:
        case float() if data.is_integer() and abs(data) < 2**53:
            return int(data)
        case list():
            return [_whole(each) for each in cast("list[object]", data)]
        case dict():
            return {key: _whole(each) for key, each in cast("dict[str, Any]", data).items()}
        case _:
            return data


def check_output_type(output_type: Any) -> None:
    """Check that an `output_type` is neither text nor a JSON Schema, which pydantic uses otherwise.

    Raises:
        UserError: It is.
    """
    if isinstance(output_type, dict | str):
        raise UserError(
            f"output_type must be a type; it was {shown(output_type)}. Instead of a JSON"  # pyright: ignore[reportUnknownArgumentType]  anything is shown
            " Schema give a pydantic model, a dataclass or a TypedDict."
        )


def output_schema(output_type: Any) -> AgentOutputSchemaBase | None:
    """Return the structure of an agent's `output_type`; None for text.

    Raises:
        UserError: The type cannot be used.
    """
    given = output_type
    schema = given if isinstance(given, AgentOutputSchemaBase) else AgentOutputSchema(given)
    return None if schema.is_plain_text() else schema


def typed_output(schema: AgentOutputSchemaBase | None, data: Json) -> Any:
    """Convert a recorded final output to the `output_type` of its agent.

    A tool's result that ended the run is never validated, so data that do not fit stay as they are,
    whatever error a schema of the user's raises for them.

    Args:
        schema: The structure of its agent's output_type; None for text.
        data: The final output as JSON data.
    """
    if schema is None:
        return data
    try:
        return schema.load(data)
    except ValidationError:
        return data
    except Exception:
        if isinstance(schema, AgentOutputSchema):
            raise
        return data


def _unfit(value: object, name: str, cause: Exception) -> UserError:
    return UserError(f"The final output {shown(value)} does not fit output_type {name}: {cause}")


def _type_name(kind: Any) -> str:
    """Name a type: `list[Item]`, `Literal['a', 'b']`."""
    origin = get_origin(kind)
    if origin is None:
        return str(getattr(kind, "__name__", repr(kind)))
    inside = ", ".join(map(_type_name, get_args(kind)))
    return f"{getattr(origin, '__name__', origin)}[{inside}]"


def _is_object(kind: Any) -> bool:
    """Whether a type is a JSON object at the top, whatever its values."""
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, BaseModel | dict)


def _wrapped(schema: dict[str, Json]) -> dict[str, Json]:
    """Wrap a schema into an object, with its definitions at the top."""
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    outer: dict[str, Json] = {
        "type": "object",
        "properties": {WRAPPER: inner},
        "required": [WRAPPER],
    }
    return {"$defs": schema["$defs"], **outer} if "$defs" in schema else outer
