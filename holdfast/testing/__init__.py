"""Tools for tests of agents: a scripted model, a fake OpenAI API, the conformance suite."""

from holdfast.values.code.stub_names import late_names

__all__, __dir__, __getattr__ = late_names(__name__, __file__)
