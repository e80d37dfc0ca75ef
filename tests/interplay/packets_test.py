"""Firewalls stop real packets, as Azure NPM enforces the policies that the operator writes.

The cluster is a real kube-apiserver with a node that no kubelet runs: a network namespace of this
machine, whose pods are network namespaces behind it. Azure NPM enforces NetworkPolicies there with
iptables and ipset, by the addresses of pods, whatever made their interfaces. It is built from its
Go module as it is by `python -m tools.cluster.binaries azure-npm`; otherwise the tests are skipped.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from libs.common.client import Client
from libs.common.kinds import NETWORK_POLICY, POD, Key, Kind, Manifest, build_object, uid_of
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.fakeapi.registry import build_crd as build_loose_crd
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.serving import serve
from libs.contracts.compute import INSTANCE, INSTANCE_UID_LABEL, NETWORK_LABEL
from operators.network.api.v1alpha1 import FIREWALL, NETWORK, Firewall, Network, ProviderNetwork
from operators.network.controller import OPERATOR
from tools.cluster.binaries import find_tool

_PATIENCE: Final = 60.0
"""Seconds that a change of a policy may take to reach the packets."""
_START: Final = 400.0
"""Seconds until the plugin works. Without a key for telemetry it waits for three minutes and then
sends none."""
_SERVE: Final = """
import socket, sys, threading
def serve(port):
    listener = socket.create_server(("", port))
    while True:
        listener.accept()[0].close()
threads = [threading.Thread(target=serve, args=(int(port),)) for port in sys.argv[1:]]
[thread.start() for thread in threads]
print("ready", flush=True)
"""
_CONNECT: Final = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 2).close()
    print("open")
except OSError:
    print("shut")
"""


def run(*command: str) -> str:
    """Run a command and return what it prints."""
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return found.stdout.strip()


