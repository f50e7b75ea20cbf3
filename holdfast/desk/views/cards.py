"""Cards of the inbox: everything that waits for a person, with what a decision needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from holdfast.desk.views.arguments import Field, fields_of
from holdfast.desk.views.words import age, cut, data_of, object_of, pretty, span
from holdfast.models.base import ToolSpec
from holdfast.task.data.agent_snapshot import AgentSnapshot, ToolPolicy
from holdfast.task.data.calls import Approval, ApprovalKind, call_digest
from holdfast.values.base import Json
from holdfast.values.messages import Message, ToolCall
from holdfast.values.steps import Task
from holdfast.values.text.redact import redact

Verb = Literal["approve", "edit", "reject", "respond"]
Colour = Literal["positive", "primary", "negative", "grey"]


@dataclass(frozen=True, kw_only=True)
class Button:
    """A decision that a card offers.

    Attributes:
        verb: What is decided; "edit" approves with other arguments.
        key: The key for it.
        label: What it does in this case.
        more: What it does, in a sentence.
        asks: What a person must type: "" for nothing.
        warning: Why it is asked twice; empty when it is not.
        colour: How it is drawn.
    """

    verb: Verb
    key: str
    label: str
    more: str
    asks: Literal["", "note", "reason", "result", "arguments"] = ""
    warning: str = ""
    colour: Colour = "grey"


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
        buttons: The decisions that it offers.
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
    buttons: tuple[Button, ...] = ()

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
        """The arguments as text, without secrets."""
        return cut(redact(pretty(data_of(self.approval.as_agreed))))

    @property
    def is_secret(self) -> bool:
        """Whether that text does not show the whole."""
        return self.raw != pretty(data_of(self.approval.as_agreed))

    @property
    def is_final(self) -> bool:
        """Whether running the call cannot be taken back."""
        return any(button.warning for button in self.buttons if button.verb == "approve")

    def button(self, key: str) -> Button | None:
        """Return the button of a key."""
        return next((button for button in self.buttons if button.key == key), None)


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a card says beside its approval, as far as it could be read.

    Attributes:
        task: The task, or what lists know of it.
        snapshot: The agent as the task began with it.
        messages: Messages of the task, those of its open step too.
    """

    task: Task
    snapshot: AgentSnapshot | None = None
    messages: Sequence[Message] = field(default_factory=tuple[Message, ...])


TITLES: Mapping[ApprovalKind, str] = {
    "tool": "needs approval",
    "unknown": "may have happened",
    "limit": "budget is used up",
    "undo": "undo needs approval",
}
_EFFECTS = {
    "read": "Reads only",
    "reversible": "Can be undone",
    "irreversible": "Cannot be undone",
}
_AFTER: Mapping[ApprovalKind, str] = {
    "tool": "the call is rejected, and the agent reads that nobody decided in time",
    "unknown": "the call is given up, and the agent reads that its outcome is unknown",
    "limit": "the task finishes with what it has",
    "undo": "the undo ends here",
}


def task_of(approval_id: str) -> str:
    """Return the id of the task that an approval belongs to."""
    return approval_id.rpartition(":")[0]


def card_of(approval: Approval, context: Context, *, now: float) -> Card:
    """Return the card of an approval.

    Args:
        approval: What waits.
        context: What is known of its task.
        now: Time, seconds since the epoch.
    """
    policy, spec = _tool_of(approval, context.snapshot)
    left = approval.expires - now
    return Card(
        approval=approval,
        task_id=task_of(approval.id),
        title=title_of(approval),
        goal=redact(cut(context.task.input)),
        why=redact(cut(_last_words(context.messages, approval))),
        known=redact(cut(approval.text)),
        fields=fields_of(approval.as_agreed, spec.parameters if spec else _schema_of(approval)),
        is_whole=is_whole(approval),
        effect=_EFFECTS.get(approval.effect, "") if approval.tool else "",
        undo=_undo_of(approval, policy),
        asker=_asker(approval, context.task),
        deadline=(f"in {span(left)}" if left > 0 else "now") if approval.expires else "",
        after=_AFTER[approval.kind] if approval.expires else "",
        who=approval.who_decides,
        progress=approval.progress,
        escalation=_escalation(approval, now),
        buttons=buttons_of(approval),
    )


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


