"""Makes the JSON Schema of a Python function for a model, and validates arguments by it.

Source of the strict rules: OpenAI, "Structured model outputs", section "Supported schemas".
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Optional, cast

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from holdfast.agents.tools.signature import (
    EMPTY,
    annotation_of,
    docstring_of,
    is_context,
    name_of,
    parameters_of,
    read_docstring,
    source_of,
)
from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json

Schema = dict[str, Json]

_MAPS = ("properties", "$defs", "patternProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES = ("items", "additionalProperties", "not", "contains", "propertyNames")

_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)
# The provider does not enforce these; the arguments are validated by them nevertheless.
_DROPPED = ("default", "discriminator", "examples", "minLength", "maxLength", "uniqueItems")
_LOOKAROUNDS = ("(?=", "(?!", "(?<=", "(?<!")


def without_titles(schema: Schema) -> Schema:
    """Return the schema without titles, which cost tokens and say nothing new to the model."""
    return {key: value for key, value in _inside(schema, without_titles).items() if key != "title"}


def is_same_shape(one: Schema, other: Schema) -> bool:
    """Whether two schemas allow the same data; titles and descriptions may differ."""
    return one == other or _shape(one) == _shape(other)


def _shape(schema: Schema) -> Schema:
    inner = _inside(schema, _shape)
    return {key: value for key, value in inner.items() if key not in _WORDS}


_WORDS = frozenset({"title", "description", "examples"})
"""Keywords of a schema that do not restrict the data."""


def object_schema(schema: Schema) -> Schema:
    """Return the schema with its type at the top, also for a type that contains itself.

    pydantic puts such a type among the definitions and refers to it, but providers require an
    object at the top of a schema. The definitions stay, because the type refers to itself there.

    Args:
        schema: JSON Schema, as pydantic makes it.
    """
    begin = "#/$defs/"
    reference = str(schema.get("$ref", ""))
    if not reference.startswith(begin):
        return schema
    return {**schema["$defs"][reference.removeprefix(begin)], **_without(schema, "$ref")}


def strict_schema(schema: Schema, *, what: str) -> Schema:
    """Return the schema under OpenAI's strict rules.

    Objects are closed and all their properties required; defaults, and constraints that the
    provider cannot enforce, are removed.

    Args:
        schema: JSON Schema of an object, as pydantic makes it.
        what: Name of the described thing, for the error.

    Raises:
        InvalidArgumentError: It holds something that strict mode cannot express.
    """
    return _strict(schema, what)


def _inside(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """Return the schema with each schema directly inside of it changed; other values stay."""
    new: Schema = {}
    for key, value in schema.items():
        if key in _MAPS:
            new[key] = {name: _changed(inner, change) for name, inner in value.items()}
        elif key in _LISTS:
            new[key] = [_changed(inner, change) for inner in value]
        else:
            new[key] = _changed(value, change) if key in _SINGLES else value
    return new


def _changed(inner: Json, change: Callable[[Schema], Schema]) -> Json:
    return change(cast("Schema", inner)) if isinstance(inner, dict) else inner


def _strict(schema: Schema, what: str) -> Schema:
    reference = schema.get("$ref")
    if reference and schema.keys() - {"$ref", "default"}:  # a reference may have no neighbours
        schema = {**_without(schema, "$ref"), "anyOf": [{"$ref": reference}]}
    if "oneOf" in schema:
        schema = {**_without(schema, "oneOf"), "anyOf": schema["oneOf"]}
    _refuse(schema, what)
    new = _inside(_without(schema, *_DROPPED), lambda inner: _strict(inner, what))
    if new.get("format") not in _FORMATS:
        new.pop("format", None)
    if any(mark in str(new.get("pattern", "")) for mark in _LOOKAROUNDS):
        del new["pattern"]
    if new.get("type") == "object":
        new |= {"additionalProperties": False, "required": list(new["properties"])}
    return new


def _refuse(schema: Schema, what: str) -> None:
    """Refuse a schema that strict mode cannot express."""
    kinds = ("type", "anyOf", "enum", "const", "$ref")
    reason = ""
    if not any(kind in schema for kind in kinds):
        reason = "a value of any type"
    elif schema.get("additionalProperties") not in (None, False) or (
        schema.get("type") == "object" and "properties" not in schema
    ):
        reason = "a dict with free keys"
    elif "prefixItems" in schema:
        reason = "a tuple"
    elif schema.get("type") == "array" and "items" not in schema:
        reason = "a list of anything"
    if reason:
        msg = f"The schema of {what} holds {reason}, which OpenAI's strict mode cannot express."
        remedy = (
            "Give it a precise type (a dataclass or pydantic model, list[str], ...) or use"
            " strict=False."
        )
        raise InvalidArgumentError(msg, remedy=remedy)


def _without(schema: Schema, *keys: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in keys}


@dataclass(frozen=True, kw_only=True)
class FunctionSchema:
    """The signature of a function for a model.

    Attributes:
        name: Name of the function.
        description: Its docstring without the sections about parameters, results and errors.
        parameters: JSON Schema of the arguments object.
        model: Validates the arguments; its fields have names of their own (p0, p1, ...) and the
            parameters' names as aliases.
        fields: Field of `model` to parameter, in the order of the signature.
        always: Fields passed on even when the model omitted them: the function has no default of
            its own for them, or needs them by position.
        positional: Parameters that can only be passed by position, in order.
        context: Parameter that takes the ToolContext, or None.
    """

    name: str
    description: str
    parameters: dict[str, Json]
    model: type[BaseModel]
    fields: Mapping[str, str]
    always: frozenset[str] = frozenset()
    positional: tuple[str, ...] = ()
    context: str | None = None

    def values(self, arguments: str) -> dict[str, Any]:
        """Return the validated arguments by parameter.

        Arguments that the model omitted are omitted here, too, so that the function's own default
        applies.

        Raises:
            pydantic.ValidationError: The arguments do not fit.
        """
        valid = self.model.model_validate_json(arguments)
        given = valid.model_fields_set | self.always
        return {
            name: getattr(valid, field) for field, name in self.fields.items() if field in given
        }

    def bind(self, ctx: Any, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the keyword arguments of one call."""
        named = dict(values) if self.context is None else {self.context: ctx, **values}
        return [named.pop(name) for name in self.positional], named


