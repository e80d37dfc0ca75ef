"""The bounding set decides whether runc needs its wrapper."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.cluster.capabilities import lacks_sys_resource, parse_bounding_set

WRAPPER = Path(__file__).with_name("runc-without-sys-resource")


@pytest.mark.parametrize(
    ("bounding", "lacks"),
    [("000001fffeffffff", True), ("000001ffffffffff", False), ("0000000000000000", True)],
)
def test_missing_sys_resource_is_seen_in_the_bounding_set(bounding: str, lacks: bool) -> None:
    status = f"CapEff:\t000001ffffffffff\nCapBnd:\t{bounding}\nCapAmb:\t0000000000000000\n"

    assert lacks_sys_resource(status) is lacks


def test_status_without_bounding_set_counts_as_all() -> None:
    assert parse_bounding_set("Name: x\n") == -1
    assert not lacks_sys_resource("Name: x\n")


def test_wrapper_strikes_the_capability_from_the_spec(tmp_path: Path) -> None:
    spec = tmp_path / "config.json"
    spec.write_text(
        '{"bounding":["CAP_CHOWN","CAP_SYS_RESOURCE","CAP_KILL"],"x":["CAP_SYS_RESOURCE","A"]}'
    )
    # A runc that does nothing stands in by way of a copy of the wrapper.
    script = tmp_path / "wrapper"
    script.write_text(WRAPPER.read_text().replace("/usr/sbin/runc", "/bin/true"))
    subprocess.run(["sh", script, "--root", "/x", "create", "--bundle", tmp_path, "id"], check=True)

    assert spec.read_text() == '{"bounding":["CAP_CHOWN","CAP_KILL"],"x":["A"]}'
