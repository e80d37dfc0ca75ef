"""References that identify the content of an image."""

from __future__ import annotations

from pathlib import Path

from tools.cluster.cache import Cache
from tools.cluster.kind_cluster import KindCluster
from tools.dev.images import content_reference, read_loaded


def test_reference_names_the_content() -> None:
    reference = content_reference("slipway/podset:dev", "sha256:0123456789abcdef")

    assert reference == "slipway/podset:dev-0123456789ab"


def test_nothing_is_loaded_into_a_new_cluster(tmp_path: Path) -> None:
    assert read_loaded("podset", KindCluster("x", Cache(tmp_path))) is None