class _Schema(GenerateJsonSchema):
    """pydantic's generator, without warnings about defaults that JSON cannot represent."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012


def read_function(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool = False,
) -> FunctionSchema:
    """Read signature and docstring of a function, method, `functools.partial` or callable object.

    Args:
        function: The function. Arguments that a partial binds by name are not shown to the model.
        name: Name in place of the function's own.
        description: Description in place of the docstring's.
        strict: Whether the schema must follow OpenAI's strict rules.

    Raises:
        InvalidArgumentError: The function cannot be called with a JSON object; the text names the
            parameter and what to write instead.
        UserError: It takes a context of another library.
    """
    source = source_of(function)
    name = name_of(function, source) if name is None else name
    said, about = read_docstring(docstring_of(function, source))
    definitions: dict[str, Any] = {}
    fields: dict[str, str] = {}
    always: set[str] = set()
    positional: list[str] = []
    context: str | None = None
    for index, parameter in enumerate(parameters_of(function, name)):
        annotation = annotation_of(parameter, source, name)
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            positional.append(parameter.name)
        if is_context(annotation, name):
            if index:
                msg = (
                    f"Tool {name!r} takes its ToolContext as {parameter.name!r}, which is not the"
                    " first parameter. Move it to the front."
                )
                raise InvalidArgumentError(msg)
            context = parameter.name
            continue
        field = f"p{index}"
        fields[field] = parameter.name
        borrowed = parameter.default is EMPTY or isinstance(parameter.default, FieldInfo)
        if borrowed or parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            always.add(field)
        definitions[field] = _definition(annotation, parameter, about.get(parameter.name))
    model, schema = _model(name, definitions)
    return FunctionSchema(
        name=name,
        description=said if description is None else description,
        parameters=strict_schema(schema, what=f"tool {name!r}") if strict else schema,
        model=model,
        fields=fields,
        always=frozenset(always),
        positional=tuple(positional),
        context=context,
    )


def _definition(annotation: Any, parameter: inspect.Parameter, about: str | None) -> Any:
    """Return the pydantic field of one parameter."""
    base, *extras = (
        typing.get_args(annotation) if typing.get_origin(annotation) is Annotated else [annotation]
    )
    default = parameter.default
    if default is None:
        base = Optional[base]  # noqa: UP045  `|` fails on some special forms
    described = [e.description for e in extras if isinstance(e, FieldInfo)]
    texts = [extra for extra in extras if isinstance(extra, str)]
    if isinstance(default, FieldInfo):
        extras.append(default)
        described.append(default.description)
    elif default is not EMPTY:
        extras.append(Field(default=default))
    name = parameter.name
    text = next(filter(None, described), None) or next(iter(texts), about)
    named = Field(alias=name, validation_alias=name, serialization_alias=name, description=text)
    extras.append(named)
    return Annotated[(base, *extras)]


def _model(name: str, definitions: dict[str, Any]) -> tuple[type[BaseModel], dict[str, Json]]:
    config = ConfigDict(extra="forbid", allow_inf_nan=False, protected_namespaces=())
    try:
        model = create_model("Arguments", __config__=config, **definitions)
        schema = model.model_json_schema(schema_generator=_Schema)
    except (PydanticUserError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        msg = (
            f"Tool {name!r} has a parameter whose type cannot be described to a model: {reason}"
            " Use JSON types, Literal, enums, dataclasses, TypedDict or pydantic models."
        )
        raise InvalidArgumentError(msg) from error
    return model, {"properties": {}, **without_titles(schema)}
