"""Conversations that the provider keeps next to the record: what a model call sends of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.errors import ModelRequestError
from holdfast.models.base import ModelAnswer, ModelRequest
from holdfast.task.data.head import KeptConversation, TaskHead
from holdfast.task.data.records import JournalEntry, OpenStep, StepResult
from holdfast.values.base import Json
from holdfast.values.messages import Message, not_run, user

RESPONSE = "response_id"
"""Key of a step's state: the answer that its model call goes on from, so that undo, rewind or
fork go back to the one before."""

AGAIN = user("Your answers cannot be used. Answer again, in the form that was asked for.")
"""What is sent to a conversation that has all of a step but an answer of use."""

FORGOTTEN = "previous_response_not_found"
"""OpenAI's code for a previous response that has expired or was deleted."""


@dataclass(frozen=True)
class Continuation:
    """What one step's model call sends of a conversation that the provider keeps.

    Attributes:
        kept: Where the provider keeps it.
        before: Id of the answer that the call goes on from; empty for none.
        is_first: Whether no call of the task came before.
        told: What a step that asks again says since its answers were of no use; None for others.
    """

    kept: KeptConversation
    before: str
    is_first: bool
    told: tuple[Message, ...] | None = None

    @classmethod
    def of(
        cls, head: TaskHead, opened: OpenStep, n: int, journal: Sequence[JournalEntry]
    ) -> Continuation | None:
        """Return the continuation of a step; None when the provider keeps nothing."""
        kept = head.run.kept
        if kept is None:
            return None
        answers = [entry.answer for entry in journal if entry.answer]  # the step asks again
        said = str(opened.step.step_state.get(RESPONSE, ""))
        for answer in answers:  # the request repeats no empty one, and goes on from before it
            said = said if answer.is_blank else answer.response_id
        told = None
        if not answers and opened.told >= 0:
            unanswered = not_run(opened.unanswered, "Not run.")
            told = (*unanswered, *(opened.notes[opened.told :] or (AGAIN,)))
        if answers and answers[-1].is_blank:
            told = (AGAIN,)
        return cls(kept, said, is_first=n == 1 and not answers, told=told)

    def shortened(self, request: ModelRequest) -> ModelRequest:
        """Return a request with what the provider does not have yet.

        The model's own answers are there, and what came before the newest of them. Where the answer
        to go on from is not known, as after a follow-up, the request has all that the task has.
        """
        if self.kept.conversation_id:
            new = request.messages if self.is_first else _after_answer(request)
            new = new if self.told is None else self.told
            return request.model_copy(
                update={"messages": new, "conversation_id": self.kept.conversation_id}
            )
        before = self.before or self.kept.previous_response_id
        new = _after_answer(request) if self.before else request.messages
        return request.model_copy(update={"messages": new, "previous_response_id": before})

    def may_send_all(self, error: ModelRequestError) -> bool:
        """Whether the provider has forgotten what the record has in full."""
        return error.code == FORGOTTEN and not self.kept.previous_response_id

    def handed_on(self, result: StepResult, answer: ModelAnswer | None) -> StepResult:
        """Return a step's result whose next steps go on from this answer."""
        if answer is None or not answer.response_id or not result.next:
            return result
        named: dict[str, Json] = {RESPONSE: answer.response_id}
        following = tuple(
            step.model_copy(update={"step_state": {**step.step_state, **named}})
            for step in result.next
        )
        return result.model_copy(update={"next": following})


def _after_answer(request: ModelRequest) -> tuple[Message, ...]:
    messages = request.messages
    backwards = range(len(messages), 0, -1)
    start = next((k for k in backwards if messages[k - 1].role == "assistant"), 0)
    return messages[start:]
