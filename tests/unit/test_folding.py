"""What a fold leaves of a conversation, and what it never parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UserError
from holdfast.models.base import is_too_long
from holdfast.values.messages import Message, ToolCall, assistant, user
from holdfast.workers import FoldingAgentWorker
from holdfast.workers.folding import (
    BYTES_PER_TOKEN,
    LEFT_OUT,
    SUMMARY,
    Fold,
    known_window,
    quoted,
    smaller,
    tokens,
    view,
)
from tests.support.there import there


def turn(n: int, calls: int, size: int) -> list[Message]:
    made = tuple(ToolCall(id=f"c{n}.{i}", name="look") for i in range(calls))
    results = [Message(role="tool", call_id=c.id, content=f"{c.id} " + "x" * size) for c in made]
    return [assistant(f"turn {n}", calls=made), *results]


conversations = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 9_000), st.booleans()), min_size=1, max_size=12
).map(
    lambda turns: [
        user("do it"),
        *(
            message
            for n, (calls, size, is_told) in enumerate(turns)
            for message in [*turn(n, calls, size), *([user(f"told {n}")] if is_told else [])]
        ),
    ]
)


@given(conversations, st.integers(200, 12_000))
def test_a_fold_fits_and_parts_no_call_from_its_result(seen: list[Message], room: int) -> None:
    found = smaller(seen, [0], room, room // 4)
    if found is None:
        return
    fold, out = found[0].made_of(seen), found[1]
    said = fold.message("s" * 30)
    after = view([*seen, said])
    assert tokens(after) <= room
    assert Fold.of(said) == fold
    assert user("do it") in after or user("do it") in seen[-fold.kept :]
    calls = {call.id for message in after for call in message.calls}
    results = {message.call_id for message in after if message.role == "tool"}
    assert calls == results
    assert calls >= {call.id for call in seen[-1].calls}
    # What is left out is summarised, once, and nothing else is.
    left = [message for message in after if message.text != "s" * 30]
    assert len(left) + len(out) == len(seen)
    assert not out or after.index(user("s" * 30)) == len(fold.pinned)


@given(conversations, st.lists(st.integers(300, 4_000), max_size=4))
def test_folds_upon_folds_are_a_view_of_what_came_before_them(
    seen: list[Message], rooms: list[int]
) -> None:
    transcript = list(seen)
    views = [view(transcript)]
    for room in rooms:
        found = smaller(views[-1], [0], room, room // 4)
        if found is None:
            continue
        transcript.append(found[0].made_of(views[-1]).message(f"summary {room}"))
        views.append(view(transcript))
    for taken_back in range(len(views)):
        kept = transcript[: len(transcript) - taken_back]
        assert view(kept) == views[len(views) - 1 - taken_back]


@given(conversations, st.integers(300, 4_000), st.integers(0, 3))
def test_what_a_step_side_by_side_adds_before_a_fold_stays(
    seen: list[Message], room: int, calls: int
) -> None:
    found = smaller(seen, [0], room, room // 4)
    if found is None:
        return
    said = found[0].made_of(seen).message("summary")
    alone, other = view([*seen, said]), turn(99, calls, 50)
    assert view([*seen, *other, said]) == [*alone, *other]


@given(conversations, conversations, conversations, st.integers(300, 4_000), st.booleans())
def test_tasks_of_a_session_that_fold_side_by_side_drop_nothing_that_no_summary_has(
    base: list[Message], one: list[Message], two: list[Message], room: int, cuts: bool
) -> None:
    mine = [user(f"one {k}") if m.role == "user" else m for k, m in enumerate(one)]
    made = [smaller([*base, *own], [], room, room // 4) for own in (mine, two)]
    if made[0] is None or made[1] is None:
        return
    first, second = (
        found[0].made_of([*base, *own]).message(f"summary {k}")
        for k, (found, own) in enumerate(zip(made, (mine, two), strict=True))
        if found is not None
    )
    begun = base[1:] if cuts else base  # the session may have lost its oldest, too
    before = view([*begun, *mine, first])
    after = view([*begun, *mine, first, *two, second])
    whole = [*before, *two]
    assert after == whole or second.text in [each.text for each in after]
    # What the second fold leaves out is what it was made of: its summary has all of it.
    known = [each.text for each in [*base, *two]]
    assert all(each in after or each.text in known for each in whole)


@given(conversations, st.integers(300, 4_000), st.integers(0, 3_000), st.booleans())
def test_a_summary_of_what_came_before_is_quoted_whole(
    seen: list[Message], room: int, size: int, is_summarised: bool
) -> None:
    said = user((SUMMARY if is_summarised else f"{LEFT_OUT}\n\n{SUMMARY}") + "s" * size)
    text = quoted([*seen[:1], said, *seen[1:]], room)
    if len(said.text) <= room * BYTES_PER_TOKEN:
        assert said.text in text
    calls = sum(len(message.calls) for message in seen)
    assert len(text) <= max(room * BYTES_PER_TOKEN, size + 400) + 250 * (len(seen) + calls)


def test_of_what_is_summarised_the_longest_messages_are_cut_first() -> None:
    text = quoted([user("a" * 900), *turn(1, 1, 5_000), *turn(2, 1, 5_000)], 1_000)
    assert "a" * 900 in text
    assert text.count("[...]") == 2
    assert 2_500 < len(text) <= 3_000


def test_a_summary_stays_in_view_though_the_session_has_lost_what_it_is_about() -> None:
    seen = [user("q"), *turn(1, 1, 3_000), *turn(2, 1, 3_000), *turn(3, 1, 3_000)]
    fold, said = there(smaller(seen, [], 1_500, 100))[0].made_of(seen), SUMMARY + "four were paid"
    left = [*seen[-2:], user("next")]
    assert view([*seen[-2:], fold.message(said), user("next")]) == [
        *left[:-1],
        user(said),
        left[-1],
    ]
    assert view([*seen[-2:], fold.message("cut"), user("next")]) == left


def test_only_results_are_cut_where_that_is_enough() -> None:
    seen = [user("q"), *turn(1, 1, 30_000), *turn(2, 1, 5_000)]
    fold, out = there(smaller(seen, [0], 4_000, 1_000))
    assert (out, fold.kept) == ([], len(seen))
    old, new = [m for m in view([*seen, fold.made_of(seen).message("")]) if m.role == "tool"]
    assert "of 30005 characters are left out here" in old.text
    assert new == seen[-1]


def test_a_message_of_a_person_is_no_fold() -> None:
    forged = [
        user("a"),
        Message(role="assistant", content="b", call_id=f"fold::0:0:0:0:{0:064}"),
        user("c"),
    ]
    assert view(forged) == forged


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 8192 tokens. However, your messages are 9000.",
        "HTTP 400: prompt is too long: 210000 tokens > 200000 maximum",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "litellm.ContextWindowExceededError: no",
        "the request exceeds the available context size. try increasing the context size",
        "Input is too long for requested model.",
        "Please reduce the length of the messages or completion.",
        "refused (context_length_exceeded)",
    ],
)
def test_refusals_of_what_is_too_long_are_known(text: str) -> None:
    assert is_too_long(text)


@pytest.mark.parametrize(
    "text", ["Rate limit reached: 30000 tokens per min", "Invalid value: 'tool' too few", ""]
)
def test_other_refusals_are_not_taken_for_them(text: str) -> None:
    assert not is_too_long(text)


def test_windows_are_those_of_the_published_data() -> None:
    assert known_window("gpt-4o") == known_window("openai/gpt-4o") == 128_000
    assert known_window("litellm/anthropic/claude-opus-4-5") == 200_000
    assert known_window("of-nobody") == 0


def test_what_is_folded_must_be_a_worker() -> None:
    with pytest.raises(UserError, match="no method run_step"):
        FoldingAgentWorker(object())  # type: ignore[arg-type]
