"""Which images there are."""

from __future__ import annotations

from pathlib import Path

from tools.images import list_all_images, list_images


def test_app_of_an_operator_has_an_image_of_its_own(tmp_path: Path) -> None:
    for folder in ("web", "queue", "queue/app"):
        (tmp_path / "operators" / folder).mkdir(parents=True)
        (tmp_path / "operators" / folder / "BUILD").touch()

    assert list_images("web", tmp_path) == ["web"]
    assert list_images("queue", tmp_path) == ["queue", "queue-app"]
    assert list_all_images(tmp_path) == ["queue", "queue-app", "web", "kubevirt-sim"]
