"""FuncSchema: the signature of a function as JSON Schema, and its calls by JSON arguments.

What the tool does and what its parameters mean is read from the function's docstring.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import date, time
from enum import Enum
from pathlib import PurePath
from typing import Annotated, Any, Literal, Optional, cast, get_args
from uuid import UUID

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, RootModel, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema, from_json, to_jsonable_python

from holdfast.agents.tools.functions.schema import closed_schema, sent_schema, without_titles
from holdfast.agents.tools.functions.signature import (
    EMPTY,
    annotation_of,
    is_context,
    name_of,
    names_of,
    parameters_of,
    return_annotation_of,
    source_of,
)
from holdfast.errors import DeclarationError, ModelBehaviorError
from holdfast.values.base import Json
from holdfast.values.checks.gate import is_array, is_object
from holdfast.values.text.shown import shown

_NAMES = (date, time, UUID, PurePath)
"""Types whose text says all, since nothing is computed with them: `datetime` is a `date`."""


def is_as_written(value: object, given: Json) -> bool:
    """Whether a value has the kind and the content of JSON data.

    Models and dataclasses are compared with objects by all their fields, enumerations by their
    values; dates, times, UUIDs and paths with the text that pydantic writes. A whole number where a
    float is expected counts as written so, and True is not 1. Nothing else is as written: a Decimal
    is not text, whatever it is written as.

    Args:
        value: What was made of the data.
        given: The data.
    """
    whole: Any = value  # isinstance alone loses the types of its parts
    if isinstance(value, RootModel):
        return is_as_written(whole.root, given)
    if isinstance(value, Enum):
        return is_as_written(value.value, given)
    if isinstance(value, set | frozenset) and is_array(given):
        return is_as_written(sorted(whole, key=repr), sorted(given, key=repr))
    if isinstance(value, list | tuple):
        same_length = is_array(given) and len(whole) == len(given)
        return same_length and all(map(is_as_written, whole, given))
    members = _members(whole, given) if is_object(given) else None
    if members is not None:
        return members.keys() == given.keys() and all(
            is_as_written(members[key], given[key]) for key in given
        )
    if isinstance(value, _NAMES):
        return bool(to_jsonable_python(value) == given)
    is_plain = value is None or isinstance(value, bool | int | float | str)
    return is_plain and value == given and isinstance(value, bool) == isinstance(given, bool)


def _members(value: object, given: Mapping[str, Json]) -> Mapping[Any, Any] | None:
    """Return an object's members by their keys in JSON; None if it is not an object."""
    whole: Any = value  # as above
    if isinstance(value, dict):
        members: dict[Any, Any] = whole
        return members
    if isinstance(value, BaseModel):
        known = type(value).model_fields
        named = {_key(name, each.validation_alias, given): name for name, each in known.items()}
        return {key: getattr(value, name) for key, name in named.items()} | (
            value.model_extra or {}
        )
    if dataclasses.is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    return None


def _key(name: str, alias: object, given: Mapping[str, Json]) -> str:
    """Return under which key a field was given: its alias, or, where models take it, its name.

    Of several aliases that is the first, by which others read the data.
    """
    if isinstance(alias, AliasChoices):
        alias = alias.choices[0]
    return alias if isinstance(alias, str) and (alias in given or name not in given) else name


MADE_LATER = "made by the tool when it runs"
"""What people are shown of a default that is another one each time."""


class MadeDefaults(GenerateJsonSchema):
    """Tells the defaults that functions make as well, which pydantic leaves out."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Return the schema of a value that may be left out."""
        found = {**super().default_schema(schema)}
        if "default_factory" in schema:
            found["default"] = self._made(schema["default_factory"])
        return found

    def _made(self, make: Callable[..., Any]) -> Json:
        """Return what a function makes, if it makes the same each time."""
        try:
            first, second = (self.encode_default(make()) for _ in range(2))
        except Exception:  # noqa: BLE001  it takes other arguments, or the call tells how it fails
            return MADE_LATER
        return first if first == second else MADE_LATER


def makes_defaults(model: type[BaseModel]) -> bool:
    """Whether a model has a default that a function makes, at any depth."""
    parts: list[Any] = [model.__pydantic_core_schema__]
    for part in parts:  # it grows while it is read
        if isinstance(part, dict):
            if "default_factory" in part:
                return True
            parts.extend(cast("dict[str, Any]", part).values())
        elif isinstance(part, list | tuple):
            parts.extend(cast("list[Any]", part))
    return False


