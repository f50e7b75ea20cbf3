"""The names of LlamaIndex's agent API, over tasks of Holdfast."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pytest
from llama_index.core.agent.react.types import ObservationReasoningStep
from llama_index.core.callbacks import trace_method
from llama_index.core.tools import FunctionTool as CoreTool
from pydantic import BaseModel, Field

from holdfast import Effect, ToolCall, tool
from holdfast.errors import StepFailedError
from holdfast.llama_index import (
    AgentChatResponse,
    AgentRunner,
    BaseAgent,
    BaseAgentWorker,
    ChatMessage,
    ChatResponse,
    CoAAgentPack,
    CustomSimpleAgentWorker,
    FnAgentWorker,
    FunctionTool,
    HoldfastLLM,
    MultimodalReActAgentWorker,
    OpenAI,
    OpenAIAgent,
    OpenAIAgentWorker,
    ParallelAgentRunner,
    PromptTemplate,
    QueryPipelineAgentWorker,
    ReActAgent,
    ReActAgentWorker,
    ReActChatFormatter,
    ReActOutputParser,
    Task,
    TaskStep,
    TaskStepOutput,
    ToolOutput,
    UnclearCallError,
    program,
)
from holdfast.llama_index.query_pipeline import (
    AgentFnComponent,
    AgentInputComponent,
    CustomAgentComponent,
    QueryPipeline,
)
from holdfast.llama_index.values import NodeWithScore
from holdfast.testing import FakeOpenAI, ScriptedModel
from tests.support.llama_index_runs import engine, run

__all__ = ["engine", "run"]


def multiply(a: int, b: int) -> int:
    """Multiply two whole numbers."""
    return a * b


def calls(**arguments: int) -> ToolCall:
    return ToolCall(id="", name="multiply", arguments=json.dumps(arguments))


def agent(*script: Any, **options: Any) -> AgentRunner:
    """Make an agent whose model follows a script."""
    llm = ScriptedModel(script)
    return OpenAIAgent.from_tools([FunctionTool.from_defaults(multiply)], llm=llm, **options)


def texts(messages: list[Any]) -> list[str]:
    return [f"{message.role.value}: {message.content}" for message in messages]


def test_a_task_is_run_step_by_step_and_what_does_not_fit_is_refused() -> None:
    runner = agent(calls(a=6, b=7), "42", "one", init_task_state_kwargs={"seen": ["a"]})
    with pytest.raises(ValueError, match="must be a text that says something; it was ChatMessage"):
        runner.chat(ChatMessage(role="user", content="6 times 7?"))  # type: ignore[arg-type]
    task = runner.create_task("6 times 7?")
    [step] = runner.get_upcoming_steps(task.task_id)
    assert step.input == "6 times 7?"
    with pytest.raises(ValueError, match="Cannot specify both `step` and `input`"):
        runner.run_step(task.task_id, input="more", step=step)
    with pytest.raises(ValueError, match="No completed steps for task_id"):
        runner.get_task_output(task.task_id)
    first = runner.run_step(task.task_id)
    assert (first.is_last, len(first.next_steps)) == (False, 1)
    [source] = first.output.sources
    assert (source.raw_output, source.tool_name) == (42, "multiply")
    assert source.raw_input["kwargs"] == {"a": 6, "b": 7}
    with pytest.raises(ValueError, match="only be called on the last step"):
        runner.finalize_response(task.task_id, step_output=first)
    with pytest.raises(ValueError, match="Could not find step_id: s9"):
        runner.get_completed_step(task.task_id, "s9")
    [listed] = runner.list_tasks()
    assert (listed.task.input, listed.task) == ("6 times 7?", runner.get_task(task.task_id))
    known = runner.state.task_dict[task.task_id]
    assert [each.output.sources[0].content for each in known.completed_steps] == ["42"]
    [queued] = known.step_queue
    assert [queued.step_id] == [e.step_id for e in runner.state.get_step_queue(task.task_id)]
    assert known.model_dump(exclude={"memory"})["input"] == "6 times 7?"
    last = runner.run_step(task.task_id)
    assert (str(last), last.is_last) == ("42", True)
    assert str(runner.get_task_output(task.task_id)) == "42"
    assert runner.chat_history == []
    assert str(runner.finalize_response(task.task_id)) == "42"
    assert texts(runner.chat_history)[0] == "user: 6 times 7?"
    task.extra_state["seen"].append("b")  # a copy of the first state
    assert runner.create_task("second").extra_state == {"seen": ["a"]}
    assert [task.input for task in runner.list_tasks()] == ["6 times 7?", "second"]
    with pytest.raises(ValueError, match="both `extra_state` and `init_task_state_kwargs`"):
        runner.create_task("first", extra_state={"seen": [1]})
    with pytest.raises(KeyError, match="No task 'none' is known here"):
        runner.run_step("none")


def test_an_agent_is_made_of_what_fits() -> None:
    with pytest.raises(ValueError, match="both tools and tool_retriever"):
        OpenAIAgentWorker.from_tools([multiply], tool_retriever=object())
    with pytest.raises(ValueError, match="Pass an AgentWorker, such as"):
        AgentRunner("openai")
    runner = AgentRunner(
        MultimodalReActAgentWorker.from_tools([], llm=ScriptedModel(["Answer: no"]))
    )
    with pytest.raises(ValueError, match="Image docs not found in task extra state"):
        runner.chat("What is on it?")


def test_a_conversation_is_shared_left_alone_replaced_and_reset() -> None:
    llm = ScriptedModel(["one", "two", "three", "four"])
    runner = OpenAIAgent.from_tools([], llm=llm, memory="shared", delete_task_on_finish=True)
    task = runner.create_task("first")
    runner.run_step(task.task_id)
    runner.finalize_response(task.task_id)
    assert runner.list_tasks() == []
    with pytest.raises(KeyError):
        runner.get_task(task.task_id)
    assert str(runner.query("second")) == "two"
    assert [message.text for message in llm.requests[1].messages] == ["second"]
    assert texts(agent(memory="shared").chat_history) == ["user: first", "assistant: one"]
    before = [ChatMessage(role="user", content="before"), {"role": "user", "content": "a dict"}]
    runner.chat("third", chat_history=before)
    assert texts(runner.chat_history)[:3] == ["user: before", "user: a dict", "user: third"]
    runner.reset()
    assert (runner.chat_history, runner.list_tasks()) == ([], [])
    runner.chat("fourth")
    assert texts(runner.chat_history) == ["user: fourth", "assistant: four"]


def test_a_tool_choice_is_for_the_first_step_of_a_chat_and_prefix_messages_for_all() -> None:
    llm = ScriptedModel([calls(a=1, b=1), "1"])
    said = ("Be brief.", "system"), ("2 + 2?", "user"), ("4", "assistant")
    own: Any = {"prefix_messages": [ChatMessage(*each) for each in said]}
    own["default_tool_choice"] = "multiply"
    OpenAIAgent.from_tools([multiply], llm=llm, **own).chat("1 times 1?")
    assert [request.tool_choice for request in llm.requests] == ["multiply", "auto"]
    for request in llm.requests:
        assert request.instructions == "Be brief."
        assert [message.text for message in request.messages][:3] == ["2 + 2?", "4", "1 times 1?"]


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_an_answer_of_openai_is_read_while_it_is_made(
    model: FakeOpenAI, monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    monkeypatch.setenv("HOLDFAST_MODEL_API", api)
    monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-tests-1")
    model.paced("One two.", piece=4, hold_after=1)
    llm = OpenAI(model="gpt-5-mini", max_tokens=99)
    pieces = OpenAIAgent.from_tools([], llm=llm).stream_chat("Count.").response_gen
    assert next(pieces) == "One "
    model.release()
    assert "".join(pieces) == "two."
    [request] = model.requests
    assert (request.endpoint, request.is_stream) == (api, True)
    assert 99 in request.body.values()


def test_react_shows_its_observation_streams_the_answer_alone_and_takes_another_prompt() -> None:
    answer = "Thought: I know.\nAnswer: Six it is."
    llm = ScriptedModel(
        ['Action: multiply\nAction Input: {"a": 2, "b": 3}', answer, answer, answer]
    )
    made = ReActChatFormatter(system_header="Know: {context}.", context="trams")
    runner = ReActAgent.from_tools([multiply], llm=llm, react_chat_formatter=made)
    task = runner.create_task("2 times 3?")
    assert str(runner.run_step(task.task_id)) == "Observation: 6"
    assert llm.requests[0].instructions == "Know: trams."
    runner.run_step(task.task_id)
    assert "".join(runner.stream_chat("What is it?").response_gen) == "Six it is."

    other = AgentRunner(ReActAgentWorker.from_tools([multiply], llm=llm))
    assert "{tool_desc}" in other.get_prompts()["agent_worker:system_prompt"].template
    other.update_prompts({"agent_worker:system_prompt": "Tools: {tool_names}. Say {{yes}}."})
    other.chat("Well?")
    assert llm.requests[-1].instructions == "Tools: multiply. Say {yes}."


def test_a_chat_that_waits_for_a_person_says_so_and_goes_on_after_the_decision() -> None:
    @tool(needs_approval=True)
    def pay(euros: int) -> str:
        """Pay."""
        return f"{euros} paid"

    call = ToolCall(id="", name="pay", arguments='{"euros": 5}')
    runner = OpenAIAgent.from_tools([pay], llm=ScriptedModel([call, "done"]))
    response = runner.chat("Pay 5 euros.")
    metadata = response.metadata or {}
    assert (metadata["status"], "pay" in response.response) == ("waiting", True)
    [approval] = runner.durable.pending_approvals(metadata["task_id"])
    runner.durable.approve(approval.id, by="ann")
    runner.durable.run_task(metadata["task_id"])
    assert str(runner.finalize_response(metadata["task_id"])) == "done"


def test_a_task_id_with_another_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(program.RUN, "two")
    agent("one").create_task("first", task_id="mine")
    monkeypatch.setattr(program, "_current", program.Current())
    with pytest.raises(ValueError, match="another input before: 'first'; now it is 'second'"):
        agent("one").create_task("second", task_id="mine")


def test_a_state_that_cannot_be_recorded_and_an_error_of_step_logic_are_told() -> None:
    def keep(state: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        state["lock"] = threading.Lock()
        return state, False

    def fail(state: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        raise KeyError(state["__task__"].input)

    with pytest.raises(StepFailedError, match=r"step_state\['lock'\] holds a lock"):
        FnAgentWorker(keep).as_agent().chat("keep")
    with pytest.raises(KeyError, match="the input"):
        FnAgentWorker(fail).as_agent().chat("the input")


class Fork(BaseAgentWorker):
    """Two steps side by side, and one that was linked to wait for both."""

    def initialize_step(self, task: Task, **kwargs: Any) -> TaskStep:
        return TaskStep(task.task_id, "first", task.input)

    def run_step(self, step: TaskStep, task: Task, **kwargs: Any) -> TaskStepOutput:
        task.extra_state.setdefault("ran", []).append(step.step_id)
        if step.step_id == "s1":
            left, right = step.get_next_step("left"), step.get_next_step("right")
            last = step.get_next_step("last")
            left.link_step(last)
            right.link_step(last)
            return TaskStepOutput("forked", step, [left, right, last])
        is_last = step.step_id == "last"
        return TaskStepOutput(AgentChatResponse(step.step_id), step, is_last=is_last)

    def finalize_task(self, task: Task, **kwargs: Any) -> None:
        task.memory.put(ChatMessage("kept", "assistant"))


def test_a_linked_step_waits_for_those_before_it() -> None:
    runner = ParallelAgentRunner(Fork())
    task = runner.create_task("go")
    rounds = [[str(o) for o in runner.run_steps_in_queue(task.task_id)] for _ in range(3)]
    assert rounds == [["forked"], ["left", "right"], ["last"]]
    assert str(runner.finalize_response(task.task_id)) == "last"
    assert texts(runner.chat_history) == ["assistant: kept"]
    assert str(ParallelAgentRunner(Fork()).chat("go")) == "last"


def test_a_model_is_called_by_the_names_of_llama_index() -> None:
    class City(BaseModel):
        name: str

    llm = HoldfastLLM(ScriptedModel(["Rome", "Oslo", '{"name": "Bonn"}']))
    assert str(llm.complete("A city?")) == "Rome"
    assert llm.predict(PromptTemplate("A city in {where}?"), where="Norway") == "Oslo"
    assert llm.structured_predict(City, PromptTemplate("Another?")) == City(name="Bonn")


def test_a_call_of_unknown_outcome_is_an_error_and_goes_on_once_it_is_decided() -> None:
    slow = threading.Event()

    def pay(euros: int) -> str:
        """Pay."""
        slow.wait()
        return f"{euros} paid"

    tool = FunctionTool.from_defaults(pay, timeout_seconds=0.1)
    call = ToolCall(id="", name="pay", arguments='{"euros": 5}')
    runner = OpenAIAgent.from_tools([tool], llm=ScriptedModel([call, "done"]))
    with pytest.raises(UnclearCallError, match="not known whether it took effect") as raised:
        runner.chat("Pay 5 euros.")
    slow.set()
    runner.durable.approve(raised.value.approval, by="ann")
    runner.durable.run_task(raised.value.task_id)
    paid, _ = runner.durable.get_completed_steps(raised.value.task_id)
    assert str(paid.sources[0]) == "5 paid"


def test_arguments_that_are_no_json_are_read_by_the_agents_parser() -> None:
    def parsed(call: Any) -> dict[str, Any]:
        a, _, b = call.function.arguments.partition("*")
        return {"a": int(a), "b": int(b)}

    def spoken(arguments: str) -> ToolCall:
        return ToolCall(id="", name="multiply", arguments=arguments)

    runner = agent(spoken("6*7"), spoken("six"), "42", tool_call_parser=parsed)
    good, bad = runner.chat("6 times 7?").sources
    assert (good.raw_output, good.raw_input["kwargs"]) == (42, {"a": 6, "b": 7})
    assert bad.is_error
    assert "six" in bad.content


# ---- step logic that was written for LlamaIndex, with what llama-index-core still has


class Asking(CustomSimpleAgentWorker):
    """Asks back, with data."""

    def _initialize_state(self, task: Task, **kwargs: Any) -> dict[str, Any]:
        del task, kwargs
        return {}

    @trace_method("run_step")
    def run_step(self, step: TaskStep, task: Task, **kwargs: Any) -> TaskStepOutput:
        del kwargs
        output = {"kind": "question", "text": f"{task.input} Where?"}
        return TaskStepOutput(output, step, [], is_last=True)


def test_a_traced_step_finds_a_callback_manager_and_its_output_stays_a_dict() -> None:
    runner = Asking.from_tools([]).as_agent()
    task = runner.create_task("How large?")
    assert runner.run_step(task.task_id).output == {"kind": "question", "text": "How large? Where?"}
    assert runner.get_completed_steps(task)[0].output["kind"] == "question"
    assert task.callback_manager is runner.callback_manager


class Joining(CustomAgentComponent):
    """Joins its input with itself."""

    separator: str = Field(default=":")

    def _run_component(self, **kwargs: Any) -> dict[str, Any]:
        return {"output": f"{kwargs['a']}{self.separator}{kwargs['a']}"}

    @property
    def _input_keys(self) -> set[str]:
        return {"a"}


def test_a_component_of_the_programs_own_has_fields_and_members_of_old_programs_are_there() -> None:
    def begin(task: Task, state: dict[str, Any]) -> dict[str, Any]:
        return {"a": task.input}

    def end(task: Task, state: dict[str, Any], output: str) -> tuple[str, bool]:
        return output, True

    chain = [AgentInputComponent(begin), Joining(separator="/"), AgentFnComponent(end)]
    manager = object()
    worker = QueryPipelineAgentWorker(QueryPipeline(chain=chain), manager)
    assert worker.callback_manager is manager
    assert worker.agent_input_component is worker.agent_components[0]
    assert (worker.task_key, worker.step_state_key) == ("task", "step_state")
    assert isinstance(worker.as_agent(), BaseAgent)
    assert str(AgentRunner(worker).chat("foo")) == "foo/foo"
    task = Task("t", "foo", None, {})
    step = Doubling().initialize_step(task)
    assert Doubling().stream_step(step, task).next_steps


def test_react_reads_and_writes_messages_for_step_logic() -> None:
    seen = [ObservationReasoningStep(observation="It is 5.")]
    first, last = ReActChatFormatter(system_header="Tools: {tool_names}.").format(
        [CoreTool.from_defaults(multiply)], [], seen
    )
    assert "Tools: multiply." in str(first.content)
    assert str(last.content) == "Observation: It is 5."
    read = ReActOutputParser().parse('Thought: x\nAction: add\nAction Input: {"a": 1}')
    assert (read.thought, read.action, read.action_input) == ("x", "add", {"a": 1})
    done = ReActOutputParser().parse("Thought: y\nAnswer: 3")
    assert (done.is_done, done.response) == (True, "3")
    with pytest.raises(ValueError, match="Could not parse output"):
        ReActOutputParser().parse("Action Input: {}")


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


DOUBLE = FunctionTool.from_defaults(double)


@dataclass
class Answer:
    """What a query engine gave: a text, and the nodes that it rests on."""

    text: str
    source_nodes: list[NodeWithScore]

    def __str__(self) -> str:
        return self.text


class Doubling(BaseAgentWorker):
    """Doubles a number in two steps, by a tool, and collects what the tool gave."""

    def initialize_step(self, task: Task, **kwargs: Any) -> TaskStep:
        del kwargs
        task.extra_state["sources"] = []
        return TaskStep(task.task_id, "first", task.input, {"number": 3, "pair": (1, 2)})

    def run_step(self, step: TaskStep, task: Task, **kwargs: Any) -> TaskStepOutput:
        del kwargs
        source = DOUBLE(number=step.step_state["number"])
        node = NodeWithScore(source.content, node_id=source.content)
        source.raw_output = Answer(source.content, [node])
        step.step_state["number"] = int(source.content)
        task.extra_state["sources"].append(source)
        is_last = step.input is None
        response = AgentChatResponse(source.content, [source], metadata={"lock": Lock(), "by": 2})
        following = [] if is_last else [step.get_next_step("second")]
        return TaskStepOutput(response, step, following, is_last)


def test_step_logic_has_its_sources_its_states_and_its_task_step_by_step() -> None:
    runner = AgentRunner(Doubling())
    task = runner.create_task("twice")
    first = runner.run_step(task)
    state = {"number": 6, "pair": (1, 2)}
    assert first.task_step.step_state == first.next_steps[0].step_state == state
    assert runner.get_upcoming_steps(task)[0].step_state == state
    assert len(task.extra_state["sources"]) == 1
    last = runner.run_step(task)
    assert len(task.extra_state["sources"]) == 2
    assert runner.get_task(task.task_id) is task
    numbers = [each.task_step.step_state["number"] for each in runner.get_completed_steps(task)]
    assert numbers == [6, 12]
    answer = runner.finalize_response(task.task_id)
    shown = (first.output, last.output, answer)
    assert [[str(each) for each in output.sources] for output in shown] == [
        ["6"],
        ["6", "12"],
        ["6", "12"],
    ]
    assert [each.node_id for each in answer.source_nodes] == ["6", "12"]
    assert answer.sources[0].raw_input["kwargs"] == {"number": 3}
    assert answer.sources[0].raw_output.text == "6"
    assert first.output.metadata == {"by": 2}
    assert answer.metadata == {"by": 2, "task_id": task.task_id}
    assert [str(each) for each in runner.chat("again").sources] == ["6", "12"]


class Plain:
    """An LLM of the program's own, without function calls: it answers with Holdfast's response."""

    metadata = SimpleNamespace(model_name="plain", is_function_calling_model=False)

    async def achat(self, messages: list[Any], **options: Any) -> ChatResponse:
        del messages, options
        answer = ChatMessage("Thought: I know.\nAnswer: 6", role="assistant")
        return ChatResponse(
            message=answer, raw={"usage": {"prompt_tokens": 7, "completion_tokens": [3]}}
        )


def test_the_agent_for_an_llm_is_the_one_that_it_can_serve() -> None:
    assert isinstance(AgentRunner.from_llm([DOUBLE], llm=OpenAI("offline")), OpenAIAgent)
    runner = AgentRunner.from_llm([DOUBLE], llm=Plain(), verbose=False)
    assert isinstance(runner, ReActAgent)
    task = runner.create_task("Twice 3?")
    assert str(runner.run_step(task).output) == "6"
    assert runner.durable.get_task(task.task_id).usage.input_tokens == 7


class Secretive:
    """Cannot say what it holds."""

    def to_string(self) -> str:
        msg = "It is closed."
        raise RuntimeError(msg)

    @classmethod
    def from_string(cls, text: str) -> Secretive:
        del text
        return cls()


@dataclass
class Fragile:
    """Is made once, and not again."""

    made: bool = False

    def __post_init__(self) -> None:
        if self.made:
            msg = "It was made before."
            raise RuntimeError(msg)
        self.made = True


class Leaving(BaseAgentWorker):
    """Leaves in its response, and in the task, what cannot be written or made again."""

    def initialize_step(self, task: Task, **kwargs: Any) -> TaskStep:
        del kwargs
        return TaskStep(task.task_id, "first", task.input)

    def run_step(self, step: TaskStep, task: Task, **kwargs: Any) -> TaskStepOutput:
        del kwargs
        task.extra_state["fragile"] = Fragile()
        metadata = {"secret": Secretive(), "fragile": Fragile(), "by": 2}
        source = ToolOutput("a table", raw_output=["x" * 1000] * 9000)  # a memo holds 8 MB
        response = AgentChatResponse("done", [source], metadata=metadata)
        return TaskStepOutput(response, step, [], True)


def test_a_step_is_done_also_if_what_it_leaves_cannot_be_written_or_made_again() -> None:
    runner = AgentRunner(Leaving())
    task = runner.create_task("leave")
    output = runner.run_step(task).output
    assert (str(output), output.metadata["by"], "secret" in output.metadata) == ("done", 2, False)
    assert [(each.content, each.raw_output) for each in output.sources] == [("a table", "a table")]
    assert (task.extra_state, runner.get_completed_steps(task)[0].output.metadata["by"]) == ({}, 2)


class ClosedError(Exception):
    """An error of the program's own, with data."""

    def __init__(self, until: int) -> None:
        super().__init__(f"closed until {until}")
        self.until = until


