"""A streamed answer of the Responses API: the delta of each event, and the body at its end."""

from __future__ import annotations

from holdfast.errors import ModelError
from holdfast.models.base import Delta, Tell
from holdfast.models.openai.hosted_items import is_passed_on, told_in_stream
from holdfast.models.openai.http.failures import cut_off
from holdfast.values.base import Json
from holdfast.values.checks.json_shapes import as_object, as_text, is_array

_TEXTS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
    "response.function_call_arguments.delta": "arguments",
}
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class ResponseStream:
    """Reads the events of one answer.

    Attributes:
        body: The body of the answer, once the last event has come.
    """

    def __init__(self, tell: Tell) -> None:
        """Pass deltas to this function."""
        self.body: dict[str, Json] | None = None
        self._tell = tell
        self._items: list[Json] = []

    def take(self, event: dict[str, Json]) -> None:
        """Take the next event."""
        kind = as_text(event.get("type"))
        index: Json = event.get("output_index")
        place = index if isinstance(index, int) else 0
        if kind in _TEXTS:
            self._tell(Delta(_TEXTS[kind], as_text(event.get("delta")), place))  # type: ignore[arg-type]
        elif kind == "response.output_item.added":
            item = as_object(event.get("item"))
            if item.get("type") == "function_call":
                call_id, name = as_text(item.get("call_id")), as_text(item.get("name"))
                self._tell(Delta("call", "", place, call_id, name))
        elif kind == "response.output_item.done":
            self._items.append(event.get("item"))
            self._done(as_object(event.get("item")), place)
        elif kind in _ENDS:
            response = as_object(event.get("response"))
            if kind != "response.completed":  # whatever the body says
                response = {**response, "status": kind.removeprefix("response.")}
            self._end(response)
        elif kind in {"error", "response.error"}:
            failure = {"code": event.get("code"), "message": as_text(event.get("message"))}
            self.body = {"output": list[Json](), "status": "failed", "error": failure}

    def _done(self, item: dict[str, Json], place: int) -> None:
        """Tell of an item of the provider's own tools."""
        kind = as_text(item.get("type"))
        if is_passed_on(kind):
            self._tell(Delta("item", told_in_stream(item), place, as_text(item.get("id")), kind))

    def _end(self, response: dict[str, Json]) -> None:
        """Keep the body; some servers leave out the items that the events held."""
        output: Json = response.get("output")
        has_output = is_array(output) and bool(output)
        self.body = response if has_output else {**response, "output": self._items}

    def missing(self, model: str) -> ModelError:
        """Make the error for a stream without its last event."""
        return cut_off(model, "there was no final response")
