"""The differences that are wanted, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


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
            "answers/a_call_of_a_computer_that_nobody_has",
            "tools/two_calls_of_one_id",
            "tools/an_unknown_tool",
            "tools/a_disabled_tool_is_called",
            "tool_failures/a_tool_raises_and_nobody_words_it",
            "tool_failures/the_second_of_two_calls_fails_the_run",
            "tool_failures/a_tool_that_takes_too_long_ends_the_run",
            "handoffs/a_tool_of_the_agent_before",
            "handoffs/a_disabled_handoff_is_called",
            "tool_guardrails/a_call_that_ends_the_run",
            "tool_guardrails/an_output_that_ends_the_run",
            "handoff_filters/a_filter_that_gives_something_else",
            "guardrails/a_trip_after_the_model_has_answered",
            "agents_as_tools/a_child_that_fails_and_nobody_words_it",
            "agents_as_tools/a_call_of_a_child_that_ends_the_run",
        ),
    ),
    Known(
        "As above; the Agents SDK does not count a call whose answer was cut off.",
        ("runs.0.items", "runs.0.requests"),
        ("answers/a_text_that_is_cut_off", "answers/a_call_in_an_answer_that_is_cut_off"),
    ),
    Known(
        "As above, in streams.", ("runs.0.events",), ("answers/a_text_that_is_cut_off/streamed",)
    ),
    Known(
        "A call that may have acted before it took too long is told of as one of unknown outcome.",
        ("runs.0.events",),
        ("tool_failures/a_tool_that_takes_too_long_ends_the_run/streamed",),
    ),
    Known(
        "So do the results of the guardrail that has ended the run.",
        ("runs.0.guardrails.tool_input",),
        (
            "tool_guardrails/a_call_that_ends_the_run",
            "agents_as_tools/a_call_of_a_child_that_ends_the_run",
        ),
    ),
    Known(
        "As above.",
        ("runs.0.guardrails.tool_output",),
        ("tool_guardrails/an_output_that_ends_the_run",),
    ),
    Known(
        "As above; the Agents SDK gives no run_data at all with these errors.",
        ("runs.0.items", "runs.0.requests", "runs.0.last_agent"),
        ("output_types/an_answer_that_is_no_json", "handoffs/an_input_that_lacks_something"),
    ),
    Known(
        "A result that is not text is told to the model as JSON, not in Python's own notation.",
        ("runs.0.items.1.2.output", "runs.0.input_list.2.output", "calls.1.input.2.output"),
        ("tools/a_dict",),
    ),
    Known(
        "What a tool returned is recorded as JSON; the class of what it holds is that of the"
        " tool's annotation.",
        ("notes.6.1", "notes.7.2", "notes.10.0", "notes.10.1", "notes.11.2", "notes.14.0"),
        ("final_tools/what_a_tool_returned_is_given_to_a_function",),
    ),
    Known(
        "The output of a typed agent is of its type, where a tool's result fits that; else data.",
        ("notes.1.1", "notes.1.2", "notes.3.1", "notes.3.2"),
        ("final_tools/what_a_tool_returned_ends_the_run_of_a_typed_agent",),
    ),
    Known(
        "As above, also where the result is a text.",
        ("notes.4.1", "notes.4.2"),
        ("final_tools/what_a_tool_returned_ends_the_run_of_a_typed_agent",),
    ),
    Known(
        "The same schema: a definition that is used once stands where it is used.",
        ("calls.0.text.format.schema.$defs", "calls.0.text.format.schema.properties.response"),
        ("output_types/a_dataclass",),
    ),
    Known(
        "A model that is told what is wrong with its arguments can correct them; the text holds"
        " nothing but what the model has said and the tool's schema.",
        ("runs.0.items.1.2.output", "runs.0.input_list.2.output", "calls.1.input.2.output"),
        (
            "tool_failures/arguments_that_are_no_json",
            "tool_failures/an_argument_that_is_missing",
            "agents_as_tools/a_child_that_cannot_be_asked_so",
        ),
    ),
    Known(
        "So are hooks and guardrails of the result.",
        ("notes.5.1", "notes.6.3"),
        ("agents_as_tools/a_child_that_cannot_be_asked_so",),
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
        "What a model says while it answers is carried as text, without the provider's division"
        " into several messages: the raw events show one. Items and record are exact.",
        ("runs.0.events",),
        ("answers/two_messages/streamed", "output_types/the_last_message_counts/streamed"),
    ),
    Known(
        "Of an answer that ends the run, the Agents SDK passes on what came before it was read.",
        ("runs.0.events",),
        (
            "answers/a_call_of_a_computer_that_nobody_has/streamed",
            "tool_search/a_search_that_is_left_to_the_caller/streamed",
        ),
    ),
    Known(
        "An agent that hands over to itself stays the agent: a stream tells of another one only.",
        ("runs.0.events",),
        ("handoffs/a_ring_and_one_that_hands_over_to_itself/streamed",),
    ),
    Known(
        "A call that is said twice is one call, also in the raw events.",
        ("runs.0.events",),
        ("tools/a_call_that_is_said_twice_with_other_spaces/streamed",),
    ),
    Known(
        "A guardrail that raises is a defect of the program, not a verdict: the task waits until it"
        " is mended, and nothing is lost.",
        ("raised", "runs.0.error", "runs.0.last_agent"),
        ("guardrails/a_guardrail_that_raises",),
    ),
    Known(
        "What has happened stays in new_items, whatever a filter takes out of its own.",
        ("runs.0.items",),
        ("handoff_filters/all_tools_are_removed", "handoff_filters/a_filter_of_the_handoff"),
    ),
    Known(
        "Outputs stand in call order, whether or not somebody had to be asked: the model sees the"
        " same conversation either way. The Agents SDK puts those of approved calls last.",
        (
            "runs.1.items.2",
            "runs.1.items.3",
            "runs.1.input_list.3",
            "runs.1.input_list.4",
            "calls.1.input.3",
            "calls.1.input.4",
        ),
        ("approvals/a_call_beside_one_that_waits",),
    ),
    Known(
        "A transfer needs no approval, so its output is there while another call waits; the next"
        " agent begins after both.",
        ("runs.0.items.2", "runs.0.input_list.3"),
        ("approvals/a_transfer_beside_one_that_waits",),
    ),
    Known(
        "After an approval the same agent goes on; it is told of its start once.",
        ("notes",),
        ("hooks/a_run_with_an_approval",),
    ),
    Known(
        "As above.",
        ("notes.12", "notes.13", "notes.14", "notes.15"),
        ("agents_as_tools/a_guarded_child_that_needs_approval",),
    ),
    Known(
        "As above.",
        ("notes.9", "notes.10", "notes.11", "notes.12"),
        ("agents_as_tools/an_approval_in_a_guarded_child",),
    ),
    Known(
        "What guardrails found of an approved call is in the results, as of any call. The Agents"
        " SDK leaves it out of a resumed run.",
        ("runs.1.guardrails.tool_input", "runs.1.guardrails.tool_output"),
        ("agents_as_tools/a_guarded_child_that_needs_approval",),
    ),
    Known(
        "As above.",
        ("runs.1.guardrails.tool_output",),
        ("agents_as_tools/an_approval_in_a_guarded_child",),
    ),
    Known(
        "The schema of an agent as a tool has no description: it would say nothing that the tool's"
        " own does not.",
        ("calls.*.tools.0.parameters.description",),
        (
            "agents_as_tools/a_child_with_a_tool",
            "agents_as_tools/a_child_with_too_few_turns",
            "agents_as_tools/a_child_has_the_words_that_the_state_is_given_with",
            "agents_as_tools/a_child_that_fails_and_nobody_words_it",
            "agents_as_tools/an_extractor",
            "agents_as_tools/a_child_that_hands_over",
            "agents_as_tools/the_settings_of_the_run_reach_the_child",
            "agents_as_tools/an_approval_in_a_child",
            "agents_as_tools/hooks_of_a_parent_and_its_child",
            "agents_as_tools/hooks_of_a_run_with_a_child",
            "agents_as_tools/a_call_of_a_child_that_ends_the_run",
            "agents_as_tools/a_guarded_child_that_needs_approval",
            "agents_as_tools/a_child_that_nobody_is_asked_about",
            "model_settings/none_for_an_agent_as_a_tool",
            "agents_as_tools/a_child_that_cannot_be_asked_so",
            "agents_as_tools/an_approval_in_a_guarded_child",
        ),
    ),
    Known(
        "The words around structured input are Holdfast's own.",
        ("calls.1.input.0.content.0.text",),
        ("agents_as_tools/a_structured_input",),
    ),
    Known(
        "What a handler gives is the run's output also when its type has aliases; the Agents SDK"
        " writes it by field names and then wants to read aliases.",
        ("raised", "runs.0"),
        ("error_handlers/a_typed_answer_with_other_names",),
    ),
    Known(
        "An input guardrail sees the input as it was given, also in a streamed run; there the"
        " Agents SDK gives a text as a list of items.",
        ("notes.*.2",),
        tuple(
            f"guardrails/{name}/streamed"
            for name in (
                "an_input_that_is_blocked",
                "guardrails_of_agent_and_run",
                "guardrails_of_the_first_and_of_the_last_agent",
                "guardrails_run_once",
            )
        ),
    ),
    Known(
        "Streams tell outputs in call order, too: one behind a call that waits comes after it.",
        ("runs.0.events", "runs.1.events"),
        ("approvals/a_call_beside_one_that_waits/streamed",),
    ),
    Known(
        "Every handoff is told, also one whose filter leaves it out of what the next agent sees:"
        " events match new_items one to one.",
        ("runs.0.events",),
        (
            "handoff_filters/all_tools_are_removed/streamed",
            "handoff_filters/a_filter_of_the_handoff/streamed",
        ),
    ),
    Known(
        "A handoff is told once its filter has let it pass; here the error says that it has not.",
        ("runs.0.events.8",),
        ("handoff_filters/a_filter_that_gives_something_else/streamed",),
    ),
    Known(
        "The tool has run, so its output is told, and stays in run_data, before the error comes.",
        ("runs.0.events.9",),
        ("tool_guardrails/an_output_that_ends_the_run/streamed",),
    ),
    Known(
        "What extra_body says of a field is joined with what the field holds: settings and the type"
        " of the answer do not exclude each other.",
        ("calls.0.text.format",),
        ("model_settings/an_extra_verbosity_beside_an_output_type",),
    ),
    Known(
        "Chat Completions has a new name for the limit of tokens, the only one that reasoning"
        " models take.",
        ("calls.0.max_tokens", "calls.0.max_completion_tokens"),
        ("chat_settings/a_limit_of_tokens",),
    ),
    Known(
        "Streams tell their usage unless they are told not to: budgets count it. The Agents SDK"
        " asks for it at OpenAI's own address only.",
        ("calls.0.stream_options",),
        ("chat_settings/a_text/streamed",),
    ),
    Known(
        "Raw events are the same for both APIs, those of Responses; the Agents SDK leaves some"
        " out.",
        ("runs.0.events",),
        ("chat_settings/a_text/streamed",),
    ),
    Known(
        "Results stand in the order of the calls; the Agents SDK puts decisions on requests of the"
        " provider last.",
        ("calls.1.input", "runs.*.events", "runs.1.items", "runs.1.input_list"),
        ("hosted_tools/a_request_beside_a_call/streamed",),
    ),
    Known(
        "Results stand in the order of the calls, as when it is streamed.",
        ("calls.1.input", "runs.1.items", "runs.1.input_list"),
        ("hosted_tools/a_request_beside_a_call/plain",),
    ),
    Known(
        "The turn in which a run failed is recorded, and is shown.",
        ("runs.0.items.0",),
        (
            "hosted_tools/a_request_of_another_server",
            "tool_search/a_search_that_is_left_to_the_caller",
            "tool_search/the_inner_name_alone",
        ),
    ),
)
