"""Routes of a Network reach guests: real packets between network namespaces of this machine.

Both operators are real: network resolves the routes, compute writes the network data. The guest is
a network namespace that applies the data with the program of our guest image. KubeVirt does not
take part, and other images with their cloud-init are not tried.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from lab.guest.nocloud.network import Link, plan_network
from libs.common.kinds import Manifest, build_object
from libs.contracts.compute import InstanceView
from libs.contracts.ip_claims import IpClaimView
from libs.contracts.network import NetworkView
from operators.compute.instance.netdata import find_network_data
from operators.compute.instance.observed import Observed
from operators.compute.naming import mac_address
from operators.compute.samples import parse_instance
from operators.ipam.api.v1alpha1.claims import IP_CLAIM
from operators.network.api.v1alpha1 import Network
from operators.network.network.reconcile import Observed as AroundNetwork
from operators.network.network.reconcile import build_status
from operators.network.samples import build_attached, build_instance

GUEST, ROUTER, FAR = "10.10.0.5", "10.10.0.9", "10.20.0.7"
SITE: Final = "10.20.0.0/24"
"""Addresses behind the router, which is a machine of the Network."""
NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
PORT: Final = 8080
_LISTEN: Final = (
    "import socket; s = socket.create_server(('', 8080)); print('ready', flush=True)\n"
    "while True: c, a = s.accept(); c.sendall(a[0].encode()); c.close()"
)
_CONNECT: Final = (
    "import socket, sys\n"
    "try: print(socket.create_connection((sys.argv[1], 8080), 3).recv(99).decode())\n"
    "except OSError as err: print('failed', err.strerror)"
)


def run(*command: str) -> str:
    """Run a command and return what it prints."""
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
    return found.stdout.strip()


class Lab:
    """Three network namespaces: a guest and a router on one link, and a host behind the router.

    Args:
        mac: Address of the guest's interface.
    """

    def __init__(self, mac: str) -> None:
        """Name the namespaces after this process, so that two runs do not meet."""
        self.guest, self.router, self.far = (f"{each}{os.getpid()}" for each in ("g", "r", "f"))
        self.mac = mac

    def build(self) -> None:
        """Create the namespaces and the links between them."""
        for name in self.names:
            run("ip", "netns", "add", name)
            self.inside(name, "ip", "link", "set", "lo", "up")
        self._connect(self.guest, "net1", self.router, "lan")
        self._connect(self.router, "site", self.far, "net1")
        self.inside(self.guest, "ip", "link", "set", "net1", "address", self.mac)
        for name, link, address in (
            (self.router, "lan", f"{ROUTER}/24"),
            (self.router, "site", "10.20.0.1/24"),
            (self.far, "net1", f"{FAR}/24"),
        ):
            self.inside(name, "ip", "addr", "add", address, "dev", link)
            self.inside(name, "ip", "link", "set", link, "up")
        self.inside(self.far, "ip", "route", "add", "default", "via", "10.20.0.1")
        self.inside(self.router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")

    @property
    def names(self) -> tuple[str, str, str]:
        """Names of the namespaces."""
        return self.guest, self.router, self.far

    def inside(self, name: str, *command: str) -> str:
        """Run a command in a namespace."""
        return run("ip", "netns", "exec", name, *command)

    def boot(self, data: Manifest) -> None:
        """Configure the guest from nothing, as its boot does."""
        self.inside(self.guest, "ip", "addr", "flush", "dev", "net1")
        for command in plan_network(data, [Link("net1", self.mac)]).commands:
            self.inside(self.guest, *command)

    def ask(self) -> str:
        """Connect from the guest to the far host; return the address that it saw, or the error."""
        return self.inside(self.guest, sys.executable, "-c", _CONNECT, FAR)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Listen on the far host."""
        command = ("ip", "netns", "exec", self.far, sys.executable, "-c", _LISTEN)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline().strip() == "ready"
                yield
            finally:
                process.terminate()

    def _connect(self, one: str, link: str, other: str, peer: str) -> None:
        ends = ("type", "veth", "peer", "name", peer, "netns", other)
        run("ip", "link", "add", link, "netns", one, *ends)


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Build the namespaces, which takes root."""
    lab = Lab(mac_address(parse_instance().metadata.uid))
    try:
        lab.build()
    except (OSError, subprocess.CalledProcessError) as err:
        pytest.skip(f"network namespaces cannot be created here: {err}")
    try:
        with lab.serving():
            yield lab
    finally:
        for name in lab.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def resolve(routes: Sequence[Manifest], **spec: Any) -> NetworkView:
    """Let the network operator resolve the routes of a Network; the router is an Instance of it."""
    manifest = build_attached(
        cidrs=["10.10.0.0/24"], poolRef={"name": "private"}, routes=list(routes), **spec
    )
    router = InstanceView.parse(build_instance("router", private_ip=ROUTER))
    around = AroundNetwork(instances=(router,))
    status = build_status(Network.parse(manifest), around, None, current=(), now=NOW)
    return NetworkView.parse({**manifest, "status": status})


def write_network_data(network: NetworkView) -> Manifest:
    """Let compute write the network data of a guest."""
    claim = build_object(IP_CLAIM, "web-private", "default", status={"address": GUEST})
    claim["metadata"]["uid"] = "claim"
    observed = replace(Observed(), network=network, private_claim=IpClaimView.parse(claim))
    data = find_network_data(parse_instance(networkRef={"name": "lan"}), observed)
    assert data is not None
    return data


@pytest.mark.parametrize("hop", [{"ip": ROUTER}, {"instanceRef": {"name": "router"}}])
def test_packet_takes_the_route_of_the_network(lab: Lab, hop: Manifest) -> None:
    route = {"destination": SITE, "nextHop": hop}

    lab.boot(write_network_data(resolve([route])))

    assert lab.ask() == GUEST


def test_without_the_route_no_packet_arrives(lab: Lab) -> None:
    lab.boot(write_network_data(resolve([])))

    assert lab.ask() == "failed Network is unreachable"


def test_change_of_the_routes_applies_at_the_next_boot(lab: Lab) -> None:
    lab.boot(write_network_data(resolve([{"destination": SITE, "nextHop": {"ip": ROUTER}}])))
    assert lab.ask() == GUEST
    moved = resolve([{"destination": "10.30.0.0/24", "nextHop": {"ip": ROUTER}}])
    assert lab.ask() == GUEST, "a running guest keeps what it has"

    lab.boot(write_network_data(moved))

    assert lab.ask() == "failed Network is unreachable"


def test_packet_takes_the_gateway_of_the_network(lab: Lab) -> None:
    lab.boot(write_network_data(resolve([], gateway=ROUTER)))

    assert lab.ask() == GUEST


def test_route_to_a_machine_without_an_address_is_left_out(lab: Lab) -> None:
    routes = [{"destination": SITE, "nextHop": {"instanceRef": {"name": "absent"}}}]

    lab.boot(write_network_data(resolve(routes)))

    assert lab.ask() == "failed Network is unreachable"
