"""Differences in words."""

from __future__ import annotations

from libs.common.testing.differences import describe_difference, render_differences


def test_differences_are_told_by_their_path() -> None:
    wanted = {"a": {"b": [1, 2]}, "gone": 1}
    found = {"a": {"b": [1, 3]}, "new": 2}

    assert describe_difference(wanted, found) == [
        "a.b[1]: 2 became 3",
        "gone is missing",
        "new is there, 2",
    ]


def test_lists_of_other_lengths_differ_as_a_whole() -> None:
    assert describe_difference({"x": [1]}, {"x": [1, 2]}) == ["x: [1] became [1, 2]"]


def test_differences_without_end_are_cut() -> None:
    text = render_differences(dict.fromkeys("abcdefghijklmnopqrstuvwxyz", 1), {})

    assert len(text.splitlines()) == 21
    assert text.startswith("  a is missing\n")
    assert text.endswith("  and 6 more")
