"""Kubernetes quantities: exact parsing, comparison and rendering.

The rules equal `resource.Quantity` in apimachinery: decimal suffixes (`n u m k M G T P E`),
binary suffixes (`Ki Mi Gi Ti Pi Ei`) or a decimal exponent (`1e3`). Quantities are compared as
numbers, never as text: `16Gi`, `16384Mi` and `17179869184` are the same size.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal

type QuantityFormat = Literal["BinarySI", "DecimalSI", "DecimalExponent"]
"""Format of a quantity: powers of 1024, powers of 1000, or `e` and an exponent."""

TEXT_LIMIT: Final = 64
"""Maximum length of a text that is parsed; real quantities have fewer than 25 characters."""
MAX_BINARY: Final = 2**63 - 1
"""Largest value with a binary suffix; larger values are capped, as in the API server."""

_PATTERN: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,3})|(?P<suffix>[KMGTPE]i|[numkMGTPE]?))"
)
_BINARY: Final = {f"{letter}i": 10 * power for power, letter in enumerate("KMGTPE", start=1)}
_DECIMAL: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip # One line shows the scale.
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_NANO: Final = 10**9
# Below this, the API server writes a binary quantity without a suffix, or with a decimal one.
_SMALLEST_BINARY: Final = 1024


def parse_quantity(quantity: str | int) -> Fraction:
    """Parse a quantity into its exact value in base units.

    Args:
        quantity: Text of a quantity, or an integer in base units, which JSON allows.

    Returns:
        The value, rounded away from zero to whole nano units as the API server does.

    Raises:
        ValueError: The text is not a quantity; the message quotes it.
    """
    return _parse(quantity)[0]


def same_quantity(left: str | int, right: str | int) -> bool:
    """Return whether two quantities have the same value, in any format.

    Raises:
        ValueError: One of them is not a quantity.
    """
    return left == right or parse_quantity(left) == parse_quantity(right)


def render_quantity(
    value: Fraction | Decimal | int, quantity_format: QuantityFormat = "BinarySI"
) -> str:
    """Render a value in its shortest exact form, such as `1536Mi`.

    A value that has no exact binary form (below 1024, or with a fraction) is rendered as
    `DecimalSI`.

    Raises:
        ValueError: The value is not a multiple of one nano unit.
    """
    exact = Fraction(value)
    nanos, rest = divmod(exact * _NANO, 1)
    if rest:
        raise ValueError(f"Quantity {value} is finer than one nano unit; round it first")
    if quantity_format == "BinarySI" and exact.denominator == 1 and abs(exact) >= _SMALLEST_BINARY:
        return _render_binary(exact.numerator)
    return _render_decimal(nanos, quantity_format)


def canonicalize_quantity(quantity: str | int) -> str:
    """Render a quantity in its canonical form: `0.5Gi` becomes `512Mi`.

    The API server stores most quantities in this form, but not all: compare values, never text.

    Raises:
        ValueError: The text is not a quantity.
    """
    value, quantity_format = _parse(quantity)
    return render_quantity(value, quantity_format)


def _parse(quantity: str | int) -> tuple[Fraction, QuantityFormat]:
    # `True` is an int in Python, but a size of `true` is an error and not one byte.
    if isinstance(quantity, bool) or not isinstance(quantity, str | int):
        raise ValueError(  # noqa: TRY004 pydantic reports these
            f"{quantity!r} is not a quantity; write one such as '10Gi'"
        )
    return _parse_text(str(quantity))


@lru_cache(maxsize=256)  # Each reconcile parses the same few quantities.
def _parse_text(text: str) -> tuple[Fraction, QuantityFormat]:
    match = _PATTERN.fullmatch(text) if len(text) <= TEXT_LIMIT else None
    if match is None:
        shown = text if len(text) <= TEXT_LIMIT else text[:TEXT_LIMIT] + "..."
        raise ValueError(f"{shown!r} is not a quantity; write one such as '10Gi'")
    value, quantity_format = _scale(
        Fraction(match["number"]), match["suffix"] or "", match["exponent"]
    )
    return (-value if match["sign"] == "-" else value), quantity_format


def _scale(number: Fraction, suffix: str, exponent: str | None) -> tuple[Fraction, QuantityFormat]:
    if exponent is not None:
        return _round_up(number * Fraction(10) ** int(exponent)), "DecimalExponent"
    if suffix in _BINARY:
        return min(_round_up(number * 2 ** _BINARY[suffix]), Fraction(MAX_BINARY)), "BinarySI"
    return _round_up(number * Fraction(10) ** _DECIMAL[suffix]), "DecimalSI"


def _round_up(value: Fraction) -> Fraction:
    return Fraction(-(-value * _NANO // 1), _NANO)


def _render_binary(value: int) -> str:
    exponent = 0
    while exponent < 60 and value % 1024 == 0:
        value //= 1024
        exponent += 10
    return f"{value}{' KMGTPE'[exponent // 10]}i" if exponent else f"{value}"


def _render_decimal(nanos: int, quantity_format: QuantityFormat) -> str:
    exponent = -9
    with_suffix = quantity_format != "DecimalExponent"
    while nanos and nanos % 1000 == 0 and not (with_suffix and exponent == max(_DECIMAL_SUFFIX)):
        nanos //= 1000
        exponent += 3
    if not nanos or not exponent:
        return str(nanos)
    return f"{nanos}{_DECIMAL_SUFFIX[exponent] if with_suffix else f'e{exponent}'}"
