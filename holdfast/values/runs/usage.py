"""Usage: what model calls cost, in the form of the OpenAI Agents SDK, for code of the user's."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pydantic import ConfigDict, PrivateAttr

from holdfast.values.messages import InputTokensDetails, OutputTokensDetails
from holdfast.values.messages import Usage as UsageRecord


@dataclass
class RequestUsage:
    """What one model call cost.

    Attributes:
        input_tokens: Tokens read, cached ones included.
        output_tokens: Tokens written, reasoning included.
        total_tokens: Both together.
        input_tokens_details: What is known of the tokens read.
        output_tokens_details: What is known of the tokens written.
    """

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: Any = field(default_factory=InputTokensDetails)
    output_tokens_details: Any = field(default_factory=OutputTokensDetails)


class CallCost(NamedTuple):
    """What one model call of a run cost, as it is recorded.

    Attributes:
        cost: The cost.
        failed: How many attempts had failed before the one that was answered.
    """

    cost: UsageRecord
    failed: int = 0

    def entries(self) -> list[RequestUsage]:
        """Return its entry, if it has tokens, after one of none for each failed attempt."""
        is_known = self.failed or self.cost.total_tokens
        before = [RequestUsage(0, 0, 0) for _ in range(self.failed)]
        return [*before, _entry(self.cost)] if is_known else before


class _Unread:
    """The costs of calls whose entries have not been asked for yet."""

    def __init__(self, calls: Iterable[CallCost]) -> None:
        self._calls = tuple(calls)

    def read(self) -> list[RequestUsage]:
        """Return the entries, the same list to all threads and to shallow copies of a cost."""
        made = [entry for call in self._calls for entry in call.entries()]
        entries: list[RequestUsage] = self.__dict__.setdefault("_made", made)
        return entries


class Usage(UsageRecord):
    """What model calls cost: a copy of the record's for code of the user's, which may add to it.

    Attributes:
        request_usage_entries: The cost of each call, oldest first, where it is known: in results of
            runs, and in what was summed with `add`.
    """

    model_config = ConfigDict(frozen=False)

    _entries: list[RequestUsage] | _Unread = PrivateAttr(default_factory=list[RequestUsage])

    if not TYPE_CHECKING:

        def __init__(self, /, **given: Any) -> None:
            """Take the fields, or their names in the Agents SDK.

            Raises:
                InvalidArgumentError: A field cannot hold what it is given.
            """
            entries = given.pop("request_usage_entries", ())
            given.pop("total_tokens", None)  # the sum of input and output
            read = _details(given.pop("input_tokens_details", None), _READ)
            written = _details(given.pop("output_tokens_details", None), _WRITTEN)
            super().__init__(**{**read, **written, **given})
            self._entries = list(entries)

    else:

        def __init__(
            self,
            *,
            requests: int = 0,
            input_tokens: int = 0,
            output_tokens: int = 0,
            total_tokens: int = 0,
            cached_tokens: int = 0,
            cache_write_tokens: int = 0,
            reasoning_tokens: int = 0,
            paid: Any = ...,
            priced: int = 0,
            input_tokens_details: Any = None,
            output_tokens_details: Any = None,
            request_usage_entries: Iterable[RequestUsage] = (),
        ) -> None: ...

    @classmethod
    def of(cls, record: UsageRecord, calls: Iterable[CallCost] | None = None) -> Self:
        """Copy a cost.

        Args:
            record: The cost.
            calls: The cost of each of its calls, where it is known, and the record does not say it.
        """
        made = cls(**{name: getattr(record, name) for name in UsageRecord.model_fields})
        if calls is not None:
            made._entries = _Unread(calls)
        elif isinstance(record, Usage):
            made._entries = copy.deepcopy(record.request_usage_entries)
        return made

    @property
    def request_usage_entries(self) -> list[RequestUsage]:
        """The cost of each call, oldest first, where it is known."""
        entries = self._entries  # another thread may read it, too
        if isinstance(entries, _Unread):
            self._entries = entries = entries.read()
        return entries

    def add(self, other: UsageRecord) -> None:
        """Add another cost to this one; its entries are copied, or made if it is one call."""
        total = UsageRecord.__add__(self, other)
        self.request_usage_entries.extend(_copied_entries(other))
        for name in UsageRecord.model_fields:
            setattr(self, name, getattr(total, name))

    def __add__(self, other: UsageRecord) -> Usage:
        """Sum two costs."""
        made = Usage.of(self)
        made.add(other)
        return made

    def __eq__(self, other: object) -> bool:
        """Whether the counts are the same, whatever is known of the calls."""
        if not isinstance(other, UsageRecord):
            return NotImplemented
        return all(getattr(self, each) == getattr(other, each) for each in UsageRecord.model_fields)

    def __hash__(self) -> int:
        """Refuse: it changes.

        Raises:
            TypeError: Always.
        """
        raise TypeError("A Usage changes, so it cannot be a key.")


_READ = ("cached_tokens", "cache_write_tokens")
_WRITTEN = ("reasoning_tokens",)


def _details(given: Any, names: Iterable[str]) -> dict[str, int]:
    """Read counts of an object of a provider, of the Responses or the Chat Completions API."""
    if given is None:
        return {}
    return {name: getattr(given, name, None) or 0 for name in names}


def answered_after(cost: UsageRecord, failed: int) -> Usage:
    """Copy the cost of a model call; each attempt of it that had failed is an entry of no tokens.

    Args:
        cost: The cost.
        failed: How many attempts had failed before the one that was answered.
    """
    made = Usage.of(cost)
    if failed:
        made.request_usage_entries.extend(CallCost(cost, failed).entries())
    return made


def _copied_entries(cost: UsageRecord) -> list[RequestUsage]:
    """Return entries for a cost: copies of its own, or one made of it if it is that of one call."""
    if isinstance(cost, Usage) and cost.request_usage_entries:
        return copy.deepcopy(cost.request_usage_entries)
    return [_entry(cost)] if cost.requests == 1 and cost.total_tokens else []


def _entry(call: UsageRecord) -> RequestUsage:
    """Return the cost of a model call as an entry."""
    return RequestUsage(
        input_tokens=call.input_tokens,
        output_tokens=call.output_tokens,
        total_tokens=call.total_tokens,
        input_tokens_details=call.input_tokens_details,
        output_tokens_details=call.output_tokens_details,
    )
