"""Rows 3, 6, 9, 13 and 27: what the charts of all operators grant and run, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

import pytest

from libs.common.kinds import POD, Manifest, build_object
from libs.common.testing.helm import CHARTS, render_chart
from tests.charts.base import EVERYTHING
from tests.security.roles import find_offenses

_OPERATORS = sorted(
    path.parent.name
    for path in CHARTS.glob("*/Chart.yaml")
    if path.parent.name != "operator-common"
)
_ROLE: Final = ("ClusterRole",)
_CATALOG: Final = {
    "compute": "instancesizes",
    "ipam": "ippools",
    "network": "providernetworks",
}
"""Kind of the cluster that users name in their objects and may all read (rbac.catalogGroups)."""
_WAIVED = {
    "jmxexporter": {
        "can add ephemeral containers": "that is how it gets into a running JVM",
        "reads or writes secrets": "one Secret by name, with the key that signs configurations",
    },
    "pulsarconsumer": {
        "reads or writes secrets": "it hands credentials of one namespace to the consumers there",
    },
    "compute": {"reads or writes secrets": "it keeps the start-up data of instances"},
    "clusters": {"reads or writes secrets": "it keeps the kubeconfigs of clusters"},
    "network": {"can change network policies": "they are what it makes"},
}
"""What an operator is for, by operator and offense, with the reason."""
_WATCHES: Mapping[str, Mapping[str, Any]] = {
    "own-namespace": {},
    "listed": {"namespaces": ["one", "two"]},
    "selected": {"namespaceSelector": {"matchLabels": {"tenant": "yes"}}},
    "cluster-wide": {"clusterWide": True},
}
_POD: Manifest = build_object(
    POD,
    "a",
    spec={
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "main",
                "image": "example.com/a:1.2",
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    },
)


@pytest.mark.parametrize("operator", _OPERATORS)
@pytest.mark.parametrize("watch", _WATCHES.values(), ids=_WATCHES)
def test_chart_grants_and_runs_nothing_dangerous(operator: str, watch: Mapping[str, Any]) -> None:
    waived = dict(_WAIVED.get(operator, {}))
    if "namespaces" in watch:
        waived["can change roles"] = "it keeps a finalizer on its own binding (ADR 0070)"
    values = {**EVERYTHING, "watch": watch}
    offenses = [
        offense
        for manifest in render_chart(operator, values, namespace="team-a")
        for offense in find_offenses(manifest)
        if offense.partition(": ")[2] not in waived and offense not in _catalog_binding(operator)
    ]

    assert offenses == []


def _catalog_binding(operator: str) -> tuple[str, ...]:
    plural = _CATALOG.get(operator)
    return (f"ClusterRoleBinding {operator}-{plural}-viewer: binds to a Group",) if plural else ()


@pytest.mark.parametrize(("operator", "plural"), _CATALOG.items())
def test_everybody_reads_the_catalog_and_nothing_else(operator: str, plural: str) -> None:
    manifests = render_chart(operator, EVERYTHING, namespace="team-a")
    (role,) = (
        each["roleRef"]["name"]
        for each in manifests
        if each["kind"] == "ClusterRoleBinding"
        and any(subject["kind"] == "Group" for subject in each["subjects"])
    )
    (rules,) = (
        each["rules"]
        for each in manifests
        if each["kind"] == "ClusterRole" and each["metadata"]["name"] == role
    )

    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert {resource for rule in rules for resource in rule["resources"]} == {
        plural,
        f"{plural}/status",
    }


def build_role(group: str, resource: str, *verbs: str) -> Manifest:
    rule = {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
    return {"kind": "Role", "metadata": {"name": "a"}, "rules": [rule]}


@pytest.mark.parametrize(
    "rule",
    [
        ("*", "pods", "get"),
        ("", "*", "get"),
        ("", "pods", "*"),
        ("", "secrets", "list"),
        ("", "pods/exec", "create"),
        ("", "pods/portforward", "create"),
        ("", "pods/ephemeralcontainers", "patch"),
        ("", "nodes/proxy", "get"),
        ("", "serviceaccounts/token", "create"),
        ("", "serviceaccounts", "create"),
        ("", "events", "delete"),
        ("", "namespaces", "patch"),
        ("", "nodes", "patch"),
        ("", "persistentvolumes", "delete"),
        ("", "pods", "deletecollection"),
        ("networking.k8s.io", "networkpolicies", "delete"),
        ("rbac.authorization.k8s.io", "roles", "escalate"),
        ("rbac.authorization.k8s.io", "clusterrolebindings", "create"),
        ("apiextensions.k8s.io", "customresourcedefinitions", "update"),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "patch"),
    ],
)
def test_dangerous_permission_is_found(rule: tuple[str, ...]) -> None:
    assert find_offenses(build_role(*rule)) != []


def test_binding_of_an_admin_role_or_to_everybody_is_found() -> None:
    account = {"kind": "ServiceAccount", "name": "default"}
    binding = {"kind": "ClusterRoleBinding", "metadata": {"name": "a"}}

    assert find_offenses({**binding, "roleRef": {"name": "cluster-admin"}}) != []
    assert find_offenses({**binding, "roleRef": {"name": "a"}, "subjects": [account]}) != []


@pytest.mark.parametrize(
    "change",
    [
        {"securityContext": {}},
        {"hostNetwork": True},
        {"volumes": [{"name": "node", "hostPath": {"path": "/"}}]},
        {"image": "example.com/a:latest"},
        {"image": "example.com:5000/a"},
        {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]},
        {"envFrom": [{"secretRef": {"name": "a"}}]},
        {"container": {"privileged": True}},
        {"container": {"readOnlyRootFilesystem": False}},
        {"container": {"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}}},
    ],
    ids=str,
)
def test_dangerous_pod_is_found(change: dict[str, Any]) -> None:
    assert find_offenses(_POD) == []
    pod = copy.deepcopy(_POD)
    container = pod["spec"]["containers"][0]
    if "container" in change:
        container["securityContext"] |= change["container"]
    elif {"image", "env", "envFrom"} & change.keys():
        container |= change
    else:
        pod["spec"] |= change

    assert find_offenses(pod) != []


def test_every_waiver_is_for_a_chart_of_ours() -> None:
    known = {"jmxexporter", "pulsarconsumer", "compute", "clusters", "network", "ipam"}

    assert set(_WAIVED) <= known | set(_OPERATORS)
    assert all(reason for waived in _WAIVED.values() for reason in waived.values())


@pytest.mark.parametrize("operator", _OPERATORS)
def test_every_role_for_users_is_in_the_table(operator: str) -> None:
    page = (CHARTS.parent / "docs" / "howto" / "install.md").read_text(encoding="utf-8")
    table = page.partition("### Roles for users")[2].partition("\n### ")[0]
    values = {"rbac": {"userRoles": True, "teamRoles": True}}
    before, after = (
        {one["metadata"]["name"]: one for one in render_chart(operator, each, show_only=_ROLE)}
        for each in ({}, values)
    )
    for name in after.keys() - before.keys():
        labels = after[name]["metadata"]["labels"]
        joins = {each.rpartition("aggregate-to-")[2] for each in labels if "aggregate-to-" in each}
        general = {
            frozenset({"view"}): "ID-PLURAL-viewer",
            frozenset({"edit", "admin"}): "ID-PLURAL-editor",
        }
        shown = general.get(frozenset(joins), "") if name.count("-") == 2 else ""
        assert f"`{shown or name.replace(operator, 'ID', 1)}`" in table or f"`{name}`" in table
