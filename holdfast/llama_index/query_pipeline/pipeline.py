"""QueryPipeline: components, linked, each run once its inputs are there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

from holdfast.errors import InvalidArgumentError
from holdfast.llama_index.query_pipeline.components import (
    InputComponent,
    QueryComponent,
    as_component,
    text_of,
)
from holdfast.values.text.shown import shown

LONGEST_SHOWN = 200


@dataclass(frozen=True)
class Link:
    """Hands an output of one component to an input of another.

    Attributes:
        src: Name of the component with the output.
        dest: Name of the component with the input.
        src_key: The output, when there are several.
        dest_key: The input, when there are several.
        condition_fn: Whether it is handed on, from the output.
        input_fn: Makes the input of the output.
    """

    src: str
    dest: str
    src_key: str | None = None
    dest_key: str | None = None
    condition_fn: Callable[[Any], bool] | None = None
    input_fn: Callable[[Any], Any] | None = None


class QueryPipeline(QueryComponent):
    """A graph of components.

    They run one after the other. One whose inputs are not there, because a condition was not met,
    is left out, and so is what hangs on it alone.

    Attributes:
        module_dict: The components by name.
        links: The links.
        verbose: Whether each component is printed when it runs.
        state: What the functions of its StatefulFnComponents share in `run`.
        origin: The pipeline that this one is a copy of, with a state of its own; else itself.
    """

    def __init__(
        self,
        chain: Sequence[Any] | None = None,
        modules: Mapping[str, Any] | None = None,
        links: Sequence[Link] = (),
        verbose: bool = False,
        state: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Take a chain of components, or components by name and their links."""
        self.state: dict[str, Any] = dict(state or {})
        self.origin: QueryPipeline = self
        self.module_dict: dict[str, QueryComponent] = {}
        self.links: list[Link] = []
        self.verbose = verbose
        self.partial_dict = {}
        self.add_modules(modules or {})
        if chain is not None:
            named = {str(k): each for k, each in enumerate(chain)}
            self.add_modules(named)
            self.add_chain(list(named))
        self.add_links(links)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Replace the state."""
        self.state = dict(state)

    def update_state(self, state: Mapping[str, Any]) -> None:
        """Add to the state."""
        self.state.update(state)

    def reset_state(self) -> None:
        """Forget the state."""
        self.state = {}

    def with_state(self, state: Mapping[str, Any]) -> QueryPipeline:
        """Return a copy with a state of its own: the same components and links."""
        made = copy(self)
        made.set_state(state)
        return made

    def add(self, module_key: str, module: Any) -> None:
        """Add a component.

        Raises:
            ValueError: There is one of this name.
        """
        if module_key in self.module_dict:
            msg = f"Module {module_key} already exists in pipeline"
            raise ValueError(msg)
        self.module_dict[module_key] = as_component(module)

    def add_modules(self, module_dict: Mapping[str, Any]) -> None:
        """Add components by name."""
        for name, module in module_dict.items():
            self.add(name, module)

    def add_chain(self, module_keys: Sequence[str]) -> None:
        """Link components one to the next."""
        for src, dest in pairwise(module_keys):
            self.add_link(src, dest)

    def add_link(
        self,
        src: str,
        dest: str,
        src_key: str | None = None,
        dest_key: str | None = None,
        condition_fn: Callable[[Any], bool] | None = None,
        input_fn: Callable[[Any], Any] | None = None,
    ) -> None:
        """Link two components; the arguments are the attributes of Link.

        Raises:
            ValueError: There is no such component, or the links would form a circle.
        """
        for name in (src, dest):
            if name not in self.module_dict:
                msg = f"Module {name} does not exist in pipeline."
                raise ValueError(msg)
        self.links.append(Link(src, dest, src_key, dest_key, condition_fn, input_fn))
        try:
            self._order()
        except CycleError as error:
            self.links.pop()
            msg = f"A link from {src} to {dest} would form a circle."
            raise ValueError(msg) from error

    def add_links(self, links: Sequence[Link]) -> None:
        """Link components."""
        for each in links:
            self.add_link(
                each.src,
                each.dest,
                each.src_key,
                each.dest_key,
                each.condition_fn,
                each.input_fn,
            )

    def _order(self) -> list[str]:
        """Return the names so that each comes after the ones it needs."""
        before: dict[str, dict[str, None]] = {name: {} for name in self.module_dict}
        for link in self.links:
            before[link.dest][link.src] = None
        return list(TopologicalSorter(before).static_order())

    def _roots(self) -> list[str]:
        fed = {link.dest for link in self.links}
        return [name for name in self.module_dict if name not in fed]

    def input_names(self) -> Sequence[str]:
        """Return the inputs of the first component."""
        roots = self._roots()
        return self.module_dict[roots[0]].required_keys if len(roots) == 1 else []

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the pipeline; return its output, or a dict of them when there are several.

        Args:
            args: The input of a pipeline with one.
            kwargs: The inputs by name.

        Raises:
            ValueError: The inputs do not fit.
        """
        kwargs.pop("return_values_direct", None)
        return self._result(self._all(self._given(args, kwargs), self.state))

    async def arun(self, *args: Any, **kwargs: Any) -> Any:
        """Do what `run` does, in a thread."""
        return await asyncio.to_thread(self.run, *args, **kwargs)

    def run_multi(self, module_inputs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Run a pipeline with several first components; return the outputs of the last ones."""
        return self._all({k: dict(each) for k, each in module_inputs.items()}, self.state)

    async def arun_multi(self, module_inputs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Do what `run_multi` does, in a thread."""
        return await asyncio.to_thread(self.run_multi, module_inputs)

    def run_with(self, inputs: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """Run it as a component, with the state of an agent's step."""
        return {"output": self._result(self._all(self._given((), inputs), state))}

    def _given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        roots = self._roots()
        if len(roots) != 1:
            if not args and not kwargs:
                return {}
            msg = f"The pipeline begins with {', '.join(roots)}: use run_multi."
            raise ValueError(msg)
        inputs = dict(kwargs)
        for given in args:
            wanted = self.module_dict[roots[0]].required_keys or ["input"]
            if len(args) > 1 or len(wanted) > 1:
                msg = f"Name the inputs: {', '.join(wanted)}."
                raise ValueError(msg)
            inputs[wanted[0]] = given
        return {roots[0]: inputs}

    def _all(
        self, inputs: dict[str, dict[str, Any]], state: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """Run the components in order; return the outputs of the last ones."""
        feeds = {link.src for link in self.links}
        fed = {link.dest for link in self.links}
        ends: dict[str, dict[str, Any]] = {}
        for name in self._order():
            module, given = self.module_dict[name], inputs.get(name, {})
            missing = [key for key in module.required_keys if key not in given]
            if name in fed and (missing or not given):
                continue
            if missing:
                msg = f"Component {name} lacks its input {', '.join(missing)}."
                raise ValueError(msg)
            self._show(name, given)
            made = module.run_with({**module.partial_dict, **given}, state)
            for link in self.links:
                if link.src == name:
                    self._hand_on(link, made, inputs)
            if name not in feeds:
                ends[name] = made
        return ends

    def _hand_on(self, link: Link, made: dict[str, Any], inputs: dict[str, dict[str, Any]]) -> None:
        value = _output(link, made)
        if link.condition_fn is not None and not link.condition_fn(value):
            return
        held = inputs.setdefault(link.dest, {})
        key = link.dest_key or self._free(link, held)
        held[key] = value if link.input_fn is None else link.input_fn(value)

    def _free(self, link: Link, held: Mapping[str, Any]) -> str:
        """Return the one input of a component that a link without a name can mean.

        Raises:
            InvalidArgumentError: There are several.
        """
        module = self.module_dict[link.dest]
        wanted = module.required_keys
        if not wanted:
            return f"input_{len(held)}" if not isinstance(module, InputComponent) else "input"
        free = [key for key in wanted if key not in held] or wanted
        if len(wanted) == 1 or len(free) == 1:
            return free[0]
        msg = (
            f"The link from {link.src} to {link.dest} must name its input with dest_key: one of"
            f" {', '.join(wanted)}."
        )
        raise InvalidArgumentError(msg)

    def _result(self, ends: dict[str, dict[str, Any]]) -> Any:
        """Return the one output, or all of them by name.

        Raises:
            InvalidArgumentError: Nothing came to an end.
        """
        match list(ends.values()):
            case [made]:
                return next(iter(made.values())) if len(made) == 1 else made
            case []:
                msg = "No component at the end of the pipeline has run: no condition was met."
                raise InvalidArgumentError(msg)
            case _:
                return ends

    def _show(self, name: str, given: Mapping[str, Any]) -> None:
        if not self.verbose:
            return
        print(f"> Running module {name} with input: ")
        for key, each in given.items():
            print(f"{key}: {text_of(each)[:LONGEST_SHOWN]}")
        print()


def _output(link: Link, made: Mapping[str, Any]) -> Any:
    """Return the output that a link hands on.

    Raises:
        InvalidArgumentError: There is no output of its name.
    """
    if link.src_key is None:
        return next(iter(made.values())) if len(made) == 1 else dict(made)
    if link.src_key in made:
        return made[link.src_key]
    value: Any = next(iter(made.values()), None)
    if hasattr(value, "keys") and link.src_key in value:
        return value[link.src_key]
    msg = f"Component {link.src} has no output {link.src_key!r}: {shown(dict(made))}"
    raise InvalidArgumentError(msg)
