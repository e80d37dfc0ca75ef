"""Permissions of operators as data, and the roles that are built from them.

The rules of an operator are derived from its watches (`libs.common.runtime.permissions`). The
generator adds the rules of the framework, merges all rules and writes them into the chart. Rules on
namespaced kinds are granted only in the watched namespaces, so least privilege is the default;
rules on cluster-scoped kinds are separate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from libs.common.kinds import CLUSTER_ROLE, EVENT, LEASE, ROLE, Kind, Manifest, build_object

__all__ = ["PolicyRule", "children", "grant", "own", "reads"]
"""What operators use; the rest is for the generator."""

READ_VERBS: Final = ("get", "list", "watch")
"""Verbs that a cache needs."""
WRITE_VERBS: Final = ("create", "update", "patch", "delete", "deletecollection")
"""Verbs that a user needs to edit objects, in addition to reading."""

_VERB_ORDER: Final = {verb: i for i, verb in enumerate((*READ_VERBS, *WRITE_VERBS))}
_ESCALATING: Final = frozenset({"escalate", "bind", "impersonate"})
"""Verbs that pass on permissions or identities which the operator itself may lack."""
_SENSITIVE: Final = frozenset(
    {
        "secrets",
        "pods/attach",
        "pods/ephemeralcontainers",
        "pods/eviction",
        "pods/exec",
        "pods/portforward",
        "serviceaccounts/token",
        "nodes/proxy",
        "roles",
        "rolebindings",
        "clusterroles",
        "clusterrolebindings",
        "customresourcedefinitions",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    }
)


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """A rule that grants verbs on resources.

    Attributes:
        api_groups: API groups; the core group is the empty string.
        resources: Plurals, optionally with a subresource: `pods/eviction`.
        verbs: Verbs that are granted.
        resource_names: Names of the objects; empty for all. `list`, `watch` and `create` cannot be
            restricted by name.
        cluster_scoped: Whether the resources are cluster-scoped.
        why: Reason for readers of the chart; required for sensitive resources.
    """

    api_groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    resource_names: tuple[str, ...] = ()
    cluster_scoped: bool = False
    why: str = ""

    def to_manifest(self) -> Manifest:
        """Build the entry of `rules` in a Role."""
        manifest: Manifest = {"apiGroups": list(self.api_groups), "resources": list(self.resources)}
        if self.resource_names:
            manifest["resourceNames"] = list(self.resource_names)
        return {**manifest, "verbs": list(self.verbs)}


def grant(
    kind: Kind, *verbs: str, subresource: str = "", names: Sequence[str] = (), why: str = ""
) -> PolicyRule:
    """Build a rule on a kind or on one of its subresources.

    Args:
        kind: Kind of the objects.
        verbs: Verbs that are granted.
        subresource: Subresource, such as `status`; empty for the objects themselves.
        names: Names of the objects; empty for all. The verbs `bind`, `escalate` and `impersonate`
            require names and a reason: `grant(CLUSTER_ROLE, "bind", names=["edit"], why=...)`.
        why: Reason for readers of the chart; required for sensitive resources.
    """
    resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
    return PolicyRule((kind.group,), (resource,), verbs, tuple(names), not kind.namespaced, why=why)


def own(kind: Kind, *, finalizer: bool = True, owner: bool = True) -> tuple[PolicyRule, ...]:
    """Build the rules of a controller on its primary kind: read, write status, own children.

    Args:
        kind: Kind that the controller reconciles.
        finalizer: Whether the controller adds a finalizer, which is a patch of the object.
        owner: Whether it owns the objects that the controller creates.
    """
    verbs = (*READ_VERBS, "patch") if finalizer else READ_VERBS
    rules = (
        grant(kind, *verbs, why="read the desired state" + (", set the finalizer" * finalizer)),
        grant(kind, "get", "patch", subresource="status", why="report the observed state"),
    )
    if not owner:
        return rules
    return (
        *rules,
        # With the admission plugin OwnerReferencesPermissionEnforcement, an owner reference that
        # blocks the deletion of its owner needs this permission.
        grant(kind, "update", subresource="finalizers", why="own children"),
    )


def children(kind: Kind, *verbs: str, why: str = "") -> tuple[PolicyRule, ...]:
    """Build the rules on a child kind: reading, and the verbs of the controller's writes."""
    return (grant(kind, *READ_VERBS, *verbs, why=why or "manage child objects"),)


def reads(kind: Kind, *, why: str = "") -> tuple[PolicyRule, ...]:
    """Build the rule for reading a kind."""
    return (grant(kind, *READ_VERBS, why=why),)


def event_rules() -> tuple[PolicyRule, ...]:
    """Return the rules that any operator needs in watched namespaces: writing Events."""
    return (grant(EVENT, "create", "patch", why="write Events"),)


