"""Render the permissions of an operator for the library chart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from libs.common.kinds import Kind, Manifest
from libs.common.project.errors import GenerateError
from libs.common.project.sources import OperatorSource
from libs.common.project.text import render_yaml
from libs.common.rbac import (
    PolicyRule,
    editor_rules,
    event_rules,
    lint_rules,
    operator_namespace_rules,
    render_rules,
    viewer_rules,
)


def namespaced_rules(operator: OperatorSource) -> tuple[PolicyRule, ...]:
    """Return the rules that are granted in each watched namespace."""
    own = tuple(rule for rule in operator.rules if not rule.cluster_scoped)
    return (*own, *event_rules())


def cluster_rules(operator: OperatorSource) -> tuple[PolicyRule, ...]:
    """Return the rules that are granted in the cluster: rules on cluster-scoped kinds."""
    own = tuple(rule for rule in operator.rules if rule.cluster_scoped)
    has_cluster_kind = any(not model.crd_meta.kind.namespaced for model in operator.resources)
    # Events about cluster-scoped objects are created in the namespace default.
    return (*own, *event_rules()) if has_cluster_kind else own


def build_permissions(operator: OperatorSource) -> Manifest:
    """Build the document from which the chart creates roles.

    Raises:
        GenerateError: A rule violates the least-privilege lint; the error lists every finding.
    """
    if problems := lint_rules(operator.rules):
        raise GenerateError([f"{operator.path_of("rules")}: {problem}" for problem in problems])
    return {
        "rules": render_rules(namespaced_rules(operator)),
        "clusterRules": render_rules(cluster_rules(operator)),
        # Whether namespaced objects get a finalizer, which requires a patch of the main resource.
        "finalizers": any(
            _patches(operator.rules, model.crd_meta.kind)
            for model in operator.resources
            if model.crd_meta.kind.namespaced
        ),
        "operatorNamespaceRules": render_rules(operator_namespace_rules(operator.id)),
        "kinds": [
            {
                "kind": meta.kind.kind,
                "group": meta.kind.group,
                "plural": meta.kind.plural,
                "scope": "Namespaced" if meta.kind.namespaced else "Cluster",
                "viewer": render_rules(viewer_rules(meta.kind)),
                "editor": render_rules(
                    editor_rules(meta.kind, scale=any(m.crd_meta.scale for m in models))
                ),
            }
            for models in operator.kinds().values()
            for meta in [models[0].crd_meta]
        ],
    }


def _patches(rules: Sequence[PolicyRule], kind: Kind) -> bool:
    return any(
        kind.group in rule.api_groups and kind.plural in rule.resources and "patch" in rule.verbs
        for rule in rules
    )


def render_permissions(operator: OperatorSource) -> dict[Path, str]:
    """Render `files/rbac.yaml` of the chart."""
    text = render_yaml(
        build_permissions(operator), origin=operator.origin(operator.path_of("rules"))
    )
    return {operator.chart / "files" / "rbac.yaml": text}
