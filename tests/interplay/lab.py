"""Nodes and pods as network namespaces of this machine, beside a real API server.

No kubelet runs. Programs of nodes, such as a network plugin, run in the namespace of their node and
reach the API server at the address that it has on this machine. Pods are routed, without a bridge:
each node has the addresses 10.99.N.0/24 and fd99:N::/64, and forwards to the other nodes.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final

from libs.common.client import Client
from libs.common.errors import AlreadyExists
from libs.common.kinds import NODE, Key, build_object
from libs.common.testing.apiserver import ControlPlane, find_assets

UPLINK: Final = "198.18.0"
"""First three bytes of the addresses that nodes and the host outside have on their link."""
OUTSIDE: Final = f"{UPLINK}.100"
"""Address of the host outside of the cluster."""
_SERVE: Final = """
import socket, sys, threading
def serve(port):
    listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    while True:
        connection, client = listener.accept()
        connection.sendall(f"{sys.argv[1]} {client[0].removeprefix('::ffff:')}".encode())
        connection.close()
threads = [threading.Thread(target=serve, args=(int(port),)) for port in sys.argv[2:]]
[thread.start() for thread in threads]
print("ready", flush=True)
"""
_CONNECT: Final = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 2) as connection:
        print(connection.recv(200).decode())
except OSError:
    pass
"""
_PING: Final = """
import socket, struct, sys
address = sys.argv[1]
v6 = ":" in address
family, protocol = (socket.AF_INET6, 58) if v6 else (socket.AF_INET, 1)
body = struct.pack("!BBHHH", 128 if v6 else 8, 0, 0, 77, 1)
total = sum(struct.unpack("!4H", body))
total = (total >> 16) + (total & 0xFFFF)
body = body if v6 else body[:2] + struct.pack("!H", ~total & 0xFFFF) + body[4:]
probe = socket.socket(family, socket.SOCK_RAW, protocol)
probe.settimeout(2)
probe.sendto(body, (address, 0))
try:
    while True:
        data, sender = probe.recvfrom(2000)
        kind = data[0] if v6 else data[20]
        if sender[0] == address and kind == (129 if v6 else 0):
            print("answered")
            break
except OSError:
    pass
"""


def run(*command: str) -> str:
    """Run a command and return what it prints."""
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return found.stdout.strip()