DocstringStyle = Literal["google", "numpy", "sphinx"]
"""Google: "Args:"; NumPy: "Parameters" above dashes; Sphinx: ":param x:"."""

_OPTIONS: Any = {name: {"warnings": False} for name in get_args(DocstringStyle)}
_HEADING_AFTER_TEXT = re.compile(
    r"(?<=\S\n)(?=(?:args|arguments|params|parameters):[ \t]*\n[ \t])", re.IGNORECASE
)
"""Where a section of parameters lacks the empty line above it, without which it counts as text."""
_HEADING = re.compile(r"(?:args|arguments|params|parameters):[ \t]*\n[ \t]", re.IGNORECASE)
"""A section of parameters at the beginning."""


@dataclass
class FuncDocumentation:
    """What a docstring says of a function.

    Attributes:
        name: Name of the function.
        description: Its docstring without the sections on parameters, results and errors; None
            without a docstring.
        param_descriptions: Parameter to text; None without any.
    """

    name: str
    description: str | None
    param_descriptions: dict[str, str] | None


def generate_func_documentation(
    func: Callable[..., Any], style: DocstringStyle | None = None
) -> FuncDocumentation:
    """Read the docstring of a function.

    Args:
        func: The function.
        style: Style of its docstring; None to find it out.

    Raises:
        DeclarationError: There is no such style.
    """
    said, about = read_docstring(inspect.getdoc(func) or "", style)
    name = str(getattr(func, "__name__", type(func).__name__))
    return FuncDocumentation(name, said or None, about or None)


def documentation_of(
    function: Callable[..., Any], source: Any, style: DocstringStyle | None
) -> tuple[str, dict[str, str]]:
    """Return the description of a function and its parameters.

    A callable object is described by its class, and its parameters by its `__call__`, if both have
    a docstring; else both by the one that there is.

    Args:
        function: The function, partial, method or callable object.
        source: The plain function behind it.
        style: Style of the docstrings; None to find it out.

    Raises:
        DeclarationError: There is no such style.
    """
    said, about = read_docstring(inspect.getdoc(source) or "", style)
    if inspect.isroutine(function) or isinstance(function, functools.partial | type):
        return said, about
    if source is not inspect.unwrap(type(function).__call__):  # a wrapper of a function
        return said, about
    whole, fallback = read_docstring(inspect.getdoc(type(function)) or "", style)
    return whole or said, about or fallback


