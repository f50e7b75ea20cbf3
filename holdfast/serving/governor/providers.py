"""What the providers of models and the budgets of tenants allow.

They are given as objects, `Provider` and `TenantBudget`, or by the file that `HOLDFAST_PROVIDERS`
names.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast
from zoneinfo import ZoneInfo

from pydantic import Field

from holdfast.errors import InvalidArgumentError
from holdfast.models.base import Model
from holdfast.serving.governor.days import DayLimit
from holdfast.serving.governor.shares import Limits
from holdfast.values.base import Strict
from holdfast.values.messages import MOST_DOLLARS, NOTHING, Amount, Dollars
from holdfast.values.text.shown import shown

VARIABLE = "HOLDFAST_PROVIDERS"
LIBRARIES = ("litellm", "any-llm")
TENANTS_TABLE = "tenants"
"""Table of the file that has a table for each `TenantBudget`."""
EVERY = "*"

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


class TenantBudget(Strict):
    """What a tenant may use in a day, of all providers and in all worker processes of a namespace.

    Attributes:
        tenant: The tenant, as `create_task(tenant=)` names it; "*" for each one that has no budget
            of its own.
        dollars_per_day: What calls may cost in a day. The worker processes need prices.
        tokens_per_day: Tokens that calls may use in a day, read and written.
        time_zone: IANA name of the time zone whose midnight begins the day.
    """

    tenant: str = Field(min_length=1)
    dollars_per_day: Dollars | None = Field(default=None, gt=0, le=MOST_DOLLARS)
    tokens_per_day: int | None = Field(default=None, ge=1)
    time_zone: str = "UTC"

    if TYPE_CHECKING:  # what the fields are made of

        def __init__(
            self,
            *,
            tenant: str,
            dollars_per_day: Amount | None = None,
            tokens_per_day: int | None = None,
            time_zone: str = "UTC",
        ) -> None: ...

    @property
    def limit(self) -> DayLimit:
        """The limits, as the governor has them."""
        dollars, tokens = self.dollars_per_day or NOTHING, self.tokens_per_day or 0
        return DayLimit(dollars=dollars, tokens=tokens, zone=self.time_zone)


Limited: TypeAlias = Provider | TenantBudget
"""What worker processes take as `providers=`."""


def checked_providers(given: Iterable[Limited] | None, *, prices: bool) -> tuple[Limited, ...]:
    """Return what was given to a worker as `providers=`; that of the environment when nothing was.

    Args:
        given: Providers and budgets of tenants, or None.
        prices: Whether the worker knows what calls cost.

    Raises:
        InvalidArgumentError: They cannot be used.
    """
    every = _from_environment() if given is None else tuple(cast("Iterable[object]", given))
    for each in every:
        if not isinstance(each, Limited):
            msg = f"providers lists Providers and TenantBudgets; {shown(each)} is neither."
            raise InvalidArgumentError(msg)
        if isinstance(each, Provider):
            what = f"Provider {each.name!r}"
            missing = [name for name in each.keys if not os.environ.get(name)]
            if missing:
                msg = (
                    f"{what} takes a key from the environment variable {missing[0]}, which is not"
                    " set."
                )
                raise InvalidArgumentError(msg)
        else:
            what = f"The budget of tenant {each.tenant!r}"
            _check_budget(each, what)
        if each.dollars_per_day is not None and not prices:
            msg = (
                f"{what} has dollars_per_day, and this process has no prices. Give it some by"
                " HOLDFAST_PRICES or prices=."
            )
            raise InvalidArgumentError(msg)
    found = cast("tuple[Limited, ...]", every)
    providers = [each.name for each in found if isinstance(each, Provider)]
    tenants = [each.tenant for each in found if isinstance(each, TenantBudget)]
    for what, names in (
        ("providers have one name", providers),
        ("budgets have one tenant", tenants),
    ):
        if len(set(names)) < len(names):
            msg = f"Two {what}; the names are: {', '.join(names)}."
            raise InvalidArgumentError(msg)
    return found


def _check_budget(budget: TenantBudget, what: str) -> None:
    """Refuse a budget that limits nothing, or whose days are not known here.

    Raises:
        InvalidArgumentError: It is such a one.
    """
    if budget.dollars_per_day is None and budget.tokens_per_day is None:
        msg = f"{what} limits nothing. Give it dollars_per_day or tokens_per_day."
        raise InvalidArgumentError(msg)
    try:
        ZoneInfo(budget.time_zone)
    except (KeyError, ValueError, OSError) as error:
        msg = (
            f"{what} has time_zone {budget.time_zone!r}, which is not known here. Give an IANA"
            " name, as Europe/Berlin; where the system has none, install tzdata."
        )
        raise InvalidArgumentError(msg) from error


def _from_environment() -> tuple[Limited, ...]:
    """Read the file that `HOLDFAST_PROVIDERS` names: a table for each provider and tenant.

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
    made: list[Limited] = []
    tenants = tables.pop(TENANTS_TABLE, {})
    for kind, key, given in ((Provider, "name", tables), (TenantBudget, "tenant", tenants)):
        for name, fields in given.items():
            try:
                known: dict[str, Any] = {key: name, **fields}
                made.append(kind(**known))
            except (InvalidArgumentError, TypeError) as error:
                table = name if kind is Provider else f"{TENANTS_TABLE}.{name}"
                usual = "requests_per_minute" if kind is Provider else "tokens_per_day"
                msg = (
                    f"The table [{table}] of {path!r} cannot be read. It has fields of a"
                    f" {kind.__name__}, such as {usual} = 500. {error}"
                )
                raise InvalidArgumentError(msg) from None
    return tuple(made)
