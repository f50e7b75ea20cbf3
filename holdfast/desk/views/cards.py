"""Cards of the inbox: everything that waits for a person, with what a decision needs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from holdfast.desk.views.words import clock, cut, object_of, span
from holdfast.errors import InvalidArgumentError
from holdfast.models.base import ToolSpec
from holdfast.task.data.calls import Approval, ApprovalKind, StandingRule
from holdfast.task.data.head import AgentSnapshot, ToolPolicy
from holdfast.task.people.choices import Choice, asked_twice, choices_of, title_of
from holdfast.task.people.decisions import Person, cannot_decide, is_whole
from holdfast.values.base import Json
from holdfast.values.checks.gate import as_object, data_of, pointed_at
from holdfast.values.checks.ids import task_of
from holdfast.values.messages import Message
from holdfast.values.steps import Task
from holdfast.values.text.decided import exact, for_decision
from holdfast.values.text.redact import redact
from holdfast.values.text.shown import age, brief, pretty

FieldKind = Literal["text", "integer", "number", "boolean", "choice", "json"]
_KINDS: Mapping[str, FieldKind] = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
}


@dataclass(frozen=True, kw_only=True)
class Field:
    """One argument of a call.

    Attributes:
        name: Its name.
        kind: How it is shown and edited; "json" for lists and objects.
        type: Its type in the words of the schema.
        value: What the model proposes; None when it was left out as well.
        is_given: Whether the model gave it.
        is_required: Whether the schema asks for it.
        is_nullable: Whether it may be null.
        description: What the schema says of it.
        choices: The values that it may have, when the schema lists them.
        is_uncovered: Whether its secrets are shown as well.
    """

    name: str
    kind: FieldKind
    type: str
    value: Json = None
    is_given: bool = True
    is_required: bool = False
    is_nullable: bool = False
    description: str = ""
    choices: tuple[Json, ...] = ()
    is_uncovered: bool = False

    @property
    def text(self) -> str:
        """The value for people, without secrets unless they were uncovered."""
        if not self.is_given:
            return ""
        return (exact if self.is_uncovered else for_decision)(pretty(self.value))

    @property
    def is_secret(self) -> bool:
        """Whether the text hides a part of the value."""
        return self.is_given and self.text != exact(pretty(self.value))


@dataclass(frozen=True, kw_only=True)
class Difference:
    """An argument that an edit has changed; a text is empty where the argument is left out."""

    name: str
    old: str
    new: str


def fields_of(
    arguments: str, schema: Mapping[str, Json] | None, *, is_uncovered: bool = False
) -> tuple[Field, ...]:
    """Return the arguments in the order of the schema, then the ones it does not know.

    Args:
        arguments: JSON text, as the model wrote it.
        schema: JSON Schema of the arguments object; None when it is not known.
        is_uncovered: Whether secrets are shown as well.

    Returns:
        No fields when the arguments are not an object.
    """
    given = object_of(data_of(arguments or "{}"))
    if given is None:
        return ()
    root: Mapping[str, Any] = schema or {}
    properties = cast("dict[str, Any]", root.get("properties") or {})
    required = cast("list[str]", root.get("required") or [])
    names = [*properties, *(name for name in given if name not in properties)]
    made = (
        _field(name, properties.get(name), given, root, is_required=name in required)
        for name in names
    )
    return tuple(replace(each, is_uncovered=is_uncovered) for each in made)


def parsed(text: str, field: Field) -> Json:
    """Return the value that a person has typed for an argument.

    Raises:
        InvalidArgumentError: It is not of the argument's type.
    """
    match field.kind:
        case "text":
            return text
        case "integer" | "number":
            return _number(text, field)
        case "boolean" | "choice" | "json":
            try:
                value: Json = json.loads(text)
            except (ValueError, RecursionError) as cause:
                msg = f"{field.name} must be JSON ({field.type}): {cause}"
                raise InvalidArgumentError(msg) from cause
            return value


def differences(old: Mapping[str, Json], new: Mapping[str, Json]) -> tuple[Difference, ...]:
    """List the arguments that differ, in the order of the old ones, then new ones."""
    names = [*old, *(name for name in new if name not in old)]
    return tuple(
        Difference(name=name, old=_shown(old, name), new=_shown(new, name))
        for name in names
        if name not in old or name not in new or old[name] != new[name]
    )


def _shown(values: Mapping[str, Json], name: str) -> str:
    return for_decision(pretty(values[name])) if name in values else ""


def _number(text: str, field: Field) -> int | float:
    try:
        return int(text) if field.kind == "integer" else float(text)
    except ValueError as cause:
        what = "a whole number" if field.kind == "integer" else "a number"
        raise InvalidArgumentError(f"{field.name} must be {what}; it was {text!r}.") from cause


def _field(
    name: str, schema: object, given: dict[str, Json], root: Mapping[str, Any], *, is_required: bool
) -> Field:
    found = _resolved(schema, root)
    types = _types(found)
    plain = [each for each in types if each != "null"]
    choices = tuple(cast("list[Json]", found.get("enum") or ()))
    kind: FieldKind = "choice" if choices else "json"
    if not choices and len(plain) == 1:
        kind = _KINDS.get(plain[0], "json")
    if not choices and not plain:
        kind = _kind_of(given.get(name))
    value = given.get(name, found.get("default"))
    if not _fits(value, kind):
        kind = "json"
    return Field(
        name=name,
        kind=kind,
        type=" or ".join(types) or kind,
        value=value,
        is_given=name in given,
        is_required=is_required,
        is_nullable="null" in types,
        description=str(found.get("description") or ""),
        choices=choices,
    )


def _resolved(schema: object, root: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema, or the one of the same document that it refers to."""
    found = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    if "$ref" not in found:
        return found
    named = as_object(pointed_at(root, found["$ref"]))
    return {**named, **{key: value for key, value in found.items() if key != "$ref"}}


