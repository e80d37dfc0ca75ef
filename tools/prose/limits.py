"""The findings per 1,000 words that each corpus may have; the figures only go down."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

GOAL: Final = 3.0
"""No corpus may be worse than this, in findings per 1,000 words."""
MARGIN: Final = 0.3
"""Distance of a limit from what was measured, so that one phrase does not fail the gate."""
FILE: Final = Path(__file__).with_name("limits.json")


def load_limits() -> dict[str, float]:
    """Return the limit of each corpus."""
    limits = json.loads(FILE.read_text())
    assert isinstance(limits, dict)
    return limits


def lower(limits: Mapping[str, float], rates: Mapping[str, float]) -> dict[str, float]:
    """Return the limits after a measurement: never higher than before, never above the goal."""
    return {
        name: min(limits.get(name, GOAL), round(math.ceil(rate * 10) / 10 + MARGIN, 1))
        for name, rate in rates.items()
    }
