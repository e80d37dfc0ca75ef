"""kind clusters: which of them there are."""

from __future__ import annotations

from pathlib import Path

from tools.cluster.cache import Cache
from tools.cluster.kind_cluster import KindCluster, list_clusters


def test_cluster_that_was_only_asked_for_is_none(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    made, asked = (KindCluster(name, cache).kubeconfig for name in ("made", "asked"))
    made.write_text("apiVersion: v1", encoding="utf-8")

    assert not asked.exists()
    assert list_clusters(cache) == ["made"]
