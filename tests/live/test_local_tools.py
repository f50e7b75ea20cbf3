"""Shell, patch and custom tools: run here, recorded, approved, undone, given back in their form."""

from typing import Any

from holdfast import tool
from holdfast.agents_sdk import (
    ApplyPatchOperation,
    ApplyPatchResult,
    ApplyPatchTool,
    CustomTool,
    ShellCallOutcome,
    ShellCommandOutput,
    ShellCommandRequest,
    ShellResult,
    ShellTool,
    apply_diff,
)
from holdfast.testing import hosted, reply
from tests.support.rig import Rig, step_a_task
from tests.support.runs import Runs, sent_items

SHELL = hosted(
    "shell_call",
    id="sh_1",
    call_id="c1",
    status="completed",
    action={"commands": ["ls", "false"], "timeout_ms": 500, "max_output_length": 9},
)
PATCH = hosted(
    "apply_patch_call",
    id="ap_1",
    call_id="c2",
    status="completed",
    operation={"type": "update_file", "path": "a.txt", "diff": "@@\n-old\n+new\n"},
)
EDIT = hosted("custom_tool_call", id="ct_1", call_id="c3", name="edit", input="s/a/b/")


class Ran:
    """Remembers what the executor of a shell tool was asked for."""

    def __init__(self) -> None:
        self.requests: list[ShellCommandRequest] = []

    async def __call__(self, request: ShellCommandRequest) -> ShellResult:
        self.requests.append(request)
        return ShellResult(
            [
                ShellCommandOutput("a.txt\n", outcome=ShellCallOutcome("exit", 0)),
                ShellCommandOutput("", "failed badly", ShellCallOutcome("exit", 2)),
            ]
        )


class Files:
    """An editor of texts in memory that can take its changes back."""

    def __init__(self) -> None:
        self.files = {"a.txt": "old\n"}
        self.before: dict[str, str] = {}

    def create_file(self, operation: ApplyPatchOperation) -> str:
        self.files[operation.path] = apply_diff("", operation.diff or "", mode="create")
        return "made"

    async def update_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        if operation.path not in self.files:
            return ApplyPatchResult("failed", "there is no such file")
        self.before[operation.path] = self.files[operation.path]
        self.files[operation.path] = apply_diff(self.files[operation.path], operation.diff or "")
        return ApplyPatchResult(output="updated")

    def delete_file(self, operation: ApplyPatchOperation) -> None:
        del self.files[operation.path]


class Undoing(Files):
    """An editor that takes changes back."""

    def undo(self, operation: ApplyPatchOperation, effect: Any) -> str:
        self.files[operation.path] = self.before[operation.path]
        return f"restored {operation.path} after {effect.result}"


