"""What the providers of models allow: `Provider`, and the file that `HOLDFAST_PROVIDERS` names."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import Field

from holdfast.errors import InvalidArgumentError
from holdfast.governor.shares import Limits
from holdfast.models.base import Model
from holdfast.values.base import Strict
from holdfast.values.money import MOST_DOLLARS, NOTHING, Amount, Dollars
from holdfast.values.text.shown import shown

VARIABLE = "HOLDFAST_PROVIDERS"
LIBRARIES = ("litellm", "any-llm")

Limit = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Provider(Strict):
    """The limits of a model provider, which hold for all worker processes of a namespace together.

    Attributes:
        name: Name of the provider, such as "openai" or "anthropic".
        models: Patterns of names of its models, as in "gpt-*". Without any, they are the models
            that have the provider's name before theirs, as in "litellm/anthropic/claude", or are
            OpenAI's.
        keys: Environment variables that hold its keys. Calls take turns with them, and the limits
            hold for each. Without any, the model's own key is used.
        requests_per_minute: Most requests in a minute.
        tokens_per_minute: Most tokens in a minute, read and written.
        dollars_per_day: What calls may cost in a day (UTC). The worker processes need prices.
        at_once: Most calls at the same time.
        weights: Share of a tenant in relation to others, whose weight is 1.
    """

    name: str = Field(pattern=r"^[\w.-]{1,64}$")
    models: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    requests_per_minute: Limit | None = None
    tokens_per_minute: Limit | None = None
    dollars_per_day: Dollars | None = Field(default=None, gt=0, le=MOST_DOLLARS)
    at_once: int | None = Field(default=None, ge=1)
    weights: dict[str, Limit] = Field(default_factory=dict[str, float])

    if TYPE_CHECKING:  # what the fields are made of

        def __init__(
            self,
            *,
            name: str,
            models: tuple[str, ...] = (),
            keys: tuple[str, ...] = (),
            requests_per_minute: float | None = None,
            tokens_per_minute: float | None = None,
            dollars_per_day: Amount | None = None,
            at_once: int | None = None,
            weights: dict[str, float] | None = None,
        ) -> None: ...

    @property
    def limits(self) -> Limits:
        """The limits, for one key."""
        return Limits(
            requests=self.requests_per_minute or 0,
            tokens=self.tokens_per_minute or 0,
            dollars=self.dollars_per_day or NOTHING,
            at_once=self.at_once or 0,
            weights=self.weights,
        )

    def has(self, model: Model) -> bool:
        """Whether a model is one of this provider."""
        if self.models:
            return any(fnmatchcase(model.name, pattern) for pattern in self.models)
        prefix, _, rest = model.name.rpartition("/")[0].partition("/")
        before = rest.partition("/")[0] if prefix in LIBRARIES else prefix
        return self.name in (before, getattr(model, "provider", ""))


def checked_providers(given: Iterable[Provider] | None, *, prices: bool) -> tuple[Provider, ...]:
    """Return providers that were given to a worker; those of the environment when none were.

    Args:
        given: The providers, or None.
        prices: Whether the worker knows what calls cost.

    Raises:
        InvalidArgumentError: They cannot be used.
    """
    every = _from_environment() if given is None else tuple(cast("Iterable[object]", given))
    for each in every:
        if not isinstance(each, Provider):
            msg = f"providers lists Providers; {shown(each)} is not one."
            raise InvalidArgumentError(msg)
        missing = [name for name in each.keys if not os.environ.get(name)]
        if missing:
            msg = (
                f"Provider {each.name!r} takes a key from the environment variable {missing[0]},"
                " which is not set."
            )
            raise InvalidArgumentError(msg)
        if each.dollars_per_day is not None and not prices:
            msg = (
                f"Provider {each.name!r} has dollars_per_day, and this process has no prices. Give"
                " it some by HOLDFAST_PRICES or prices=."
            )
            raise InvalidArgumentError(msg)
    found = cast("tuple[Provider, ...]", every)
    names = [each.name for each in found]
    if len(set(names)) < len(names):
        msg = f"Two providers have one name; the names are: {', '.join(names)}."
        raise InvalidArgumentError(msg)
    return found


def _from_environment() -> tuple[Provider, ...]:
    """Read the file that `HOLDFAST_PROVIDERS` names: a table for each provider.

    Raises:
        InvalidArgumentError: It cannot be read, or a table does not fit.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return ()
    try:
        text = Path(path).read_text("utf-8")
        tables = tomllib.loads(text, parse_float=Decimal)
    except (OSError, ValueError) as error:
        msg = f"{VARIABLE} names {path!r}, which cannot be read as TOML: {error}."
        raise InvalidArgumentError(msg) from error
    made: list[Provider] = []
    for name, fields in tables.items():
        try:
            known: dict[str, Any] = {"name": name, **fields}
            made.append(Provider(**known))
        except (InvalidArgumentError, TypeError) as error:
            msg = (
                f"The table [{name}] of {path!r} cannot be read. It has fields of a Provider, such"
                f" as requests_per_minute = 500. {error}"
            )
            raise InvalidArgumentError(msg) from None
    return tuple(made)
