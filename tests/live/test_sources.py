"""What an answer rests on: nodes of retrieval tools, kept apart from what the model reads."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast import Retrieved, SourceNode, tool
from holdfast.agents.tools.decorator import render_result
from holdfast.testing import call
from holdfast.values.parts.sources import content_of, nodes_of, union
from tests.support.rig import Rig


@dataclass
class Node:
    """As LlamaIndex's TextNode."""

    node_id: str
    text: str
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])

    def get_content(self) -> str:
        return self.text


@dataclass
class Scored:
    """As LlamaIndex's NodeWithScore."""

    node: Node
    score: Any = None


@dataclass
class Response:
    """As LlamaIndex's Response."""

    response: str
    source_nodes: list[Any]

    def __str__(self) -> str:
        return self.response


@tool(effect="read")
def search(query: str) -> Retrieved:
    """Search the handbook."""
    shared = SourceNode(id="shared", text="both", score=0.5)
    own = SourceNode(id=query, text=f"about {query}", metadata={"page": 7})
    return Retrieved(f"found {query}", nodes=[own, shared])


@tool(effect="read")
def engine(query: str) -> Response:
    """Ask the query engine."""
    found = [Scored(Node("n1", f"text of {query}", {"file": "a.txt"}), 0.75)]
    return Response(f"answer to {query}", found)


# ---- reading results


def test_the_model_reads_the_content_only() -> None:
    assert content_of(search("x")) == "found x"
    assert render_result(engine("x")) == "answer to x"
    assert render_result(Retrieved({"a": 1}, nodes=[SourceNode(id="1")])) == '{"a":1}'
    assert str(Retrieved({"a": 1})) == "{'a': 1}"


def test_nodes_of_another_framework_are_read() -> None:
    [node] = nodes_of(engine("x"))
    assert node == SourceNode(id="n1", text="text of x", score=0.75, metadata={"file": "a.txt"})


def test_a_node_without_an_id_is_named_by_its_text() -> None:
    first, second, third = nodes_of(Response("", [Node("", "a"), Node("", "a"), Node("", "b")]))
    assert first.id == second.id != third.id


def test_a_node_that_cannot_be_read_is_left_out_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = Response("", [Scored(Node("1", "a")), object(), Scored(Node("2", "b"), "high")])
    assert [node.id for node in nodes_of(found)] == ["1", "2"]
    assert "A source node of type object is left out" in caplog.text


def test_of_nodes_with_one_id_the_first_is_kept_where_it_stands() -> None:
    a, b, c = (SourceNode(id=id, text=text) for id, text in (("a", "1"), ("b", "2"), ("a", "3")))
    assert union([[a, b], [c]]) == (a, b)


# ---- tasks


async def test_nodes_of_all_steps_are_joined_in_call_order(rig: Rig) -> None:
    runner = await rig.make(search, engine)
    rig.model.calls([("search", {"query": "a"}), ("engine", {"query": "b"})])
    rig.model.add(call("search", {"query": "c"}), "done")
    response = await runner.chat("q")
    assert [node.id for node in response.source_nodes] == ["a", "shared", "n1", "c"]
    assert response.source_nodes[0].metadata == {"page": 7}
    assert [[node.id for node in source.nodes] for source in response.sources] == [
        *(["a", "shared"], ["n1"], ["c", "shared"])
    ]
    steps = await runner.get_completed_steps(response.task_id)
    assert [node.id for source in steps[1].sources for node in source.nodes] == ["c", "shared"]
    assert rig.model.requests[1].results == {"call_1": "found a", "call_2": "answer to b"}
