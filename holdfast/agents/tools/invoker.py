"""Invoker: `on_invoke_tool` of the tools that Holdfast makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from holdfast.agents.tools.context import ToolContext
from holdfast.agents.tools.error_texts import default_tool_error_function, formatted_error
from holdfast.agents.tools.functions.function_schema import FuncSchema
from holdfast.agents.tools.hooks import FailureFormatter
from holdfast.values.code.user_calls import invoke


class Owner(Protocol):
    """The tool that an invoker belongs to."""

    @property
    def failure_error_function(self) -> FailureFormatter | Literal["default"] | None:
        """Makes the model's text for a failed call."""
        ...

    async def run_made(self, ctx: ToolContext[Any, Any], arguments: str) -> Any:
        """Validate the arguments and run the tool as it was made."""
        ...


class Invoker:
    """Runs a tool outside of a task, and makes its errors texts for the model.

    Attributes:
        function: The function; None for a tool whose class runs it in a way of its own.
        signature: Converts arguments to parameters.
        owner: The tool whose name and failure_error_function hold.
    """

    def __init__(
        self,
        function: Callable[..., Any] | None = None,
        signature: FuncSchema | None = None,
        owner: Owner | None = None,
    ) -> None:
        """Take the function, and the tool as far as it is known."""
        self.function = function
        self.signature = signature
        self.owner = owner

    def of(self, owner: Owner) -> Invoker:
        """Return the invoker of another tool with the same function, such as a copy."""
        if self.owner is owner or (self.function is None and self.owner is not None):
            return self
        return Invoker(self.function, self.signature, owner)

    def __deepcopy__(self, memo: dict[int, Any]) -> Invoker:
        """Keep the function: code is not copied."""
        return Invoker(self.function, self.signature, memo.get(id(self.owner), self.owner))

    async def __call__(self, ctx: ToolContext[Any, Any], arguments: str) -> Any:
        """Run the tool; an error becomes a text for the model, as the tool's author wants it.

        Raises:
            ModelBehaviorError: The arguments do not fit, and `failure_error_function` is None.
            Exception: An error of the function, likewise, or of the failure_error_function.
        """
        owner = self.owner
        if owner is None:
            msg = "An invoker without a tool cannot be called."
            raise RuntimeError(msg)
        try:
            return await owner.run_made(ctx, arguments)
        except Exception as error:
            formatter = owner.failure_error_function
            if formatter is None:
                raise
            if formatter == "default":
                return default_tool_error_function(ctx, error)
            return await invoke(formatter, ctx, formatted_error(error))
