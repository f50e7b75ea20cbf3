"""The engine below Holdfast: the embedded Temporal server, connections, loop and large values."""
