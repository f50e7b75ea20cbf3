"""Record spans of finished steps, calls and tasks, at once or in a thread of its own.

Workflow code uses the thread: Temporal takes a workflow that waits two seconds, as for an exporter,
for deadlocked.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from holdfast.tracing.finished import Finished
from holdfast.tracing.spans import TraceRules
from holdfast.tracing.switch import provider_in_use, spans
from holdfast.values.text.logs import log
from holdfast.values.text.redact import redact

LAST_SECONDS = 5.0
"""How long a process that ends waits until its last spans are recorded."""


Made = Callable[[TraceRules], Finished]


def send(rules: TraceRules, made: Finished) -> None:
    """Record a finished span."""
    maker = spans()
    if maker is None:
        return
    from holdfast.tracing import otel

    place = otel.Place(rules.trace.trace, made.span, made.parent, rules.sampled)
    span = maker.start(place, made.name, attributes=made.attributes, start=made.start)
    if made.failure is not None:
        text = redact(made.failure.text) if rules.sensitive else ""
        otel.fail(span, made.failure.type, text, at=made.end)
    otel.end(span, made.end)


class _Sender:
    """A thread that records spans, started with the first of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting: SimpleQueue[tuple[TraceRules, Made] | threading.Event] = SimpleQueue()
        self.thread: threading.Thread | None = None

    def put(self, what: tuple[TraceRules, Made]) -> None:
        with self.lock:
            if self.thread is None:
                serve = threading.Thread(target=self._serve, name="holdfast-spans", daemon=True)
                self.thread = serve
                serve.start()
                # Registered after the provider's own function, and so run before it at exit.
                atexit.register(self.flush)
        self.waiting.put(what)

    def flush(self) -> None:
        """Wait until all waiting spans are recorded, for LAST_SECONDS at most."""
        if self.thread is not None and self.thread.is_alive():
            done = threading.Event()
            self.waiting.put(done)
            done.wait(LAST_SECONDS)

    def _serve(self) -> None:
        while True:
            what = self.waiting.get()
            if isinstance(what, threading.Event):
                what.set()
                continue
            rules, made = what
            try:
                send(rules, made(rules))
            except Exception:
                log.warning("A span could not be recorded", exc_info=True)


class _Process:
    """The process's sender; a forked child gets a new one, as it does not inherit the thread."""

    def __init__(self) -> None:
        self.sender = _Sender()

    def renew(self) -> None:
        self.sender = _Sender()


_process = _Process()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.renew)


def send_later(rules: TraceRules, made: Made) -> None:
    """Record a finished span without waiting; `made` is called in another thread."""
    _process.sender.put((rules, made))


def flush() -> None:
    """Wait until the spans of `send_later` are recorded; the provider may still buffer them."""
    _process.sender.flush()


def flush_traces() -> None:
    """Export all buffered spans; waits a few seconds at most."""
    flush()
    provider: Any = provider_in_use()
    force = getattr(provider, "force_flush", None)
    if force is not None:
        force(timeout_millis=int(LAST_SECONDS * 1000))
