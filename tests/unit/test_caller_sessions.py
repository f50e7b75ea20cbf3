"""Sessions of the caller's own: what is one, what a session holds of a turn, and SQLiteSession."""

import asyncio
import pickle
import sqlite3
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import RunConfig, RunContextWrapper, SQLiteSession
from holdfast.agents_sdk import OpenAIConversationsSession, SessionABC, SessionSettings
from holdfast.client.caller_sessions.compaction import without_plain_ids
from holdfast.client.caller_sessions.protocol import LoopsLock, check_session, takes_wrapper
from holdfast.client.caller_sessions.store import CallerStore, marks, stored_count
from holdfast.client.runner.input import whole_calls
from holdfast.client.runner.runner import CallerLoop, is_kept_here
from holdfast.errors import InvalidArgumentError, UserError

OLD = ["a", "b", "c"]
TURN = ["q", "call", "answer"]


def again(settings: SessionSettings) -> SessionSettings:
    """Write and read settings as a process does that gives them to another one."""
    read: SessionSettings = pickle.loads(pickle.dumps(settings))
    return read


def item(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def test_it_cannot_be_told_what_a_changed_session_holds() -> None:
    assert stored_count(OLD, [], TURN, is_whole=True) is None  # it was cleared
    assert stored_count(OLD, [*OLD, "x"], TURN, is_whole=True) is None
    assert stored_count(OLD, [*OLD, "q", "x"], TURN, is_whole=True) is None


@given(
    st.lists(st.sampled_from("abc"), max_size=6),
    st.lists(st.sampled_from("abc"), min_size=1, max_size=4),
    st.integers(0, 4),
)
def test_of_all_items_the_count_is_exact(before: list[str], turn: list[str], count: int) -> None:
    kept = turn[:count]
    assert stored_count(before, [*before, *kept], turn, is_whole=True) == len(kept)


def test_an_item_is_known_again_without_what_a_store_adds_to_it() -> None:
    plain = {"role": "assistant", "content": "yes"}
    kept = {"id": "m1", "type": "message", "status": "completed", "phase": None, **plain}
    assert marks([plain]) == marks([kept]) != marks([item("yes")])


def test_calls_and_outputs_that_are_cut_apart_are_left_out() -> None:
    call = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "1", "output": "x"}
    assert whole_calls([item("q"), call, output]) == [item("q"), call, output]
    assert whole_calls([item("q"), call]) == [item("q")]
    assert whole_calls([output, item("q")]) == [item("q")]


class Plain(SessionABC):
    def __init__(self, session_id: str = "s") -> None:
        self.session_id = session_id

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return [item(str(k)) for k in range(4)]

    async def add_items(self, items: list[Any]) -> None: ...

    async def pop_item(self) -> Any: ...

    async def clear_session(self) -> None: ...


def test_a_session_needs_its_methods_and_a_name_that_fits() -> None:
    class Half:
        session_id = "s"

        async def get_items(self) -> list[Any]:
            return []

        async def add_items(self, items: list[Any]) -> None: ...

    check_session(Plain())
    with pytest.raises(InvalidArgumentError, match="lacks pop_item, clear_session"):
        check_session(Half())
    with pytest.raises(InvalidArgumentError, match="session_id of the Plain"):
        check_session(Plain("x" * 5000))
    assert not is_kept_here(Plain())
    assert not takes_wrapper(Plain())
    abstract: Any = SessionABC
    with pytest.raises(TypeError, match="abstract"):
        abstract()


async def test_a_store_cuts_what_a_session_without_limit_gives_and_refuses_odd_answers() -> None:
    class Short(Plain):
        async def get_items(self) -> list[Any]:  # type: ignore[override]
            return await super().get_items()

    class Odd(Plain):
        async def get_items(self, limit: int | None = None) -> Any:
            return ["text"] if limit else "text"

    invoke, wrapper = CallerLoop().call, RunContextWrapper[Any](None)
    for session in (Plain(), Short()):
        store = CallerStore(session, invoke, wrapper)
        assert [each["content"] for each in await store.items(2)] == ["2", "3"]
        assert await store.items(0) == []
    odd = CallerStore(Odd(), invoke, wrapper)
    with pytest.raises(UserError, match="must return a list"):
        await odd.items()
    with pytest.raises(UserError, match="must be a dict"):
        await odd.items(1)
    odd_settings = Plain()
    odd_settings.session_settings = {"limit": "2"}
    with pytest.raises(UserError, match="must be a number"):
        assert CallerStore(odd_settings, invoke, wrapper).limit


async def test_a_sqlite_session_keeps_its_items_in_order(tmp_path: Path) -> None:
    session = SQLiteSession("a", tmp_path / "s.db")
    await session.add_items([item("1"), item("2", "assistant")])
    await session.add_items([])
    await session.add_items([item("3")])
    other = SQLiteSession("b", tmp_path / "s.db")
    assert await other.get_items() == []
    assert await session.get_items(2) == [item("2", "assistant"), item("3")]
    assert await session.get_items(0) == []
    session.close()
    again = SQLiteSession("a", tmp_path / "s.db", session_settings={"limit": 1})
    assert await again.get_items() == [item("3")]
    assert await again.pop_item() == item("3")
    assert await again.get_items(9) == [item("1"), item("2", "assistant")]
    await again.clear_session()
    assert await again.get_items() == []
    assert await again.pop_item() is None
    again.close()
    other.close()
    with pytest.raises(RuntimeError, match="is closed"):
        await again.add_items([])


