"""What the scripts of a guest do after an attempt that failed, and after a restart in between."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from operators.clusters import scripts
from operators.clusters.bootstrap import Membership, Role, render_user_data
from operators.clusters.bootstrap_test import WEB, read_files
from operators.clusters.samples import ADDRESS, authorities, credentials, parse_cluster

_STUBS: Final = {
    **dict.fromkeys(("swapoff", "modprobe", "sysctl", "install", "sync"), ""),
    "ip": "echo 192.0.2.1 via 10.0.0.1 dev eth0 src 10.0.0.5 uid 0",
    "systemctl": """case $* in *slipway-endpoint*) [ ! -e "$STATE/no-endpoint" ] ;; esac""",
    "kubectl": """[ ! -e "$STATE/no-api" ]""",
    # As kubeadm does when a later step than the preflight checks fails: it leaves what it refuses.
    "kubeadm": """echo "$1" >>"$STATE/trace"
case $1 in
  reset) rm -rf "$STATE/bootstrap-kubelet.conf" "$STATE/etcd" ;;
  join)
    [ ! -e "$STATE/bootstrap-kubelet.conf" ] || exit 1
    touch "$STATE/bootstrap-kubelet.conf"
    mkdir -p "$STATE/etcd/member"
    [ ! -e "$STATE/no-join" ]
    ;;
esac""",
}


class Guest:
    """A guest whose programs are stubs.

    Args:
        folder: Folder of its files. A file `no-join`, `no-api` or `no-endpoint` makes that fail.
        role: How it becomes a node.
    """

    def __init__(self, folder: Path, role: Role) -> None:
        """Write the files of the user data."""
        self.folder = folder
        self.directory = folder / "slipway"
        programs = folder / "bin"
        programs.mkdir()
        for name, text in _STUBS.items():
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
        member = Membership(parse_cluster(), ADDRESS, authorities(), credentials()[1])
        found = read_files(render_user_data(member, role, WEB if role is Role.JOIN else None))
        files = {
            Path(path).relative_to(scripts.DIRECTORY): content
            for path, content in found.items()
            if path.startswith(f"{scripts.DIRECTORY}/")
        }
        for path, content in files.items():
            (self.directory / path).parent.mkdir(parents=True, exist_ok=True)
            (self.directory / path).write_text(content)
        self._script = (
            files[Path("bootstrap.sh")]
            .replace(scripts.DIRECTORY, str(self.directory))
            .replace("/etc/systemd/system", str(folder))
            .replace("/etc/kubernetes", str(folder))
            .replace("/var/lib/etcd", str(folder / "etcd"))
        )
        self._environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "STATE": str(folder),
        }

    def start(self, *failing: str) -> bool:
        """Run the script while something fails, and return whether it succeeded."""
        for name in failing:
            (self.folder / name).touch()
        command = ["bash", "-c", self._script]
        found = subprocess.run(command, check=False, env=self._environment, capture_output=True)
        for name in failing:
            (self.folder / name).unlink()
        return found.returncode == 0

    @property
    def trace(self) -> list[str]:
        """The phases of kubeadm that ran."""
        return (self.folder / "trace").read_text().split()

    @property
    def done(self) -> bool:
        """Whether the guest counts as a node, and keeps no credentials to join."""
        kept = (self.directory / "discovery.conf").exists()
        return (self.directory / "done").exists() and not kept


@pytest.mark.parametrize("role", [Role.JOIN, Role.JOIN_CONTROL_PLANE])
def test_join_is_tried_again_from_the_beginning(role: Role, tmp_path: Path) -> None:
    """What a real kubeadm leaves is seen in tests/e2e/cloud/guests_test.py."""
    guest = Guest(tmp_path, role)

    assert not guest.start("no-join")
    assert guest.start()

    assert guest.trace == ["join", "reset", "join"]
    assert guest.done


def test_node_that_has_joined_is_not_reset(tmp_path: Path) -> None:
    """A reset deletes the data of its member of etcd."""
    guest = Guest(tmp_path, Role.JOIN_CONTROL_PLANE)

    assert not guest.start("no-endpoint")
    assert guest.start()

    assert guest.trace == ["join"]
    assert guest.done


def test_member_of_etcd_keeps_its_data_while_it_cannot_be_removed(tmp_path: Path) -> None:
    """Of two members, the other one alone has no majority, so the API is silent without this."""
    guest = Guest(tmp_path, Role.JOIN_CONTROL_PLANE)

    assert not guest.start("no-join")
    assert not guest.start("no-api")
    assert guest.trace == ["join"]
    assert (tmp_path / "etcd" / "member").exists()

    assert guest.start()
    assert guest.trace == ["join", "reset", "join"]
    assert guest.done


@pytest.mark.parametrize("role", Role)
def test_machine_that_stopped_just_before_it_was_done_is_done_at_the_next_start(
    role: Role, tmp_path: Path
) -> None:
    """The credentials are deleted first."""
    guest = Guest(tmp_path, role)
    assert guest.start()
    (guest.directory / "done").unlink()

    assert guest.start()
    assert guest.done
    assert "reset" not in guest.trace
