"""When the registry is asked, and what names an image that we build."""

from __future__ import annotations

from pathlib import Path

from tools.cluster.cache import Cache
from tools.cluster.node_image import local_image_name, refused_recently
from tools.cluster.node_payload import Programs

HOUR = 3600.0


def programs(key: str) -> Programs:
    names = ("kube", "coredns", "crictl", "local-path-provisioner", "pause")
    return Programs(*(Path("/cache") / name / key / name for name in names))


def test_refusal_is_remembered_for_a_day(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert not refused_recently(cache, 0)

    cache.write(cache.path("node-image-refused"), "1000.0\n")

    assert refused_recently(cache, 1000 + HOUR)
    assert not refused_recently(cache, 1000 + 25 * HOUR)


def test_unreadable_refusal_counts_as_none(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.write(cache.path("node-image-refused"), "")

    assert not refused_recently(cache, 0)


def test_image_is_named_by_the_programs_in_it() -> None:
    assert local_image_name(programs("a")) == local_image_name(programs("a"))
    assert local_image_name(programs("a")) != local_image_name(programs("b"))
