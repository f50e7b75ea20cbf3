"""What the routes of the API share: the runner, who asks, and answers without secrets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, cast

from fastapi import Depends, Request
from starlette.responses import JSONResponse

from holdfast.client.agent_runner.runner import AgentRunner
from holdfast.desk.identity.guard import Guard
from holdfast.desk.identity.identities import Identity
from holdfast.desk.identity.protection import VISITOR
from holdfast.values.base import Json
from holdfast.values.text.redact import redact


class CleanJSON(JSONResponse):
    """JSON without secrets: keys and tokens are replaced in every text."""

    def render(self, content: Any) -> bytes:
        """Encode the content."""
        return super().render(clean(content))


def clean(data: Json) -> Json:
    """Return JSON data with secrets replaced in its texts."""
    if isinstance(data, str):
        return redact(data)
    if isinstance(data, dict):
        return {key: clean(value) for key, value in cast("dict[str, Json]", data).items()}
    if isinstance(data, list):
        return [clean(value) for value in cast("Sequence[Json]", data)]
    return data


class Access:
    """A request's way to the tasks.

    Attributes:
        runner: Reads and steers the tasks.
        visitor: Who sends the request.
    """

    def __init__(self, request: Request) -> None:
        """Take them from the application and from the request, which is authenticated."""
        self.runner: AgentRunner = request.app.state.runner
        self.visitor: Identity = request.scope[VISITOR]
        self._guard: Guard = request.app.state.guard

    async def may(self, verb: str, subject: str) -> str:
        """Return the name to be recorded as `by`, if the visitor may do this.

        Raises:
            NotAllowedError: They may not.
        """
        await self._guard.ensure(self.visitor, verb, subject)
        return self.visitor.name


Asked = Annotated[Access, Depends(Access)]
"""Parameter of a route."""
