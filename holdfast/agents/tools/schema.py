"""From a Python function to what a model is told of it, and back from JSON to its arguments."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Optional

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
from holdfast.agents.tools.strict_schema import strict_schema, without_titles
from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json


@dataclass(frozen=True, kw_only=True)
class FunctionSchema:
    """How a model calls a function.

    Attributes:
        name: Name of the function.
        description: Its docstring without the sections about parameters, results and errors.
        parameters: JSON Schema of the arguments object.
        model: Validates the arguments; its fields are named apart from the parameters, by alias.
        fields: Field of `model` to parameter, in the order of the signature.
        always: Fields passed on even when the model left them out: the function has no default of
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

        What the model left out is left out here too, so that the function's own default applies.

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
    """A default that JSON cannot show is left out of the schema without a warning."""

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
        function: What the model shall call. Arguments that a partial binds by name are not shown.
        name: Name instead of the function's own.
        description: Description instead of the docstring's.
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
