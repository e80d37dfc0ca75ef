"""Network data as commands: what the guest runs for each setting."""

from __future__ import annotations

import pytest

from lab.guest.nocloud.network import Link, Unsupported, plan_network

ETH0 = Link("eth0", "02:00:00:00:00:01")
ETH1 = Link("eth1", "02:00:00:00:00:02")


def test_without_data_each_interface_asks_dhcp() -> None:
    network = plan_network(None, [ETH0, ETH1])

    assert [command[:3] for command in network.commands] == [
        ("udhcpc", "-i", "eth0"),
        ("udhcpc", "-i", "eth1"),
    ]


def test_static_address_gateway_routes_mtu_and_name_servers() -> None:
    data = {
        "version": 2,
        "ethernets": {
            "lan": {
                "match": {"macaddress": "02:00:00:00:00:02"},
                "mtu": 1400,
                "addresses": ["10.1.0.5/24", "fd00::5/64"],
                "gateway4": "10.1.0.1",
                "routes": [
                    {"to": "10.9.0.0/16", "via": "10.1.0.2", "metric": 50},
                    {"to": "default", "via": "fd00::1"},
                ],
                "nameservers": {"addresses": ["10.1.0.53"], "search": ["example.com"]},
            }
        },
    }

    network = plan_network(data, [ETH0, ETH1])

    assert [" ".join(command) for command in network.commands] == [
        "ip link set eth1 mtu 1400",
        "ip link set eth1 up",
        "ip addr replace 10.1.0.5/24 dev eth1",
        "ip addr replace fd00::5/64 dev eth1",
        "ip -4 route replace 0.0.0.0/0 via 10.1.0.1 dev eth1 onlink",
        "ip -4 route replace 10.9.0.0/16 via 10.1.0.2 dev eth1 onlink metric 50",
        "ip -6 route replace ::/0 via fd00::1 dev eth1 onlink",
    ]
    assert (network.nameservers, network.search) == (("10.1.0.53",), ("example.com",))


def test_interface_is_found_by_name_and_the_key_network_is_optional() -> None:
    data = {"network": {"version": 2, "ethernets": {"eth0": {"dhcp4": True}}}}

    network = plan_network(data, [ETH0])

    assert [command[0] for command in network.commands] == ["ip", "udhcpc"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"version": 1, "config": []}, "version 1"),
        ({"version": 2, "bonds": {}}, "bonds"),
        ({"version": 2, "ethernets": {"eth7": {"dhcp4": True}}}, "eth7"),
        (["eth0"], "mapping"),
    ],
)
def test_what_is_not_read_is_named(data: object, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        plan_network(data, [ETH0])
