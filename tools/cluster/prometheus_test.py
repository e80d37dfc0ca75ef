"""Prometheus: the source of its program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.cluster.cache import Cache
from tools.cluster.errors import ToolError
from tools.cluster.prometheus import PROMETHEUS_VARIABLE, ensure_prometheus


def test_chosen_directory_needs_both_programs(tmp_path: Path) -> None:
    (tmp_path / "prometheus").touch()
    environ = {PROMETHEUS_VARIABLE: str(tmp_path)}

    with pytest.raises(ToolError, match="promtool not found"):
        ensure_prometheus(cache=Cache(tmp_path / "cache"), environ=environ)

    (tmp_path / "promtool").touch()
    assert ensure_prometheus(cache=Cache(tmp_path / "cache"), environ=environ) == tmp_path
