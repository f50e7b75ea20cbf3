"""The agent API that LlamaIndex had in versions 0.10 to 0.12, over Holdfast.

A program of that API changes its import lines, and then runs durably: each task is a Temporal
workflow, the memory is a session, and a program that was killed goes on where it was when it is
started again. See docs/llama_index.md.
"""

from importlib import import_module

from holdfast.values.code.stub_names import late_names

import_module("holdfast.llama_index.agent_runner")  # tells workers what their `as_agent` makes

__all__, __dir__, __getattr__ = late_names(__name__, __file__)
