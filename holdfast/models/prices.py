"""Prices of models: what a model call cost, and the most that one can cost."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pydantic import Field

from holdfast.errors import InvalidArgumentError, UserError
from holdfast.models.base import ModelAnswer
from holdfast.values.base import Json, Written, canonical, digest
from holdfast.values.code.extras import needing
from holdfast.values.messages import MOST_DOLLARS, Amount, Dollars, Usage, plain
from holdfast.values.text.shown import shown

MILLION = 1_000_000
PUBLISHED = "published"
PACKAGE = "genai-prices"
VARIABLE = "HOLDFAST_PRICES"
BATCH = "batch/"
"""Before the name of a model whose answer came by a batch, at half the price."""


class Price(Written):
    """What a model costs, in US dollars for a million tokens.

    Give numbers as text or Decimal: a float such as 0.1 is read as it is printed.

    Attributes:
        input: Input tokens.
        output: Output tokens, reasoning included.
        cached_input: Input tokens that the provider served from its cache; None for the price of
            other input.
    """

    input: Dollars = Field(ge=0, le=MOST_DOLLARS)
    output: Dollars = Field(ge=0, le=MOST_DOLLARS)
    cached_input: Dollars | None = Field(default=None, ge=0, le=MOST_DOLLARS)

    if TYPE_CHECKING:  # what the fields are made of

        def __init__(
            self, *, input: Amount, output: Amount, cached_input: Amount | None = None
        ) -> None: ...

    def cost(self, usage: Usage) -> Decimal:
        """Return what a call of this usage costs."""
        cached = min(usage.cached_tokens, usage.input_tokens)
        of_cached = self.input if self.cached_input is None else self.cached_input
        total = (usage.input_tokens - cached) * self.input + cached * of_cached
        return (total + usage.output_tokens * self.output) / MILLION


class MostCost(NamedTuple):
    """The most that a call can cost before its output is known.

    Attributes:
        input: For its input.
        output_token: For each token of its output.
    """

    input: Decimal
    output_token: Decimal

    def of(self, output_tokens: int) -> Decimal:
        """Return the most that the call can cost with this many output tokens."""
        return self.input + output_tokens * self.output_token

    def output_tokens(self, amount: Decimal) -> int | None:
        """Return how many output tokens an amount pays for; None when they cost nothing."""
        if not self.output_token:
            return None
        return int(max(amount - self.input, Decimal(0)) // self.output_token)


class Quote(NamedTuple):
    """What a call costs, and by which prices.

    Attributes:
        cost: US dollars.
        source: The prices, as `Prices.table_name` or the package and its version name them.
    """

    cost: Decimal
    source: str


class Prices:
    """Prices of models, for worker processes that are to record what their model calls cost.

    A call is priced when its answer arrives, and the amount is recorded with the answer: what the
    record says does not change when prices do. A model is looked up by the name under which it is
    called, then by the one that the provider reports; one that is not found has an unknown cost.

    Attributes:
        table_name: "table" and a digest of the table, as records name the prices of a call.

    Args:
        table: Name of a model to its `Price`, or to a dict of its fields.
        published: Whether models that are not in the table have the prices of the package
            genai-prices (extra `prices`). They are as new as that package.
    """

    def __init__(
        self,
        table: Mapping[str, Price | Mapping[str, Any]] | None = None,
        *,
        published: bool = False,
    ) -> None:
        """Read the table.

        Raises:
            UserError: A price cannot be read.
            ModuleNotFoundError: The extra `prices` is not installed.
        """
        if not isinstance(cast("object", table), Mapping | None):
            raise UserError(
                "table must be a dict of a model's name to its Price, as"
                f" {{'gpt-5-mini': {{'input': 0.25, 'output': 2}}}}; it was {shown(table)}."
            )
        self.table = {_bare(name): _price(name, given) for name, given in (table or {}).items()}
        listed: dict[str, Json] = {name: each.wire() for name, each in sorted(self.table.items())}
        self.table_name = f"table {digest(canonical(listed))[:8]}"
        self._published: Any = _package() if published else None

    @classmethod
    def from_environment(cls) -> Prices | None:
        """Return the prices that `HOLDFAST_PRICES` names; None when it is not set.

        It holds "published", the path of a JSON file with a table, or both with a comma between.

        Raises:
            InvalidArgumentError: The file cannot be read.
            UserError: A price cannot be read.
            ModuleNotFoundError: The extra `prices` is not installed.
        """
        named = [part.strip() for part in os.environ.get(VARIABLE, "").split(",") if part.strip()]
        if not named:
            return None
        table: dict[str, Any] = {}
        for path in (part for part in named if part != PUBLISHED):
            table |= _read(Path(path))
        return cls(table, published=PUBLISHED in named)

    def cost(self, usage: Usage, *models: str) -> Decimal | None:
        """Return what a call cost, in US dollars; None when no price is known.

        Args:
            usage: The call's tokens.
            models: Names of the model, the first that has a price counts.
        """
        found = self.quote(usage, *models)
        return None if found is None else found.cost

    def quote(self, usage: Usage, *models: str) -> Quote | None:
        """Return what a call cost and by which prices; None when no price is known.

        Args:
            usage: The call's tokens.
            models: As for `cost`.
        """
        return next(self._quotes(usage, models), None)

    def most(self, input_tokens: int, *models: str) -> MostCost | None:
        """Return the most that a call can cost; None when no price is known.

        Args:
            input_tokens: The most input tokens that it can have.
            models: As for `cost`.
        """
        of_input = self.cost(Usage(input_tokens=input_tokens), *models)
        more = Usage(input_tokens=input_tokens, output_tokens=MILLION)
        with_output = self.cost(more, *models)
        if of_input is None or with_output is None:
            return None
        return MostCost(of_input, (with_output - of_input) / MILLION)

    def _quotes(self, usage: Usage, models: tuple[str, ...]) -> Iterator[Quote]:
        named = [_bare(name) for name in models if name]
        for name in named:
            if name in self.table:
                yield Quote(plain(self.table[name].cost(usage)), self.table_name)
        if self._published is not None:
            yield from (found for name in named for found in self._of_published(usage, name))
        batched = tuple(name.removeprefix(BATCH) for name in named if name.startswith(BATCH))
        for found in self._quotes(usage, batched) if batched else ():
            yield Quote(plain(found.cost / 2), f"{found.source}, half of it for a batch")

    def _of_published(self, usage: Usage, model: str) -> Iterator[Quote]:
        """Yield the cost by the published prices, also of a name such as "anthropic/claude"."""
        tokens = self._published.Usage(
            input_tokens=usage.input_tokens,
            cache_read_tokens=min(usage.cached_tokens, usage.input_tokens),
            output_tokens=usage.output_tokens,
        )
        provider, _, name = model.partition("/")
        for ref, of in ((model, None), (name, provider)) if name else ((model, None),):
            try:
                found = self._published.calc_price(tokens, ref, provider_id=of)
            except LookupError:
                continue
            yield Quote(plain(found.total_price), _version(found.auto_update_timestamp))


def priced(answer: ModelAnswer, prices: Prices, model: str) -> ModelAnswer:
    """Return an answer with its cost and the name of the prices, if a price is known.

    A model that says itself what its call cost is believed.

    Args:
        answer: The answer as the model gave it.
        prices: The prices.
        model: Name under which the model was called, unless the answer says that itself.
    """
    if answer.usage.priced:
        return answer
    found = prices.quote(answer.usage, answer.asked or model, answer.model)
    if found is None:
        return answer
    usage = answer.usage.model_copy(update={"paid": found.cost, "priced": 1})
    return answer.model_copy(update={"usage": usage, "prices": found.source})


def _bare(model: str) -> str:
    """Return a model's name without the library by which it is called."""
    library, slash, name = model.partition("/")
    return name if slash and library in ("litellm", "any-llm") else model


