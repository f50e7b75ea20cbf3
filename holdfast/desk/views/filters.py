"""Which approvals the inbox shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, cast

from holdfast.desk.views.cards import TITLES
from holdfast.task.data.calls import Approval
from holdfast.task.people.deciders import Person, can_decide


@dataclass(frozen=True, kw_only=True)
class InboxFilter:
    """Which approvals the inbox shows; the query of its URL.

    Attributes:
        agent: Only of this agent.
        tool: Only of this tool.
        kind: Only of this kind.
        older: Only those that wait for at least so many seconds.
        text: Only those with this text in tool, arguments, agent or task id.
        mine: Only those that the person who looks can decide.
    """

    agent: str = ""
    tool: str = ""
    kind: str = ""
    older: int = 0
    text: str = ""
    mine: bool = False

    @classmethod
    def read(cls, query: Mapping[str, str]) -> InboxFilter:
        """Read the query of a URL; what does not fit is left out."""
        older = query.get("older", "")
        kind = query.get("kind", "")
        return cls(
            agent=query.get("agent", ""),
            tool=query.get("tool", ""),
            kind=kind if kind in TITLES else "",
            older=int(older) if older.isdecimal() and len(older) < 10 else 0,  # noqa: PLR2004
            text=query.get("q", ""),
            mine=query.get("mine", "") == "1",
        )

    @property
    def query(self) -> dict[str, str]:
        """The query of the URL, without what is not filtered."""
        older = str(self.older) if self.older else ""
        names = {"agent": self.agent, "tool": self.tool, "kind": self.kind, "older": older}
        more = {"q": self.text, "mine": "1" if self.mine else ""}
        return {name: value for name, value in {**names, **more}.items() if value}

    def takes(self, approval: Approval, person: Person, *, now: float) -> bool:
        """Whether an approval is shown to a person."""
        where = (approval.tool, approval.arguments, approval.agent, approval.id, approval.text)
        return (
            self.agent in ("", approval.agent)
            and self.tool in ("", approval.tool)
            and self.kind in ("", approval.kind)
            and now - approval.asked >= self.older
            and any(self.text.casefold() in each.casefold() for each in where)
            and (not self.mine or can_decide(approval, person))
        )


def choices(approvals: Iterable[Approval], name: Literal["agent", "tool"]) -> list[str]:
    """List the agents or tools among approvals, sorted."""
    return sorted({cast("str", getattr(each, name)) for each in approvals} - {""})
