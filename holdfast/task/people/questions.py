"""Questions of calls: the text for a person, and what an answer does to the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from holdfast.errors import InvalidArgumentError
from holdfast.task.data.calls import Approval, Asks, Outcome, Question
from holdfast.task.ledger.ledger import Ledger
from holdfast.values.base import Json
from holdfast.values.checks import gate
from holdfast.values.messages import Content

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
}


def question_text(asks: Asks, tool: str, after: Content) -> str:
    """Return the text of questions for a person.

    Args:
        asks: The questions.
        tool: Name of the tool that asks.
        after: What the call came to without answers, when it goes on with them from its beginning.
    """
    lines = [f"Tool {tool!r} asks: {_asked(each)}" for each in asks.questions]
    if len(asks.questions) > 1:
        keys = ", ".join(each.key for each in asks.questions)
        lines.append(f"Answer with an object that has: {keys}.")
    if asks.repeats:
        shown = after if isinstance(after, str) else "a result that is in the archive"
        lines.append(
            "The tool was told that no one has answered yet. An answer calls it again, from its"
            f" beginning; without one, this is its result: {shown}"
        )
    return "\n".join(lines)


def _asked(question: Question) -> str:
    names = [
        f"{name} ({_kind(about)}{'' if name in _required(question) else ', optional'})"
        for name, about in _properties(question).items()
    ]
    place = f" Open {question.url} first." if question.url else ""
    fields = f" [{', '.join(names)}]" if names else ""
    return f"{question.message}{place}{fields}"


def _kind(about: Json) -> str:
    choices = _choices(about)
    return (
        " or ".join(map(str, choices)) if choices else str(gate.as_object(about).get("type", "any"))
    )


def _choices(about: Json) -> list[Any] | None:
    """Return the values of a field, if its form says them as it should: who asks may be hostile."""
    found: Json = gate.as_object(about).get("enum")
    return [*found] if isinstance(found, list) else None


def _properties(question: Question) -> dict[str, Json]:
    found: Json = question.fields.get("properties", {})
    return cast("dict[str, Json]", found) if isinstance(found, dict) else {}


def _required(question: Question) -> list[str]:
    return [
        each for each in gate.as_array(question.fields.get("required")) if isinstance(each, str)
    ]


def answer(ledger: Ledger, approval: Approval, given: Json) -> str:
    """Record answers, with which the call goes on; return why not, or empty."""
    questions = approval.asks.questions if approval.asks is not None else ()
    if len(questions) > 1:
        data = _read(given)
        if not isinstance(data, dict):
            return f"Answer with an object that has: {', '.join(q.key for q in questions)}."
        several = cast("dict[str, Json]", data)
        parts = {question.key: several.get(question.key, {}) for question in questions}
    else:
        parts = {question.key: given for question in questions}
    answers: dict[str, Json] = {}
    for question in questions:
        content, problem = _content(question, parts[question.key])
        if problem:
            return problem
        answers[question.key] = {"action": "accept", "content": content}
    changes = {"status": "responded", "answers": answers}
    ledger.asked.put(approval.model_copy(update=changes))
    return ""


def decline(ledger: Ledger, approval: Approval, status: Literal["rejected", "expired"]) -> None:
    """Record that a person does not answer.

    The call goes on without an answer; one that would begin again has its result already.
    """
    asks = approval.asks
    if asks is None:
        return
    if asks.repeats:
        ledger.calls.outcome(approval.n, approval.i, Outcome(content=approval.after))
        return
    action = "decline" if status == "rejected" else "cancel"
    answers = {question.key: {"action": action} for question in asks.questions}
    changes = {"status": status, "answers": answers}
    ledger.asked.put(approval.model_copy(update=changes))


def _content(question: Question, given: Json) -> tuple[dict[str, Json], str]:
    """Return an answer as the content of a form, and what is wrong with it, or empty."""
    fields = _properties(question)
    data = _read(given)
    if not isinstance(data, dict) and len(fields) == 1:  # a single field needs no name
        [(name, about)] = fields.items()
        data = {name: given if _kind(about) == "string" else data}
    if not isinstance(data, dict):
        return {}, f"An answer to this question is an object: {_asked(question)}"
    content = cast("dict[str, Json]", data)
    missing = [name for name in _required(question) if name not in content]
    if missing:
        return {}, f"The answer lacks {', '.join(missing)}: {_asked(question)}"
    for name, value in content.items():
        problem = _misfit(name, value, fields.get(name))
        if problem:
            return {}, problem
    return content, ""


def _misfit(name: str, value: Json, about: Json) -> str:
    """Return why a value does not fit its field, or empty."""
    if not isinstance(about, dict):
        return f"The question has no field {name!r}."
    known = cast("dict[str, Any]", about)
    kinds = _TYPES.get(str(known.get("type")), (object,))
    is_flag = isinstance(value, bool) and bool not in kinds and kinds != (object,)
    if is_flag or not isinstance(value, kinds):
        return f"Field {name!r} must be of type {known.get('type')}."
    choices = _choices(about)
    if choices is not None and value not in choices:
        return f"Field {name!r} must be one of {', '.join(map(str, choices))}."
    return ""


def _read(given: Json) -> Json:
    """Return what a text says as JSON, if it does."""
    if not isinstance(given, str):
        return given
    try:
        return gate.read(given)
    except InvalidArgumentError:
        return given