def _price(model: str, given: object) -> Price:
    if isinstance(given, Price):
        return given
    if not isinstance(given, Mapping):
        raise UserError(
            f"The price of model {model!r} must be a holdfast.Price or a dict of its fields"
            f" (input, output, cached_input); it was {shown(given)}."
        )
    try:
        return Price(**cast("Mapping[str, Any]", given))
    except InvalidArgumentError as error:
        raise UserError(f"The price of model {model!r} cannot be read. {error}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        table = json.loads(path.read_text("utf-8"), parse_float=Decimal)
    except (OSError, ValueError) as error:
        msg = f"{VARIABLE} names {str(path)!r}, which cannot be read as JSON: {error}."
        raise InvalidArgumentError(msg) from error
    if not isinstance(table, dict):
        msg = f"{str(path)!r} must hold an object: name of a model to its price."
        raise InvalidArgumentError(msg)
    return cast("dict[str, Any]", table)


def _package() -> Any:
    with needing("prices", "Prices(published=True)"):
        return importlib.import_module("genai_prices")


def _version(updated: datetime | None) -> str:
    """Name the published prices: by the package, and by the time when it was brought up to date."""
    name = f"{PACKAGE} {importlib.metadata.version(PACKAGE)}"
    return name if updated is None else f"{name} of {updated.astimezone(UTC):%Y-%m-%dT%H:%MZ}"