class Lab:
    """A node and its pods, each a network namespace.

    Args:
        plane: API server that the enforcing plugin asks.
    """

    def __init__(self, plane: ControlPlane) -> None:
        """Name the node after this process, so that two runs do not meet."""
        self._plane = plane
        self._node = f"n{os.getpid()}"
        self._pods: dict[str, str] = {}
        self._processes: list[subprocess.Popen[str]] = []
        self._listener: socket.socket | None = None

    def start(self, program: Path, folder: Path) -> None:
        """Create the node and run the plugin on it."""
        run("ip", "netns", "add", self._node)
        self.on_node("ip", "link", "set", "lo", "up")
        self.on_node("sysctl", "-qw", "net.ipv4.ip_forward=1")
        # The kubelet leaves this chain on each node, so that others know which iptables is in use.
        self.on_node("iptables-nft", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT")
        self._forward_api()
        kubeconfig = self._plane.write_kubeconfig(folder / "npm.kubeconfig")
        command = [str(program), "start", "--kubeconfig", str(kubeconfig)]
        with (folder / "npm.log").open("w") as log:
            self._spawn(self._node, command, {"HOSTNAME": "node"}, log)

    def stop(self) -> None:
        """End all processes and remove the namespaces."""
        for process in self._processes:
            process.terminate()
            process.wait(15)
            if process.stdout is not None:
                process.stdout.close()
        if self._listener is not None:
            self._listener.close()
        for name in (*self._pods.values(), self._node):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def on_node(self, *command: str) -> str:
        """Run a command on the node."""
        return run("ip", "netns", "exec", self._node, *command)

    def add_pod(self, name: str) -> str:
        """Create the namespace of a pod that listens on two ports; returns its address."""
        number = len(self._pods) + 2
        inner, address = f"p{number}-{os.getpid()}", f"10.99.0.{number}"
        run("ip", "netns", "add", inner)
        self._pods[name] = inner
        link = f"veth{number}"
        run(
            "ip",
            "link",
            "add",
            link,
            "netns",
            self._node,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            inner,
        )
        self.on_node("ip", "link", "set", link, "up")
        self.on_node("ip", "addr", "add", "169.254.1.1/32", "dev", link)
        self.on_node("ip", "route", "add", f"{address}/32", "dev", link)
        for command in (
            ("link", "set", "lo", "up"),
            ("addr", "add", f"{address}/32", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("route", "add", "169.254.1.1/32", "dev", "eth0"),
            ("route", "add", "default", "via", "169.254.1.1", "dev", "eth0"),
        ):
            run("ip", "netns", "exec", inner, "ip", *command)
        process = self._spawn(inner, [sys.executable, "-c", _SERVE, "8080", "9090"])
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        return address

    def reaches(self, client: str, address: str, port: int) -> bool:
        """Return whether a pod can connect to an address."""
        command = (sys.executable, "-c", _CONNECT, address, str(port))
        return run("ip", "netns", "exec", self._pods[client], *command) == "open"

    def _spawn(
        self,
        namespace: str,
        command: list[str],
        environment: Mapping[str, str] | None = None,
        log: Any = subprocess.DEVNULL,
    ) -> subprocess.Popen[str]:
        output = subprocess.PIPE if log is subprocess.DEVNULL else log
        process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, *command],
            stdout=output,
            stderr=log,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self._processes.append(process)
        return process

    def _forward_api(self) -> None:
        """Let the node reach the API server at the address that it has on this machine."""
        port = int(self._plane.url.rpartition(":")[2])
        ready = threading.Event()

        def listen() -> None:
            # This thread alone enters the namespace; a socket stays in the one it was made in.
            with Path("/run/netns", self._node).open() as namespace:
                os.setns(namespace.fileno(), os.CLONE_NEWNET)
            self._listener = socket.create_server(("127.0.0.1", port))
            ready.set()

        thread = threading.Thread(target=listen)
        thread.start()
        thread.join(10)
        assert ready.is_set(), "nothing listens in the namespace of the node"
        threading.Thread(target=self._accept, args=(port,), daemon=True).start()

    def _accept(self, port: int) -> None:
        assert self._listener is not None
        with suppress(OSError):
            while True:
                inside, _ = self._listener.accept()
                outside = socket.create_connection(("127.0.0.1", port))
                for one, other in ((inside, outside), (outside, inside)):
                    threading.Thread(target=_pump, args=(one, other), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def lab(kube_apiserver: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Run the plugin on a node without pods, once for all tests here."""
    program = find_tool("azure-npm")
    if program is None:
        pytest.skip("azure-npm is not built; run `python -m tools.cluster.binaries azure-npm`")
    missing = [each for each in ("ip", "iptables", "ipset") if shutil.which(each) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing) or 'ip, iptables, ipset'}")
    lab = Lab(kube_apiserver)
    try:
        lab.start(program, tmp_path_factory.mktemp("npm"))
        yield lab
    finally:
        lab.stop()


class Users:
    """Create objects in a namespace, and pods both in the API and on the node."""

    def __init__(self, client: Client, namespace: str, lab: Lab) -> None:
        """Keep what it acts on."""
        self._client, self._namespace, self._lab = client, namespace, lab

    async def add(self, kind: Kind, name: str, **spec: Any) -> str:
        """Create an object and return its UID."""
        manifest = build_object(kind, name, self._namespace, spec=spec)
        return uid_of(await self._client.create(kind, manifest))

    async def add_pod(self, name: str, uid: str = "", network: str = "") -> str:
        """Run a pod; with a UID one that is labelled like the pod of an Instance."""
        labels = {INSTANCE_UID_LABEL: uid} if uid else {}
        if network:
            labels[NETWORK_LABEL] = network
        spec = {"nodeName": "node", "containers": [{"name": "main", "image": "none"}]}
        pod = build_object(POD, name, self._namespace, metadata={"labels": labels}, spec=spec)
        await self._client.create(POD, pod)
        address = await asyncio.to_thread(self._lab.add_pod, f"{self._namespace}/{name}")
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        key = Key(self._namespace, name)
        await self._client.patch(POD, key, {"status": status}, subresource="status")
        return address

    async def patch(self, kind: Kind, name: str, patch: Manifest) -> None:
        """Merge a patch into an object."""
        await self._client.patch(kind, Key(self._namespace, name), patch)

    async def becomes(
        self, reachable: bool, address: str, port: int = 8080, *, patience: float = _PATIENCE
    ) -> None:
        """Wait until the pod `client` can connect, or cannot."""
        async with asyncio.timeout(patience):
            while await self.reaches(address, port) is not reachable:
                pass

    async def reaches(self, address: str, port: int = 8080) -> bool:
        """Return whether the pod `client` can connect now."""
        client = f"{self._namespace}/client"
        return await asyncio.to_thread(self._lab.reaches, client, address, port)


@pytest.fixture
async def users(
    lab: Lab, kube_apiserver: ControlPlane, kube_client: Client, kube_namespace: str
) -> AsyncIterator[Users]:
    """Run the network operator, and the pod `client`; a policy written by hand is enforced."""
    crds = (Network, Firewall, ProviderNetwork, build_loose_crd(INSTANCE, None, ("status",)))
    await serve(kube_client, *crds)
    users = Users(kube_client, kube_namespace, lab)
    await users.add_pod("client")
    # What stops this packet owes nothing to the operator: without it no test here means anything.
    probe = await users.add_pod("probe")
    await users.becomes(True, probe)
    spec = {"podSelector": {"matchLabels": {}}, "policyTypes": ["Ingress"]}
    manifest = build_object(NETWORK_POLICY, "by-hand", kube_namespace, spec=spec)
    held = await kube_client.create(NETWORK_POLICY, manifest)
    await users.becomes(False, probe, patience=_START)
    await kube_client.delete(NETWORK_POLICY, Key(kube_namespace, "by-hand"), uid=uid_of(held))
    await users.becomes(True, probe)
    # Azure NPM ignores a policy that has a block of IPv6, which the default of protected_cidrs has.
    async with OperatorHarness(
        OPERATOR,
        kube_apiserver.config,
        watch_namespaces=(kube_namespace,),
        ip_families="IPv4",
    ):
        yield users


@pytest.mark.apiserver
async def test_packets_pass_as_the_rules_of_a_firewall_say(users: Users) -> None:
    await users.add(NETWORK, "lan", cidrs=["10.10.0.0/16"])
    rule = {"name": "open", "protocol": "TCP", "ports": [8080]}
    await users.add(FIREWALL, "web", networkRef={"name": "lan"}, rules=[rule])
    refs = {"networkRef": {"name": "lan"}, "firewallRef": {"name": "web"}}
    uid = await users.add(INSTANCE, "vm", **refs)
    address = await users.add_pod("vm", uid, "lan")

    await users.becomes(False, address, 9090)
    await users.becomes(True, address, 8080)
    await users.patch(FIREWALL, "web", {"spec": {"rules": [{**rule, "action": "Deny"}]}})
    await users.becomes(False, address, 8080)


@pytest.mark.apiserver
async def test_network_closes_its_own_machines_and_no_others(users: Users) -> None:
    await users.add(NETWORK, "lan", cidrs=["10.10.0.0/16"], isolation="Network")
    stranger = await users.add_pod("stranger", "a-uid")
    fresh = await users.add_pod("fresh", "b-uid", "lan")

    await users.becomes(False, fresh)
    assert await users.reaches(stranger)


@pytest.mark.apiserver
async def test_machine_without_network_stays_closed_while_it_changes_its_firewall(
    users: Users,
) -> None:
    rule = {"name": "open", "protocol": "TCP", "ports": [8080]}
    await users.add(FIREWALL, "web", networkRef={"name": "lan"}, rules=[rule])
    uid = await users.add(INSTANCE, "vm", firewallRef={"name": "web"})
    address = await users.add_pod("vm", uid)
    await users.becomes(False, address, 9090)
    await users.becomes(True, address, 8080)

    await users.patch(INSTANCE, "vm", {"spec": {"firewallRef": {"name": "absent"}}})
    await users.becomes(False, address, 8080)
    assert not await users.reaches(address, 9090)
    other = {**rule, "ports": [9090]}
    await users.add(FIREWALL, "absent", networkRef={"name": "lan"}, rules=[other])
    await users.becomes(True, address, 9090)
    assert not await users.reaches(address, 8080)