def read_docstring(text: str, style: DocstringStyle | None = None) -> tuple[str, dict[str, str]]:
    """Split a docstring (Google, NumPy or Sphinx style) into description and parameters.

    Returns:
        The description, without the sections on results and errors, and parameter to text.

    Raises:
        DeclarationError: There is no such style.
    """
    if style is not None and style not in get_args(DocstringStyle):
        known = ", ".join(map(repr, get_args(DocstringStyle)))
        msg = f"docstring_style={shown(style)} is not one of {known}; None finds it out."
        raise DeclarationError(msg)
    if len(text.splitlines()) <= 1:
        return text, {}
    import griffe  # `import holdfast` stays light

    said: list[str] = []
    about: dict[str, str] = {}
    if style is None and _HEADING.match(text):  # griffe looks for one below other text
        style = "google"
    text = _HEADING_AFTER_TEXT.sub("\n", text)
    # griffe takes the first line out of the indentation, also that of a section that begins there.
    doc = griffe.Docstring("\n" + text, lineno=1)
    if style is None:
        sections = griffe.parse_auto(doc, per_style_options=_OPTIONS)
    else:
        sections = doc.parse(style, warnings=False)
    for section in sections:
        match section:
            case griffe.DocstringSectionText():
                said.append(section.value)
            case griffe.DocstringSectionAdmonition():
                said.append(f"{section.title}: {section.value.description}")
            case griffe.DocstringSectionParameters():
                about |= {
                    p.name.lstrip("*"): " ".join(p.description.split()) for p in section.value
                }
            case _:
                pass
    return "\n\n".join(said), about


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class FuncSchema:
    """The signature of a function for a model. Made by `function_schema`.

    Attributes:
        name: Name of the function.
        description: Its docstring without the sections about parameters, results and errors.
        params_pydantic_model: Validates the arguments. Their names are the aliases of its fields:
            those of the parameters, unless `Field(alias=...)` gives another.
        params_json_schema: JSON Schema of the arguments object.
        signature: The function's signature, without what a partial binds by name.
        takes_context: Whether the first parameter takes the ToolContext; it is not in the schema.
        strict_json_schema: Whether the schema follows strict rules.
        return_annotation: Type of the result, as far as it can be resolved.
        fields: Field of the pydantic model to parameter, in the order of the signature.
        always: Fields passed on even when the model omitted them: the function has no default of
            its own for them, or needs them by position.
        makes_defaults: Whether functions make some of the defaults.
    """

    name: str
    description: str | None
    params_pydantic_model: type[BaseModel]
    params_json_schema: dict[str, Json]
    signature: inspect.Signature
    takes_context: bool = False
    strict_json_schema: bool = True
    return_annotation: Any = EMPTY
    _: KW_ONLY
    fields: Mapping[str, str] = field(default_factory=dict[str, str])
    always: frozenset[str] = frozenset()
    makes_defaults: bool = False

    @property
    def parameters(self) -> dict[str, Json]:
        """The schema as a model is sent it: without titles, which cost tokens."""
        plain = without_titles(self.params_json_schema)
        return sent_schema(plain, strict=self.strict_json_schema)[0]

    def with_made_defaults(self) -> dict[str, Json]:
        """Return the schema with the defaults that functions make now, another time others."""
        return self.params_pydantic_model.model_json_schema(schema_generator=MadeDefaults)

    @property
    def argument_names(self) -> list[str]:
        """Names of the arguments as a model writes them, in the order of the signature."""
        return list(self.params_json_schema["properties"])

    @functools.cached_property
    def context(self) -> str | None:
        """Name of the parameter that takes the ToolContext, or None."""
        return next(iter(self.signature.parameters)) if self.takes_context else None

    def to_call_args(self, data: BaseModel) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the keyword arguments of a call, without the context.

        Args:
            data: Validated arguments: an object of `params_pydantic_model`.

        Raises:
            ModelBehaviorError: A parameter is named twice, alone and among `**kwargs`.
        """
        by_parameter = {name: each for each, name in self.fields.items()}
        values = {
            name: getattr(data, by_parameter.get(name, name))
            for name in self.signature.parameters
            if name != self.context
        }
        if twice := self.named_twice(values):
            raise ModelBehaviorError(f"Invalid arguments for tool {self.name}: {twice}")
        return self.bind(values)

    def values(self, arguments: str) -> dict[str, Any]:
        """Return the validated arguments by parameter.

        Arguments that the model omitted stay omitted, so that the function's own defaults apply.

        Raises:
            pydantic.ValidationError: The arguments do not fit.
        """
        valid = self.params_pydantic_model.model_validate_json(arguments)
        given = valid.model_fields_set | self.always
        return {
            name: getattr(valid, field) for field, name in self.fields.items() if field in given
        }

    def named_twice(self, values: Mapping[str, Any]) -> str:
        """Say which parameters arguments name twice, by themselves and among `**kwargs`, or empty.

        A parameter that is taken by position alone leaves its name to `**kwargs`.

        Args:
            values: The arguments by parameter.
        """
        parameters, more = self.signature.parameters, self._more
        free = values.get(more)
        if not free:
            return ""
        named = sorted([k for k in free if k in parameters and parameters[k].kind in _NAMED])
        if not named:
            return ""
        be = "is" if len(named) == 1 else "are"
        return (
            f"{', '.join(map(repr, named))} {be} both a named parameter and a key in {more!r}. Pass"
            " each argument once, as a named parameter."
        )

    @functools.cached_property
    def _more(self) -> str:
        """Name of the parameter that takes all other names, or empty."""
        found = self.signature.parameters.items()
        return next((name for name, each in found if each.kind is _VARIADIC[1]), "")

    @functools.cached_property
    def _has_stars(self) -> bool:
        """Whether a parameter takes all other positions."""
        return any(each.kind is _VARIADIC[0] for each in self.signature.parameters.values())

    def is_as_written(self, arguments: str) -> bool:
        """Whether the function gets just what the model wrote: no defaults, nothing converted.

        See `holdfast.agents.tools.functions.function_schema`.

        Raises:
            pydantic.ValidationError: The arguments do not fit.
        """
        valid = self.params_pydantic_model.model_validate_json(arguments)
        return is_as_written(valid, from_json(arguments))

    def data(self, arguments: str) -> dict[str, Any]:
        """Return the arguments with which the function runs, models as dicts, defaults filled in.

        Raises:
            pydantic.ValidationError: The arguments do not fit.
        """
        return self.params_pydantic_model.model_validate_json(arguments).model_dump(by_alias=True)

    def bind(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the keyword arguments of one call.

        Args:
            values: The arguments by parameter, with the context where the function takes it.
        """
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for name, each in self.signature.parameters.items():
            if name not in values:
                continue
            if each.kind is each.VAR_POSITIONAL:
                positional += values[name]
            elif each.kind is each.VAR_KEYWORD:
                named |= values[name]
            elif each.kind is each.POSITIONAL_ONLY or (
                each.kind is each.POSITIONAL_OR_KEYWORD
                and (self._has_stars or name == self.context)
            ):
                positional.append(values[name])
            else:
                named[name] = values[name]
        return positional, named


