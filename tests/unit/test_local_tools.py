"""Shell, patch and custom tools by themselves, and the items of their calls."""

import json
from typing import Any

import pytest

from holdfast import Agent, ApprovalRule, ToolContext, UserError
from holdfast.agents.tools.arguments import ToolArgumentsError
from holdfast.agents_sdk import (
    ApplyPatchResult,
    ApplyPatchTool,
    CustomTool,
    LocalShellTool,
    ShellCallOutcome,
    ShellCommandOutput,
    ShellResult,
    ShellTool,
)
from holdfast.errors import (
    DeclarationError,
    InvalidArgumentError,
    ModelRequestError,
    WrongTypeError,
)
from holdfast.models.base import ModelRequest
from holdfast.models.choices import choice_of
from holdfast.models.openai import chat
from holdfast.models.openai.items import assistant_message, from_response_items, to_response_items
from holdfast.models.openai.responses import request_body
from holdfast.task.data.calls import Outcome
from holdfast.values.messages import Message, ToolCall
from holdfast.values.tool_result import ToolResultError

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
        (choice_of({"type": "shell"}), {"type": "shell"}),
        (choice_of({"type": "custom", "name": "edit"}), {"type": "custom", "name": "edit"}),
    ):
        body = (await request_body("m", request.model_copy(update={"tool_choice": choice}))).data()
        assert body["tool_choice"] == sent
    assert choice_of({"type": "apply_patch"}) == "apply_patch"
    old = (LocalShellTool(lambda request: "").spec(),)
    update = {"tools": old, "tool_choice": "local_shell"}
    with pytest.raises(ModelRequestError, match="no such tool_choice"):
        await request_body("m", request.model_copy(update=update))


def test_what_cannot_work_is_refused() -> None:
    odd: Any
    for odd, why in (
        ({"type": "container_auto"}, "containers of the provider"),
        ("here", "must be a mapping"),
        ({"type": "local", "skils": []}, "'skils'"),
        ({"type": "local", "skills": {1, 2}}, "must be a list"),
        ({"type": "local", "skills": [{"name": "x"}]}, "each of its skills"),
    ):
        with pytest.raises(UserError, match=why):
            shell(environment=odd)
    with pytest.raises(UserError, match="requires an executor"):
        ShellTool()
    with pytest.raises(UserError, match="executor="):
        LocalShellTool("ls")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="create_file"):
        ApplyPatchTool(object())  # type: ignore[arg-type]
    editor: Any = type("Editor", (), {"create_file": 1})()
    with pytest.raises(UserError, match=r"at least one of .* create_file, which cannot be called"):
        ApplyPatchTool(editor)
    with pytest.raises(UserError, match="needs a function"):
        CustomTool("edit", "", "f")  # type: ignore[arg-type]
    for odd, why in (
        ({"x": object()}, "format"),
        ("text", "must be a mapping"),
        ({"type": "json"}, "its type must be"),
        ({"type": "grammar"}, "has definition, syntax, type"),
        ({"type": "grammar", "syntax": "peg", "definition": "x"}, "its syntax"),
        ({"type": "grammar", "syntax": "lark", "definition": 1}, "its definition"),
    ):
        with pytest.raises(UserError, match=why):
            CustomTool("edit", "", lambda ctx, text: text, format=odd)
    with pytest.raises(WrongTypeError, match="on_approval"):
        shell(on_approval=True)


CONTEXT: ToolContext = ToolContext(tool_name="shell", tool_call_id="c")
OUTPUT = ShellCommandOutput


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (7, "a text or a ShellResult"),
        (None, "a text or a ShellResult"),
        (b"x", "a text or a ShellResult"),
        (ShellResult(None), "is a list"),  # type: ignore[arg-type]
        (ShellResult(["x"]), r"output\[0\] must be"),  # type: ignore[list-item]
        (ShellResult([OUTPUT(b"x")]), r"output\[0\].stdout"),  # type: ignore[arg-type]
        (ShellResult([OUTPUT("x", outcome=None)]), "outcome must be"),  # type: ignore[arg-type]
        (ShellResult([OUTPUT("x", outcome=ShellCallOutcome("over"))]), "type"),  # type: ignore[arg-type]
        (ShellResult([OUTPUT("x", outcome=ShellCallOutcome("exit", "1"))]), "exit_code"),  # type: ignore[arg-type]
        (ShellResult([], max_output_length="9"), "max_output_length"),  # type: ignore[arg-type]
    ],
)
async def test_what_an_executor_returns_is_checked_after_it_ran_and_never_repeated(
    said: Any, why: str
) -> None:
    tool = shell(said, max_attempts=3)
    with pytest.raises(ToolResultError, match=why) as caught:
        await tool.run(CONTEXT, json.dumps(CALL["action"]))
    assert "ran, but its result" in str(caught.value)
    assert not tool.is_worth_repeating(caught.value)


async def test_an_approval_that_says_nothing_usable_is_told() -> None:
    undecided = shell(needs_approval=True, on_approval=say_nothing)
    with pytest.raises(UserError, match="must return"):
        await undecided.rejection(CONTEXT, json.dumps(CALL["action"]))
    assert await undecided.rejection(CONTEXT, "{}") is None


