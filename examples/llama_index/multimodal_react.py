"""ReAct with an image in the question; the model is offline and sees only that there is one.

python examples/llama_index/multimodal_react.py
"""

from __future__ import annotations

import base64

from holdfast.llama_index import (
    AgentRunner,
    FunctionTool,
    MultimodalReActAgentWorker,
)
from holdfast.models.base import ModelRequest
from holdfast.testing import ScriptedModel

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def look_up(about: str) -> str:
    """Look up who makes a thing."""
    return f"{about} are made in Osterhamn."


def model(request: ModelRequest) -> str:
    """Stand in for a model that sees images."""
    print("(the model is asked)", flush=True)
    seen = sum(len(message.images) for message in request.messages)
    last = request.messages[-1].text
    if "made in" in last:
        return f"Thought: That is it.\nAnswer: {seen} image: shoes. {last.partition(': ')[2]}"
    return 'Thought: Shoes.\nAction: look_up\nAction Input: {"about": "Shoes"}'


def main() -> None:
    """Ask about an image, step by step."""
    tool = FunctionTool.from_defaults(look_up, effect="read")
    worker = MultimodalReActAgentWorker.from_tools(
        [tool], multi_modal_llm=ScriptedModel(model, name="eye"), verbose=False
    )
    agent = AgentRunner(worker)
    data = base64.b64encode(PIXEL).decode()
    task = agent.create_task(
        "Who makes these?", extra_state={"image_docs": [f"data:image/png;base64,{data}"]}
    )
    step_output = agent.run_step(task.task_id)
    print(step_output, flush=True)
    while not step_output.is_last:
        step_output = agent.run_step(task.task_id)
    print(agent.finalize_response(task.task_id))


if __name__ == "__main__":
    main()
