"""The archive: content-addressed bytes next to Temporal's history, and the records in it."""

from holdfast.values.code.stub_names import late_names

__all__, __dir__, __getattr__ = late_names(__name__, __file__)