async def test_a_shell_call_is_run_here_and_its_result_given_back_in_the_providers_form(
    run: Runs,
) -> None:
    ran = Ran()
    await run.serve(ShellTool(ran))
    run.model.add(reply("", items=[SHELL]), reply("done"), reply("again"))
    result = await run("q")
    assert result.final_output == "done"
    assert run.model.requests[0].body["tools"] == [
        {"type": "shell", "environment": {"type": "local"}}
    ]
    output = [
        {"stdout": "a.txt\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
        {"stdout": "", "stderr": "fai", "outcome": {"type": "exit", "exit_code": 2}},
    ]
    told = {"type": "shell_call_output", "call_id": "c1", "output": output, "max_output_length": 9}
    assert sent_items(run.model) == [SHELL, told]
    [request] = ran.requests
    assert request.data.action.commands == ["ls", "false"]
    assert (request.data.action.timeout_ms, request.data.call_id) == (500, "c1")
    called, answered = result.new_items[:2]
    assert (called.type, called.raw_item) == ("tool_call_item", SHELL)
    assert answered.raw_item == told
    assert answered.output == "a.txt\nstderr: fai\nexit code: 2"
    await run([*result.to_input_list(), {"role": "user", "content": "more"}])
    assert sent_items(run.model) == [SHELL, told]


async def test_a_shell_call_waits_for_a_person_under_the_name_of_its_tool(run: Runs) -> None:
    asked: list[Any] = []

    async def needs(ctx: Any, action: Any, call_id: str) -> bool:
        asked.append((action.commands, call_id))
        return True

    ran = Ran()
    await run.serve(ShellTool(ran, name="terminal", needs_approval=needs))
    run.model.add(reply("", items=[SHELL]))
    waiting = await run("q")
    [item] = waiting.interruptions
    assert (item.tool_name, item.raw_item["type"]) == ("terminal", "shell_call")
    assert asked == [(["ls", "false"], "c1")]
    state = waiting.to_state()
    state.reject(item, rejection_message="not here")
    run.model.add(
        reply("as you wish"), reply("", items=[{**SHELL, "call_id": "c9"}]), reply("done")
    )
    assert (await run(state)).final_output == "as you wish"
    [refused] = sent_items(run.model)[1:]
    assert refused["output"][0]["stderr"] == "not here"
    assert not ran.requests
    again = await run("q")
    state = again.to_state()
    state.approve(again.interruptions[0])
    assert (await run(state)).final_output == "done"
    assert [request.data.call_id for request in ran.requests] == ["c9"]


async def test_code_may_decide_in_place_of_a_person(run: Runs) -> None:
    ran = Ran()
    decisions: list[Any] = [{"approve": False, "reason": "never"}, {"approve": True}]

    def decide(ctx: Any, item: Any) -> Any:
        assert item.raw_item["action"]["commands"] == ["ls", "false"]
        return decisions.pop(0)

    more: Any = {"max_attempts": 3, "failure_error_function": None}  # a rejection is no failure
    await run.serve(ShellTool(ran, needs_approval=True, on_approval=decide, **more))
    run.model.add(
        reply("", items=[SHELL]), reply("", items=[{**SHELL, "call_id": "c9"}]), reply("done")
    )
    assert (await run("q")).final_output == "done"
    assert decisions == []
    refused = sent_items(run.model)[1]
    assert refused["output"][0]["stderr"] == "never"
    assert [request.data.call_id for request in ran.requests] == ["c9"]


async def test_a_call_runs_only_a_tool_of_its_kind(rig: Rig) -> None:
    ran: list[Any] = []

    @tool
    def shell(commands: list[str]) -> str:
        """Run commands."""
        ran.append(commands)
        return "ran"

    files = Files()
    runner = await rig.make(shell, ApplyPatchTool(files))
    function = hosted(
        "function_call",
        call_id="c8",
        name="apply_patch",
        arguments='{"type": "delete_file", "path": "a.txt"}',
    )
    custom = hosted("custom_tool_call", call_id="c9", name="shell", input="{}")
    rig.model.add(reply("", items=[SHELL, function, custom]), reply("done"))
    assert (await runner.run_task(await runner.create_task("q"))).output == "done"
    told = {item["call_id"]: item["output"] for item in sent_items(rig.model) if "output" in item}
    assert "No shell_call is a call of tool shell" in told["c1"][0]["stderr"]
    assert "No function_call is a call of tool apply_patch" in told["c8"]
    assert "No custom_tool_call is a call of tool shell" in told["c9"]
    assert (ran, files.files) == ([], {"a.txt": "old\n"})


async def test_a_custom_tool_gets_the_text_as_it_is(run: Runs) -> None:
    grammar = {"type": "grammar", "syntax": "regex", "definition": "s/.*/"}
    seen: list[Any] = []

    def edit(ctx: Any, text: str) -> str:
        seen.append((ctx.tool_name, ctx.call_id, text))
        return text.upper()

    await run.serve(CustomTool("edit", "Edits.", edit, format=grammar))
    run.model.add(reply("", items=[EDIT]), reply("done"))
    assert (await run("q")).final_output == "done"
    [offered] = run.model.requests[0].body["tools"]
    assert offered == {"type": "custom", "name": "edit", "description": "Edits.", "format": grammar}
    assert seen == [("edit", "c3", "s/a/b/")]
    told = {"type": "custom_tool_call_output", "call_id": "c3", "output": "S/A/B/"}
    assert sent_items(run.model) == [EDIT, told]


async def test_a_patch_is_made_by_the_editor_and_taken_back_by_an_undo(rig: Rig) -> None:
    files = Undoing()
    runner = await rig.make(ApplyPatchTool(files))
    rig.model.add(reply("", items=[PATCH]), reply("done"))
    task = await step_a_task(runner)
    assert files.files == {"a.txt": "new\n"}
    assert str(await runner.run_step(task)) == "done"
    told = {
        "type": "apply_patch_call_output",
        "call_id": "c2",
        "status": "completed",
        "output": "updated",
    }
    assert sent_items(rig.model) == [PATCH, told]
    fork = await runner.fork(task, at="s1")
    rig.model.add(reply("done too"))
    assert (await runner.run_task(fork)).output == "done too"
    assert sent_items(rig.model) == [PATCH, told]
    await runner.undo_step(task)
    receipt = await runner.undo_step(task)
    assert files.files == {"a.txt": "old\n"}
    assert receipt.remains == ()
    assert await runner.verify(task) == []


async def test_a_patch_that_fails_is_told_as_failed_and_stays_without_an_undo(rig: Rig) -> None:
    files = Files()
    runner = await rig.make(ApplyPatchTool(files))
    other = {**PATCH, "operation": {**PATCH["operation"], "path": "b.txt"}}
    odd = {**PATCH, "call_id": "c7", "operation": {"type": "rename", "path": "a.txt"}}
    rig.model.add(reply("", items=[other]), reply("", items=[odd]), reply("done"))
    assert (await runner.run_task(await runner.create_task("q"))).output == "done"
    first, second = (item for item in sent_items(rig.model) if "output" in item)
    assert (first["status"], first["output"]) == ("failed", "there is no such file")
    assert second["status"] == "failed"
    assert "'rename' is not an operation" in second["output"]
