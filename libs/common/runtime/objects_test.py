"""Primaries are counted by condition, whatever happens to them."""

from __future__ import annotations

from libs.common.kinds import CONFIG_MAP, Manifest, build_object
from libs.common.metrics import Metrics
from libs.common.runtime.informer import Informer
from libs.common.runtime.objects import ObjectCounter


def build(name: str, version: int, status: str = "", reason: str = "") -> Manifest:
    manifest = build_object(CONFIG_MAP, name, "default")
    manifest["metadata"] |= {"uid": name, "resourceVersion": str(version)}
    if status:
        ready = {"type": "Ready", "status": status, "reason": reason}
        manifest["status"] = {"conditions": [ready]}
    return manifest


def count(metrics: Metrics, status: str, reason: str) -> float | None:
    labels = {"controller": "c", "type": "Ready", "status": status, "reason": reason}
    return metrics.value("operator_objects", **labels)


def test_counts_follow_changes_and_deletions() -> None:
    metrics, informer = Metrics(), Informer(CONFIG_MAP)
    informer.put(build("early", 1, "True", "Done"))
    ObjectCounter("c", informer, metrics)
    informer.put(build("a", 2))
    assert count(metrics, "Unknown", "NoStatus") == 1

    informer.put(build("a", 3, "False", "Waiting"))
    informer.put(build("b", 4, "False", "Waiting"))
    assert count(metrics, "Unknown", "NoStatus") == 0
    assert count(metrics, "False", "Waiting") == 2
    assert count(metrics, "True", "Done") == 1

    informer.remove(build("b", 5))
    assert count(metrics, "False", "Waiting") == 1


def test_kinds_without_a_ready_condition_are_not_counted_as_not_ready() -> None:
    metrics, informer = Metrics(), Informer(CONFIG_MAP)
    ObjectCounter("c", informer, metrics, reports_ready=False)
    informer.put(build("a", 1))
    informer.put(build("b", 2, "False", "Waiting"))

    assert count(metrics, "Unknown", "NoStatus") is None
    assert count(metrics, "False", "Waiting") == 1


def test_reasons_that_a_tenant_makes_up_do_not_grow_without_end() -> None:
    metrics, informer = Metrics(), Informer(CONFIG_MAP)
    ObjectCounter("c", informer, metrics)
    for number in range(300):
        informer.put(build(str(number), number + 1, "False", f"Reason{number}"))

    series = [
        sample
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "operator_objects"
    ]
    assert len(series) <= 202
    assert sum(sample.value for sample in series) == 300


def test_status_that_makes_no_sense_is_counted_again_without_it() -> None:
    """The schema of a CRD may allow anything there."""
    metrics, informer = Metrics(), Informer(CONFIG_MAP)
    ObjectCounter("c", informer, metrics)
    informer.put({**build("odd", 1), "status": {"conditions": ["Ready"]}})
    informer.put(build("a", 2, "True", "Done"))

    assert count(metrics, "True", "Done") == 1
