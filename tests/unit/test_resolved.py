"""Steps with their archived texts put in."""

from holdfast.models.base import ModelAnswer
from holdfast.reading.runs.recorded import resolved
from holdfast.task.data.calls import Outcome
from holdfast.task.data.records import JournalEntry, StepRecord
from holdfast.task.ledger.recording import SAID_IN_ADDS
from holdfast.task.step_body import StepBody, body_of
from holdfast.values.messages import Blob, Content, Message, ToolCall, assistant
from holdfast.values.steps import TaskStep

CALL = ToolCall(id="c", name="look")
STORED = Blob(sha256="f" * 64, size=4)


async def read(blob: Blob) -> str:
    assert blob == STORED
    return "long"


def step(content: Content, outcome: Outcome) -> StepBody:
    """Make a step whose model has called a tool; its result is in the transcript, or is not."""
    result = Message(role="tool", call_id="c", content=content)
    record = StepRecord(
        n=1,
        step=TaskStep(step_id="s1", input="Look."),
        journal=(JournalEntry(request="r", answer=ModelAnswer(message=SAID_IN_ADDS)),),
        adds=(assistant("", calls=(CALL,)), *((result,) if outcome.at is not None else ())),
        calls=(CALL,),
        outcomes=(outcome,),
    )
    return body_of(record)


async def test_the_text_of_a_result_is_put_in_wherever_the_step_has_it() -> None:
    body = await resolved(step(STORED, Outcome(at=1)), read)
    [call] = body.calls
    assert call.outcome is not None
    assert call.outcome.content == "long"
    assert call.message == body.adds[1] == Message(role="tool", call_id="c", content="long")


async def test_a_result_outside_the_transcript_gets_its_text() -> None:
    [call] = (await resolved(step("", Outcome(content=STORED)), read)).calls
    assert call.outcome is not None
    assert call.outcome.content == "long"
    assert call.message == Message(role="tool", call_id="c", content="long")
