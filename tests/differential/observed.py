"""What was observed of a run, in a form that both libraries can be compared in."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import BaseModel

from holdfast.testing import FakeRequest

Event = tuple[str, ...]

# Ids are made up anew in each run. The rest is left out where it says nothing: a library may send
# what another leaves out, and the provider takes it for the same.
HISTORY = "<CONVERSATION HISTORY>"
DROPPED = {"id", "status", "created_by", "response_id", "title", "provider_data"}
EMPTY: tuple[Any, ...] = (None, [], {})
OF_THE_CALL = {"messages", "previous_response_id", "stream"}


@dataclass
class Run:
    """One run: how it ended and what it made.

    Attributes:
        output: The final output, as data.
        error: Class of the exception; empty for none.
        items: Type, agent and raw form of each new item. Calls that wait for a person are in
            `interruptions`; once decided, only the Agents SDK still lists them.
        input_list: The result as the input of a following run.
        last_agent: Name of the agent that ran last.
        requests: Model calls by the run's usage.
        interruptions: Tools whose calls wait for a person.
        guardrails: Results of the guardrails by kind, each as its name and whether it tripped.
        events: The stream's events.
    """

    output: Any = None
    error: str = ""
    items: list[Any] = field(default_factory=list[Any])
    input_list: list[Any] = field(default_factory=list[Any])
    last_agent: str = ""
    requests: int = 0
    interruptions: list[str] = field(default_factory=list[str])
    guardrails: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    events: list[Event] = field(default_factory=list[Event])


def observe(result: Any, events: list[Event]) -> Run:
    """Observe a result."""
    open_points = as_list(getattr(result, "interruptions", None))
    return Run(
        output=plain(result.final_output),
        items=items_of(result),
        input_list=[item_data(item) for item in result.to_input_list()],
        last_agent=name_of(result.last_agent),
        requests=requests_of(result),
        interruptions=[str(point.name) for point in open_points],
        guardrails=guardrails_of(result),
        events=events,
    )


def observe_error(error: Exception, events: list[Event]) -> Run:
    """Observe an exception and what the run had made when it was raised."""
    data = getattr(error, "run_data", None)
    if data is None:
        return Run(error=type(error).__name__, events=events)
    return Run(
        error=type(error).__name__,
        items=items_of(data),
        last_agent=name_of(data.last_agent),
        requests=requests_of(data),
        guardrails=guardrails_of(data),
        events=events,
    )


def observe_event(event: Any) -> Event:
    """Observe an event: its type and the names in it."""
    kind = str(event.type)
    match kind:
        case "raw_response_event":
            return (kind, str(event.data.type))
        case "run_item_stream_event":
            return (kind, str(event.name), str(event.item.type))
        case _:
            return (kind, name_of(event.new_agent))


def observe_request(request: FakeRequest) -> dict[str, Any]:
    """Observe what the model was sent."""
    body = request.body
    given: Any = body.get("input", body.get("messages"))
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    kept = {
        "instructions": body.get("instructions") or None,
        "input": [item_data(item) for item in items],
        "tools": [without_defaults(plain(tool)) for tool in as_list(body.get("tools"))],
        "tool_choice": body.get("tool_choice"),
        "is_continued": bool(body.get("previous_response_id")) or None,
        "text": without_defaults(plain(body.get("text"))),
        "include": sorted(body.get("include") or ()),
        "with_ids": [item["type"] for item in items if item.get("id") and needs_id(item)],
        "headers": {key: each for key, each in request.headers.items() if key.startswith("x-test")},
        "query": request.query,
    }
    kept |= {key: body[key] for key in body if key not in kept and key not in OF_THE_CALL}
    return {key: value for key, value in kept.items() if value not in EMPTY}


def needs_id(item: Any) -> bool:
    """Tell whether an item's id means something; those of plain messages and calls do not."""
    return item.get("type") not in (None, "message", "function_call", "function_call_output")


