"""`chat(chat_history=...)`: a session is replaced only for a chat that begins."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import AgentRunner
from holdfast.errors import InvalidArgumentError, TaskExistsError
from holdfast.values.messages import ImagePart, Message, user
from tests.support.rig import Rig
from tests.support.workers import Counting

BROKEN = ImagePart(kind="image", url="data:image/png;base64,!")
NEW = [user("new")]
WRONG: list[tuple[type[Exception], dict[str, Any]]] = [
    (InvalidArgumentError, given)
    for given in (
        {"message": "  "},
        {"message": "\ud800"},
        {"extra_state": {"a": object()}},
        {"images": ["no image"]},
        {"on_event": "print"},
        {"chat_history": [user("new"), "old"]},
        {"chat_history": [{"role": "user", "content": "new"}, {"role": "nobody"}]},
        {"chat_history": "new"},
        {"tool_choice": {"type": "tool"}},
        {"tool_choice": 5},
        {"session": None},
        {"chat_history": [Message(role="user", content=(BROKEN,))]},
    )
]


@pytest.fixture
async def runner(rig: Rig) -> AgentRunner:
    return await rig.make(worker=Counting(1))


def streamed(runner: AgentRunner) -> Callable[..., Any]:
    async def chat(message: str, **options: Any) -> Any:
        return await runner.stream_chat(message, **options).result()

    return chat


async def texts(runner: AgentRunner) -> list[str]:
    return [m.text for m in await runner.session(f"of {runner.app}").chat_history()]


async def test_a_chat_that_is_refused_leaves_its_session_as_it_was(runner: AgentRunner) -> None:
    session, taken = f"of {runner.app}", f"taken by {runner.app}"
    await runner.session(session).append([user("old")])
    await runner.create_task("q", task_id=taken)
    refused: list[tuple[type[Exception], dict[str, Any]]] = [
        *WRONG,
        (TaskExistsError, {"task_id": taken}),
    ]
    for kind, given in refused:
        options: dict[str, Any] = {"message": "q", "chat_history": NEW, "session": session, **given}
        message = options.pop("message")
        for chat in (runner.chat, streamed(runner)):
            with pytest.raises(kind):
                await chat(message, **options)
    assert await texts(runner) == ["old"]


async def test_a_chat_history_takes_the_place_of_what_the_session_had(runner: AgentRunner) -> None:
    session = f"of {runner.app}"
    await runner.session(session).append([user("old")])
    await runner.chat("q", session=session, chat_history=NEW)
    assert await texts(runner) == ["new", "q", "counted to 1"]
    await runner.chat("q", session=session, chat_history=[])
    assert await texts(runner) == ["q", "counted to 1"]


async def test_a_chat_without_a_session_uses_the_default_one_of_its_runner(rig: Rig) -> None:
    runner = await rig.make(worker=Counting(1), default_session="alice")
    await runner.chat("one")
    await runner.stream_chat("two").result()
    await runner.chat("three", session="bob")
    asked = [
        [m.text for m in await runner.session(name).chat_history() if m.role == "user"]
        for name in ("alice", "bob")
    ]
    assert asked == [["one", "two"], ["three"]]


async def test_a_default_session_without_a_name_is_refused(rig: Rig) -> None:
    with pytest.raises(InvalidArgumentError, match="default_session"):
        await rig.make(default_session="")
