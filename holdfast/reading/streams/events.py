"""Events of a streamed run, as users of the OpenAI Agents SDK know them.

Each event has an `offset`, which grows: reading can go on after it, in any process, and then misses
nothing and repeats nothing. An offset is a place in the life of the task: the number of a mark of
its ledger, the attempt to get the answer that follows the mark, and a place in that answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

ItemEventName = Literal[
    "message_output_created",
    "tool_called",
    "tool_output",
    "handoff_requested",
    "handoff_occured",
    "reasoning_item_created",
    "mcp_list_tools",
    "mcp_approval_requested",
    "mcp_approval_response",
    "tool_search_called",
    "tool_search_output_created",
]
"""The Agents SDK's names, one misspelt as it is there."""


@dataclass(frozen=True, kw_only=True)
class AgentUpdatedStreamEvent:
    """An agent begins, or takes over.

    Attributes:
        new_agent: The agent, or its name alone where this process does not know it.
        offset: Its place.
    """

    new_agent: Any
    offset: int = 0
    type: Literal["agent_updated_stream_event"] = "agent_updated_stream_event"


@dataclass(frozen=True, kw_only=True)
class RawResponsesStreamEvent:
    """A model goes on with its answer.

    A `response.created` that comes where an answer was not complete yet tells that the answer is
    made again, because a worker or a connection was lost: what was said of it so far is void.

    Attributes:
        data: An event of `openai.types.responses`, whatever API the model is called by.
        offset: Its place.
        attempt: The attempt to get this answer, from 1.
    """

    data: Any
    offset: int = 0
    attempt: int = 1
    type: Literal["raw_response_event"] = "raw_response_event"


@dataclass(frozen=True, kw_only=True)
class RunItemStreamEvent:
    """The run has a new item.

    Attributes:
        name: What happened.
        item: The item, as in `new_items` of the result.
        offset: Its place.
    """

    name: ItemEventName
    item: Any
    offset: int = 0
    type: Literal["run_item_stream_event"] = "run_item_stream_event"


@dataclass(frozen=True, kw_only=True)
class StepUndoneStreamEvent:
    """Steps were undone, as a person or program asked: what was told of them is void.

    Attributes:
        steps: Ids of the steps, also of steps in progress.
        void: Pairs of offsets: what was told from the first one on, and before the second one, does
            not count any more, here and after earlier undos. Mostly it is one pair.
        by: Who asked for it.
        reason: Why.
        offset: Its place.
    """

    steps: tuple[str, ...]
    void: tuple[tuple[int, int], ...] = ()
    by: str = ""
    reason: str = ""
    offset: int = 0
    type: Literal["step_undone_stream_event"] = "step_undone_stream_event"

    def is_void(self, offset: int) -> bool:
        """Return whether the event of this offset does not count any more."""
        return any(first <= offset < end for first, end in self.void)


StreamEvent = (
    AgentUpdatedStreamEvent | RawResponsesStreamEvent | RunItemStreamEvent | StepUndoneStreamEvent
)
"""What a streamed run yields."""
