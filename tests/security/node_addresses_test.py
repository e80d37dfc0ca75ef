"""Addresses of a node in all spellings, and everybody who must not connect to them."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address

import pytest

from libs.common.node_addresses import is_of_node
from libs.contracts.images import Image
from operators.compute.images import explain_refused
from operators.jmxexporter.guard_calls import is_pod_address
from operators.pulsarconsumer.broker.addresses import is_reachable


def _is_image_host(address: str) -> bool:
    host = f"[{address}]" if ":" in address else address
    return not explain_refused(Image(url=f"http://{host}/x"), ())


_USERS: dict[str, Callable[[str], bool]] = {
    "library": lambda address: not is_of_node(ip_address(address)),
    "importer": _is_image_host,
    "guards of JVMs": is_pod_address,
    "admin API of brokers": is_reachable,
}


@pytest.mark.parametrize("user", _USERS)
@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "169.254.169.254",
        "0.0.0.0",  # noqa: S104 nobody binds it
        "224.0.0.1",
        "100.100.100.200",
        "fd00:ec2::254%1",
        "::ffff:169.254.169.254%1",
        "168.63.129.16",
        "::1",
        "::",
        "fe80::1",
        "ff02::1",
        "fd00:ec2::254",
        "::ffff:169.254.169.254",
        "::ffff:127.0.0.1",
        "::ffff:100.100.100.200",
        "::169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::169.254.169.254",
        "64:ff9b::127.0.0.1",
        "2002:a9fe:a9fe::1",
    ],
)
def test_nobody_connects_to_an_address_of_the_node(address: str, user: str) -> None:
    assert not _USERS[user](address)


@pytest.mark.parametrize("user", _USERS)
@pytest.mark.parametrize(
    "address", ["10.1.2.3", "100.64.0.7", "fd00::7", "2001:db8::7", "64:ff9b::203.0.113.7"]
)
def test_addresses_of_pods_and_of_others_are_usable(address: str, user: str) -> None:
    assert _USERS[user](address)