def function_schema(  # noqa: PLR0917  the Agents SDK's signature
    func: Callable[..., Any],
    docstring_style: DocstringStyle | None = None,
    name_override: str | None = None,
    description_override: str | None = None,
    use_docstring_info: bool = True,  # noqa: FBT001, FBT002
    strict_json_schema: bool = True,  # noqa: FBT001, FBT002
) -> FuncSchema:
    """Read signature and docstring of a function, method, `functools.partial` or callable object.

    Args:
        func: The function. Arguments that a partial binds by name are not shown to the model.
        docstring_style: Style of the docstring; None to find it out.
        name_override: Name in place of the function's own.
        description_override: Description in place of the docstring's.
        use_docstring_info: Whether the docstring is read at all.
        strict_json_schema: Whether the schema is closed and all parameters required.

    Raises:
        DeclarationError: The function cannot be called with a JSON object; the text names the
            parameter and what to write instead.
        UserError: It takes a context of another library.
    """
    source = source_of(func)
    name = name_of(func, source) if name_override is None else name_override
    said, about = (
        documentation_of(func, source, docstring_style) if use_docstring_info else ("", {})
    )
    definitions: dict[str, Any] = {}
    fields: dict[str, str] = {}
    always: set[str] = set()
    takes_context = False
    names = names_of(func, source)
    parameters = parameters_of(func, name)
    has_stars = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    for index, parameter in enumerate(parameters):
        annotation = annotation_of(parameter, names, name)
        if is_context(annotation, name):
            takes_context = _check_context(parameter, index, name)
            continue
        if strict_json_schema and parameter.kind is _VARIADIC[1]:
            raise _free_keys(name, parameter.name)
        own = f"p{index}"
        fields[own] = parameter.name
        if _is_passed(parameter, has_stars=has_stars):
            always.add(own)
        definitions[own] = _definition(annotation, parameter, about.get(parameter.name))
    model, schema = _model(name, definitions)
    _check_names(name, fields, model)
    if strict_json_schema:
        schema = closed_schema(schema, what=f"tool {name!r}")
    return FuncSchema(
        name=name,
        description=said if description_override is None else description_override,
        params_pydantic_model=model,
        params_json_schema=schema,
        signature=inspect.Signature(parameters),
        takes_context=takes_context,
        strict_json_schema=strict_json_schema,
        return_annotation=return_annotation_of(func, names),
        fields=fields,
        always=frozenset(always),
        makes_defaults=makes_defaults(model),
    )


def _free_keys(tool: str, name: str) -> DeclarationError:
    msg = (
        f"Tool {tool!r} takes **{name}, an object with free keys, which a strict schema cannot"
        " express."
    )
    remedy = (
        f"Set strict_mode=False (strict=False, strict_json_schema=False): the model then gives them"
        f" in a nested object {name!r}. Or name each parameter."
    )
    return DeclarationError(msg, remedy=remedy)


def _check_context(parameter: inspect.Parameter, index: int, tool: str) -> bool:
    """Refuse a context that is not the first parameter.

    Raises:
        DeclarationError: It is not the first parameter, or takes many arguments.
    """
    if index == 0 and parameter.kind not in _VARIADIC:
        return True
    raise DeclarationError(
        f"Tool {tool!r} takes its ToolContext as {parameter.name!r}, which is not the first"
        " parameter. Move it to the front, or write an explicit wrapper function."
    )


def _is_passed(parameter: inspect.Parameter, *, has_stars: bool) -> bool:
    """Whether an argument is passed on even when the model omitted it."""
    if parameter.kind in _VARIADIC:
        return False
    if parameter.default is EMPTY or isinstance(parameter.default, FieldInfo):
        return True
    by_position = parameter.kind is parameter.POSITIONAL_OR_KEYWORD and has_stars
    return by_position or parameter.kind is parameter.POSITIONAL_ONLY