def operator_namespace_rules(operator_id: str) -> tuple[PolicyRule, ...]:
    """Return the rules that any operator needs in its own namespace: its Lease and Events."""
    lease = grant(LEASE, "get", "update", "patch", why="elect a leader")
    return (
        replace(lease, resource_names=(operator_id,)),
        # Create cannot be restricted by name.
        grant(LEASE, "create", why="elect a leader"),
        *event_rules(),
    )


def viewer_rules(kind: Kind) -> tuple[PolicyRule, ...]:
    """Return the rules that a person needs to view objects of a kind."""
    return (grant(kind, *READ_VERBS), grant(kind, "get", subresource="status"))


def editor_rules(kind: Kind, *, scale: bool = False) -> tuple[PolicyRule, ...]:
    """Return the rules that a person needs to edit objects of a kind.

    Args:
        kind: Kind to edit.
        scale: Whether the kind has a scale subresource.
    """
    rules = (
        grant(kind, *READ_VERBS, *WRITE_VERBS),
        grant(kind, "get", subresource="status"),
    )
    if not scale:
        return rules
    return (*rules, grant(kind, "get", "update", "patch", subresource="scale"))


def merge_rules(rules: Iterable[PolicyRule]) -> tuple[PolicyRule, ...]:
    """Merge rules into the shortest equivalent list, in an order that does not depend on the input.

    Verbs on the same resource are joined, then resources of a group with the same verbs. Reasons
    are dropped, because a merged rule has several.
    """
    verbs: dict[tuple[bool, str, tuple[str, ...], str], set[str]] = {}
    for rule in rules:
        for group in rule.api_groups:
            for resource in rule.resources:
                place = (rule.cluster_scoped, group, tuple(sorted(rule.resource_names)), resource)
                verbs.setdefault(place, set()).update(rule.verbs)
    merged: dict[tuple[bool, str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (cluster, group, names, resource), granted in verbs.items():
        merged.setdefault((cluster, group, names, sort_verbs(granted)), []).append(resource)
    return tuple(
        PolicyRule((group,), tuple(sorted(resources)), granted, names, cluster)
        for (cluster, group, names, granted), resources in sorted(
            merged.items(), key=lambda item: (item[0][0], item[0][1], sorted(item[1]), item[0][2])
        )
    )


def sort_verbs(verbs: Iterable[str]) -> tuple[str, ...]:
    """Sort verbs: reading first, then writing, then the rest by name."""
    return tuple(
        sorted(set(verbs), key=lambda verb: (_VERB_ORDER.get(verb, len(_VERB_ORDER)), verb))
    )


def render_rules(rules: Iterable[PolicyRule]) -> list[Manifest]:
    """Render merged rules as the `rules` of a role."""
    return [rule.to_manifest() for rule in merge_rules(rules)]


def build_role(
    name: str, namespace: str, rules: Iterable[PolicyRule], labels: Mapping[str, str] | None = None
) -> Manifest:
    """Build a Role."""
    metadata = {"labels": dict(labels)} if labels else {}
    return build_object(ROLE, name, namespace, metadata=metadata, rules=render_rules(rules))


def build_cluster_role(
    name: str, rules: Iterable[PolicyRule], labels: Mapping[str, str] | None = None
) -> Manifest:
    """Build a ClusterRole."""
    metadata = {"labels": dict(labels)} if labels else {}
    return build_object(CLUSTER_ROLE, name, metadata=metadata, rules=render_rules(rules))


def lint_rules(rules: Sequence[PolicyRule]) -> list[str]:
    """Check rules for least privilege, and return one sentence for each violation."""
    return [problem for rule in rules for problem in _lint_rule(rule)]


def _lint_rule(rule: PolicyRule) -> list[str]:
    where = f"{','.join(rule.resources) or '(nothing)'}: "
    problems = []
    if "*" in (*rule.api_groups, *rule.resources, *rule.resource_names):
        problems.append(where + "wildcards grant more than intended; name the resources")
    if not (rule.api_groups and rule.resources and rule.verbs):
        problems.append(where + "a rule needs groups, resources and verbs")
    if "*" in rule.verbs:
        problems.append(where + "the verb * would let the operator escalate its own permissions")
    bad = sorted(_ESCALATING & set(rule.verbs))
    if bad and not (rule.resource_names and rule.why):
        problems.append(
            where
            + f"{', '.join(bad)} would let the operator escalate its own permissions; name the "
            "objects (names) and the reason (why)"
        )
    if rule.resource_names and {"create", "list", "watch"} & set(rule.verbs):
        problems.append(
            where + "create, list and watch cannot be restricted by resource name; split the rule"
        )
    if rule.cluster_scoped and "secrets" in rule.resources and {"list", "watch"} & set(rule.verbs):
        problems.append(where + "secrets of all namespaces must not be listed; get them by name")
    if sensitive := sorted(_SENSITIVE & set(rule.resources)):
        writes_or_secret = "secrets" in sensitive or set(rule.verbs) - set(READ_VERBS)
        if writes_or_secret and not rule.why:
            problems.append(where + "is sensitive; add the reason why the operator needs it")
    return problems
