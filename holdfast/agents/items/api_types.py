"""Types of the Responses API's items and events, by the names of the Agents SDK.

They need the openai package, so they are loaded at their first use.
"""

from __future__ import annotations

from openai.types.responses import ResponseInputItemParam, ResponseOutputItem, ResponseStreamEvent

TResponseInputItem = ResponseInputItemParam
"""An item of an input: a dict."""

TResponseOutputItem = ResponseOutputItem
"""An item of an answer, as the openai package has it."""

TResponseStreamEvent = ResponseStreamEvent
"""An event of a streamed answer, as the openai package has it."""
