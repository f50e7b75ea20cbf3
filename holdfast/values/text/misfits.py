"""What pydantic says of values that do not fit, in words for those who gave them."""

from __future__ import annotations

from pydantic import ValidationError

from holdfast.values.text.redact import holds_secret, redact
from holdfast.values.text.shown import shown


def misfit(owner: str, error: ValidationError) -> str:
    """Say which argument does not fit, and what would.

    Args:
        owner: The class that was given it.
        error: What its check said; the first value that does not fit counts.
    """
    found = error.errors(include_url=False)
    first = found[0]
    # Of a union each member says why not, in a place of its own.
    same = [each for each in found if each["input"] is first["input"]]
    place = first["loc"] if len(same) == 1 else first["loc"][:1]
    said = dict.fromkeys(_in_mid_sentence(each["msg"]) for each in same)
    name = ".".join(map(str, place))
    if first["type"] == "missing":
        return f"{owner} needs {name}, and it was not given."
    value = redact(shown(first["input"]))
    if any(holds_secret(str(part)) for part in first["loc"]):
        value = f"a value that is not shown ({type(first['input']).__name__})"
    given = f"{name}={value}" if name else value
    return f"{owner} cannot use {given}: {' or '.join(said)}."


def _in_mid_sentence(text: str) -> str:
    text = text.removeprefix("Value error, ").rstrip(".")
    return f"{text[:1].lower()}{text[1:]}"
