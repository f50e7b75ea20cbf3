"""The API reference: which public name stands on which page, and that each is documented.

The texts are the docstrings; mkdocstrings reads them when the site is built.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import griffe

from holdfast.values.code.stub_names import stub_names
from website.errors import SiteError


@dataclass(frozen=True)
class Group:
    """One page of the reference.

    Attributes:
        name: Of the page's file.
        title: Its heading.
        about: What the page is about.
        module: The public module whose names it has.
        sources: Modules, and packages with all that is in them, in which those names are made; all
            when empty.
    """

    name: str
    title: str
    about: str
    module: str = "holdfast"
    sources: tuple[str, ...] = ()


OF_THE_SDK = Group(
    "agents_sdk",
    "holdfast.agents_sdk",
    "What only programs of the OpenAI Agents SDK use. It has their other names, too.",
    "holdfast.agents_sdk",
)
GROUPS = (
    Group(
        "agents",
        "Agents",
        "What an agent is: its instructions, model, tools, output type and hooks.",
        sources=(
            "holdfast.agents.agent",
            "holdfast.agents.agent",
            "holdfast.agents.hooks",
            "holdfast.agents.output_type",
            "holdfast.agents.runs.model_input",
            "holdfast.values.runs",
        ),
    ),
    Group(
        "guardrails",
        "Guardrails",
        "Checks of input, output and tool calls.",
        sources=("holdfast.agents.guardrails", "holdfast.agents.tools.guardrails"),
    ),
    Group(
        "tools",
        "Tools",
        "Functions as tools: their effects, approvals, contexts and results.",
        sources=(
            "holdfast.agents.tools",
            "holdfast.agents.hosted",
            "holdfast.agents.local",
            "holdfast.workers.function_calling",
            "holdfast.values.runs.approval_rules",
            "holdfast.values.settings",
        ),
    ),
    Group(
        "handoffs",
        "Handoffs",
        "How an agent hands a task to another one.",
        sources=("holdfast.agents.handoffs",),
    ),
    Group(
        "agent_runner",
        "AgentRunner",
        "The step API: tasks, their steps, the people who steer them.",
        sources=("holdfast.client.agent_runner", "holdfast.values.steps"),
    ),
    Group(
        "runner",
        "Runner",
        "The names of the OpenAI Agents SDK: runs, their results, their states.",
        sources=(
            "holdfast.client.runner",
            "holdfast.agents.nesting",
            "holdfast.agents.run_config",
            "holdfast.agents.runs",
        ),
    ),
    Group(
        "items",
        "Messages and items",
        "What models, tools and people said: messages, images, sources, and the items of a run.",
        sources=(
            "holdfast.agents.items",
            "holdfast.values.messages",
            "holdfast.values.parts",
        ),
    ),
    Group(
        "sessions",
        "Sessions of the caller's own",
        "Conversations that are kept outside Holdfast.",
        sources=("holdfast.client.caller_sessions",),
    ),
    Group(
        "events",
        "Events",
        "What happens in a task, as it happens.",
        sources=("holdfast.reading",),
    ),
    Group(
        "providers",
        "Providers of models",
        "How the name of a model becomes a model, and what a model costs.",
        sources=("holdfast.models",),
    ),
    Group(
        "notifications",
        "Notifications",
        "How people are told that a task waits for them.",
        sources=("holdfast.activities.notices",),
    ),
    Group(
        "serving",
        "Workers of your own",
        "How a Temporal worker that you already have serves agents.",
        sources=("holdfast.serving", "holdfast.values.text.logs", "holdfast.values.version"),
    ),
    Group("models", "holdfast.models", "Models, and how to write one.", "holdfast.models"),
    Group("workers", "holdfast.workers", "Ways to reason.", "holdfast.workers"),
    Group("testing", "holdfast.testing", "Tools for tests of agents.", "holdfast.testing"),
    Group("tracing", "holdfast.tracing", "Spans and traces.", "holdfast.tracing"),
    Group("errors", "holdfast.errors", "Every error, in one tree.", "holdfast.errors"),
    Group("mcp", "holdfast.mcp", "Servers of the Model Context Protocol as tools.", "holdfast.mcp"),
    Group("desk", "holdfast.desk", "Pages and an HTTP API for people.", "holdfast.desk"),
    OF_THE_SDK,
    Group(
        "llama_index",
        "holdfast.llama_index",
        "The earlier agent API of LlamaIndex.",
        "holdfast.llama_index",
    ),
)


class Reference:
    """The public names, as they stand in the sources."""

    def __init__(self, root: str) -> None:
        loaded = griffe.load("holdfast", search_paths=[root], try_relative_path=False)
        if not isinstance(loaded, griffe.Module):
            msg = "holdfast was not found as a package"
            raise SiteError(msg)
        self._holdfast = loaded

    def names(self, module: str) -> dict[str, griffe.Object]:
        """Return what a public module exports, by name; where it has a stub, what that names."""
        found = self._holdfast[module.split(".", 1)[1]] if "." in module else self._holdfast
        file = Path(str(found.filepath))
        if file.with_suffix(".pyi").exists():
            places = stub_names(str(file)).items()
            named = [name for name, (place, _) in places if place.startswith("holdfast.")]
            objects = {name: _object(found.members[name]) for name in named}
            return {name: each for name, each in objects.items() if not each.is_module}
        exported = [each if isinstance(each, str) else each.name for each in found.exports or ()]
        if not exported:
            exported = [
                name
                for name, member in found.members.items()
                if not name.startswith("_") and not member.is_alias and not member.is_module
            ]
        return {name: _object(found.members[name]) for name in exported}

    def pages(self) -> dict[Group, dict[str, griffe.Object]]:
        """Return the names of each page.

        Raises:
            SiteError: A public name is on no page.
        """
        made: dict[Group, dict[str, griffe.Object]] = {}
        elsewhere: set[str] = set()
        for group in GROUPS:
            if not group.sources and group is not OF_THE_SDK:
                made[group] = self.names(group.module)
                elsewhere |= {each.path for each in made[group].values()}
        for name, each in self.names("holdfast").items():
            if each.path in elsewhere:
                continue
            found = _group_of(each.path)
            if found is None:
                msg = (
                    f"holdfast.{name} ({each.path}) is on no page: name its module in"
                    " website/reference.py"
                )
                raise SiteError(msg)
            made.setdefault(found, {})[name] = each
            elsewhere.add(each.path)
        made[OF_THE_SDK] = {
            name: each
            for name, each in self.names(OF_THE_SDK.module).items()
            if each.path not in elsewhere
        }
        return {group: made[group] for group in GROUPS if group in made}

    def undocumented(self) -> list[str]:
        """Return the public names, and public methods of public classes, without a docstring."""
        return [
            path
            for group, names in self.pages().items()
            for name, each in names.items()
            for path in _undocumented(f"{group.module}.{name}", each)
        ]


def page(group: Group, names: dict[str, griffe.Object]) -> str:
    """Return the source of a page, which mkdocstrings fills."""
    blocks = [f"# {group.title}\n\n{group.about}\n"]
    if group.module != "holdfast":
        blocks.append(f"Import from `{group.module}`.\n")
    blocks += [f"::: {group.module}.{name}\n" for name in sorted(names, key=str.lower)]
    return "\n".join(blocks)


def plain(group: Group, names: dict[str, griffe.Object]) -> str:
    """Return a page as text: signatures and docstrings."""
    parts = [f"# {group.title}\n\n{group.about}\n"]
    for name in sorted(names, key=str.lower):
        parts.append(_plain(f"{group.module}.{name}", names[name], "##"))
        parts += [
            _plain(member.name, member, "###")
            for member in _members(names[name])
            if member.is_function
        ]
    return "\n".join(parts)


def _plain(name: str, each: griffe.Object, mark: str) -> str:
    text = each.docstring.value if each.docstring else ""
    signature = f"`{name}{_parameters(each)}`"
    return f"{mark} {signature}\n\n{text}\n"


def _parameters(each: griffe.Object) -> str:
    if not isinstance(each, griffe.Function):
        return ""
    shown = [_parameter(p) for p in each.parameters if p.name not in {"self", "cls"}]
    returns = f" -> {each.returns}" if each.returns else ""
    return f"({', '.join(shown)}){returns}"


def _parameter(parameter: griffe.Parameter) -> str:
    stars = {
        griffe.ParameterKind.var_positional: "*",
        griffe.ParameterKind.var_keyword: "**",
    }.get(parameter.kind or griffe.ParameterKind.positional_or_keyword, "")
    typed = f": {parameter.annotation}" if parameter.annotation else ""
    given = f" = {parameter.default}" if parameter.default is not None and not stars else ""
    return f"{stars}{parameter.name}{typed}{given}"


def _object(found: griffe.Object | griffe.Alias) -> griffe.Object:
    while isinstance(found, griffe.Alias):
        found = found.target
    return found


def _group_of(path: str) -> Group | None:
    """Return the page whose source is the nearest to where a name is made."""
    fitting = [
        (len(source), group)
        for group in GROUPS
        for source in group.sources
        if path == source or path.startswith(f"{source}.")
    ]
    return max(fitting, key=lambda each: each[0])[1] if fitting else None


def _members(each: griffe.Object) -> Iterator[griffe.Object]:
    if not isinstance(each, griffe.Class):
        return
    for name, member in each.all_members.items():
        if not name.startswith("_"):
            yield _object(member)


def _undocumented(path: str, each: griffe.Object) -> Iterator[str]:
    if each.is_attribute and path.endswith("__"):
        return
    if not each.docstring:
        yield path
    for member in _members(each):
        if member.is_function and not member.docstring and "overload" not in str(member.labels):
            yield f"{path}.{member.name}"
