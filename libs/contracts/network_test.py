"""Views of networks and firewalls: what they show, and that nothing makes them fail."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from libs.common.kinds import Manifest
from libs.contracts.network import FirewallView, NetworkView, RouteView

values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def build(**parts: Any) -> Manifest:
    metadata = {"name": "web", "namespace": "default", "uid": "u", "generation": 2}
    return {"metadata": metadata, **parts}


def test_network_is_isolated_for_the_generation_that_was_looked_at() -> None:
    condition = {"type": "Isolated", "status": "True", "observedGeneration": 1}
    stale = build(status={"conditions": [condition]})
    fresh = build(status={"conditions": [{**condition, "observedGeneration": 2}]})

    assert not NetworkView.parse(stale).isolated
    assert NetworkView.parse(fresh).isolated


def test_network_shows_routes() -> None:
    routes = [
        {"destination": "10.1.0.0/16", "nextHop": "10.0.0.9", "reason": "Resolved"},
        {"destination": "10.2.0.0/16", "reason": "RoutesNotApplied"},
        {"destination": "10.3.0.0/16", "reason": "InstanceNotFound"},
    ]

    view = NetworkView.parse(build(status={"routes": routes, "nadRef": {"name": "network-lan"}}))

    assert view.attachment == "network-lan"
    assert view.routes == (
        RouteView("10.1.0.0/16", "10.0.0.9", True),
        RouteView("10.2.0.0/16", "", False),
        RouteView("10.3.0.0/16", "", False),
    )


def test_network_shows_what_guests_are_configured_with() -> None:
    spec = {
        "backend": "Multus",
        "cidrs": ["10.0.0.0/16", "fd00::/64"],
        "poolRef": {"name": "lan"},
        "gateway": "10.0.0.1",
        "nameservers": ["10.0.0.2", "fd00::2"],
        "mtu": 1400,
    }

    view = NetworkView.parse(build(spec=spec))

    assert view.cidrs == ("10.0.0.0/16", "fd00::/64")
    assert (view.pool, view.gateway, view.mtu) == ("lan", "10.0.0.1", 1400)
    assert view.nameservers == ("10.0.0.2", "fd00::2")
    assert NetworkView.parse(build(spec={"mtu": True})).mtu == 0
    assert NetworkView.parse(build(spec={}, status={"mtu": 9000})).mtu == 9000


def test_binding_is_masquerade_unless_the_network_says_otherwise() -> None:
    for spec, binding in (
        ({}, "Masquerade"),
        ({"backend": "PodNetwork"}, "Masquerade"),
        ({"backend": "PodNetwork", "binding": "Passt"}, "Passt"),
        ({"backend": "Multus"}, "Bridge"),
    ):
        assert NetworkView.parse(build(spec=spec)).binding == binding


@given(spec=values, status=values)
def test_views_never_fail(spec: Any, status: Any) -> None:
    manifest = build(spec=spec, status=status if isinstance(status, dict) else {})

    NetworkView.parse(manifest)
    FirewallView.parse(manifest)
