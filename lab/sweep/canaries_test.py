from __future__ import annotations

import base64
from urllib.parse import quote

import pytest

from lab.sweep.canaries import build_canary, find_leaks

CANARY = build_canary("s-podset-1")


@pytest.mark.parametrize("before", ["", "a", "ab", "user:"])
def test_canary_is_found_in_base64_whatever_stands_before_it(before: str) -> None:
    text = base64.b64encode((before + CANARY + "\n").encode()).decode()

    assert find_leaks(text, [CANARY], "a log") == ["a log shows canary/token in the form base64"]


def test_canary_is_found_in_plain_text_and_in_a_url() -> None:
    assert find_leaks(f"x={CANARY}", [CANARY], "an Event") != []
    assert find_leaks(f"x={quote(CANARY, safe='')}", [CANARY], "an Event") != []


def test_text_without_it_is_clean() -> None:
    other = build_canary("s-podset-2")

    assert find_leaks(f"{other} {base64.b64encode(other.encode()).decode()}", [CANARY], "x") == []