async def test_items_are_added_wholly_or_not_at_all(tmp_path: Path) -> None:
    session = SQLiteSession("a", tmp_path / "s.db")
    odd: list[Any] = [item("1"), {"content": object()}]
    with pytest.raises(TypeError):
        await session.add_items(odd)
    assert await session.get_items() == []
    with sqlite3.connect(tmp_path / "s.db") as other:  # what is not JSON is passed over
        other.execute("INSERT INTO agent_messages (session_id, message_data) VALUES ('a', '{')")
    await session.add_items([item("2")])
    assert await session.get_items(1) == [item("2")]
    assert await session.pop_item() == item("2")
    assert await session.pop_item() is None
    session.close()


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"session_id": ""}, InvalidArgumentError),
        ({"session_id": "a", "messages_table": "x; DROP"}, InvalidArgumentError),
        ({"session_id": "a", "db_path": 3}, InvalidArgumentError),
        ({"session_id": "a", "session_settings": {"limitt": 1}}, TypeError),
        ({"session_id": "a", "session_settings": 3}, UserError),
    ],
)
def test_a_sqlite_session_refuses_what_does_not_fit(given: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        SQLiteSession(**given)


def test_settings_are_overridden_by_those_that_are_set() -> None:
    own = SessionSettings(limit=3)
    assert own.resolve(None) == own.resolve({}) == own.resolve(SessionSettings()) == own
    assert own.resolve({"limit": 5}).to_dict() == {"limit": 5}
    assert RunConfig(session_settings=own).session_settings is own


async def test_a_large_turn_is_added_by_requests_that_the_client_does_not_repeat() -> None:
    made: list[tuple[int | None, list[Any]]] = []

    def client(retries: int | None) -> Any:
        async def create(*, conversation_id: str, items: list[Any]) -> None:
            assert conversation_id == "conv_1"
            made.append((retries, items))
            await asyncio.sleep(0)  # so that another turn could come between

        def with_options(*, max_retries: int) -> Any:
            return client(max_retries)

        items = SimpleNamespace(create=create)
        return SimpleNamespace(
            conversations=SimpleNamespace(items=items), with_options=with_options
        )

    session = OpenAIConversationsSession(conversation_id="conv_1", openai_client=client(None))
    large, other = [item(str(n)) for n in range(41)], [item("other")]
    await asyncio.gather(session.add_items(large), session.add_items(other))
    assert made == [(0, large[:20]), (0, large[20:40]), (0, large[40:]), (None, other)]


# ---- a lock for coroutines of several event loops: passed on in order, and never lost


@pytest.mark.parametrize("late", [False, True])
async def test_who_is_cancelled_while_waiting_does_not_keep_it(*, late: bool) -> None:
    lock = LoopsLock()

    async def take() -> None:
        async with lock:
            pass

    async with lock:
        waiting = asyncio.ensure_future(take())
        await asyncio.sleep(0)
        if not late:
            waiting.cancel()
    if late:  # it has been passed on, and the one that waits does not know yet
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(100):
        await take()


def test_one_holds_it_at_a_time_whatever_its_loop() -> None:
    lock, inside, most = LoopsLock(), 0, 0

    async def work() -> None:
        nonlocal inside, most
        for _ in range(50):
            async with lock:
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

    threads = [threading.Thread(target=lambda: asyncio.run(work()), daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert not any(thread.is_alive() for thread in threads)
    assert most == 1


# ---- which ids of a session's items a model is sent


def said(id: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "message", "role": "assistant", "content": "x", **more}


def ids(*items: Any) -> list[Any]:
    return [item.get("id") for item in without_plain_ids(items)]


ASKED = {"id": "u_1", "role": "user", "content": "q"}
THOUGHT = {"id": "rs_1", "type": "reasoning", "summary": list[Any]()}
CALL = {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
DONE = {"id": "o_1", "type": "function_call_output", "call_id": "c", "output": "x"}


def test_ids_of_plain_answers_are_left_out_and_those_of_others_stay() -> None:
    assert ids(ASKED, CALL, DONE, said("msg_1"), ASKED) == ["u_1", None, "o_1", None, "u_1"]


def test_ids_stay_in_an_answer_that_has_reasoning_or_a_phase_and_not_in_the_next_one() -> None:
    assert ids(THOUGHT, CALL, DONE, said("msg_1")) == ["rs_1", "fc_1", "o_1", None]
    assert ids(said("msg_1", phase="final_answer")) == ["msg_1"]
    part: dict[str, Any] = {"type": "output_text", "annotations": [], "logprobs": []}
    assert ids(said("msg_1", content=[part])) == [None]
    assert ids(said("msg_1", content=[{**part, "logprobs": [{"token": "x"}]}])) == ["msg_1"]


def test_an_id_that_stands_for_none_is_left_out_everywhere() -> None:
    assert ids(THOUGHT, said("__fake_id__")) == ["rs_1", None]


def test_items_that_are_no_dicts_are_left_as_they_are() -> None:
    item = object()
    assert without_plain_ids([item]) == [item]