async def test_a_predicate_of_a_local_tool_gives_an_answer_or_a_rule() -> None:
    action = json.dumps(CALL["action"])
    rule = ApprovalRule(by="ann")
    assert await shell(needs_approval=lambda *_: rule).asks_approval(CONTEXT, action) == rule
    with pytest.raises(UserError, match="returned None"):
        await shell(needs_approval=lambda *_: None).asks_approval(CONTEXT, action)
    decided = shell(needs_approval=lambda *_: rule, on_approval=say_nothing)
    with pytest.raises(DeclarationError, match="in place of the persons"):
        await decided.rejection(CONTEXT, action)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"status": "done"}, "as status"),
        (ApplyPatchResult("done", "x"), "as status"),  # type: ignore[arg-type]
        (ApplyPatchResult("failed", 5), "as output"),  # type: ignore[arg-type]
        ({"foo": 1}, "must return a text"),
        (7, "must return a text"),
    ],
)
async def test_what_an_editor_returns_is_checked_after_it_ran(said: Any, why: str) -> None:
    class Editor:
        def delete_file(self, operation: Any) -> Any:
            return said

    tool = ApplyPatchTool(Editor())  # type: ignore[arg-type]
    with pytest.raises(ToolResultError, match=why):
        await tool.run(CONTEXT, json.dumps({"type": "delete_file", "path": "a"}))


async def test_calls_that_ask_for_nothing_usable_do_not_reach_the_code() -> None:
    ran: list[Any] = []

    class Editor:
        def update_file(self, operation: Any) -> None:
            ran.append(operation)

    odd = {"type": "update_file", "path": "a", "diff": "x", "move_to": [1]}
    with pytest.raises(ToolArgumentsError, match="move_to"):
        await ApplyPatchTool(Editor()).run(CONTEXT, json.dumps(odd))  # type: ignore[arg-type]
    old = LocalShellTool(ran.append)  # type: ignore[arg-type]
    with pytest.raises(ToolArgumentsError, match="list of texts"):
        await old.run(CONTEXT, json.dumps({"command": [1]}))
    assert not ran
    with pytest.raises(ToolResultError, match="must return a text"):
        await old.run(CONTEXT, json.dumps({"command": ["ls"]}))
    assert len(ran) == 1


@pytest.mark.parametrize(
    ("own", "wanted", "told", "length"),
    [(5, 50, "abcde", 5), (50, 5, "abcde", 5), (None, -5, "", 0), (3, None, "abc", 3)],
)
async def test_the_smallest_limit_of_an_output_holds(
    own: int | None, wanted: int | None, told: str, length: int
) -> None:
    action = {"commands": ["x"], "max_output_length": wanted}
    tool = shell(ShellResult([OUTPUT("abcdef" * 10)], max_output_length=own))
    said = json.loads(await tool.run(CONTEXT, json.dumps(action)))
    assert said["output"][0]["stdout"] == told
    assert said["max_output_length"] == length


async def test_exit_codes_survive_outputs_that_are_too_long() -> None:
    failed = OUTPUT("\u00e9\n" * 9000, "no" * 9000, ShellCallOutcome("exit", 3))
    tool = shell(ShellResult([failed, failed]), max_output_bytes=2000)
    text = await tool.run(CONTEXT, json.dumps(CALL["action"]))
    assert 1500 < len(text.encode()) <= 2000
    for each in json.loads(text)["output"]:
        assert each["outcome"] == {"type": "exit", "exit_code": 3}
        assert each["stdout"].endswith("[cut: 18000 characters in all]")


def test_an_agent_has_one_tool_for_each_type_of_calls() -> None:
    class Editor:
        def delete_file(self, operation: Any) -> None: ...

    editor: Any = Editor()
    for one, other in (
        (shell(name="dev"), shell(name="prod")),
        (ApplyPatchTool(editor, name="dev"), ApplyPatchTool(editor, name="prod")),
    ):
        with pytest.raises(DeclarationError, match=r"'dev'.*'prod'"):
            Agent(name="a", model="gpt-5-mini", tools=[one, other])
        agent = Agent(name="a", model="gpt-5-mini", tools=[one])
        agent.tools.append(other)
        with pytest.raises(DeclarationError, match=r"'dev'.*'prod'"):
            agent.snapshot("gpt-5-mini")
    edit = CustomTool("edit", "", lambda ctx, text: text)
    draw = CustomTool("draw", "", lambda ctx, text: text)
    old = LocalShellTool(lambda request: "")
    assert Agent(name="a", model="gpt-5-mini", tools=[shell(), old, edit, draw]).tools


async def test_calls_and_results_are_written_for_chat_completions() -> None:
    items = [CALL, EDIT, RESULT, {"type": "custom_tool_call_output", "call_id": "d", "output": "t"}]
    request = ModelRequest(model="m", messages=tuple(from_response_items(items)))
    said, ran, edited = (await chat.request_body("m", request)).data()["messages"]
    assert [json.loads(call["function"]["arguments"]) for call in said["tool_calls"]] == [
        {"commands": ["ls"]},
        {"input": "text"},
    ]
    assert (ran["content"], edited["content"]) == ("x\ntimed out", "t")