def _definition(annotation: Any, parameter: inspect.Parameter, about: str | None) -> Any:
    """Return the pydantic field of one parameter."""
    base, *extras = (
        typing.get_args(annotation) if typing.get_origin(annotation) is Annotated else [annotation]
    )
    default = parameter.default
    if parameter.kind in _VARIADIC:  # what restricts a value restricts each of them
        of_each = [extra for extra in extras if not isinstance(extra, str)]
        if parameter.kind is parameter.VAR_POSITIONAL:
            base, default = _list_of(base, of_each), Field(default_factory=list)
        else:
            base, default = _dict_of(base, of_each), Field(default_factory=dict)
        extras = [e for extra in extras for e in _about(extra)]
    if default is None:
        base = Optional[base]  # noqa: UP045  `|` fails on some special forms
    described = [e.description for e in extras if isinstance(e, FieldInfo)]
    texts = [extra for extra in extras if isinstance(extra, str)]
    if isinstance(default, FieldInfo):
        extras.append(default)
        described.append(default.description)
    elif default is not EMPTY:
        extras.append(Field(default=default))
    text = next(filter(None, (about, *texts, *described)), None)
    name, accepted = _names(parameter, extras)
    named = Field(alias=name, validation_alias=accepted, serialization_alias=name, description=text)
    extras.append(named)
    return Annotated[(base, *extras)]


def _names(parameter: inspect.Parameter, extras: Sequence[Any]) -> tuple[str, str | AliasChoices]:
    """Return the name of an argument, and the names by which it is accepted.

    They are the parameter's, unless the last of its fields has an alias. An alias that is a path
    does not count: it leads into an object that the schema does not show.
    """
    fields = [extra for extra in extras if isinstance(extra, FieldInfo)]
    given = [alias for each in fields if (alias := each.validation_alias or each.alias)]
    names = _texts(given[-1]) if given else []
    if not names:
        return parameter.name, parameter.name
    return names[0], AliasChoices(*names) if len(names) > 1 else names[0]


def _texts(alias: object) -> list[str]:
    """Return the names in what pydantic takes as an alias."""
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    return [each for each in choices if isinstance(each, str)]


def _check_names(tool: str, fields: Mapping[str, str], model: type[BaseModel]) -> None:
    """Refuse parameters that an argument cannot tell apart.

    Raises:
        DeclarationError: An alias is the name of two of them.
    """
    seen: dict[str, str] = {}
    for each, parameter in fields.items():
        for name in _texts(model.model_fields[each].validation_alias):
            other = seen.setdefault(name, parameter)
            if other != parameter:
                raise DeclarationError(
                    f"Tool {tool!r}: a model would name both parameters, {other!r} and"
                    f" {parameter!r}, {name!r}. Give one of them another alias."
                )


def _about(extra: Any) -> list[Any]:
    """Return what an entry of Annotated says in words."""
    if isinstance(extra, FieldInfo):
        return [Field(description=extra.description)]
    return [extra] if isinstance(extra, str) else []


def _of_each(kind: Any, extras: Sequence[Any]) -> Any:
    return Annotated[(kind, *extras)] if extras else kind


def _list_of(each: Any, extras: Sequence[Any]) -> Any:
    """Return the type of all of `*args`; `*args: tuple[int, ...]` counts as integers."""
    if typing.get_origin(each) is tuple:
        inner = typing.get_args(each)
        each = inner[0] if len(inner) == 2 and inner[1] is Ellipsis else Any  # noqa: PLR2004
    kind: Any = list
    return kind[_of_each(each, extras)]


def _dict_of(each: Any, extras: Sequence[Any]) -> Any:
    """Return the type of all of `**kwargs`; `**kwargs: dict[str, int]` counts as integers."""
    if typing.get_origin(each) is dict:
        _, each = typing.get_args(each) or (Any, Any)  # typing.Dict alone has none
    kind: Any = dict
    return kind[str, _of_each(each, extras)]


def _model(name: str, definitions: dict[str, Any]) -> tuple[type[BaseModel], dict[str, Json]]:
    config = ConfigDict(
        extra="forbid", allow_inf_nan=False, protected_namespaces=(), title=f"{name}_args"
    )
    try:
        model = create_model("Arguments", __config__=config, **definitions)
        schema = model.model_json_schema()
    except (PydanticUserError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise DeclarationError(
            f"Tool {name!r} has a parameter whose type cannot be described to a model: {reason}"
            " Use JSON types, Literal, enums, dataclasses, TypedDict or pydantic models."
        ) from error
    return model, {"properties": {}, **schema}
