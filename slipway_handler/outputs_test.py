"""What handlers return, as messages to publish."""

from __future__ import annotations

import pytest

from slipway_handler.message import Output
from slipway_handler.outputs import read_outputs


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (None, []),
        (b"a", [Output(b"a")]),
        ("a", [Output("a")]),
        (Output(b"a", key="k"), [Output(b"a", key="k")]),
        ([b"a", None, ("b", Output(b"c"))], [Output(b"a"), Output("b"), Output(b"c")]),
        ([], []),
    ],
)
def test_result_becomes_messages(result: object, expected: list[Output]) -> None:
    assert read_outputs(result) == expected


@pytest.mark.parametrize("result", [{"a": 1}, 5, [b"a", 5]])
def test_other_results_are_refused_as_a_whole(result: object) -> None:
    with pytest.raises(TypeError, match="cannot be published"):
        read_outputs(result)