class Closed(Doubling):
    """Step logic that fails."""

    def run_step(self, step: TaskStep, task: Task, **kwargs: Any) -> TaskStepOutput:
        raise ClosedError(9)


def test_an_error_of_the_programs_own_is_raised_as_itself() -> None:
    runner = Closed().as_agent()
    task = runner.create_task("foo")
    for run_step in (runner.run_step, runner.durable.run_step):
        with pytest.raises(ClosedError, match="closed until 9") as caught:
            run_step(task.task_id)
        assert caught.value.until == 9
        assert isinstance(caught.value, StepFailedError)


def test_a_streamed_answer_is_read_in_each_way_and_its_steps_are_undone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept: list[str] = []

    def erase(effect: Effect) -> None:
        kept.remove(effect.arguments["text"])

    @tool(undo=erase)
    def keep(text: str) -> str:
        """Keep a text."""
        kept.append(text)
        return f"kept {text}"

    call = ToolCall(id="", name="keep", arguments='{"text": "a"}')
    runner = OpenAIAgent.from_tools(
        [keep], llm=ScriptedModel([call, "Kept.", "Hello.", call, "No."])
    )
    stream = runner.stream_chat("Keep a.")
    stream.print_response_stream()
    assert capsys.readouterr().out == "Kept."
    assert [*stream.response_gen] == [*stream.response_gen] == []  # read once, but not waited for
    assert (str(stream), stream.response, stream.source_nodes) == ("Kept.", "Kept.", [])
    assert ([source.content for source in stream.sources], stream.is_done) == (["kept a"], True)

    async def pieces() -> list[str]:
        return [each async for each in runner.stream_chat("Hi.").async_response_gen()]

    assert "".join(asyncio.run(pieces())) == "Hello."
    task = runner.create_task("Keep a again.")
    while not runner.run_step(task.task_id).is_last:
        assert kept == ["a", "a"]
    assert [each.task_id for each in runner.get_completed_tasks()][-1] == task.task_id
    for _ in range(2):
        runner.undo_step(task.task_id)
    assert (kept, runner.get_completed_steps(task.task_id)) == (["a"], [])
    assert task.task_id not in {each.task_id for each in runner.get_completed_tasks()}
    runner.delete_task(task.task_id)
    with pytest.raises(KeyError):
        runner.get_task(task.task_id)


def test_a_person_chats_at_a_terminal_and_a_pack_has_its_agent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = iter(["Hi.", "exit", "Hi.", "exit"])
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    runner = agent("Hello.", "Hello.")
    runner.chat_repl()
    runner.streaming_chat_repl()
    assert capsys.readouterr().out.count("Assistant: Hello.\n\n") == 2
    pack = CoAAgentPack([multiply], llm=ScriptedModel(["No function is needed.", "42."]))
    assert str(pack.run("What is it?")) == "42."
    assert pack.get_modules()["agent"] is pack.agent
