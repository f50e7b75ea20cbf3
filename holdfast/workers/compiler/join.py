"""Read the joiner's decision from the model's text: finish with an answer, or plan again.

Pure. The usual form is `Thought: ...` and `Action: finish(answer)` or `Action: replan(reason)`.
Either case, missing brackets, and answers with several lines or with brackets of their own are
read as well.

Source: LLMCompiler, arXiv:2312.04511.
"""

from __future__ import annotations

import re
from typing import Literal

from holdfast.values.base import Value
from holdfast.workers.compiler.arguments import ArgumentsError, Plain, read_arguments

_VERB = re.compile(
    r"(?:\baction[\s*`]*[:=][\s*`]*(?P<asked>finish|replan)"
    r"|^[ \t>*`#-]*(?P<bare>finish|replan)(?=[ \t]*\())\b[*`]*[ \t]*(?P<open>\()?",
    re.IGNORECASE | re.MULTILINE,
)
_ACTION = re.compile(r"^[ \t>*`#-]*action[\s*`]*[:=].*", re.IGNORECASE | re.MULTILINE | re.DOTALL)
_THOUGHT = re.compile(r"^[\s>*`#-]*thought[\s*`]*:[\s*]*", re.IGNORECASE)
_END = re.compile(r"(?:<[A-Z_ ]{0,20}END[A-Z_ ]{0,20}>\s*)+\Z", re.IGNORECASE)
_NOTHING = re.compile(r"(?:[\s*`]|<[A-Z_ ]{0,20}END[A-Z_ ]{0,20}>)*", re.IGNORECASE)
_BOLD = re.compile(r"(?<!\w)\*\*|\*\*(?!\w)")  # and not 2**3
_NAMED = re.compile(r"\s*(?:answer|response|result|reason)\s*=\s*(?=[\"'])", re.IGNORECASE)
_AGAIN = re.compile(
    r"\s*[\"'`]?replan\b[\s\"'`]*(?:[-:(,.](?P<reason>.*))?", re.IGNORECASE | re.DOTALL
)


class Decision(Value):
    """The joiner's decision.

    Attributes:
        kind: "finish" with the answer, or "replan".
        text: The answer, or why another plan is needed; the latter may be empty.
        thought: The text before the decision.
    """

    kind: Literal["finish", "replan"]
    text: str = ""
    thought: str = ""


def parse_decision(text: str) -> Decision | None:
    """Read the joiner's decision; None when the text holds none.

    Args:
        text: The model's text.
    """
    found = _VERB.search(text)
    if found is None:
        return None
    verb = (found["asked"] or found["bare"]).lower()
    thought = _THOUGHT.sub("", text[: found.start()]).strip()
    rest = text[found.end() :]
    said = _inside(rest) if found["open"] else _trimmed(rest.strip().removeprefix(":"))
    said = _unquoted(said)
    again = _AGAIN.fullmatch(said) if verb == "finish" else None
    if again is not None:
        return Decision(kind="replan", text=(again["reason"] or "").strip(" )\"'"), thought=thought)
    if verb == "replan":
        return Decision(kind="replan", text=said, thought=thought)
    return Decision(kind="finish", text=said, thought=thought) if said else None


def without_grammar(text: str) -> str:
    """Return the answer in a text when another plan is out of the question.

    Args:
        text: The model's text, with or without the words of the grammar.
    """
    decision = parse_decision(text)
    if decision is not None and decision.kind == "finish":
        return decision.text
    said = _THOUGHT.sub("", _ACTION.sub("", text)).strip() if decision is not None else text
    return said or text


def _inside(rest: str) -> str:
    """Return the text up to the bracket that closes one opened before `rest`.

    Brackets in an answer need not come in pairs. The matching bracket closes the answer, unless
    more closing than opening brackets follow it; then the last bracket does.
    """
    level = 1
    for at, letter in enumerate(rest):
        level += (letter == "(") - (letter == ")")
        if level == 0:
            after = rest[at + 1 :]
            if after.count(")") <= after.count("("):
                return rest[:at]
            break
    end = rest.rfind(")")
    is_closed = end >= 0 and _NOTHING.fullmatch(rest, end + 1) is not None
    return rest[:end] if is_closed else _trimmed(rest)


def _trimmed(text: str) -> str:
    """Remove meaningless marks behind a decision without brackets: fences, bold, end tags.

    A mark whose other half is in the text belongs to the text.
    """
    text, longer = text.strip(), ""
    while text != longer:
        longer = text
        if text.endswith("```") and text.count("```") % 2:
            text = text.removesuffix("```")
        elif text.endswith("**") and len(_BOLD.findall(text)) % 2:
            text = text.removesuffix("**")
        text = _END.sub("", text).rstrip()
    return text


def _unquoted(said: str) -> str:
    """Remove the quotes, and a name such as `answer=`, of an answer that is one quoted text."""
    said = said.strip()
    named = _NAMED.match(said)
    quoted = said[named.end() :] if named else said
    if quoted[:1] not in ("'", '"') or not quoted:
        return said
    try:
        given = read_arguments(f"({quoted})", 0)
    except ArgumentsError:
        return said
    only = given.positional[0] if len(given.positional) == 1 else None
    if isinstance(only, str) and not isinstance(only, Plain) and given.end == len(quoted) + 2:
        return only.strip()
    return said
