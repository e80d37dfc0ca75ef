from __future__ import annotations

from lab.sweep.cluster import find_unused_rights
from lab.sweep.workload import load_workloads

WORKLOAD, *_ = load_workloads("podset")
USED = {
    ("batch.tutorial.kubebuilder.io", "podsets", "list"),
    ("batch.tutorial.kubebuilder.io", "podsets/status", "patch"),
    ("batch.tutorial.kubebuilder.io", "PodSet/finalizers", "update"),
    ("", "pods", "watch"),
    ("", "pods", "create"),
    ("", "pods", "patch"),
    ("", "pods", "delete"),
    ("", "podtemplates", "create"),
    ("apps", "controllerrevisions", "watch"),
    ("apps", "controllerrevisions", "create"),
    ("apps", "controllerrevisions", "patch"),
    ("apps", "controllerrevisions", "delete"),
}


def test_used_permissions_are_not_listed() -> None:
    assert find_unused_rights(WORKLOAD.rules, WORKLOAD.kinds, USED) == []


def test_unused_permission_is_listed() -> None:
    used = USED - {("", "pods", "patch"), ("batch.tutorial.kubebuilder.io", "podsets", "list")}

    unused = find_unused_rights(WORKLOAD.rules, WORKLOAD.kinds, used)

    assert unused == ["patch pods", "read podsets"]
