"""AgentWorkers: the step logic that an agent runs on."""

from holdfast.values.code.stub_names import late_names

__all__, __dir__, __getattr__ = late_names(__name__, __file__)
