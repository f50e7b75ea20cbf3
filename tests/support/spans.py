"""Spans as tests look at them: a tree of names, and what must hold of every trace."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast.tracing import export as sending
from tests.support.rig import until


@dataclass(frozen=True)
class Seen:
    """One exported span."""

    name: str
    trace: str
    id: str
    parent: str
    start: int
    end: int
    status: str
    text: str
    attributes: dict[str, Any]
    events: list[dict[str, Any]]

    @property
    def failed(self) -> bool:
        return self.status == "ERROR"

    def __getitem__(self, key: str) -> Any:
        return self.attributes[key]


def seen(span: ReadableSpan) -> Seen:
    """Read a span of the SDK."""
    data = json.loads(span.to_json())
    parent = data["parent_id"]
    return Seen(
        name=data["name"],
        trace=data["context"]["trace_id"][2:],
        id=data["context"]["span_id"][2:],
        parent=parent[2:] if parent else "",
        start=span.start_time or 0,
        end=span.end_time or 0,
        status=data["status"]["status_code"],
        text=data["status"].get("description", ""),
        attributes=data["attributes"],
        events=data["events"],
    )


def distinct(spans: Iterable[Seen]) -> list[Seen]:
    """Return each span once; check that one that was told twice is the same."""
    known: dict[str, Seen] = {}
    for span in spans:
        assert known.setdefault(span.id, span) == span, (known[span.id], span)
    return list(known.values())


class Spans:
    """What one provider has exported."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False, **options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def all(self) -> list[Seen]:
        """Each span once.

        The server may have a task do its newest turn again, which then tells what it told before.
        """
        sending.flush()
        return distinct(seen(span) for span in self.exporter.get_finished_spans())

    def named(self, name: str) -> list[Seen]:
        """Return the spans of a name, in the order in which they ended."""
        return [span for span in self.all if span.name == name]

    def one(self, name: str) -> Seen:
        """Return the one span of a name."""
        [span] = self.named(name)
        return span

    async def until(self, name: str, count: int = 1) -> None:
        """Wait until there are that many spans of a name."""
        await until(lambda: len(self.named(name)) >= count)


def tree(spans: Iterable[Seen]) -> list[str]:
    """Draw spans as a tree: two spaces for each level, siblings by their start."""
    known = distinct(spans)
    ids = {span.id for span in known}

    def draw(siblings: Iterable[Seen], depth: int) -> list[str]:
        lines: list[str] = []
        for span in sorted(siblings, key=lambda span: (span.start, span.end)):
            lines.append("  " * depth + span.name)
            lines += draw([each for each in known if each.parent == span.id], depth + 1)
        return lines

    return draw([each for each in known if each.parent not in ids], 0)


def assert_joined(spans: Iterable[Seen], *, above: str = "") -> None:
    """Check what holds of every trace.

    One trace; a span that was exported twice is the same; all parents are there, but `above`.
    """
    known = distinct(spans)
    assert len({span.trace for span in known}) == 1
    parents = {span.parent for span in known}
    assert parents - {span.id for span in known} == {above}