class Lab:
    """Nodes on one link with a host outside, and pods behind the nodes.

    Args:
        plane: API server that programs of the nodes ask.
        nodes: Number of nodes, named node-1 and so on.
    """

    _pods_of: ClassVar[Counter[str]] = Counter()
    """Number of pods that each node had in any lab. An address is given to one pod only, because
    earlier pods stay in the API server, and their policies would apply to another pod."""

    def __init__(self, plane: ControlPlane, nodes: int = 1) -> None:
        """Name the namespaces after this process, so that two runs do not meet."""
        self._plane = plane
        self._id = os.getpid()
        self.nodes = {f"node-{number}": number for number in range(1, nodes + 1)}
        self._pods: dict[str, str] = {}
        self._processes: list[subprocess.Popen[str]] = []
        self._listeners: list[socket.socket] = []
        self._prepared: list[tuple[str, list[str], Path, Mapping[str, str]]] = []

    def start(self) -> None:
        """Create the nodes, the link and the host outside."""
        run("ip", "netns", "add", self._link)
        self._inside(self._link, "ip", "link", "add", "br0", "type", "bridge")
        self._inside(self._link, "ip", "link", "set", "br0", "up")
        self._join(self._outside, 100)
        for name, number in self.nodes.items():
            self._join(self._node(name), number)
            for setting in ("ipv4.ip_forward", "ipv6.conf.all.forwarding"):
                self.on_node(name, "sysctl", "-qw", f"net.{setting}=1")
            # The kubelet leaves this chain, so that others know which iptables is in use.
            self.on_node(name, "iptables-nft", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT")
            self._forward_api(name)
        for name, number in self.nodes.items():
            for other, there in self.nodes.items():
                if other != name:
                    for pods, via in (
                        (f"10.99.{there}.0/24", f"{UPLINK}.{there}"),
                        (f"fd99:{there}::/64", f"fd18::{there}"),
                    ):
                        self.on_node(name, "ip", "route", "add", pods, "via", via)
            self._inside(
                self._outside, *("ip", "route", "add", f"10.99.{number}.0/24"), "via", f"{UPLINK}.1"
            )

    def stop(self) -> None:
        """End all processes and remove the namespaces."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
            if process.stdout is not None:
                process.stdout.close()
        for listener in self._listeners:
            listener.close()
        nodes = [self._node(name) for name in self.nodes]
        for name in (*self._pods.values(), *nodes, self._outside, self._link):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    async def register(self, client: Client) -> None:
        """Create the Nodes in the API, and start the programs that wait for them, once."""
        for name, number in self.nodes.items():
            node = build_object(NODE, name, spec={"podCIDRs": [f"10.99.{number}.0/24"]})
            with suppress(AlreadyExists):
                await client.create(NODE, node)
            ips = (f"{UPLINK}.{number}", f"fd18::{number}")
            addresses = [{"type": "InternalIP", "address": each} for each in ips]
            conditions = [{"type": "Ready", "status": "True"}]
            status = {"addresses": addresses, "conditions": conditions}
            await client.patch(NODE, Key("", name), {"status": status}, subresource="status")
        prepared, self._prepared = self._prepared, []
        for program in prepared:
            self._start(*program)

    def prepare(
        self, node: str, command: list[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Run a program on a node from the moment that the Nodes are registered."""
        self._prepared.append((node, command, log, environment or {}))

    def prepare_proxies(self, kubeconfig: Path, folder: Path) -> None:
        """Run kube-proxy on each node from the moment that the Nodes are registered."""
        for node in self.nodes:
            proxy = [str(find_assets() / "kube-proxy"), f"--kubeconfig={kubeconfig}"]
            proxy += [f"--hostname-override={node}", "--proxy-mode=iptables"]
            proxy += ["--cluster-cidr=10.99.0.0/16", "--conntrack-max-per-core=0"]
            self.prepare(node, [*proxy, "--conntrack-min=0"], folder / f"{node}-proxy.log")

    def route_outside(self, block: str, node: str) -> None:
        """Route a block of addresses from the host outside to a node, as routers do."""
        self._inside(self._outside, "ip", "route", "add", block, "via", self.address_of(node))

    def _start(
        self, node: str, command: list[str], log: Path, environment: Mapping[str, str]
    ) -> None:
        with log.open("w") as output:
            self._spawn(self._node(node), command, environment, output)

    def address_of(self, node: str) -> str:
        """Return the IPv4 address of a node."""
        return f"{UPLINK}.{self.nodes[node]}"

    def on_node(self, node: str, *command: str) -> str:
        """Run a command on a node."""
        return self._inside(self._node(node), *command)

    def add_pod(
        self, name: str, node: str = "node-1", ports: Sequence[int] = (8080, 9090)
    ) -> tuple[str, str]:
        """Create the namespace of a pod that listens on some ports; returns its two addresses."""
        number, there = len(self._pods) + 1, self.nodes[node]
        self._pods_of[node] += 1
        last = self._pods_of[node] + 1
        inner, link = f"p{number}-{self._id}", f"veth{number}"
        four, six = f"10.99.{there}.{last}", f"fd99:{there}::{last}"
        run("ip", "netns", "add", inner)
        self._pods[name] = inner
        self._wire(self._node(node), link, inner)
        for address, gateway, length in ((four, "169.254.1.1", 32), (six, "fe80::1", 128)):
            self.on_node(
                node,
                *("ip", "addr", "add", f"{gateway}/{32 if length == 32 else 64}"),
                "dev",
                link,
                *(() if length == 32 else ("nodad",)),
            )
            self.on_node(node, "ip", "route", "add", f"{address}/{length}", "dev", link)
            nodad = () if length == 32 else ("nodad",)
            for command in (
                ("addr", "add", f"{address}/{length}", "dev", "eth0", *nodad),
                ("route", "add", f"{gateway}/{length}", "dev", "eth0"),
                ("route", "add", "default", "via", gateway, "dev", "eth0"),
            ):
                self._inside(inner, "ip", *(("-6",) if length == 128 else ()), *command)
        process = self._spawn(inner, [sys.executable, "-c", _SERVE, name, *map(str, ports)])
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        return four, six

    def ask(self, client: str, address: str, port: int) -> str:
        """Connect from a pod, or from outside; returns who answered whom, or nothing."""
        return self._probe(client, _CONNECT, address, str(port))

    def pings(self, client: str, address: str) -> bool:
        """Return whether an address answers an ICMP echo request of a pod, or from outside."""
        return bool(self._probe(client, _PING, address))

    def _probe(self, client: str, script: str, *arguments: str) -> str:
        inner = self._pods[client] if client else self._outside
        return self._inside(inner, sys.executable, "-c", script, *arguments)

    @property
    def _link(self) -> str:
        return f"l{self._id}"

    @property
    def _outside(self) -> str:
        return f"o{self._id}"

    def _node(self, name: str) -> str:
        return f"n{self.nodes[name]}-{self._id}"

    def _inside(self, namespace: str, *command: str) -> str:
        return run("ip", "netns", "exec", namespace, *command)

    def _wire(self, outer: str, link: str, inner: str) -> None:
        """Connect the interface eth0 of a namespace with an interface of another."""
        peer = ("type", "veth", "peer", "name", "eth0", "netns", inner)
        run("ip", "link", "add", link, "netns", outer, *peer)
        self._inside(outer, "ip", "link", "set", link, "up")
        for name in ("lo", "eth0"):
            self._inside(inner, "ip", "link", "set", name, "up")

    def _join(self, namespace: str, number: int) -> None:
        """Create a namespace on the link that all nodes share."""
        run("ip", "netns", "add", namespace)
        self._wire(self._link, f"port{number}", namespace)
        self._inside(self._link, "ip", "link", "set", f"port{number}", "master", "br0")
        for address in (f"{UPLINK}.{number}/24", f"fd18::{number}/64"):
            nodad = ("nodad",) if ":" in address else ()
            self._inside(namespace, "ip", "addr", "add", address, "dev", "eth0", *nodad)

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

    def _forward_api(self, node: str) -> None:
        """Let a node reach the API server at the address that it has on this machine."""
        port = int(self._plane.url.rpartition(":")[2])
        ready: list[socket.socket] = []

        def listen() -> None:
            # This thread alone enters the namespace; a socket stays in the one it was made in.
            with Path("/run/netns", self._node(node)).open() as namespace:
                os.setns(namespace.fileno(), os.CLONE_NEWNET)
            ready.append(socket.create_server(("127.0.0.1", port)))

        thread = threading.Thread(target=listen)
        thread.start()
        thread.join(10)
        assert ready, f"nothing listens in the namespace of {node}"
        self._listeners += ready
        threading.Thread(target=_accept, args=(ready[0], port), daemon=True).start()


def _accept(listener: socket.socket, port: int) -> None:
    with suppress(OSError):
        while True:
            inside, _ = listener.accept()
            threading.Thread(target=_relay, args=(inside, port), daemon=True).start()


def _relay(inside: socket.socket, port: int) -> None:
    """Copy in both directions until both ends are done, and close them."""
    with inside, suppress(OSError), socket.create_connection(("127.0.0.1", port)) as outside:
        back = threading.Thread(target=_pump, args=(outside, inside), daemon=True)
        back.start()
        _pump(inside, outside)
        back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
