"""Kubernetes quantities: `10Gi`, `500m`, `1.5e3`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

QUANTITY_PATTERN: Final = (
    r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"
)
"""What the API server takes as a quantity; also valid in CEL's and Go's RE2."""

_PARTS: Final = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?[0-9]+))?"
)
_FACTORS: Final[Mapping[str, Decimal]] = {
    **{suffix: Decimal(1024) ** (i + 1) for i, suffix in enumerate(("Ki", "Mi", "Gi", "Ti"))},
    **{suffix: Decimal(1024) ** (i + 5) for i, suffix in enumerate(("Pi", "Ei"))},
    **{suffix: Decimal(1000) ** (i + 1) for i, suffix in enumerate(("k", "M", "G", "T", "P", "E"))},
    **{suffix: Decimal(1000) ** -(i + 1) for i, suffix in enumerate(("m", "u", "n"))},
}


def parse_quantity(text: str | int | float) -> Decimal:
    """Parse a quantity into its exact value in base units: bytes, cores, pieces.

    Raises:
        ValueError: The text is not a quantity.
    """
    match = _PARTS.fullmatch(str(text))
    if match is None:
        raise ValueError(f"{text!r} is not a quantity such as 10Gi, 500m or 1.5")
    number, suffix, exponent = match.groups()
    value = Decimal(number)
    if exponent is not None:
        return value.scaleb(int(exponent))
    return value * _FACTORS[suffix] if suffix else value
