"""Hooks: being told what a run, or an agent, does."""

from __future__ import annotations


class AgentHooks:
    """Told what one agent does, in the worker process that does it."""


class RunHooks:
    """Told what a run does, in the process that called `Runner.run`."""
