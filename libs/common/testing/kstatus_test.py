"""Our rules of kstatus return what its module returned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from libs.common.testing.kstatus import compute_status

CASES: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("kstatus_cases.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_status_is_that_of_the_module(case: dict[str, Any]) -> None:
    assert compute_status(case["object"]) == case["status"]