def without_defaults(schema: Any) -> Any:
    """Leave out the defaults of a schema: one that is strict requires every value anyway."""
    match schema:
        case dict():
            given = cast("dict[str, Any]", schema)
            return {key: without_defaults(given[key]) for key in given if key != "default"}
        case list():
            return [without_defaults(each) for each in as_list(schema)]
        case _:
            return schema


def items_of(data: Any) -> list[Any]:
    """Observe the new items of a run."""
    return [item_of(item) for item in data.new_items if item.type != "tool_approval_item"]


def item_of(item: Any) -> tuple[str, str, Any]:
    """Observe a run item."""
    return (str(item.type), name_of(item.agent), item_data(item.raw_item))


def item_data(item: Any) -> Any:
    """Write an item of a conversation in one of the forms that the API takes for the same."""
    data = plain(item)
    if not isinstance(data, dict):
        return data
    found = cast("dict[str, Any]", data)
    content: Any = found.get("content")
    if "role" in found:
        found = {**found, "type": "message", "content": as_list(content)}
        if isinstance(content, str):
            kind = "output_text" if found["role"] == "assistant" else "input_text"
            found["content"] = [{"type": kind, "text": content}]
    return found


def plain(value: Any) -> Any:
    """Write a value as data, without what is made up anew in each run."""
    match value:
        case BaseModel():
            return plain(value.model_dump(mode="json", exclude_unset=True))
        case Mapping():
            given = cast("Mapping[str, Any]", value)
            kept = {key: plain(given[key]) for key in given if key not in DROPPED}
            return {key: each for key, each in kept.items() if each not in EMPTY}
        case list() | tuple():
            return [plain(each) for each in cast("Iterable[Any]", value)]
        case str() if HISTORY in value:
            return [plain_line(line) for line in value.splitlines()]
        case None | str() | int() | float() | bool():
            return value
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return plain(dataclasses.asdict(value))
        case _:
            return repr(value)


def plain_line(line: str) -> Any:
    """Write a line of a nested history as data; one that is an item is in JSON."""
    number, _, item = line.partition(" ")
    if not item.startswith("{"):
        return line
    given = plain(json.loads(item))
    return [number, {key: each for key, each in given.items() if key != "call_id"}]


def guardrails_of(data: Any) -> dict[str, list[Any]]:
    """Observe the guardrail results by kind."""
    found: dict[str, list[Any]] = {}
    for kind in ("input", "output", "tool_input", "tool_output"):
        results = as_list(getattr(data, f"{kind}_guardrail_results", None))
        if results:
            shown = [
                (
                    result.guardrail.get_name(),
                    repr(plain(result.output.output_info)),  # with the order of its members
                    getattr(result.output, "tripwire_triggered", None),
                )
                for result in results
            ]
            # Those of one kind run side by side: which ends first is nobody's promise.
            found[kind] = sorted(shown, key=repr)
    return found


def requests_of(data: Any) -> int:
    """Return the model calls that a run counted."""
    wrapper = getattr(data, "context_wrapper", None)
    usage = getattr(data, "usage", None) if wrapper is None else wrapper.usage
    return 0 if usage is None else int(usage.requests)


def name_of(agent: Any) -> str:
    """Return an agent's name; some results hold the name alone."""
    return str(getattr(agent, "name", agent))


def as_list(value: Any) -> list[Any]:
    """Return a list as it is and anything else as none."""
    return list(cast("list[Any]", value)) if isinstance(value, list | tuple) else []


def with_call_ids(observed: Any) -> Any:
    """Number the call ids in the order in which they appear."""
    numbers: dict[str, str] = {}

    def walk(value: Any) -> Any:
        match value:
            case dict():
                given = cast("dict[str, Any]", value)
                return {
                    key: numbered(each) if key in ("call_id", "tool_call_id") else walk(each)
                    for key, each in given.items()
                }
            case list() | tuple():
                return [walk(each) for each in cast("Iterable[Any]", value)]
            case _:
                return value

    def numbered(value: Any) -> Any:
        return numbers.setdefault(json.dumps(value), f"c{len(numbers) + 1}")

    return walk(observed)
