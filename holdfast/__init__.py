"""Holdfast: durable agents on Temporal.

Importing this package loads nothing else of it: each name is loaded at its first use, so that a
program, a command and a worker process pay for what they use. `__init__.pyi` is the table of the
names. What only programs of the OpenAI Agents SDK use is in `holdfast.agents_sdk`.
"""

from __future__ import annotations

from pathlib import Path

if not Path(__file__).with_name("workflows").is_dir():  # a checkout without symbolic links
    __path__.append(str(Path(__file__).parent.parent))

from holdfast.values.code.stub_names import late_names


def _instead(name: str) -> str:
    """Say where a name of the Agents SDK is, or what to use instead."""
    from holdfast.agents_sdk.absent_names import instead_in_holdfast

    return instead_in_holdfast(name)


__all__, __dir__, __getattr__ = late_names(__name__, __file__, _instead)
