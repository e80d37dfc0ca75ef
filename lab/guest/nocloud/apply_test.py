"""Finding the NoCloud disk and the interfaces of a guest."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.guest.nocloud.apply import find_filesystem, list_links
from lab.guest.nocloud.network import Link


@pytest.mark.parametrize(
    ("place", "label", "kind"),
    [
        (0x8028, b"cidata", "iso9660"),
        (0x2B, b"CIDATA     ", "vfat"),
        (0x47, b"cidata     ", "vfat"),
        (0x8028, b"other", None),
    ],
)
def test_disk_is_known_by_its_label(
    tmp_path: Path, place: int, label: bytes, kind: str | None
) -> None:
    content = bytearray(b" " * 0x9000)
    content[place : place + len(label)] = label
    device = tmp_path / "vdb"
    device.write_bytes(content)

    assert find_filesystem(device) == kind


def test_device_that_cannot_be_read_has_no_data(tmp_path: Path) -> None:
    assert find_filesystem(tmp_path / "sr0") is None


def test_interfaces_without_the_loopback(tmp_path: Path) -> None:
    for name, mac in (("lo", "00:00:00:00:00:00"), ("eth0", "02:00:00:00:00:AB")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "address").write_text(f"{mac}\n")

    assert list(list_links(tmp_path)) == [Link("eth0", "02:00:00:00:00:ab")]
