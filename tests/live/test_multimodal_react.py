"""ReAct with images: in the first input, in later ones, in observations, and in the session."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Image, Message, tool
from holdfast.testing import FakeOpenAI, FakeRequest
from holdfast.values.messages import ImagePart, TextPart
from holdfast.workers import MultimodalReActAgentWorker
from holdfast.workers.react.worker import IMAGES
from tests.support.pictures import png
from tests.support.rig import MakeRunner

CAT, DOG, FOX = (Image.from_bytes(png(shade)) for shade in (1, 2, 4))
ACT = 'Thought: I must see more.\nAction: camera\nAction Input: {"where": "left"}'
ANSWER = "Thought: I see.\nAnswer: two animals"


@tool(effect="read")
def camera(where: str) -> list[Any]:
    """Take a picture."""
    return [f"looked {where}", DOG]


@pytest.fixture
def worker() -> MultimodalReActAgentWorker:
    return MultimodalReActAgentWorker()


def told(request: FakeRequest) -> Message:
    """Return the newest message of a request."""
    return request.messages[-1]


async def test_the_model_sees_the_images_of_the_question_and_of_a_tool(
    make_runner: MakeRunner, model: FakeOpenAI, worker: MultimodalReActAgentWorker
) -> None:
    runner = await make_runner(camera, worker=worker)
    model.reply(ACT)
    model.reply(ANSWER)
    response = await runner.chat("What is there?", images=[CAT])
    assert str(response) == "two animals"
    assert model.requests[0].instructions.endswith(IMAGES)
    assert model.requests[0].tools == ()
    assert [request.images for request in model.requests] == [(CAT,), (CAT, DOG)]
    observed = told(model.requests[1])
    assert observed.role == "user"
    assert isinstance(observed.content, tuple)
    text, image = observed.content
    assert isinstance(text, TextPart)
    assert isinstance(image, ImagePart)
    [placeholder] = [line for line in text.text.splitlines() if line.startswith("[image png 1 kB")]
    assert text.text == f"Observation: looked left\n{placeholder}"
    assert response.sources[0].content == f"looked left\n{placeholder}"
