"""Tests of permissions: merging, roles and the least-privilege lint."""

from __future__ import annotations

from dataclasses import replace

import pytest

from libs.common.kinds import CLUSTER_ROLE, POD, SECRET, STORAGE_CLASS, Kind
from libs.common.rbac import (
    PolicyRule,
    build_cluster_role,
    build_role,
    children,
    editor_rules,
    grant,
    lint_rules,
    merge_rules,
    operator_namespace_rules,
    own,
    reads,
    render_rules,
)

PODSET = Kind("batch.example.com", "v1", "PodSet", "podsets")


def test_own_grants_reading_status_and_ownership() -> None:
    assert render_rules(own(PODSET)) == [
        _rule("podsets", "get", "list", "watch", "patch"),
        _rule("podsets/finalizers", "update"),
        _rule("podsets/status", "get", "patch"),
    ]


def test_own_does_not_grant_patch_without_finalizer() -> None:
    assert _rule("podsets", "get", "list", "watch") in render_rules(own(PODSET, finalizer=False))


def test_cluster_scoped_kind_is_marked_as_such() -> None:
    assert all(rule.cluster_scoped for rule in reads(STORAGE_CLASS))
    assert not any(rule.cluster_scoped for rule in children(POD, "create"))


def test_lease_is_confined_to_the_operators_own() -> None:
    rules = render_rules(operator_namespace_rules("podset"))

    named = [rule for rule in rules if rule.get("resourceNames")]
    assert named == [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": ["podset"],
            "verbs": ["get", "update", "patch"],
        }
    ]


def test_merge_joins_verbs_and_then_resources() -> None:
    merged = merge_rules(
        [
            grant(POD, "watch", "get"),
            grant(POD, "list", why="to know"),
            PolicyRule(("",), ("services",), ("list", "get", "watch")),
        ]
    )

    assert merged == (PolicyRule(("",), ("pods", "services"), ("get", "list", "watch")),)


def test_merge_does_not_depend_on_order() -> None:
    rules = [*own(PODSET), *children(POD, "create", "delete"), *reads(STORAGE_CLASS)]

    assert merge_rules(rules) == merge_rules(reversed(rules))


def test_merge_keeps_rules_with_names_apart() -> None:
    by_name = replace(grant(POD, "get"), resource_names=("web",))

    assert len(merge_rules([by_name, grant(POD, "get")])) == 2


def test_merge_is_idempotent() -> None:
    once = merge_rules([*own(PODSET), *children(POD, "create")])

    assert merge_rules(once) == once


def test_roles_carry_the_merged_rules() -> None:
    role = build_role("podset", "here", own(PODSET), {"a": "b"})
    cluster_role = build_cluster_role("podset", own(PODSET))

    assert role["kind"] == "Role"
    assert role["metadata"] == {"name": "podset", "namespace": "here", "labels": {"a": "b"}}
    assert cluster_role["kind"] == "ClusterRole"
    assert cluster_role["metadata"] == {"name": "podset"}
    assert role["rules"] == cluster_role["rules"] == render_rules(own(PODSET))


def test_editor_may_scale_only_what_scales() -> None:
    scale = _rule("podsets/scale", "get", "update", "patch")

    assert scale in render_rules(editor_rules(PODSET, scale=True))
    assert scale not in render_rules(editor_rules(PODSET))


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (PolicyRule(("",), ("*",), ("get",)), "wildcards"),
        (PolicyRule(("*",), ("pods",), ("get",)), "wildcards"),
        (PolicyRule(("",), ("pods",), ("*",)), "escalate its own permissions"),
        (PolicyRule(("",), ("users",), ("impersonate",)), "escalate its own permissions"),
        (PolicyRule(("",), ("roles",), ("bind",), why="x"), "escalate its own permissions"),
        (PolicyRule(("",), ("roles",), ("escalate",), why="x"), "escalate its own permissions"),
        (PolicyRule(("",), ("pods",), ("list",), ("web",)), "restricted by resource name"),
        (
            PolicyRule(("",), ("secrets",), ("list",), cluster_scoped=True, why="x"),
            "all namespaces",
        ),
        (PolicyRule(("",), ("secrets",), ("get",)), "add the reason why"),
        (PolicyRule(("",), ("pods/exec",), ("create",)), "add the reason why"),
        (PolicyRule((), ("pods",), ("get",)), "needs groups"),
    ],
)
def test_lint_refuses(rule: PolicyRule, problem: str) -> None:
    assert any(problem in found for found in lint_rules([rule]))


@pytest.mark.parametrize(
    "rules",
    [
        own(PODSET),
        operator_namespace_rules("podset"),
        children(POD, "create", "delete"),
        (grant(SECRET, "get", why="read the token that spec.tokenSecret names"),),
    ],
    ids=["own", "operator-namespace", "children", "secret-with-reason"],
)
def test_lint_passes_least_privilege(rules: tuple[PolicyRule, ...]) -> None:
    assert lint_rules(rules) == []


def _rule(resource: str, *verbs: str) -> dict[str, list[str]]:
    return {"apiGroups": ["batch.example.com"], "resources": [resource], "verbs": list(verbs)}


def test_operator_may_bind_roles_that_are_named_with_a_reason() -> None:
    rule = grant(
        CLUSTER_ROLE, "bind", names=["edit"], why="members of a tenant edit its namespaces"
    )

    assert rule.resource_names == ("edit",)
    assert lint_rules([rule]) == []
    assert lint_rules([replace(rule, why="")]) and lint_rules([replace(rule, resource_names=())])
