"""What waits comes out when it is due, once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from operators.pulsarconsumer.app.core.delays import Delays


@given(st.lists(st.floats(0, 100)), st.floats(0, 100))
def test_due_comes_out_in_order_and_the_rest_stays(dues: list[float], now: float) -> None:
    delays: Delays[float] = Delays()
    for due in dues:
        delays.add(due, due)

    assert delays.pop_due(now) == sorted(due for due in dues if due <= now)
    assert len(delays) == len([due for due in dues if due > now])
    assert delays.pop_due(now) == []
