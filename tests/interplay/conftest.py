"""Fixtures: two nodes without pods, and a network plugin that enforces NetworkPolicies on them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any, Final

import pytest

from libs.common.testing.apiserver import ControlPlane
from tests.interplay.lab import Lab
from tools.cluster.binaries import find_tool

_FLAGS: Final = (
    *("--run-firewall=true", "--run-router=false", "--run-service-proxy=false"),
    *("--enable-ipv4=true", "--enable-ipv6=true", "--metrics-port=0", "--health-port=0"),
    "--service-cluster-ip-range=10.0.0.0/24,fd10::/112",
)
_WRAPPERS: Final = {
    "ipset": '[ "$1" = save ] || exec {program} "$@"',
    "ip6tables-restore": "sed 's/--match-set KUBE-/--match-set inet6:KUBE-/g' | {program} \"$@\"",
}
"""Programs in place of others, without which kube-router 2.1.0 cannot enforce IPv6.

It creates the sets of IPv6 with the prefix `inet6:`, which its rules lack, so that ip6tables
refuses the rules ("Set KUBE-... doesn't exist"). For each family, it also restores the saved sets
of the other one, which may be outdated; here it finds no saved sets.
"""


@pytest.fixture(scope="module")
def lab(kube_apiserver: ControlPlane) -> Iterator[Lab]:
    """Make two nodes without pods, once for all tests here."""
    if find_tool("kube-router") is None:
        pytest.skip("kube-router is not built; run `python -m tools.cluster.binaries kube-router`")
    programs = ("ip", "iptables", "ip6tables-restore", "ipset")
    missing = [each for each in programs if shutil.which(each) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing or programs)}")
    lab = Lab(kube_apiserver, 2)
    try:
        lab.start()
        yield lab
    finally:
        lab.stop()


@pytest.fixture(scope="module")
def plugin(lab: Lab, kube_apiserver: ControlPlane, tmp_path_factory: Any) -> Lab:
    """Say how the plugin is started on a node; it needs the Node in the API first."""
    folder = tmp_path_factory.mktemp("kube-router")
    kubeconfig = kube_apiserver.write_kubeconfig(folder / "kubeconfig")
    for name, script in _WRAPPERS.items():
        wrapper = folder / name
        wrapper.write_text("#!/bin/sh\n" + script.format(program=shutil.which(name)) + "\n")
        wrapper.chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}"}
    for node in lab.nodes:
        names = (f"--kubeconfig={kubeconfig}", f"--hostname-override={node}")
        command = [str(find_tool("kube-router")), *_FLAGS, *names]
        lab.prepare(node, command, folder / f"{node}.log", environment)
    return lab