def _types(schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type")
    if isinstance(kind, str):
        return [kind]
    if isinstance(kind, list):
        return [str(each) for each in cast("list[object]", kind)]
    options = cast("list[object]", schema.get("anyOf") or schema.get("oneOf") or [])
    found: list[str] = []
    for option in options:
        if isinstance(option, dict):
            found += _types(cast("dict[str, Any]", option))
    return list(dict.fromkeys(found))


def _kind_of(value: Json) -> FieldKind:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "text"
        case _:
            return "json"


def _fits(value: Json, kind: FieldKind) -> bool:
    """Whether a value can be shown in a field of a kind: models write what they like."""
    if value is None or kind in ("json", "choice"):
        return True
    found = _kind_of(value)
    return found == kind or (kind == "number" and found == "integer")


MOST_AT_ONCE = 3


@dataclass(frozen=True, kw_only=True)
class Card:
    """An approval that waits, as the inbox shows it.

    Attributes:
        approval: The approval.
        task_id: Id of its task.
        title: What waits, in a few words.
        goal: Input of the task.
        why: Last words of the agent before the call.
        known: What else is known, such as how a call was lost.
        fields: The arguments of the call; empty when there is no call, or they are not an object.
        is_whole: Whether the arguments are whole: lists have only their beginning.
        effect: Effect class of the tool, in words.
        undo: How the call would be undone.
        asker: Agent, task, step and branch that ask.
        deadline: When it expires, in words; empty for never.
        after: What happens then.
        who: Who may decide; empty for anybody.
        progress: How many of the needed people have approved, and who; empty when one decides.
        escalation: When more people may decide, and who, or that they may; empty for never.
        session: Session of the task; empty for none.
        buttons: The decisions that it offers.
        is_uncovered: Whether secrets of the arguments are shown as well.
    """

    approval: Approval
    task_id: str
    title: str
    goal: str = ""
    why: str = ""
    known: str = ""
    fields: tuple[Field, ...] = ()
    is_whole: bool = True
    effect: str = ""
    undo: str = ""
    asker: tuple[str, ...] = ()
    deadline: str = ""
    after: str = ""
    who: str = ""
    progress: str = ""
    escalation: str = ""
    session: str = ""
    buttons: tuple[Choice, ...] = ()
    is_uncovered: bool = False

    @property
    def id(self) -> str:
        """Id of the approval."""
        return self.approval.id

    @property
    def arguments(self) -> dict[str, Json]:
        """The arguments as data; empty when they are not an object."""
        return object_of(data_of(self.approval.as_agreed or "{}")) or {}

    @property
    def raw(self) -> str:
        """The arguments as text, without secrets unless they were uncovered."""
        shown = exact if self.is_uncovered else for_decision
        return shown(pretty(data_of(self.approval.as_agreed)))

    @property
    def is_secret(self) -> bool:
        """Whether a part of the arguments, or of what is filled in, is hidden."""
        is_hidden = self.raw != exact(pretty(data_of(self.approval.as_agreed)))
        return is_hidden or any(field.is_secret for field in self.fields)

    @property
    def filled_in(self) -> list[str]:
        """What the tool fills in for arguments that are left out."""
        return [for_decision(line) for line in self.approval.filled_in]

    def button(self, key: str) -> Choice | None:
        """Return the button of a key, if who looks at the card may press it."""
        may = (button for button in self.buttons if not button.barred)
        return next((button for button in may if button.key == key), None)

    @property
    def barred(self) -> tuple[str, ...]:
        """Why who looks at the card may not decide: each reason once."""
        return tuple(dict.fromkeys(each.barred for each in self.buttons if each.barred))

    @property
    def first_buttons(self) -> tuple[Choice, ...]:
        """The buttons that are shown at once, three at most; the others are behind "More"."""
        if len(self.buttons) <= MOST_AT_ONCE:
            return self.buttons
        return tuple(each for each in self.buttons if each.colour != "grey")


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a card says next to its approval, as far as it could be read.

    Attributes:
        task: The task, or what lists know of it.
        snapshot: The agent as the task began with it.
        messages: Messages of the task, also of its open step.
    """

    task: Task
    snapshot: AgentSnapshot | None = None
    messages: Sequence[Message] = field(default_factory=tuple[Message, ...])


_EFFECTS = {"read": "Reads only", "reversible": "Can be undone", "irreversible": "Cannot be undone"}
_AFTER: Mapping[ApprovalKind, str] = {
    "tool": "the call is rejected, and the agent reads that no one decided in time",
    "unknown": "the call is given up, and the agent reads that its outcome is unknown",
    "limit": "the next day of the tenant begins, and the task goes on by itself",
    "undo": "the undo ends here",
    "question": "the tool goes on without an answer",
    "unread": "",
}


async def seen_by(person: Person, card: Card, barred: Callable[[Any, str], Awaitable[str]]) -> Card:
    """Return a card whose buttons say why a person may not press them.

    Args:
        person: Who looks at it.
        card: The card.
        barred: Returns why their roles at the desk do not allow a verb; empty when they do.
    """
    why = cannot_decide(card.approval, person)
    verbs = ["approve_always" if each.verb == "always" else each.verb for each in card.buttons]
    reasons = [await barred(verb, card.id) or why for verb in verbs]
    pairs = zip(card.buttons, reasons, strict=True)
    return replace(card, buttons=tuple(replace(each, barred=reason) for each, reason in pairs))


def card_of(
    approval: Approval, context: Context, *, now: float, is_uncovered: bool = False
) -> Card:
    """Return the card of an approval.

    Args:
        approval: What waits.
        context: What is known of its task.
        now: Time, seconds since the epoch.
        is_uncovered: Whether secrets of the arguments are shown as well.
    """
    policy, spec = _tool_of(approval, context.snapshot)
    left = approval.expires - now
    schema = spec.parameters if spec else _schema_of(approval)
    fields = fields_of(approval.as_agreed, schema, is_uncovered=is_uncovered)
    made = Card(
        approval=approval,
        task_id=task_of(approval.id),
        title=title_of(approval),
        goal=redact(cut(context.task.input)),
        why=redact(cut(_last_words(context.messages, approval))),
        known=for_decision(approval.text),
        fields=fields,
        is_whole=is_whole(approval),
        effect=_EFFECTS.get(approval.effect, "") if approval.tool else "",
        undo=_undo_of(approval, policy),
        asker=_asker(approval, context.task),
        deadline=(f"in {span(left)}" if left > 0 else "now") if approval.expires else "",
        after=_AFTER[approval.kind] if approval.expires else "",
        who=approval.who_decides,
        progress=approval.progress,
        escalation=_escalation(approval, now),
        session=context.task.session or "",
        is_uncovered=is_uncovered,
    )
    unseen = "A part of the call is hidden." if made.is_secret else ""
    unseen = unseen if made.is_whole else "Only the beginning of the call is shown."
    return replace(made, buttons=asked_twice(choices_of(approval), unseen))


def _schema_of(approval: Approval) -> Mapping[str, Json] | None:
    """Return the schema of arguments that are no tool's: the amount of a budget."""
    if approval.kind != "limit":
        return None
    about = {"type": "string", "description": "The whole budget in US dollars"}
    return {"type": "object", "properties": {"max_dollars": about}, "required": ["max_dollars"]}


def _escalation(approval: Approval, now: float) -> str:
    people = ", ".join(approval.escalate_to)
    if approval.escalated:
        return f"escalated to {people} {age(now - approval.escalated)} ago"
    left = max(approval.escalates - now, 0)
    return f"in {span(left)} to {people}" if approval.escalates else ""


def shown_rule(rule: StandingRule) -> str:
    """Return a decision for later calls, in a sentence."""
    what = "approved" if rule.verb == "approve" else "rejected"
    values = ", ".join(f"{name} = {brief(value)}" for name, value in rule.values.items())
    which = f"calls of {rule.tool} with {values}" if values else f"all calls of {rule.tool}"
    where = f" by {rule.agent} in session {rule.session}" if rule.session else ""
    until = f" until {clock(rule.until)}" if rule.until else ""
    return f"{rule.by} has {what} {which}{where}{until}."


def _tool_of(
    approval: Approval, snapshot: AgentSnapshot | None
) -> tuple[ToolPolicy | None, ToolSpec | None]:
    """Return the rules and the schema of an approval's tool, if its agent is known."""
    if snapshot is None or not approval.tool or approval.server:
        return None, None
    team = (snapshot, *snapshot.team)
    agent = next((each for each in team if each.name == approval.agent), snapshot)
    specs = (*agent.tools, *agent.handoffs)
    spec = next((each for each in specs if each.name == approval.tool), None)
    return agent.policies.get(approval.tool), spec


def _undo_of(approval: Approval, policy: ToolPolicy | None) -> str:
    if not approval.tool or approval.effect == "read":
        return ""
    if policy is None:
        return ""
    if not policy.has_undo:
        return "The tool declares no undo: what it does stays."
    asks = " after a person approves it" if policy.undo_needs_approval else ""
    return f"Undoing its step calls the tool's own undo{asks}."


def _asker(approval: Approval, task: Task) -> tuple[str, ...]:
    found = [f"agent {approval.agent or task.agent}"]
    if task.parent:
        found.append(f"as a tool of {task.parent}")
    if approval.n:
        found.append(f"step {approval.n}")
    if approval.branch:
        found.append(f"branch {approval.branch}")
    return tuple(found)


def _last_words(messages: Sequence[Message], approval: Approval) -> str:
    """Return what the agent said with the call, or last before it."""
    said = [message for message in messages if message.role == "assistant"]
    with_call = [
        message
        for message in said
        if any(call.id == approval.call_id for call in message.calls) and message.text.strip()
    ]
    texts = [message.text for message in with_call or said if message.text.strip()]
    return texts[-1] if texts else ""


def waits_for(approval: Approval, *, now: float) -> str:
    """Return how long an approval has waited."""
    return age(now - approval.asked)
