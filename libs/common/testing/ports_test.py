"""Free ports stay free until a test binds them."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from libs.common.testing import ports
from libs.common.testing.ports import find_free_port


def test_port_is_not_one_of_those_that_outgoing_connections_get() -> None:
    found = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(found.read_text().split()[0]) if found.exists() else 32_768

    assert all(1024 < find_free_port() < first for _ in range(20))


def test_processes_with_the_same_seed_choose_different_ports() -> None:
    found = set()
    for _ in range(5):
        random.seed(0)
        found.add(find_free_port())

    assert len(found) > 1


def test_port_can_be_bound() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", find_free_port()))


def test_ports_that_a_test_process_has_chosen_are_not_chosen_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ports, "_PORTS", range(20_000, 20_200))
    found = [find_free_port() for _ in range(50)]

    assert len(set(found)) == len(found)
