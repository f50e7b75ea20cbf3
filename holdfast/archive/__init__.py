"""The archive: content-addressed bytes next to Temporal's history, and the records in it."""

from holdfast.archive.archive import Archive

__all__ = ["Archive"]
