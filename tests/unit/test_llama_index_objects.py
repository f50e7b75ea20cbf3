"""State, values, messages and requests by LlamaIndex's names."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import BaseModel

from holdfast.client.agent_runner.creation import json_state
from holdfast.engine.loop import shared_loop
from holdfast.errors import InvalidArgumentError
from holdfast.llama_index import (
    AgentChatResponse,
    ChatMemoryBuffer,
    ChatMessage,
    FunctionTool,
    HoldfastLLM,
    OpenAI,
    ReActAgentWorker,
    Task,
    TaskStep,
    TaskStepOutput,
    ToolOutput,
)
from holdfast.llama_index.llms.messages import to_message
from holdfast.llama_index.query_pipeline import (
    FnComponent,
    InputComponent,
    QueryPipeline,
    StatefulFnComponent,
)
from holdfast.llama_index.step_code.state import StateCodec
from holdfast.llama_index.step_code.worker import StepCode, TaskMemory
from holdfast.models.base import ModelRequest
from holdfast.testing import FakeOpenAI, ScriptedModel
from holdfast.values.json_patch import OBJECTS, ObjectState
from holdfast.values.messages import Message, assistant, user


class Node(BaseModel):
    """A node of a tree that knows its parent."""

    name: str
    parent: Node | None = None
    children: list[Node] = []


@dataclass
class Peer:
    """One that knows others."""

    name: str
    others: list[Peer] = field(default_factory=list["Peer"])
    length: int = field(init=False, default=0)


def restored(value: Any, owned: Mapping[str, Any] | None = None, *, is_sorted: bool = False) -> Any:
    """Write a state and read it back, as JSON whose keys may be sorted."""
    codec = StateCodec(owned or {})
    return codec.decode(json.loads(json.dumps(codec.encode(value), sort_keys=is_sorted)))


@pytest.mark.parametrize("is_sorted", [False, True])
def test_objects_that_refer_to_each_other_are_the_same_objects_again(is_sorted: bool) -> None:
    root = Node(name="root")
    leaf = Node(name="leaf", parent=root)
    root.children.append(leaf)
    made = restored({"queue": [leaf], "best": leaf, "a root": root}, is_sorted=is_sorted)
    assert made["queue"][0] is made["best"] is made["a root"].children[0]
    assert made["best"].parent is made["a root"]
    assert made["best"].model_fields_set == {"name", "parent", "children"}


def test_objects_in_several_parts_of_a_state_are_the_same_in_this_step_and_the_next() -> None:
    root = Node(name="root")
    leaf = Node(name="leaf", parent=root)
    root.children.append(leaf)
    first = StateCodec({}, "s1")
    parts = [first.encode(each) for each in (root, [root], {"leaf": leaf})]
    second = StateCodec({}, "s2")
    one, two, step = (second.decode(each) for each in json.loads(json.dumps(parts)))
    assert one is two[0] is step["leaf"].parent
    assert one.children[0] is step["leaf"]
    one.name = "changed"
    other = Peer("other")
    newer = [second.encode(each) for each in (one, other, [other])]
    third = StateCodec({}, "s3")
    again, peer, peers, waiting = (third.decode(each) for each in [*newer, parts[2]])
    assert waiting["leaf"] is again.children[0]
    assert (waiting["leaf"].parent.name, peers[0]) == ("changed", peer)
    assert peers[0] is peer


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"age": 3}, r"test_llama_index_objects\.Peer with a field 'age'"),
        ({"name": None}, r"test_llama_index_objects\.Peer without 'name', a new field"),
    ],
)
def test_a_dataclass_whose_fields_have_changed_is_refused(
    change: dict[str, Any], said: str
) -> None:
    written = StateCodec({}).encode(Peer("one"))
    value = {**written["value"], **change}
    written["value"] = {name: each for name, each in value.items() if each is not None}
    with pytest.raises(InvalidArgumentError, match=said):
        StateCodec({}).decode(written)


@pytest.mark.parametrize("kind", ["enum", "string", "model", "dataclass", "other"])
@pytest.mark.parametrize(
    "named", ["os:system", "subprocess:Popen", "no_module_yet:Made", ":", "os"]
)
def test_a_state_imports_no_module_and_calls_nothing_but_classes_of_its_kind(
    kind: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = tmp_path / "done"
    (tmp_path / "no_module_yet.py").write_text(f"open({str(done)!r}, 'w')")
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    for value in (f"touch {done}", {"args": f"touch {done}", "shell": True}):
        with pytest.raises(InvalidArgumentError, match="The state holds a"):
            StateCodec({}).decode([{"$kind": kind, "class": named, "value": value}])
    assert not done.exists()


def test_a_state_from_outside_holds_no_objects_and_no_keys_of_holdfast() -> None:
    forged: dict[str, Any] = {"x": StateCodec({}).encode(Peer("one"))}
    logic = StepCode(SimpleNamespace())
    for state, kind in ((json_state(forged), dict), (json_state(ObjectState(forged)), Peer)):
        task = Task("t", "hi")
        logic.restore(task, state)
        assert isinstance(task.extra_state["x"], kind)
    for key in (OBJECTS, "$memory"):
        with pytest.raises(InvalidArgumentError, match=r"`\$` are Holdfast's own"):
            json_state({**forged, key: True})


def test_a_list_that_holds_itself_is_refused_with_its_place() -> None:
    state: dict[str, Any] = {"plan": ["a"]}
    state["plan"].append(state["plan"])
    with pytest.raises(InvalidArgumentError, match=r"state\['plan'\]\[1\] is a list that holds"):
        StateCodec({}).encode(state)


def test_what_is_nested_too_deep_is_refused() -> None:
    node = Node(name="0")
    for _ in range(2_000):
        node = Node.model_construct(name="n", parent=node, children=[])
    with pytest.raises(InvalidArgumentError, match="deeper than"):
        StateCodec({}).encode(node)


def test_the_state_of_a_pipeline_is_recorded_and_each_copy_has_its_own() -> None:
    def count(state: dict[str, Any], input: str) -> str:
        state["seen"].append(input)
        return " ".join(state["seen"])

    pipeline = QueryPipeline(chain=[StatefulFnComponent(count)])
    pipeline.set_state({"seen": []})
    assert pipeline.run(input="one") == "one"
    made = restored({"qp": pipeline}, {"pipeline": pipeline})["qp"]
    assert (made.run(input="two"), pipeline.state) == ("one two", {"seen": ["one"]})
    again = restored({"qp": made}, {"pipeline": pipeline})["qp"]
    assert again.state == {"seen": ["one", "two"]}
    again.reset_state()
    again.update_state({"seen": ["x"]})
    assert again.run(input="y") == "x y"


def test_a_pipeline_begins_with_an_input_component_or_with_inputs_known_beforehand() -> None:
    def joined(first: str, second: str) -> str:
        return f"{first} {second}"

    known = FnComponent(joined, partial_dict={"second": "two"})
    assert QueryPipeline(chain=[InputComponent(), known]).run(first="one") == "one two"
    start = InputComponent()
    start.partial(first="1")
    assert QueryPipeline(chain=[start, known]).run() == "1 two"


def test_tasks_and_steps_become_plain_data() -> None:
    source = ToolOutput("42", "multiply", {"args": (), "kwargs": {"a": 6}}, 42)
    step = TaskStep("t", "s1", "6 times 7?")
    output = TaskStepOutput(AgentChatResponse("42", [source]), step, [step], is_last=True)
    made = output.model_dump()
    assert (made, made["output"]["response"]) == (output.dict(), "42")
    assert made["output"]["sources"][0]["raw_output"] == 42
    assert made["next_steps"][0]["input"] == "6 times 7?"
    assert output.dict(include={"is_last"}) == {"is_last": True}
    assert json.loads(Task("t", "q", memory=ChatMemoryBuffer()).json())["input"] == "q"


def test_a_message_keeps_what_else_it_is_made_with() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    named = ChatMessage(
        role="tool", content="42", name="f", additional_kwargs={"tool_call_id": "c"}
    )
    assert (named.additional_kwargs["name"], to_message(named).call_id) == ("f", "c")
    asked = to_message({"role": "assistant", "content": None, "tool_calls": [call]})
    answered = to_message({"role": "tool", "content": "1", "tool_call_id": "c1"})
    assert (asked.calls[0].name, answered.call_id) == ("f", "c1")


@pytest.mark.parametrize("given", [{"role": "user", "content": ["a"]}, {"role": "nobody"}])
def test_a_dict_that_is_no_message_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="is not a chat message"):
        to_message(given)


def test_blocks_are_refused_and_not_lost() -> None:
    with pytest.raises(InvalidArgumentError, match="no blocks"):
        ChatMessage(role="user", blocks=[{"text": "a"}])


def test_a_chat_store_is_refused_and_not_ignored() -> None:
    with pytest.raises(InvalidArgumentError, match="memory='alice'"):
        ChatMemoryBuffer.from_defaults(chat_store=object(), chat_store_key="alice")


def asked(**options: Any) -> ModelRequest:
    """Return the request of a chat with options."""
    model = ScriptedModel(["yes"])
    HoldfastLLM(model).chat([ChatMessage(content="q")], **options)
    return model.requests[0]


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@pytest.mark.parametrize("is_dict", [False, True])
def test_a_chat_offers_the_tools_that_it_is_given(is_dict: bool) -> None:
    tool = FunctionTool.from_defaults(add)
    given = tool.metadata.to_openai_tool() if is_dict else tool
    request = asked(tools=[given], tool_choice="required")
    assert [spec.name for spec in request.tools] == ["add"]
    assert (request.tools[0].parameters["required"], request.tool_choice) == (
        ["a", "b"],
        "required",
    )
    with pytest.raises(InvalidArgumentError, match="is not a tool"):
        asked(tools=[add])


def test_a_chat_takes_settings_and_fields_of_the_body() -> None:
    settings = asked(temperature=0.5, max_tokens=7, seed=3).settings
    assert (settings.temperature, settings.max_tokens) == (0.5, 7)
    assert settings.extra_args == {"seed": 3}


def test_openai_takes_an_address_headers_and_more_of_the_body() -> None:
    with FakeOpenAI() as api:
        api.reply("yes")
        llm = OpenAI(
            model="m",
            api_key="any",
            base_url=api.base_url,
            additional_kwargs={"seed": 3},
            default_headers={"x-team": "red"},
            timeout=5,
        )
        assert str(llm.complete("q")) == "yes"
        shared_loop().run(cast("Any", llm)._model.close())
    [request] = api.requests
    assert (request.body["seed"], request.headers["x-team"]) == (3, "red")
    assert request.headers["x-stainless-read-timeout"] == "5.0"


class Parser:
    """Reads answers in its own way."""

    def parse(self, output: str) -> str:
        return output


def test_a_grammar_of_its_own_is_refused_and_not_ignored() -> None:
    with pytest.raises(InvalidArgumentError, match=r"output_parser=.* has its own parse\(\)"):
        ReActAgentWorker.from_tools([], output_parser=Parser())


def test_a_memory_that_is_written_back_is_not_doubled_by_what_chat_messages_cannot_hold() -> None:
    before = [
        user("q"),
        assistant("a").model_copy(update={"item_ids": ("msg_1",)}),
        Message(role="tool", call_id="c1", content="no", is_error=True),
    ]
    memory = TaskMemory(before)
    memory.put(ChatMessage(role="user", content="more"))
    memory.set(memory.get_all())
    assert (memory.messages[:3], [each.text for each in memory.added]) == (before, ["more"])