def title_of(approval: Approval) -> str:
    """Return what waits, in a few words."""
    match approval.kind:
        case "limit":
            return "The budget is used up"
        case "undo":
            return f"Undo of {approval.tool}" if approval.tool else "An undo"
        case "unknown":
            return f"{approval.tool} may have happened"
        case "tool":
            return approval.tool


def is_whole(approval: Approval) -> bool:
    """Whether the arguments of an approval are whole: lists cut long ones."""
    call = ToolCall(id=approval.call_id, name=approval.tool, arguments=approval.arguments)
    return not approval.digest or call_digest(call) == approval.digest


def buttons_of(approval: Approval) -> tuple[Button, ...]:
    """Return the decisions on an approval, labelled by what they do in its case."""
    tool = approval.tool or "it"
    match approval.kind:
        case "tool":
            return _of_call(approval, tool)
        case "unknown":
            return _of_unknown(tool)
        case "limit":
            return _of_limit(approval)
        case "undo":
            return (
                Button(
                    verb="approve",
                    key="a",
                    label=f"Undo {tool}",
                    more="The tool's own undo runs now.",
                    colour="primary",
                ),
                Button(
                    verb="reject",
                    key="r",
                    label=f"Leave {tool} as it is",
                    more="It stays as it is, and the undo ends here.",
                    asks="reason",
                    colour="negative",
                ),
                Button(
                    verb="respond",
                    key="v",
                    label="It is undone already",
                    more="You have undone it by other means: enter how.",
                    asks="result",
                ),
            )


def _of_limit(approval: Approval) -> tuple[Button, ...]:
    finish = Button(
        verb="reject",
        key="r",
        label="Finish now",
        more="The model gives its last answer, without tools.",
        asks="reason",
        colour="negative",
    )
    raised = (object_of(data_of(approval.arguments)) or {}).get("max_dollars")
    if not isinstance(raised, str):
        one_more = Button(
            verb="approve",
            key="a",
            label="Allow one more model call",
            more="The task goes on for one model call over its budget.",
            colour="primary",
        )
        return one_more, finish
    return (
        Button(
            verb="approve",
            key="a",
            label=f"Raise the budget to ${raised}",
            more="The task goes on until that is used up.",
            colour="primary",
        ),
        Button(
            verb="edit",
            key="e",
            label="Raise it to another amount",
            more="The task goes on with the budget that you give.",
            asks="arguments",
        ),
        finish,
    )


def _of_call(approval: Approval, tool: str) -> tuple[Button, ...]:
    final = f"{tool} cannot be undone." if approval.effect not in ("read", "reversible") else ""
    return (
        Button(
            verb="approve",
            key="a",
            label=f"Run {tool}",
            more="The call runs with these arguments.",
            warning=final,
            colour="positive",
        ),
        Button(
            verb="edit",
            key="e",
            label="Edit arguments",
            more="The call runs with the arguments that you give; the agent reads the change.",
            asks="arguments",
            warning=final,
            colour="primary",
        ),
        Button(
            verb="reject",
            key="r",
            label=f"Do not run {tool}",
            more="The call does not run; the agent reads your reason.",
            asks="reason",
            colour="negative",
        ),
        Button(
            verb="respond",
            key="v",
            label="Enter a result",
            more="The call does not run; the agent reads your result instead.",
            asks="result",
        ),
    )


def _of_unknown(tool: str) -> tuple[Button, ...]:
    return (
        Button(
            verb="approve",
            key="a",
            label=f"It did not happen: {tool} now",
            more="The call runs again.",
            warning=f"If {tool} has happened after all, it happens twice.",
            colour="primary",
        ),
        Button(
            verb="respond",
            key="v",
            label="It happened: enter the result",
            more="The call does not run again; the agent reads your result.",
            asks="result",
            colour="positive",
        ),
        Button(
            verb="reject",
            key="r",
            label="Give it up",
            more="The call does not run again; the agent reads that its outcome is unknown.",
            asks="reason",
            colour="negative",
        ),
    )


def _tool_of(
    approval: Approval, snapshot: AgentSnapshot | None
) -> tuple[ToolPolicy | None, ToolSpec | None]:
    """Return the rules and the schema of an approval's tool, if its agent is known."""
    if snapshot is None or not approval.tool:
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
