"""Tool retrievers: a step offers the model only the tools of an agent that may help."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol, cast

from holdfast.agents.tools.decorator import Tool, to_tool
from holdfast.errors import InvalidArgumentError
from holdfast.values.base import Json
from holdfast.values.text.shown import shown

K1 = 1.2
"""BM25's k1: the lower, the sooner further occurrences of a word stop adding to the score."""

B = 0.75
"""BM25's b: how much a long description lowers a tool's score, from 0 to 1."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")

_CJK = re.compile(
    "[\u3005\u3041-\u3096\u30a1-\u30fa\u30fc\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003ffff]+"
)
"""Kana, Han characters and Hangul."""


class ToolRetriever(Protocol):
    """Selects the tools that the model is offered in a step.

    Attributes:
        tools: The whole catalogue: every tool, or plain function, that may ever be selected. A
            task records the policies (effects, approvals, undo) of all of them when it starts.
    """

    @property
    def tools(self) -> Sequence[Tool | Callable[..., Any]]:
        """The whole catalogue."""
        ...

    def retrieve(self, query: str) -> Sequence[str] | Awaitable[Sequence[str]]:
        """Return the names of the tools to offer, the best first; async or not.

        Called once per step and recorded: a step that is run again offers the same tools.

        Args:
            query: The task's input.
        """
        ...


class KeywordToolRetriever:
    """Ranks tools by the words that they share with the task's input.

    The words of a tool are those of its name, its description and its parameters' names. Chinese,
    Japanese and Korean, which are written without spaces between words, count by characters and
    pairs of characters. Tools that share no word follow in the order of the catalogue, so that a
    task always has tools; equal scores keep that order as well.

    Args:
        tools: The catalogue.
        top_k: How many tools a step offers.

    Raises:
        InvalidArgumentError: The catalogue is empty or not a list, or top_k is not a whole number
            of at least 1.

    Source: BM25, in Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and
    Beyond", Foundations and Trends in Information Retrieval 3 (4), 2009.
    """

    def __init__(self, tools: Sequence[Tool | Callable[..., Any]], top_k: int = 5) -> None:
        """Count the words of every tool."""
        _check(tools, top_k)
        self.tools: tuple[Tool, ...] = tuple(to_tool(tool) for tool in tools)
        self.top_k = top_k
        self._counts = [Counter(_words_of(tool)) for tool in self.tools]
        self._seen_in = Counter(word for counts in self._counts for word in counts)
        self._mean = sum(c.total() for c in self._counts) / max(len(self._counts), 1)

    def retrieve(self, query: str) -> list[str]:
        """Return the names of the `top_k` tools that fit best."""
        words = list(dict.fromkeys(words_in(query)))
        scores = [sum(self._score(word, counts) for word in words) for counts in self._counts]
        order = sorted(range(len(scores)), key=lambda k: (-scores[k], k))
        return [self.tools[k].qualified_name for k in order[: self.top_k]]

    def _score(self, word: str, counts: Counter[str]) -> float:
        """Return the score of one word of the query for one tool."""
        count = counts[word]
        if not count:
            return 0.0
        seen = self._seen_in[word]
        rarity = math.log1p((len(self._counts) - seen + 0.5) / (seen + 0.5))
        length = 1 - B + B * counts.total() / self._mean
        return rarity * count * (K1 + 1) / (count + K1 * length)


def words_in(text: str) -> list[str]:
    """Split a text, or a name in snake_case or camelCase, into words, plurals made singular.

    A run of Chinese, Japanese or Korean is split into its characters and pairs of neighbours.
    """
    apart = _CJK.sub(lambda run: f" {' '.join(_grams(run[0]))} ", text)
    words = (word.lower() for word in _WORD.findall(apart))
    return [w[:-1] if len(w) > 3 and w.endswith("s") and not w.endswith("ss") else w for w in words]  # noqa: PLR2004  shorter ones are words like "is"


def _grams(run: str) -> list[str]:
    return [*run, *(run[k : k + 2] for k in range(len(run) - 1))]


def _check(tools: Any, top_k: Any) -> None:
    if not isinstance(tools, Sequence) or isinstance(tools, str):
        raise InvalidArgumentError(
            f"The catalogue is {shown(tools)} ({type(tools).__name__}). Pass a list of tools or"
            " functions, also for a single one."
        )
    if not tools:
        msg = "The catalogue is empty, so there is nothing to choose from. Pass at least one tool."
        raise InvalidArgumentError(msg)
    if not isinstance(top_k, int) or isinstance(top_k, bool):
        raise InvalidArgumentError(
            f"top_k={shown(top_k)} ({type(top_k).__name__}) is not a number of tools. Give an int."
        )
    if top_k < 1:
        raise InvalidArgumentError(f"top_k={top_k} would offer no tool. Give at least 1.")


def _words_of(tool: Tool) -> list[str]:
    properties: Json = tool.params_json_schema.get("properties", {})
    names = cast("dict[str, Json]", properties) if isinstance(properties, dict) else {}
    return words_in(" ".join((tool.qualified_name, tool.description, *names)))


async def ask_retriever(
    retriever: ToolRetriever, catalogue: Collection[str], query: str
) -> list[str]:
    """Call a retriever, check its result, and drop repeated names.

    Args:
        retriever: The retriever; a plain `def retrieve` runs in a thread.
        catalogue: Names of its tools.
        query: The task's input.

    Raises:
        InvalidArgumentError: It returned something else than a list of names, or a name that its
            catalogue lacks.
        Exception: An error that the retriever raised.
    """
    if inspect.iscoroutinefunction(retriever.retrieve):
        found: object = retriever.retrieve(query)
    else:
        found = await asyncio.to_thread(retriever.retrieve, query)
    names: object = await found if inspect.isawaitable(found) else found
    kind = type(retriever).__name__
    items = list(cast("Sequence[object]", names)) if isinstance(names, list | tuple) else None
    if items is None or not all(isinstance(name, str) for name in items):
        msg = f"{kind}.retrieve must return a list of tool names; it returned {shown(names)}."  # pyright: ignore[reportUnknownArgumentType]  anything is shown
        raise InvalidArgumentError(msg)
    wanted = list(dict.fromkeys(cast("list[str]", items)))
    unknown = [name for name in wanted if name not in catalogue]
    if unknown:
        raise InvalidArgumentError(
            f"{kind}.retrieve named {', '.join(map(repr, unknown))}, which its `tools` lack. They"
            " must hold every tool that it may select: add it there, or correct the name."
        )
    return wanted
