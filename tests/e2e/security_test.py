"""What a running process may do: looked at from inside its own container."""

from __future__ import annotations

import pytest

from libs.common.kinds import key_of
from tests.e2e.cluster import Cluster

_LOOK = """
import os, pathlib
status = dict(line.split(":\\t", 1) for line in open("/proc/1/status").read().splitlines())
print("uid", status["Uid"].split()[0])
print("capabilities", int(status["CapEff"], 16))
print("no-new-privileges", status["NoNewPrivs"])
print("seccomp", status["Seccomp"])
try:
    pathlib.Path("/app-probe").write_text("x")
    print("root", "writable")
except OSError:
    print("root", "read-only")
names = ("sh", "bash", "dash", "busybox", "apt", "apt-get", "dpkg", "perl", "curl", "wget")
folders = ("/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin")
found = [each for each in names for folder in folders if os.path.exists(f"{folder}/{each}")]
print("programs", len(found))
"""
_WANTED = {
    "uid": "65532",
    "capabilities": "0",
    "no-new-privileges": "1",
    "seccomp": "2",
    "root": "read-only",
    "programs": "0",
}


@pytest.mark.parametrize("operator", ["podset"])
async def test_process_has_no_privilege_and_no_shell(cluster: Cluster, operator: str) -> None:
    namespace = await cluster.make_namespace("inside")
    await cluster.install(operator, namespace)
    pod, *_ = await cluster.running_pods(namespace, f"app.kubernetes.io/name={operator}")
    name = key_of(pod).name

    text = await cluster.kubectl_run(namespace, "exec", name, "--", "python3.13", "-c", _LOOK)

    assert dict(line.split(" ", 1) for line in text.splitlines()) == _WANTED
