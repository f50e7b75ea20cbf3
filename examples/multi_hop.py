"""ReAct on a question whose answer needs three documents, one found by what the other says.

python examples/multi_hop.py              offline: a stand-in for a model reads the observations
python examples/multi_hop.py gpt-5-mini   with a real model

The two tools are those of the ReAct paper (arXiv:2210.03629): `search` opens a document and gives
its first sentences, `lookup` finds the next sentence in it that has a word. Which document is open,
and where lookup stands, is state of the task, so any worker process can go on.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import re
import sys

from holdfast import Agent, AgentRunner, ToolContext, tool
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel
from holdfast.workers import ReActAgentWorker

DOCUMENTS = {
    "Lantern Bridge": "The Lantern Bridge is a stone bridge in Veldmoor. It has five arches."
    " Each arch carries an iron lantern. Its engineer was Ida Brandt, then 29 years old."
    " The town paid for it with a tax on salt.",
    "Veldmoor": "Veldmoor is a market town on the river Aller. Its fair is held in May."
    " The Lantern Bridge is its landmark.",
    "Ida Brandt": "Ida Brandt was an engineer and a painter. She built seven bridges."
    " Her diary fills forty volumes. She was born in Osterhamn, where her father ran the ferry.",
    "Osterhamn": "Osterhamn is a small harbour town. It lies where the river Silla meets the sea."
    " Its ferry ran until 1934.",
}
QUESTION = "On which river lies the town where the engineer of the Lantern Bridge was born?"


def sentences(title: str) -> list[str]:
    return re.split(r"(?<=\.) ", DOCUMENTS[title])


@tool(effect="read")
def search(ctx: ToolContext, title: str) -> str:
    """Open the document with this title and read its first two sentences."""
    if title not in DOCUMENTS:
        near = difflib.get_close_matches(title, DOCUMENTS, cutoff=0.3)
        return f"No document {title!r}. Similar titles: {', '.join(near) or 'none'}."
    ctx.state.update(title=title, word="", found=0)
    return " ".join(sentences(title)[:2])


@tool(effect="read")
def lookup(ctx: ToolContext, word: str) -> str:
    """Read the next sentence with this word in the document that is open."""
    if "title" not in ctx.state:
        return "No document is open: search first."
    hits = [s for s in sentences(ctx.state["title"]) if word.lower() in s.lower()]
    found = ctx.state["found"] if ctx.state["word"] == word else 0
    if found >= len(hits):
        return f"No more sentences with {word!r}."
    ctx.state.update(word=word, found=found + 1)
    return f"({found + 1} of {len(hits)}) {hits[found]}"


def reader(request: ModelRequest) -> str:
    """Stand in for a model, offline: decide by what the last observation says."""
    seen = request.messages[-1].text
    if river := re.search(r"the river (\w+) meets", seen):
        return (
            f"Thought: She was born in Osterhamn, which lies on the {river[1]}.\n"
            f"Answer: The {river[1]}: Ida Brandt, who built the bridge, was born in Osterhamn."
        )
    if town := re.search(r"born in (\w+)", seen):
        return action(f"Now I need the river of {town[1]}.", "search", title=town[1])
    if "an engineer and" in seen:
        return action("This does not say yet where she was born.", "lookup", word="born")
    if engineer := re.search(r"engineer was (\w+ \w+)", seen):
        return action(f"The engineer is {engineer[1]}.", "search", title=engineer[1])
    if "stone bridge" in seen:
        return action("Who was its engineer?", "lookup", word="engineer")
    return action("I start with the bridge.", "search", title="Lantern Bridge")


def action(thought: str, name: str, **arguments: str) -> str:
    return f"Thought: {thought}\nAction: {name}\nAction Input: {json.dumps(arguments)}"


def librarian(model: str = "") -> Agent:
    return Agent(
        name="librarian",
        instructions="Answer from the documents only.",
        model=model or ScriptedModel(reader, name="offline-reader"),
        tools=[search, lookup],
        worker=ReActAgentWorker(max_turns=10),
    )


async def main(model: str = "") -> None:
    """Answer the question, then show how."""
    async with AgentRunner.local(librarian(model), data_dir=None) as runner:
        task = await runner.create_task(QUESTION)
        await runner.run_task(task)
        for message in await runner.transcript(task):
            print(message.text, end="\n\n")
        response = await runner.finalize_response(task)
        print(f"After {len(response.sources)} tool calls: {response}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
