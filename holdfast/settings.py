"""Settings that people write: for models and for budgets."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holdfast.values import Json, Strict


class ModelSettings(Strict):
    """How a model is called. None leaves the choice to the provider.

    Attributes:
        temperature: Sampling temperature.
        top_p: Nucleus sampling mass.
        frequency_penalty: Penalty on repeated tokens (Chat Completions only).
        presence_penalty: Penalty on tokens already present (Chat Completions only).
        max_tokens: Most output tokens of one call.
        tool_choice: "auto", "none", "required" or a tool's name.
        parallel_tool_calls: Whether one answer may hold several tool calls.
        reasoning_effort: Reasoning effort, as the provider names it.
        metadata: Metadata stored by the provider.
        store: Whether the provider may store the answer.
        extra_body: More fields of the request body, sent as they are.
        extra_headers: More request headers. They are stored with the task: no secrets here.
        timeout_seconds: Longest time of one attempt.
        max_attempts: Attempts before the task asks a person. The waits between them double from
            1 s to at most 60 s; a Retry-After of the provider is obeyed instead.
    """

    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    max_tokens: int | None = None
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    extra_body: dict[str, Json] | None = None
    extra_headers: dict[str, str] | None = None
    timeout_seconds: float = Field(default=600.0, gt=0)
    max_attempts: int = Field(default=10, ge=1)

    def resolve(self, override: ModelSettings | None) -> ModelSettings:
        """Return these settings with the fields that `override` sets put over them."""
        if override is None:
            return self
        return self.model_copy(update=override.wire())


class Budget(Strict):
    """Limits of one task. None is no limit.

    Attributes:
        max_turns: Model calls, over the whole task.
        max_tokens: Input and output tokens, over the whole task.
        max_seconds: Wall time since the task was created.
        on_exceeded: "ask" parks the task for a person, "finish" ends it with a tool-free answer,
            "fail" ends it with MaxTurnsExceeded.
    """

    max_turns: int | None = Field(default=None, ge=0)
    max_tokens: int | None = Field(default=None, ge=0)
    max_seconds: float | None = Field(default=None, ge=0)
    on_exceeded: Literal["ask", "finish", "fail"] = "ask"
