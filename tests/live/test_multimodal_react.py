"""ReAct with images: in the first input, in later ones, in observations, and in the session."""

from typing import Any

from holdfast import Image, tool
from holdfast.values.messages import ImagePart, TextPart
from holdfast.workers import MultimodalReActAgentWorker
from holdfast.workers.react.worker import IMAGES
from tests.support.pictures import png
from tests.support.rig import Rig

CAT, DOG = (Image.from_bytes(png(shade)) for shade in (1, 2))
ACT = 'Thought: I must see more.\nAction: camera\nAction Input: {"where": "left"}'
ANSWER = "Thought: I see.\nAnswer: two animals"


@tool(effect="read")
def camera(where: str) -> list[Any]:
    """Take a picture."""
    return [f"looked {where}", DOG]


async def test_the_model_sees_the_images_of_the_question_and_of_a_tool(rig: Rig) -> None:
    runner = await rig.make(camera, worker=MultimodalReActAgentWorker())
    rig.model.reply(ACT)
    rig.model.reply(ANSWER)
    response = await runner.chat("What is there?", images=[CAT])
    assert str(response) == "two animals"
    assert rig.model.requests[0].instructions.endswith(IMAGES)
    assert rig.model.requests[0].tools == ()
    assert [request.images for request in rig.model.requests] == [(CAT,), (CAT, DOG)]
    observed = rig.model.requests[1].messages[-1]
    assert observed.role == "user"
    assert isinstance(observed.content, tuple)
    text, image = observed.content
    assert isinstance(text, TextPart)
    assert isinstance(image, ImagePart)
    [placeholder] = [line for line in text.text.splitlines() if line.startswith("[image png 1 kB")]
    assert text.text == f"Observation: looked left\n{placeholder}"
    assert response.sources[0].content == f"looked left\n{placeholder}"
