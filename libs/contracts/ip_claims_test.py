"""The view of IPClaim."""

from __future__ import annotations

from libs.contracts.ip_claims import IP_CLAIM, IpClaimView

CLAIM = {
    "metadata": {"name": "web", "namespace": "default", "uid": "u", "generation": 2},
    "spec": {"poolRef": {"name": "public"}, "target": {"kind": "Instance", "name": "web"}},
    "status": {
        "address": "203.0.113.7",
        "conditions": [
            {"type": "Ready", "status": "True", "observedGeneration": 2},
            {"type": "Bound", "status": "True", "observedGeneration": 1, "message": "old"},
        ],
        "binding": {"state": "Bound", "vmiUID": "v", "nodeName": "n1"},
    },
}


def test_claim_shows_its_address_and_where_it_leads() -> None:
    view = IpClaimView.parse(CLAIM)

    assert (view.address, view.pool, view.target) == ("203.0.113.7", "public", "Instance/web")
    assert (view.vmi_uid, view.node) == ("v", "n1")


def test_condition_of_an_older_spec_does_not_hold() -> None:
    """A claim that was just pointed elsewhere is not bound there yet."""
    view = IpClaimView.parse(CLAIM)

    assert view.ready
    assert not view.bound


def test_anything_that_does_not_fit_counts_as_absent() -> None:
    metadata = {"name": "web", "namespace": "default"}
    view = IpClaimView.parse({"metadata": metadata, "spec": 7, "status": {"address": 7}})

    assert (view.address, view.target, view.ready, view.bound) == ("", "", False, False)
    assert IP_CLAIM.namespaced
