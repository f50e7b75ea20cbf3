"""Amounts of money: US dollars as exact decimals, never as floats."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, PlainSerializer

NOTHING = Decimal(0)
_SHOWN_PLACES = 4

MOST_DOLLARS = Decimal(10**12)
"""Largest budget and price: beyond it amounts lose cents, and cannot be written for people."""

Amount = Decimal | str | int | float
"""What people write an amount as; a float counts as it is printed."""


def plain(amount: Decimal) -> Decimal:
    """Return an amount without zeros at its end, so that equal amounts are written alike."""
    return amount.normalize() if amount else NOTHING


def as_written(amount: Decimal) -> str:
    """Write an amount with all its digits and without an exponent."""
    return format(amount, "f")


Dollars = Annotated[Decimal, AfterValidator(plain), PlainSerializer(as_written, when_used="json")]
"""An amount in US dollars; text on the wire, because JSON numbers are read as floats."""


def dollars(amount: Decimal) -> str:
    """Write an amount for people: with cents, and more digits where it has them, at most four.

    What is left beyond them is rounded up, so that no cost looks like none.
    """
    step = Decimal(1).scaleb(-_SHOWN_PLACES)
    text = as_written(amount.quantize(step, rounding="ROUND_UP"))
    whole, _, cents = text.partition(".")
    return f"${whole}.{cents.rstrip('0'):0<2}"
