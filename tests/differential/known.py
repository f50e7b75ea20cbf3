"""Which groups are compared, and the differences that are wanted, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

BUILT: frozenset[str] = frozenset(
    {
        "agents_as_tools",
        "answers",
        "approvals",
        "error_handlers",
        "guardrails",
        "handoff_filters",
        "handoffs",
        "hooks",
        "instructions",
        "loop",
        "model_input_filter",
        "nested_history",
        "output_types",
        "server_history",
        "sessions",
        "settings",
        "tool_failures",
        "tool_guardrails",
        "tool_use",
        "tools",
    }
)
"""Groups whose features exist. Of the others only the Agents SDK's side is run; add a group when
its feature is there, and to `KNOWN` what differs on purpose."""

STREAMS: frozenset[str] = BUILT
"""Groups that are compared as streams too."""


@dataclass(frozen=True)
class Known:
    """A difference that is wanted.

    Attributes:
        reason: Why.
        paths: Places in the observation that differ, "*" standing for any index. What lies within
            them is meant too.
        scripts: The scripts in which each of these places differs, as "group/script", or
            "group/script/plain" and "group/script/streamed" for one mode.
    """

    reason: str
    paths: tuple[str, ...]
    scripts: tuple[str, ...]


KNOWN: tuple[Known, ...] = (
    Known(
        "What the last response was stays in an error's run_data: it has been paid for, and says"
        " more of the error than its text. The Agents SDK forgets it.",
        ("runs.0.items",),
        (
            "answers/a_refusal",
            "answers/a_refusal_after_a_text",
            "tools/an_unknown_tool",
            "tools/an_unknown_tool_beside_a_known_one",
            "tools/a_disabled_tool_is_called",
            "tool_failures/a_tool_raises_and_nobody_words_it",
            "tool_failures/the_first_of_two_calls_fails_the_run",
            "tool_failures/the_second_of_two_calls_fails_the_run",
            "tool_failures/a_tool_that_takes_too_long_ends_the_run",
            "tool_failures/arguments_that_are_no_json_and_nobody_words_it",
            "handoffs/a_tool_of_the_agent_before",
            "handoffs/a_disabled_handoff_is_called",
            "tool_guardrails/a_call_that_ends_the_run",
            "tool_guardrails/an_output_that_ends_the_run",
            "error_handlers/an_answer_for_something_else",
            "output_types/a_refusal_of_a_typed_answer",
        ),
    ),
    Known(
        "As above; the Agents SDK gives no run_data at all with these errors.",
        ("runs.0.items", "runs.0.requests", "runs.0.last_agent"),
        (
            "output_types/an_answer_that_is_no_json",
            "output_types/an_answer_that_does_not_fit",
            "handoffs/an_input_that_lacks_something",
            "handoffs/an_input_that_is_empty",
            "handoffs/an_input_of_another_type",
        ),
    ),
    Known(
        "A result that is no text is told to the model as JSON, not in Python's own notation.",
        ("runs.0.items.1.2.output", "runs.0.input_list.2.output", "calls.1.input.2.output"),
        ("tools/a_dict", "tools/a_model"),
    ),
    Known(
        "As above: the run ends with what the tool gave, and its text in the history is JSON.",
        ("runs.0.items.1.2.output", "runs.0.input_list.2.output"),
        ("output_types/a_tools_output_in_the_place_of_a_typed_answer",),
    ),
    Known(
        "The same schema: a definition that is used once stands where it is used.",
        ("calls.0.text.format.schema.$defs", "calls.0.text.format.schema.properties.response"),
        ("output_types/a_dataclass",),
    ),
    Known(
        "The record holds the whole conversation, so that a crash loses none of it and every task"
        " can be read and forked: a history that only the provider has is refused before any call.",
        ("raised", "runs", "calls", "notes", "left"),
        (
            "server_history/only_what_is_new_is_sent",
            "server_history/a_conversation_of_the_provider",
            "server_history/a_chain_from_the_first_response",
        ),
    ),
    Known(
        "A model that is told what is wrong with its arguments can correct them; the text holds"
        " nothing but what the model has said and the tool's schema.",
        ("runs.0.items.1.2.output", "runs.0.input_list.2.output", "calls.1.input.2.output"),
        (
            "tool_failures/arguments_that_are_no_json",
            "tool_failures/arguments_that_are_no_object",
            "tool_failures/arguments_of_a_wrong_type",
            "tool_failures/an_argument_that_is_missing",
        ),
    ),
    Known(
        "An argument that the tool does not have is a mistake of the model, and is told to it.",
        (
            "runs.0.items.1.2.output",
            "runs.0.input_list.2.output",
            "calls.1.input.2.output",
            "notes",
        ),
        ("tool_failures/an_argument_too_many",),
    ),
    Known(
        "Two tools of one name are refused when the agent is made: which of them runs must not"
        " depend on their order.",
        ("raised", "runs", "calls", "notes", "left"),
        ("tools/two_tools_of_one_name",),
    ),
    Known(
        "A guardrail that raises is a defect of the program, not a verdict: the task waits until it"
        " is mended, and nothing is lost.",
        ("raised", "runs.0.error"),
        ("guardrails/a_guardrail_that_raises",),
    ),
)
