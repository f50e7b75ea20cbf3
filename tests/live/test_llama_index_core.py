"""Objects of llama-index-core as they are: tools, retrievers, models, memories."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from llama_index.core.base.response.schema import Response
from llama_index.core.llms import ChatMessage, ChatResponse, MockLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.objects import ObjectRetriever, SimpleToolNodeMapping
from llama_index.core.program import FunctionCallingProgram
from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import BaseTool, FunctionTool, QueryEngineTool, ToolMetadata
from pydantic import BaseModel

from holdfast import Agent, AgentRunner, ToolCall
from holdfast.agents.tools.decorator import to_tool
from holdfast.errors import ModelRequestError
from holdfast.llama_index import OpenAI
from holdfast.models import from_response_items
from holdfast.models.base import ModelRequest
from holdfast.models.libraries.llama_index import LlamaIndexModel
from holdfast.testing import ScriptedModel
from holdfast.values.messages import Message, assistant, user


def multiply(a: int, b: int) -> int:
    """Multiply two whole numbers."""
    return a * b


class Handbook(CustomQueryEngine):
    """Quotes one sentence."""

    def custom_query(self, query_str: str) -> Response:
        node = TextNode(id_="refunds", text="Refunds take 14 days.")
        return Response(f"{query_str} 14 days.", source_nodes=[NodeWithScore(node=node, score=0.5)])


async def chat(agent: Agent, message: str) -> Any:
    async with AgentRunner.local(agent, data_dir=None) as runner:
        return await runner.chat(message)


class Shelf(BaseTool):
    """Has what LlamaIndex asks of a tool, and no more."""

    @property
    def metadata(self) -> ToolMetadata:
        return ToolMetadata(name="shelf", description="Finds a book.")

    def __call__(self, input: Any) -> Any:
        return f"{input} is on shelf 3"


async def test_an_agent_takes_a_function_tool_and_a_query_engine_tool() -> None:
    calls = (
        ToolCall(id="1", name="multiply", arguments='{"a": 6, "b": 7}'),
        ToolCall(id="2", name="handbook", arguments='{"input": "How long?"}'),
        ToolCall(id="3", name="shelf", arguments='{"input": "Emma"}'),
    )
    handbook = QueryEngineTool.from_defaults(Handbook(), name="handbook", description="Rules.")
    tools: list[Any] = [FunctionTool.from_defaults(multiply), handbook, Shelf()]
    agent = Agent(name="clerk", model=ScriptedModel([calls, "done"]), tools=tools)
    response = await chat(agent, "How long, and how much?")
    contents = [source.content for source in response.sources]
    assert contents == ["42", "How long? 14 days.", "Emma is on shelf 3"]
    assert [(node.id, node.score) for node in response.source_nodes] == [("refunds", 0.5)]


class First(BaseRetriever):
    """Finds the tool whose name is in the query."""

    def __init__(self, nodes: list[Any]) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]  LlamaIndex's types
        self._nodes = nodes

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        asked = query_bundle.query_str
        found = [node for node in self._nodes if str(node.metadata["name"]) in asked]
        return [NodeWithScore(node=node) for node in found]


async def test_an_object_retriever_chooses_the_tools_of_a_step() -> None:
    def add(a: int, b: int) -> int:
        """Add two whole numbers."""
        return a + b

    tools = [FunctionTool.from_defaults(multiply), FunctionTool.from_defaults(add)]
    mapping: Any = cast("Any", SimpleToolNodeMapping).from_objects(tools)
    nodes = [mapping.to_node(tool) for tool in tools]
    retriever = cast("Any", ObjectRetriever)(First(nodes), mapping)
    llm = ScriptedModel(["done"])
    await chat(Agent(name="a", model=llm, tool_retriever=retriever), "Please multiply.")
    assert [tool.name for tool in llm.requests[0].tools] == ["multiply"]


async def test_an_llm_without_functions_answers() -> None:
    agent = Agent(name="a", model=MockLLM(), instructions="Be brief.")
    assert "Well?" in str(await chat(agent, "Well?"))


async def test_an_llm_that_calls_functions_is_offered_the_tools_and_reads_their_results() -> None:
    seen: list[Any] = []

    class Calling:
        metadata = SimpleNamespace(model_name="m", is_function_calling_model=True)

        async def achat(self, *args: Any, **options: Any) -> ChatResponse:
            raise NotImplementedError

        async def achat_with_tools(self, **options: Any) -> ChatResponse:
            seen.append(options)
            return ChatResponse(message=ChatMessage(role="assistant", content="42"))

        def get_tool_calls_from_response(self, response: Any, **_: Any) -> list[ToolSelection]:
            return [ToolSelection(tool_id="c2", tool_name="multiply", tool_kwargs={"a": 1, "b": 1})]

    model = LlamaIndexModel(Calling())
    tool = to_tool(multiply)
    call = ToolCall(id="c1", name="multiply", arguments='{"a": 6, "b": 7}')
    messages = (
        user("6 times 7?"),
        assistant("", calls=(call,)),
        Message(role="tool", call_id="c1", content="42"),
    )
    request = ModelRequest(
        model="m", instructions="Be brief.", messages=messages, tools=(tool.spec(),)
    )
    answer = await model.respond(request)
    assert answer.message.calls == (
        ToolCall(id="c2", name="multiply", arguments='{"a": 1, "b": 1}'),
    )
    [options] = seen
    [offered] = options["tools"]
    assert list(offered.metadata.get_parameters_dict()["properties"]) == ["a", "b"]
    sent = options["chat_history"]
    assert [message.role.value for message in sent] == ["system", "user", "assistant", "tool"]
    assert sent[2].blocks[0].tool_kwargs == {"a": 6, "b": 7}
    assert sent[3].additional_kwargs["tool_call_id"] == "c1"


async def test_an_llm_is_not_told_a_file_or_a_sound_in_the_place_of_words() -> None:
    pdf = {"type": "input_file", "filename": "a.pdf", "file_data": "JVBERi0xLjQK"}
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    for part, said in ((pdf, "take no files"), (sound, "take no parts of type 'input_audio'")):
        asked = from_response_items([{"role": "user", "content": [part]}])
        with pytest.raises(ModelRequestError, match=said):
            await LlamaIndexModel(MockLLM()).respond(ModelRequest(model="m", messages=asked))


class Sum(BaseModel):
    """A sum."""

    value: int


def test_a_model_of_holdfast_in_a_program_of_llama_index_says_what_serves() -> None:
    llm = cast("Any", OpenAI(model="offline"))
    program = cast("Any", FunctionCallingProgram).from_defaults(Sum, "What is 1 + 1?", llm=llm)
    with pytest.raises(AttributeError, match="need an LLM of LlamaIndex: keep"):
        program()
