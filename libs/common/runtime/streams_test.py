"""The pauses between streams."""

from __future__ import annotations

from libs.common.runtime.streams import ReconnectDelay


def test_pause_between_short_streams_grows_and_is_forgotten_after_a_long_one() -> None:
    pace = ReconnectDelay()

    assert [pace.begin("/a", now) for now in (0.0, 0.5, 0.9, 5.0, 5.1)] == [0, 0.2, 0.4, 0, 0.2]
    assert pace.begin("/b", 5.1) == 0, "another kind has done no harm"
