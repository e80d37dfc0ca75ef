"""Rows 14 and 15: which fields name a namespace, and who opts in before one is reached."""

from __future__ import annotations

from collections.abc import Iterable

from lab.fuzz.fields import walk_fields
from lab.fuzz.subject import FuzzSubject, load_subjects
from libs.common.crd import CustomResource, KubernetesModel, build_crd
from libs.common.rbac import PolicyRule
from tools.generate.sources import ROOT, load_operators

_KNOWN = {
    "image.dataSource.namespace": "CDI asks whether the operator's account may clone from there",
    "IPPool spec.allowedNamespaces": "the pool's own: it says who may take from it",
    "ProviderNetwork spec.allowedNamespaces": "an administrator's: it says who may use it",
    "peers[].namespaceSelector": "selects whose packets a machine of the own namespace takes",
    "IPPool spec.quotaPerNamespace": "a number: how much each namespace may take",
    "template.metadata.namespace": "without effect, as in a Deployment",
    "IPAllocation spec.claimRef.namespace": "the operator's own: a tenant cannot write the ledger",
}
"""Endings of fields that name a namespace, and why nobody reaches into one by them."""


class TargetSpec(KubernetesModel):
    """TargetSpec names a namespace."""

    target_namespace: str
    """Objects are created in targetNamespace."""


class Target(CustomResource, group="example.com", version="v1", plural="targets", conditions=None):
    """Target is a kind for these tests."""

    spec: TargetSpec


def find_unknown(subjects: Iterable[FuzzSubject]) -> list[str]:
    """List fields that name a namespace and are not known."""
    fields = [
        f"{subject.kind.kind} {field.name}"
        for subject in subjects
        for field in walk_fields(subject.schema)
        if "namespace" in field.path[-1].lower()
    ]
    return [field for field in fields if not field.endswith(tuple(_KNOWN))]


def find_cloners(rules: Iterable[PolicyRule]) -> list[PolicyRule]:
    """List rules by which CDI would let an account clone disks out of any namespace it is given in.

    CDI takes the right on `datavolumes/source`, or else that to create pods, in the namespace of
    the source.
    """
    sources = {"datavolumes/source", "datavolumes/*", "pods", "*"}
    return [
        rule
        for rule in rules
        if sources.intersection(rule.resources) and {"create", "*"}.intersection(rule.verbs)
    ]


def test_every_field_that_names_a_namespace_is_known() -> None:
    assert find_unknown(load_subjects()) == []


def test_field_that_names_a_namespace_is_found() -> None:
    subject = FuzzSubject("example", Target, {"targetNamespace": "kube-system"}, lambda _: [])

    assert build_crd(Target)["kind"] == "CustomResourceDefinition"
    assert find_unknown([subject]) == ["Target spec.targetNamespace"]


def test_machines_clone_only_from_namespaces_that_allow_it() -> None:
    for operator in ("compute", "clusters"):
        (source,) = load_operators(ROOT, [operator])
        assert find_cloners(source.rules) == []


def test_permission_to_clone_from_everywhere_is_found() -> None:
    rule = PolicyRule(("cdi.kubevirt.io",), ("datavolumes/source",), ("create",))

    assert find_cloners([rule]) == [rule]
