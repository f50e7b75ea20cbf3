"""What an answer rests on: the nodes that a retrieval tool found, apart from what the model reads.

A tool returns them with its content, as ours or as another framework's result::

    @tool(effect="read")
    def search(query: str) -> Retrieved:
        page = find(query)
        return Retrieved(page.text, nodes=[SourceNode(id=page.url, text=page.text)])
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import Field
from pydantic_core import to_jsonable_python

from holdfast.values.base import Json, Value
from holdfast.values.checks import gate
from holdfast.values.checks.gate import clean
from holdfast.values.text.logs import log

LONGEST_METADATA = 16 * 1024
"""Most characters of metadata that are kept as text, because they cannot be kept as data."""

ID_DIGITS = 16
"""Digits of the digest that names a node without an id of its own."""


class SourceNode(Value):
    """A piece of text that a result rests on.

    Attributes:
        id: Names the piece: nodes of one id are one source.
        text: The piece.
        score: How well it fits, as its retriever counts; None when that does not say.
        metadata: What else is known of it, JSON data.
    """

    id: str
    text: str = ""
    score: float | None = None
    metadata: dict[str, Json] = Field(default_factory=dict)

    def __str__(self) -> str:
        """Return the text."""
        return self.text


@dataclass(frozen=True)
class Retrieved:
    """A tool's result with the nodes that it rests on.

    Attributes:
        content: What the model reads: a str, or what can be written as JSON.
        nodes: The nodes; they are kept with the result, and the model does not see them.
    """

    content: Any
    nodes: Sequence[SourceNode] = ()

    def __str__(self) -> str:
        """Return the content as text."""
        return str(self.content)


def content_of(result: object) -> object:
    """Return what of a tool's result the model reads: all of it, unless it carries nodes.

    Args:
        result: What the tool returned. A Retrieved, or any object with a list `source_nodes` such
            as LlamaIndex's Response, carries nodes; the latter is shown as its `str()`.
    """
    if isinstance(result, Retrieved):
        return result.content
    return str(result) if _foreign_nodes(result) is not None else result


def nodes_of(result: object) -> tuple[SourceNode, ...]:
    """Return the nodes that a tool's result carries, in its order.

    A node that cannot be read is left out and logged: the call has been made, and its content is
    worth more than a complete list of sources.
    """
    given: Iterable[object] | None
    given = result.nodes if isinstance(result, Retrieved) else _foreign_nodes(result)
    nodes: list[SourceNode] = []
    for node in given or ():
        try:
            nodes.append(_read(node))
        except Exception:  # another framework's object may raise anything
            log.warning("A source node of type %s is left out", type(node).__name__, exc_info=True)
    return tuple(nodes)


def union(groups: Iterable[Iterable[SourceNode]]) -> tuple[SourceNode, ...]:
    """Join lists of nodes in their order; of those with one id the first is kept."""
    found: dict[str, SourceNode] = {}
    for group in groups:
        for node in group:
            found.setdefault(node.id, node)
    return tuple(found.values())


def read_nodes(text: str) -> tuple[SourceNode, ...]:
    """Read nodes that were stored as a JSON list."""
    return tuple(SourceNode.model_validate(data) for data in json.loads(text))


def _foreign_nodes(result: object) -> list[object] | None:
    """Return another framework's nodes, or None when this is not such a result."""
    if isinstance(result, type):
        return None
    found: object = getattr(result, "source_nodes", None)
    return list(cast("Sequence[object]", found)) if isinstance(found, list | tuple) else None


def _read(scored: object) -> SourceNode:
    """Read a node: ours, LlamaIndex's NodeWithScore, or an object with `text`."""
    if isinstance(scored, SourceNode):
        return _cleaned(scored)
    node: Any = getattr(scored, "node", scored)
    text = str(node.get_content() if callable(getattr(node, "get_content", None)) else node.text)
    known = getattr(node, "node_id", None) or getattr(node, "id", None)
    made = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:ID_DIGITS]
    return _cleaned(
        SourceNode(
            id=str(known or made),
            text=text,
            score=_number(getattr(scored, "score", None)),
            metadata=dict(getattr(node, "metadata", None) or {}),
        )
    )


def _cleaned(node: SourceNode) -> SourceNode:
    """Make a node what JSON and every encoder accept; NaN and the like become text."""
    known = json.dumps(to_jsonable_python(node.metadata, fallback=str), ensure_ascii=False)
    metadata: Json = json.loads(clean(known), parse_constant=str)
    if gate.flaw(metadata):  # too deep or too large to be kept as data
        metadata = {"metadata": clean(known)[:LONGEST_METADATA]}
    return SourceNode(
        id=clean(node.id), text=clean(node.text), score=_number(node.score), metadata=metadata
    )


def _number(score: object) -> float | None:
    if score is None or isinstance(score, str | bytes):
        return None
    number = float(cast("float", score))
    return number if math.isfinite(number) else None
