"""Which approvals a list of what waits shows: the inbox of the desk, the HTTP API, the commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, cast

from pydantic import Field, ValidationError

from holdfast.task.data.calls import Approval, ApprovalKind
from holdfast.task.people.decisions import Person, cannot_decide
from holdfast.values.base import Value


class InboxFilter(Value):
    """Which approvals are listed; the query of the inbox's URL.

    Attributes:
        agent: Only of this agent.
        tool: Only of this tool.
        kind: Only of this kind.
        older: Only ones that wait for at least so many seconds.
        q: Only ones with this text in tool, arguments, agent or task id.
        mine: Only ones that the reader can decide.
        snoozed: Also ones whose snooze is not over.
    """

    agent: str = ""
    tool: str = ""
    kind: ApprovalKind | Literal[""] = ""
    older: int = Field(default=0, ge=0, description="Seconds that it waits at least.")
    q: str = Field(default="", description="Text in tool, arguments, agent or task id.")
    mine: bool = False
    snoozed: bool = False

    @classmethod
    def read(cls, query: Mapping[str, str]) -> InboxFilter:
        """Read the query of a URL; what does not fit is left out."""
        known = {name: text for name, text in query.items() if name in cls.model_fields}
        try:
            return cls.model_validate(known)
        except ValidationError as error:
            wrong = {each["loc"][0] for each in error.errors()}
            return cls.model_validate({n: text for n, text in known.items() if n not in wrong})

    @property
    def query(self) -> dict[str, str]:
        """The query of the URL, without what is not filtered."""
        return {name: str(int(v) if v is True else v) for name, v in self.wire().items()}

    def takes(self, approval: Approval, person: Person | None = None, *, now: float) -> bool:
        """Whether an approval is listed for a person."""
        where = (approval.tool, approval.arguments, approval.agent, approval.id, approval.text)
        return (
            self.agent in ("", approval.agent)
            and self.tool in ("", approval.tool)
            and self.kind in ("", approval.kind)
            and now - approval.asked >= self.older
            and (self.snoozed or now >= approval.snoozed_until)
            and any(self.q.casefold() in each.casefold() for each in where)
            and (not self.mine or (person is not None and not cannot_decide(approval, person)))
        )


def choices(approvals: Iterable[Approval], name: Literal["agent", "tool"]) -> list[str]:
    """List the agents or tools among approvals, sorted."""
    return sorted({cast("str", getattr(each, name)) for each in approvals} - {""})
