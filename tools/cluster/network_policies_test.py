"""kube-router runs on every real node, and its scripts check the kernel and remove its rules."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tools.cluster import network_policies

SCRIPTS = Path(__file__).parent / "kube_router"
IMAGE = "docker.io/slipway/kube-router:1"
RULES = """
set -e
iptables -N OTHER
iptables -A INPUT -j OTHER
iptables -N KUBE-ROUTER-INPUT
iptables -N KUBE-POD-FW-A
iptables -N KUBE-NWPLCY-A
ipset create KUBE-SRC-A hash:ip
ipset create KUBE-DST-A hash:net
ipset create OTHER hash:ip
iptables -I INPUT -m comment --comment "kube-router netpol" -j KUBE-ROUTER-INPUT
iptables -A KUBE-ROUTER-INPUT -s 192.0.2.1 -j KUBE-POD-FW-A
iptables -A KUBE-POD-FW-A -j KUBE-NWPLCY-A
iptables -A KUBE-NWPLCY-A -m set --match-set KUBE-SRC-A src -j RETURN
iptables -A KUBE-NWPLCY-A -m set --match-set KUBE-DST-A dst -j RETURN
"""
PRINT = "iptables-save -t filter | grep '^[:-]' | sed 's/ .[0-9]*:[0-9]*.$//'; ipset list -name"


def run(script: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run a shell script in a network namespace of its own."""
    missing = [each for each in ("iptables", "ipset", "unshare") if shutil.which(each) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing or ['iptables', 'ipset'])}")
    environment = {**os.environ, "PATH": f"{path}{os.environ['PATH']}"}
    command = ["unshare", "--net", "sh", "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def build_pod_spec() -> dict[str, Any]:
    """Return the spec of the pod on each node."""
    manifests = network_policies.build_manifests(IMAGE)
    (found,) = [each for each in manifests if each["kind"] == "DaemonSet"]
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def test_firewall_alone_runs_on_every_node_with_a_kubelet() -> None:
    spec = build_pod_spec()
    (container,) = spec["containers"]

    assert spec["hostNetwork"]
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert {"--run-firewall=true", "--run-router=false"} <= set(container["args"])
    assert {"--run-service-proxy=false"} <= set(container["args"])
    affinity = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = affinity["nodeSelectorTerms"]
    assert term == {
        "matchExpressions": [{"key": "sim.slipway.dev/node", "operator": "DoesNotExist"}]
    }


def test_scripts_are_those_of_the_image() -> None:
    spec = build_pod_spec()
    commands = [each["command"] for each in (*spec["initContainers"], *spec["containers"])]

    assert commands == [["/check.sh"], ["/run.sh"]]
    for name in ("check.sh", "run.sh", "clean.sh"):
        assert os.access(SCRIPTS / name, os.X_OK)


@pytest.mark.parametrize("state", ["state", "lastState"])
def test_refusal_of_the_kernel_is_found(state: str) -> None:
    ended = {"exitCode": 1, "reason": "Error", "message": "no br_netfilter\n\nTry `--help`.\n"}
    refused = {"status": {"initContainerStatuses": [{state: {"terminated": ended}}]}}
    passed = {"status": {"initContainerStatuses": [{"state": {"terminated": {"exitCode": 0}}}]}}

    assert network_policies.find_refusal([passed, refused]) == "no br_netfilter"
    assert network_policies.find_refusal([passed, {}]) == ""


def test_check_leaves_nothing() -> None:
    done = run(f"{SCRIPTS / 'check.sh'}; echo code $?; {PRINT}")
    if "br_netfilter" in done.stderr:
        pytest.skip(done.stderr.strip())

    assert done.stdout.splitlines()[0] == "code 0", done.stderr
    assert "SLIPWAY" not in done.stdout


def test_check_tells_what_the_kernel_lacks(tmp_path: Path) -> None:
    program = tmp_path / "ipset"
    program.write_text("#!/bin/sh\necho set type not supported >&2; exit 1\n")
    program.chmod(0o755)
    done = run(str(SCRIPTS / "check.sh"), f"{tmp_path}:")

    assert done.returncode == 1
    assert "set type not supported" in done.stderr or "br_netfilter" in done.stderr


def test_clean_up_removes_the_rules_of_kube_router_and_no_others() -> None:
    done = run(f"{RULES}\n{SCRIPTS / 'clean.sh'}\n{PRINT}")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        ":INPUT ACCEPT",
        ":FORWARD ACCEPT",
        ":OUTPUT ACCEPT",
        ":OTHER -",
        "-A INPUT -j OTHER",
        "OTHER",
    ]


def test_clean_up_finds_nothing_on_a_fresh_node() -> None:
    assert run(str(SCRIPTS / "clean.sh")).returncode == 0
