"""Shell, patch and custom tools by themselves, and the items of their calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast import ApplyPatchTool, CustomTool, LocalShellTool, ShellTool, ToolContext, UserError
from holdfast.errors import InvalidArgumentError, WrongTypeError
from holdfast.models.base import ModelRequest
from holdfast.models.openai.items import (
    assistant_message,
    from_response_items,
    to_response_items,
)
from holdfast.models.openai.responses import request_body
from holdfast.task.data.calls import Outcome
from holdfast.values.messages import Message, ToolCall

CALL = {"type": "shell_call", "id": "s", "call_id": "c", "action": {"commands": ["ls"]}}
RESULT = {
    "type": "shell_call_output",
    "call_id": "c",
    "output": [{"stdout": "x", "stderr": "", "outcome": {"type": "timeout"}}],
}
EDIT = {"type": "custom_tool_call", "call_id": "d", "name": "edit", "input": "text"}


def shell(said: Any = "x", **options: Any) -> ShellTool:
    return ShellTool(lambda request: said, **options)


def say_nothing(ctx: Any, item: Any) -> Any:
    return {}


def test_items_of_calls_and_results_survive_being_read_and_written() -> None:
    items = [CALL, EDIT, RESULT, {"type": "custom_tool_call_output", "call_id": "d", "output": "t"}]
    messages = from_response_items(items)
    assert [message.role for message in messages] == ["assistant", "tool", "tool"]
    assert [(call.name, call.kind) for call in messages[0].calls] == [
        ("shell", "shell_call"),
        ("edit", "custom_tool_call"),
    ]
    assert to_response_items(messages) == items
    assert to_response_items([assistant_message([CALL, EDIT])]) == [CALL, EDIT]


def test_a_call_that_was_taken_out_leaves_no_item() -> None:
    message = assistant_message([CALL, EDIT])
    [edit] = [call for call in message.calls if call.name == "edit"]
    assert to_response_items([message.model_copy(update={"calls": (edit,)})]) == [EDIT]


def test_a_call_that_the_provider_has_run_itself_is_no_call() -> None:
    message = assistant_message([CALL, RESULT])
    assert message.calls == ()
    assert to_response_items([message]) == [CALL, RESULT]


def test_a_call_that_is_not_whole_is_refused() -> None:
    for item in ({**CALL, "action": "ls"}, {**CALL, "call_id": None}, {**EDIT, "input": 1}):
        with pytest.raises(InvalidArgumentError, match="Item 0"):
            from_response_items([item])


def test_results_have_the_form_of_their_calls() -> None:
    def sent(kind: Any, outcome: Outcome) -> Any:
        [item] = to_response_items([outcome.message(ToolCall(id="c", name="n", kind=kind))])
        return item

    told = Outcome(content="no", is_error=True)
    assert sent("shell_call", told)["output"] == [
        {"stdout": "", "stderr": "no", "outcome": {"type": "exit", "exit_code": 1}}
    ]
    assert sent("shell_call", Outcome(content='{"output":7}'))["output"][0]["stdout"]
    assert sent("apply_patch_call", told)["status"] == "failed"
    assert sent("apply_patch_call", Outcome())["status"] == "completed"
    assert sent("custom_tool_call", told)["output"] == "no"


async def test_what_is_of_output_only_and_ids_of_what_is_not_stored_are_not_sent() -> None:
    message = assistant_message([{**CALL, "created_by": "x"}])
    request = ModelRequest(model="m", messages=(message,))
    assert (await request_body("m", request)).data()["input"] == [CALL]
    settings = request.settings.model_copy(update={"store": False})
    unstored = request.model_copy(update={"settings": settings})
    [item] = (await request_body("m", unstored)).data()["input"]
    assert "id" not in item


async def test_tools_are_chosen_by_their_types() -> None:
    tools = (shell(name="terminal").spec(), CustomTool("edit", "", lambda ctx, text: text).spec())
    request = ModelRequest(model="m", messages=(Message(role="user", content="q"),), tools=tools)
    for choice, sent in (
        ("terminal", {"type": "shell"}),
        ("edit", {"type": "custom", "name": "edit"}),
    ):
        body = (await request_body("m", request.model_copy(update={"tool_choice": choice}))).data()
        assert body["tool_choice"] == sent


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(UserError, match="requires an executor"):
        ShellTool()
    with pytest.raises(UserError, match="containers of the provider"):
        shell(environment={"type": "container_auto"})
    with pytest.raises(UserError, match="must be a mapping"):
        shell(environment="here")
    with pytest.raises(UserError, match="executor="):
        LocalShellTool("ls")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="create_file"):
        ApplyPatchTool(object())  # type: ignore[arg-type]
    with pytest.raises(UserError, match="needs a function"):
        CustomTool("edit", "", "f")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="format"):
        CustomTool("edit", "", lambda ctx, text: text, format={"x": object()})
    with pytest.raises(WrongTypeError, match="on_approval"):
        shell(on_approval=True)


async def test_an_executor_or_an_approval_that_says_nothing_usable_is_told() -> None:
    ctx: ToolContext = ToolContext(tool_name="shell", tool_call_id="c")
    arguments = json.dumps(CALL["action"])
    with pytest.raises(WrongTypeError, match="ShellResult"):
        await shell(7).run(ctx, arguments)
    undecided = shell(needs_approval=True, on_approval=say_nothing)
    with pytest.raises(UserError, match="must return"):
        await undecided.run(ctx, arguments)
    assert json.loads(await shell("out").run(ctx, arguments)) == {
        "output": [{"stdout": "out", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
    }


def test_effects_are_irreversible_unless_the_editor_undoes() -> None:
    class Editor:
        def delete_file(self, operation: Any) -> None: ...

    class Undoing(Editor):
        def undo(self, operation: Any, effect: Any) -> None: ...

    assert shell().effect == "irreversible"
    assert ApplyPatchTool(Editor()).effect == "irreversible"  # type: ignore[arg-type]
    assert ApplyPatchTool(Undoing()).effect == "reversible"  # type: ignore[arg-type]
