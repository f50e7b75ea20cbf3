"""The engine below Holdfast: embedded Temporal server, connections, payloads, event loop."""
