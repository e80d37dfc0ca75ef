"""Workload of the network operator: a firewall gains an instance, changes, and goes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from lab.sweep.faults import is_foreign
from lab.sweep.recorder import NamespaceRecord, Version
from lab.sweep.workload import Phase, User, Workload, build_open_crd, change, is_empty, is_observed
from libs.common.crd import build_crd
from libs.common.kinds import NETWORK_POLICY, Manifest, uid_of
from libs.common.reading import text_at
from libs.common.testing.blurring import UIDS, blur
from libs.contracts.compute import INSTANCE
from libs.contracts.multus import MULTI_NETWORK_POLICY, NETWORK_ATTACHMENT_DEFINITION
from libs.contracts.network import FirewallView, NetworkView
from operators.network.api.v1alpha1 import (
    FIREWALL,
    NETWORK,
    PROVIDER_NETWORK,
    Firewall,
    Network,
    ProviderNetwork,
)
from operators.network.controller import OPERATOR
from operators.network.resources import list_selected

_DENY: Final = "network-lan-deny"


def check_closed(history: Sequence[Version]) -> list[str]:
    """Check that what closes instances opens nothing, in any version that we wrote."""
    found = []
    for version in history:
        closing = version.name == _DENY or version.name.startswith("closed-")
        if version.kind != NETWORK_POLICY or not closing or is_foreign(version):
            continue
        spec = version.manifest["spec"]
        if spec.get("ingress") or spec.get("egress"):
            found.append(f"{version.title} opens something")
    return found


def check_rules(history: Sequence[Version]) -> list[str]:
    """Check that the policy of the firewall never opens a port that no rule ever named."""
    found = []
    for version in history:
        if version.kind != NETWORK_POLICY or version.name != "firewall-web" or is_foreign(version):
            continue
        for rule in version.manifest["spec"].get("ingress") or ():
            ports = {port.get("port") for port in rule.get("ports") or ()}
            if not ports or not ports <= {22, 443, 8443}:
                found.append(f"{version.title} opens {ports or 'everything'}")
    return found


def check_never_open(history: Sequence[Version]) -> list[str]:
    """Check that an instance that names a firewall, once selected, is always selected.

    What a fault deletes or puts in the way is no fault of the operator; nothing is judged after it.
    """
    policies: dict[str, set[str]] = {}
    guarded: set[str] = set()
    selected: set[str] = set()
    for version in sorted(history, key=lambda each: each.number):
        if version.kind == INSTANCE:
            named = bool(text_at(version.manifest, "spec", "firewallRef", "name"))
            uid = uid_of(version.manifest)
            if named and version.action != "DELETED":
                guarded.add(uid)
            else:
                guarded.discard(uid)
                selected.discard(uid)
        if version.kind != NETWORK_POLICY:
            continue
        if is_foreign(version):
            return []
        gone = version.action == "DELETED"
        policies[version.name] = set() if gone else set(list_selected(version.manifest))
        now = set[str]().union(*policies.values())
        if selected & guarded - now:
            return [f"{version.title} left an instance that names a firewall open"]
        selected |= now
    return []


def _rule(port: int) -> Manifest:
    return {"name": "only", "protocol": "TCP", "ports": [port]}


async def _create(user: User) -> None:
    await user.create(NETWORK, "lan", {"cidrs": ["10.0.0.0/16"]})
    spec = {"networkRef": {"name": "lan"}, "rules": [_rule(22)]}
    await user.create(FIREWALL, "web", spec)


async def _join(user: User) -> None:
    refs = {"networkRef": {"name": "lan"}, "firewallRef": {"name": "web"}}
    await user.create(INSTANCE, "vm", refs)


_change = change(FIREWALL, "web", rules=[_rule(443)])
_probe = change(FIREWALL, "web", rules=[_rule(8443)])


async def _delete(user: User) -> None:
    for kind, name in ((NETWORK, "lan"), (FIREWALL, "web"), (INSTANCE, "vm")):
        await user.delete(kind, name)


async def _create_two(user: User) -> None:
    for name in ("web", "db"):
        await user.create(FIREWALL, name, {"networkRef": {"name": "lan"}, "rules": [_rule(22)]})
    await user.create(INSTANCE, "vm", {"firewallRef": {"name": "web"}})


async def _delete_two(user: User) -> None:
    for kind, name in ((FIREWALL, "web"), (FIREWALL, "db"), (INSTANCE, "vm")):
        await user.delete(kind, name)


def _is_closed_by(name: str, *, port: int = 22) -> Any:
    """Return a condition: the instance without Network is closed and opened by one firewall."""

    def check(record: NamespaceRecord) -> bool:
        instance = record.get(INSTANCE, "vm")
        selecting = {
            policy["metadata"]["name"]
            for policy in record.list(NETWORK_POLICY)
            if instance is not None and uid_of(instance) in list_selected(policy)
        }
        firewalls = record.list(FIREWALL)
        web = record.get(NETWORK_POLICY, "firewall-web")
        opened = [] if web is None else web["spec"].get("ingress") or []
        return (
            selecting == {f"firewall-{name}", f"closed-firewall-{name}"}
            and len(firewalls) == 2
            and all(is_observed(each, ready=False) for each in firewalls)
            and [each.get("ports") for each in opened] == [[{"protocol": "TCP", "port": port}]]
            and not any(
                each["metadata"]["name"].startswith("closed-")
                for each in record.list(NETWORK_POLICY)
                if not list_selected(each)
            )
        )

    return check


async def _delete_attached(user: User) -> None:
    await _delete(user)
    await user.delete(PROVIDER_NETWORK, user.scoped("fabric"))


def _has_port(port: int, *, joined: bool) -> Any:
    """Return a condition: the policy opens the port, for the instance or for nobody."""

    def check(record: NamespaceRecord) -> bool:
        policy, firewall = record.get(NETWORK_POLICY, "firewall-web"), record.get(FIREWALL, "web")
        network, instance = record.get(NETWORK, "lan"), record.get(INSTANCE, "vm")
        if policy is None or firewall is None or network is None:
            return False
        opened = [each.get("ports") for each in policy["spec"].get("ingress") or ()]
        members = [uid_of(instance)] if instance is not None and joined else []
        bare = record.get(NETWORK_POLICY, "network-lan-open") is not None
        return (
            opened == [[{"protocol": "TCP", "port": port}]]
            and list_selected(policy) == members
            and FirewallView.parse(firewall).protected == set(members)
            and is_observed(firewall)
            and is_observed(network)
            and NetworkView.parse(network).isolated
            and bare == (instance is not None and not joined)
        )

    return check


async def _create_attached(user: User) -> None:
    fabric = user.scoped("fabric")
    # A VLAN of a bridge belongs to one namespace, and so to one trial.
    bridge = user.short_name
    offered = {"bridge": bridge, "vlans": [{"first": 42}], "allowedNamespaces": {}}
    await user.create(PROVIDER_NETWORK, fabric, offered)
    lan = {
        "cidrs": ["10.0.0.0/16"],
        "backend": "Multus",
        "providerNetworkRef": {"name": fabric},
        "vlan": 42,
    }
    await user.create(NETWORK, "lan", lan)
    spec = {"networkRef": {"name": "lan"}, "rules": [_rule(22)]}
    await user.create(FIREWALL, "web", spec)


async def _change_attached(user: User) -> None:
    await _change(user)
    await user.patch(NETWORK, "lan", {"spec": {"mtu": 1400}})


def _is_attached(port: int, *, joined: bool, mtu: int = 0) -> Any:
    """Return a condition: interfaces that Multus attaches are open at the port, and configured."""

    def check(record: NamespaceRecord) -> bool:
        policy, firewall = record.get(MULTI_NETWORK_POLICY, "firewall-web"), record.get(
            FIREWALL, "web"
        )
        networks, attachments = record.list(NETWORK), record.list(NETWORK_ATTACHMENT_DEFINITION)
        instance = record.get(INSTANCE, "vm")
        if policy is None or firewall is None or len(attachments) != 1:
            return False
        opened = [each.get("ports") for each in policy["spec"].get("ingress") or ()]
        members = {uid_of(instance)} if instance is not None and joined else set()
        return (
            opened == [[{"protocol": "TCP", "port": port}]]
            and FirewallView.parse(firewall).protected == members
            and is_observed(firewall)
            and all(map(is_observed, networks))
            and (f'"mtu":{mtu}' in _config_of(attachments[0])) == bool(mtu)
        )

    return check


def _config_of(attachment: Manifest) -> str:
    return str(attachment["spec"]["config"]).replace(" ", "")


def _build(name: str, phases: tuple[Phase, ...]) -> Workload:
    return Workload(
        id=name,
        operator=OPERATOR,
        rules=OPERATOR.rules(),
        crds=(
            build_crd(Network),
            build_crd(Firewall),
            build_crd(ProviderNetwork),
            build_open_crd(INSTANCE),
            build_open_crd(MULTI_NETWORK_POLICY),
            build_open_crd(NETWORK_ATTACHMENT_DEFINITION),
        ),
        primary=FIREWALL,
        children=(
            *(NETWORK_POLICY, MULTI_NETWORK_POLICY, NETWORK_ATTACHMENT_DEFINITION),
            *(NETWORK, INSTANCE),
        ),
        phases=phases,
        invariants=(check_closed, check_rules, check_never_open),
        # Policies name Instances by their UIDs, attachments name the bridge of a trial.
        rewrite=partial(blur, replacements=[UIDS, (re.compile(r"\btrial\d+\b"), "trial")]),
    )


WORKLOADS: Final = (
    _build(
        "firewall",
        (
            Phase("create", _create, _has_port(22, joined=False)),
            Phase("join", _join, _has_port(22, joined=True)),
            Phase("change", _change, _has_port(443, joined=True)),
            Phase("leave", change(INSTANCE, "vm", firewallRef=None), _has_port(443, joined=False)),
            Phase("probe", _probe, _has_port(8443, joined=False), quiet=True),
            Phase("delete", _delete, is_empty),
        ),
    ),
    _build(
        "move",
        (
            Phase("create", _create_two, _is_closed_by("web")),
            Phase("move", change(INSTANCE, "vm", firewallRef={"name": "db"}), _is_closed_by("db")),
            Phase("probe", _probe, _is_closed_by("db", port=8443), quiet=True),
            Phase("delete", _delete_two, is_empty),
        ),
    ),
    _build(
        "multus",
        (
            Phase("create", _create_attached, _is_attached(22, joined=False)),
            Phase("join", _join, _is_attached(22, joined=True)),
            Phase("change", _change_attached, _is_attached(443, joined=True, mtu=1400)),
            Phase("probe", _probe, _is_attached(8443, joined=True, mtu=1400), quiet=True),
            Phase("delete", _delete_attached, is_empty),
        ),
    ),
)
