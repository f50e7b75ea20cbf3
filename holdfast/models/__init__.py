"""Models: the one-method protocol, OpenAI's, those of LiteLLM and any-llm, and an offline one."""

from holdfast.values.code.stub_names import late_names

__all__, __dir__, __getattr__ = late_names(__name__, __file__)
