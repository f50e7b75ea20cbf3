"""Settings of models that were given none: what the GPT-5 family is asked for by its names."""

from __future__ import annotations

import re

from holdfast.values.settings import ModelSettings

_TEXT_ONLY = re.compile(r"gpt-5(\.[123])?-chat-latest")
"""Names of the family that refuse to be asked for reasoning."""

_DATED = r"(-\d{4}-\d{2}-\d{2})?"
_EFFORTS = {
    "low": re.compile(rf"gpt-5{_DATED}|gpt-5\.2-codex"),
    "medium": re.compile(rf"gpt-5\.[24]-pro{_DATED}"),
    "none": re.compile(
        rf"gpt-5\.[12456]{_DATED}|gpt-5\.3-codex|gpt-5\.4-(mini|nano){_DATED}"
        rf"|gpt-5\.6-(sol|terra|luna){_DATED}"
    ),
}
"""Reasoning effort to the names that are asked for it. Of others it is not known what they take."""


def reasons(name: str) -> bool:
    """Whether a name is one of a reasoning model of the GPT-5 family."""
    return name.startswith("gpt-5") and _TEXT_ONLY.fullmatch(name) is None


def default_settings(model: object) -> ModelSettings:
    """Return the settings with which the Agents SDK calls a model when an agent is given none.

    Args:
        model: The model's name, with or without the API before it ("chat:gpt-5"); another object
            has no settings by its name.

    Returns:
        Short answers and little reasoning for the GPT-5 family; nothing for other names.
    """
    name = model if isinstance(model, str) else ""
    api, colon, rest = name.partition(":")
    plain = rest if colon and api in ("chat", "responses") else name
    if not reasons(plain):
        return ModelSettings()
    efforts = (effort for effort, names in _EFFORTS.items() if names.fullmatch(plain))
    effort = next(efforts, None)
    reasoning = None if effort is None else {"effort": effort}
    return ModelSettings(reasoning=reasoning, verbosity="low")


class NoSettings(ModelSettings):  # noqa: PLW1641  # pydantic makes the hash of a frozen class
    """The settings of an agent that was given none, equal to a `ModelSettings()` that was given.

    A copy of the agent, by whatever means, was given none either.
    """

    def __eq__(self, other: object) -> bool:
        """Compare the fields."""
        return isinstance(other, ModelSettings) and vars(self) == vars(other)

    def __repr_name__(self) -> str:
        """Return the name that people know."""
        return ModelSettings.__name__


def were_given(settings: ModelSettings) -> bool:
    """Whether an agent was given settings, be it an empty `ModelSettings()`."""
    return not isinstance(settings, NoSettings) or settings != ModelSettings()
