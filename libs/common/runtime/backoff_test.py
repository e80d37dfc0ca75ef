"""Back-off."""

from __future__ import annotations

import pytest

from libs.common.runtime.backoff import BackoffPolicy


@pytest.mark.parametrize("failures", [1, 10, 100, 100_000])
def test_back_off_never_overflows_nor_exceeds_its_maximum(failures: int) -> None:
    assert 0 < BackoffPolicy().delay(failures, 0.5) <= BackoffPolicy().maximum
