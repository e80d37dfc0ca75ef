"""Manifests of policies: the common parts of NetworkPolicy and MultiNetworkPolicy. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from libs.common.kinds import NETWORK_POLICY, Key, Kind, Manifest, build_object
from libs.common.labels import INSTANCE, MANAGED_BY
from libs.common.naming import label_value
from libs.common.ownership import build_owner_reference
from libs.contracts.compute import INSTANCE_UID_LABEL, NETWORK_LABEL
from libs.contracts.multus import MULTI_NETWORK_POLICY, POLICY_FOR
from operators.network.naming import KEPT_FOR, OPERATOR_ID, attachment_name

FAMILIES: Final = frozenset({4, 6})
"""The address families."""
NOBODY: Final = "none"
"""Placeholder for the UID in a policy that selects no instance, because `In` needs a value."""
POLICY_TYPES: Final = ("Ingress", "Egress")
"""Directions of a policy; a policy without rules for a direction denies all its traffic."""


@dataclass(frozen=True, slots=True)
class ClusterDns:
    """The pods of the DNS service of the cluster.

    Attributes:
        port: The port on which they listen; network plugins may compare it instead of 53, the port
            of the Service.
    """

    namespace: str = "kube-system"
    port: int = 53


DEFAULT_DNS: Final = ClusterDns()
"""The DNS service of most clusters."""


@dataclass(frozen=True, slots=True)
class PolicyTarget:
    """The kind of policy that applies to the interfaces of a network.

    Attributes:
        kind: NetworkPolicy, or MultiNetworkPolicy for interfaces that Multus attaches.
        attachment: `namespace/name` of the attachment to which a MultiNetworkPolicy applies.
        families: Families of the addresses on the network; blocks of other families are omitted.
        dns: The pods of the DNS service of the cluster.
    """

    kind: Kind = NETWORK_POLICY
    attachment: str = ""
    families: frozenset[int] = FAMILIES
    dns: ClusterDns = DEFAULT_DNS

    @classmethod
    def of_attachment(cls, network: Key) -> PolicyTarget:
        """Return the target for a network that Multus attaches."""
        name = Key(network.namespace, attachment_name(network.name))
        return cls(MULTI_NETWORK_POLICY, str(name))


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a child.

    Attributes:
        kind: Kind of the owner.
        key: Its namespace and name.
    """

    kind: Kind
    key: Key
    uid: str


def build_policy(
    owner: Owner,
    name: str,
    selector: Manifest,
    *,
    ingress: Sequence[Manifest] = (),
    egress: Sequence[Manifest] = (),
    policy_target: PolicyTarget,
    outlasts: bool = False,
) -> Manifest:
    """Build a policy for both directions.

    Args:
        owner: Network or Firewall that owns the policy.
        name: Name of the policy.
        selector: Selector of its pods.
        ingress: Rules for incoming traffic; empty to deny all.
        egress: Rules for outgoing traffic; empty to deny all.
        policy_target: Kind of policy.
        outlasts: Whether the policy must exist for as long as its owner, even during a foreground
            deletion.
    """
    annotations = {POLICY_FOR: policy_target.attachment} if policy_target.attachment else {}
    metadata = build_metadata(owner, annotations)
    if outlasts:
        # A foreground deletion immediately deletes objects with an owner reference, even if the
        # owner has a finalizer. Only an annotation instead of the reference prevents this.
        del metadata["ownerReferences"]
        metadata["annotations"] = {**annotations, KEPT_FOR: owner.uid}
    # Both lists are written even if they are empty, so that additions by other clients are
    # detected.
    spec = {
        "podSelector": selector,
        "policyTypes": list(POLICY_TYPES),
        "ingress": list(ingress),
        "egress": list(egress),
    }
    return build_object(policy_target.kind, name, owner.key.namespace, metadata=metadata, spec=spec)


def build_metadata(owner: Owner, annotations: Mapping[str, str]) -> Manifest:
    """Build the metadata of a child other than its name."""
    # Not blocking: a foreground deletion deletes the children immediately. The operator recreates
    # them while anything uses their owner; if they blocked its deletion, the garbage collector
    # would delete them again and again.
    reference = build_owner_reference(
        owner.kind, {"metadata": {"name": owner.key.name, "uid": owner.uid}}, block=False
    )
    metadata: Manifest = {
        "labels": {MANAGED_BY: OPERATOR_ID, INSTANCE: label_value(owner.key.name)},
        "ownerReferences": [reference],
    }
    return {**metadata, "annotations": dict(annotations)} if annotations else metadata


def select_instances(uids: Iterable[str]) -> Manifest:
    """Build the selector of the pods of the given instances."""
    values = sorted(uids) or [NOBODY]
    return {"matchExpressions": [{"key": INSTANCE_UID_LABEL, "operator": "In", "values": values}]}


def select_network(name: str) -> Manifest:
    """Build the selector of the pods of every instance of a network, including future ones."""
    return {"matchLabels": {NETWORK_LABEL: label_value(name)}}


def build_network_peers(name: str, unlabelled: Iterable[str]) -> list[Manifest]:
    """Build the peers that select the instances of a network."""
    uids = list(unlabelled)
    selectors = [select_network(name), *([select_instances(uids)] if uids else [])]
    return [{"podSelector": selector} for selector in selectors]


def list_selected(policy: Mapping[str, Any]) -> list[str]:
    """Return the UIDs of the instances that a policy names."""
    selector = (policy.get("spec") or {}).get("podSelector") or {}
    return [
        value
        for rule in selector.get("matchExpressions") or ()
        if rule.get("key") == INSTANCE_UID_LABEL and rule.get("operator") == "In"
        for value in rule.get("values") or ()
        if value != NOBODY
    ]


def opens_anything(policy: Mapping[str, Any]) -> bool:
    """Return whether a policy allows any traffic."""
    spec = policy.get("spec") or {}
    return bool(spec.get("ingress") or spec.get("egress"))


def is_same_policy(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether a policy equals the desired one; additional fields count as a difference."""
    held, asked = dict(live.get("spec") or {}), dict(wanted["spec"])
    for spec in (held, asked):
        for name in ("ingress", "egress"):
            if not spec.get(name):
                spec.pop(name, None)
    annotations = live["metadata"].get("annotations") or {}
    marks = wanted["metadata"].get("annotations") or {}
    return held == asked and all(annotations.get(name) == text for name, text in marks.items())
