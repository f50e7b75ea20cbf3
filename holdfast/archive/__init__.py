"""The archive: content-addressed bytes beside Temporal's history, and the records in it."""

from holdfast.archive.archive import Archive

__all__ = ["Archive"]
