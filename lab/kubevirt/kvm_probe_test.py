"""The trial of KVM: what counts as a guest that runs."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from lab.kubevirt import kvm_probe
from lab.kubevirt.kvm_probe import enter_protected_mode, is_sum, kvm_works

IO, HLT, INTERNAL_ERROR = 2, 5, 17
"""Values of exit_reason in linux/kvm.h."""


def state(reason: int, port: int = 0x10, value: int = 2) -> bytes:
    page = bytearray(0x2000)
    struct.pack_into("<I", page, 8, reason)
    struct.pack_into("<BBHIQ", page, 32, 1, 1, port, 1, 0x1000)
    page[0x1000] = value
    return bytes(page)


@pytest.mark.parametrize(
    ("page", "runs"),
    [
        (state(IO), True),
        (state(IO, value=3), False),
        (state(IO, port=0x11), False),
        (state(HLT), False),
        (state(INTERNAL_ERROR), False),
    ],
)
def test_only_the_right_sum_on_the_port_counts(page: bytes, runs: bool) -> None:
    assert is_sum(page) is runs


def test_segments_are_flat_and_protection_is_on() -> None:
    special = enter_protected_mode(bytearray(0x138))

    base, limit, selector = struct.unpack_from("<QIH", special, 0)
    assert (base, limit, selector) == (0, 0xFFFFFFFF, 8)
    assert special[14] == 11 and special[24 + 14] == 3
    assert special[224] & 1


def test_without_the_device_there_is_nothing_to_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kvm_probe, "DEVICE", tmp_path / "kvm")

    assert kvm_works() is False


def test_device_that_is_no_kvm_fails_the_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kvm").write_bytes(b"")
    monkeypatch.setattr(kvm_probe, "DEVICE", tmp_path / "kvm")

    with pytest.raises(OSError, match="ioctl"):
        kvm_probe.run_guest()
