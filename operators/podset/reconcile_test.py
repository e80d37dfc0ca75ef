from __future__ import annotations

from typing import Any

import pytest

from libs.common.errors import TerminalError
from libs.common.kinds import Manifest
from libs.common.plan import Create, Delete, Patch
from operators.podset.naming import ATTEMPT_ANNOTATION, DELETION_COST_ANNOTATION
from operators.podset.reconcile import Plan
from operators.podset.simulation import (
    SET_UID,
    TEMPLATE,
    Cluster,
    Process,
    build_owner,
    desire,
    start,
)

SELECTOR = {"matchLabels": {"app": "web"}}


def respec(process: Process, **spec: Any) -> Plan:
    """Change the spec and plan again."""
    process.desired = desire(**{"template": TEMPLATE, **spec})
    return process.plan()


def created(plan: Plan) -> list[str]:
    """Return the names of the pods to create."""
    return [step.key.name for step in plan.steps if isinstance(step, Create)]


def deleted(plan: Plan) -> list[str]:
    """Return the names of the pods to delete."""
    return [step.key.name for step in plan.steps if isinstance(step, Delete)]


def attempts(cluster: Cluster) -> dict[str, str]:
    """Return the attempts that the pods carry."""
    return {
        name: pod["metadata"].get("annotations", {}).get(ATTEMPT_ANNOTATION, "0")
        for name, pod in cluster.pods.items()
    }


# Scaling.


def test_all_missing_pods_are_created_in_one_batch() -> None:
    plan = Process(Cluster(), desire(replicas=500)).plan()

    assert created(plan) == [f"web-pod-{slot}" for slot in range(500)]
    assert len(plan.batches) == 1


def test_scaled_down_set_keeps_its_slots_and_scaled_up_it_fills_the_gap() -> None:
    cluster, process = start(3)
    cluster.change(
        "web-pod-0",
        lambda pod: pod["metadata"].update(annotations={DELETION_COST_ANNOTATION: "-5"}),
    )
    process.deliver()

    assert deleted(respec(process, replicas=2)) == ["web-pod-0"]
    process.reconcile()
    cluster.vanish("web-pod-0")
    process.deliver()
    assert cluster.active() == ["web-pod-1", "web-pod-2"]
    assert process.plan().steps == ()
    assert created(respec(process, replicas=3)) == ["web-pod-0"]


def test_named_pods_go_first() -> None:
    _, process = start(3)

    assert deleted(respec(process, replicas=2, podsToDelete=["web-pod-1"])) == ["web-pod-1"]
    assert respec(process, replicas=3, podsToDelete=["web-pod-1"]).steps == ()


def test_long_min_ready_seconds_do_not_block_scaling_down() -> None:
    # kruise#1478.
    _, process = start(3, minReadySeconds=31_000_000)

    assert len(deleted(respec(process, replicas=1, minReadySeconds=31_000_000))) == 2


def test_set_of_nothing_deletes_everything() -> None:
    _, process = start(3)

    assert len(deleted(respec(process, replicas=0))) == 3


def test_paused_set_scales_and_heals_but_updates_no_pod() -> None:
    cluster, process = start(3)
    new = {**TEMPLATE, "metadata": {"labels": {"app": "web", "v": "2"}}}
    strategy = {"type": "RollingUpdate"}
    paused = {"template": new, "updateStrategy": strategy, "paused": True}
    assert respec(process, replicas=3, **paused) == Plan()
    cluster.end("web-pod-1")
    process.deliver()

    assert created(process.plan()) == ["web-pod-1"]
    assert len(created(respec(process, replicas=5, **paused))) == 3
    assert deleted(respec(process, replicas=1, **paused)) == ["web-pod-1", "web-pod-2"]


def test_paused_set_still_tells_when_a_pod_becomes_available() -> None:
    cluster, process = start(2, minReadySeconds=30, paused=False)
    process.desired = desire(template=TEMPLATE, replicas=2, minReadySeconds=30, paused=True)
    cluster.later(10)

    assert process.plan() == Plan(requeue_after=20)


# Termination.


def test_terminating_pod_holds_its_slot_and_is_replaced_in_the_next() -> None:
    # kruise#1099, kruise#1433: a new pod of the same name collides with the pod being deleted.
    cluster, process = start(3)
    cluster.delete("web-pod-1", cluster.pods["web-pod-1"]["metadata"]["uid"])
    process.deliver()

    assert created(process.plan()) == ["web-pod-3"]
    process.reconcile()
    assert process.plan().steps == ()
    cluster.vanish("web-pod-1")
    process.deliver()
    assert process.plan().steps == ()


def test_strict_set_waits_for_the_slot() -> None:
    cluster, process = start(3, podReplacementPolicy="TerminationComplete")
    cluster.delete("web-pod-1", cluster.pods["web-pod-1"]["metadata"]["uid"])
    process.deliver()

    assert process.plan().steps == ()
    cluster.vanish("web-pod-1")
    process.deliver()
    assert created(process.plan()) == ["web-pod-1"]


def test_strict_set_does_not_use_its_surge_for_pods_that_terminate() -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2}}
    cluster, process = start(3, podReplacementPolicy="TerminationComplete", updateStrategy=strategy)
    cluster.delete("web-pod-1", cluster.pods["web-pod-1"]["metadata"]["uid"])
    process.deliver()

    assert process.plan().steps == ()


def test_strict_set_leaves_the_slot_of_somebody_else_empty() -> None:
    cluster = Cluster()
    cluster.create({"metadata": {"name": "web-pod-1"}, "spec": {}})
    process = Process(cluster, desire(replicas=3, podReplacementPolicy="TerminationComplete"))

    assert created(process.plan()) == ["web-pod-0", "web-pod-2"]


# Pods that end.


def test_pod_that_ended_is_replaced_at_once_in_its_slot_the_first_time() -> None:
    cluster, process = start(3)
    cluster.end("web-pod-1")
    process.deliver()
    process.reconcile()

    assert cluster.active() == ["web-pod-0", "web-pod-1", "web-pod-2"]
    assert attempts(cluster)["web-pod-1"] == "1"


def test_pods_that_fail_at_once_are_replaced_ever_later_and_a_restart_forgets_nothing() -> None:
    # kubernetes#131116: pods that the kubelet rejects are replaced in a flood.
    cluster, process = start(1)
    waits = []
    for _ in range(8):
        cluster.end("web-pod-0")
        process = Process(cluster, process.desired)
        waits.append(process.plan().requeue_after or 0)
        assert bool(process.plan().steps) == (not waits[-1])
        cluster.later(waits[-1])
        process.reconcile()
        assert len(cluster.pods) == 1

    assert waits == [0, 10, 20, 40, 80, 160, 300, 300]


def test_flood_of_rejections_makes_no_more_pods_than_slots() -> None:
    cluster, process = start(50, ready=False)
    creations = cluster.revision
    for _ in range(30):
        for name in cluster.active():
            cluster.end(name)
        process.deliver()
        process.reconcile()
        cluster.later(1)
    made = sum(event == "ADDED" for event, _ in cluster.history[creations:])

    assert len(cluster.pods) == 50
    # In half a minute each slot is tried at 0, 10 and 30 seconds.
    assert made <= 150


def test_pod_that_lived_long_is_replaced_at_once() -> None:
    cluster, process = start(1)
    for _ in range(4):
        cluster.end("web-pod-0")
        cluster.later(300)
        process.deliver()
        process.reconcile()
    cluster.later(301)
    cluster.end("web-pod-0")
    process.deliver()
    process.reconcile()

    assert attempts(cluster) == {"web-pod-0": "0"}


def test_new_template_ends_the_back_off() -> None:
    cluster, process = start(1)
    for _ in range(2):
        cluster.end("web-pod-0")
        process.deliver()
        process.reconcile()
    assert not process.plan().steps

    template = {**TEMPLATE, "metadata": {"labels": {"app": "web", "fixed": "yes"}}}
    assert created(respec(process, replicas=1, template=template)) == ["web-pod-0"]


def test_vacancy_beside_a_failing_pod_is_filled_at_once() -> None:
    cluster, process = start(3)
    for _ in range(2):
        cluster.end("web-pod-1")
        process.deliver()
        process.reconcile()
    cluster.vanish("web-pod-2")
    process.deliver()

    assert created(process.plan()) == ["web-pod-2"]


def test_history_keeps_the_newest_pods_that_ended() -> None:
    cluster, process = start(2, failedPodsHistoryLimit=1)
    cluster.end("web-pod-0")
    process.deliver()
    process.reconcile()
    assert sorted(cluster.pods) == ["web-pod-0", "web-pod-1", "web-pod-2"]

    cluster.later(400)
    cluster.end("web-pod-1")
    process.deliver()
    process.reconcile()
    assert sorted(cluster.pods) == ["web-pod-0", "web-pod-1", "web-pod-2"]
    assert cluster.active() == ["web-pod-0", "web-pod-2"]


# Ownership.


def test_pod_that_matches_no_longer_is_released_and_replaced() -> None:
    cluster, process = start(2, selector=SELECTOR)
    cluster.change("web-pod-0", lambda pod: pod["metadata"].update(labels={"app": "debug"}))
    process.deliver()
    plan = process.plan()

    assert isinstance(plan.steps[0], Patch)
    assert created(plan) == ["web-pod-2"]
    process.reconcile()
    assert cluster.pods["web-pod-0"]["metadata"]["ownerReferences"] == []


def test_orphan_that_matches_is_adopted_instead_of_a_new_pod() -> None:
    cluster = Cluster()
    cluster.create({"metadata": {"name": "x", "labels": {"app": "web"}}, "spec": {}})
    process = Process(cluster, desire(replicas=2, template=TEMPLATE, selector=SELECTOR))

    assert created(process.plan()) == ["web-pod-0"]
    process.reconcile()
    assert cluster.pods["x"]["metadata"]["ownerReferences"] == [build_owner()]
    assert process.plan().steps == ()


def test_orphans_beyond_the_wanted_number_are_adopted_and_then_deleted() -> None:
    cluster = Cluster()
    for name in "xyz":
        cluster.create({"metadata": {"name": name, "labels": {"app": "web"}}, "spec": {}})
    process = Process(cluster, desire(replicas=1, template=TEMPLATE, selector=SELECTOR))
    process.reconcile()
    process.reconcile()

    assert len(cluster.pods) == 1


def test_set_without_a_selector_counts_pods_of_the_predecessor() -> None:
    cluster = Cluster()
    labels = {"app": "web", "version": "v0.1"}
    metadata: Manifest = {"name": "web-pod-x7k2p", "labels": labels}
    cluster.create({"metadata": {**metadata, "ownerReferences": [build_owner()]}, "spec": {}})

    assert created(Process(cluster, desire(replicas=2)).plan()) == ["web-pod-0"]


def test_selector_that_the_template_does_not_match_is_refused() -> None:
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["other"]}]}
    with pytest.raises(TerminalError, match=r"PodSet default/web: spec\.selector") as caught:
        desire(template=TEMPLATE, selector=selector)

    assert caught.value.reason == "InvalidSpec"


def test_selector_too_long_for_the_status_is_refused_before_any_pod_is_made() -> None:
    labels = {f"{'prefix' * 30}.example.com/key-{n}": "x" * 63 for n in range(30)}
    template = {**TEMPLATE, "metadata": {"labels": labels}}
    with pytest.raises(
        TerminalError, match=r"PodSet default/web: spec\.selector .* 4096"
    ) as caught:
        desire(template=template, selector={"matchLabels": labels})

    assert caught.value.reason == "InvalidSpec"


# Updates.


def test_update_without_surge_replaces_one_after_the_other() -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    cluster, process = start(3, updateStrategy=strategy)
    template = {**TEMPLATE, "metadata": {"labels": {"app": "web", "v": "2"}}}
    plan = respec(process, replicas=3, updateStrategy=strategy, template=template)

    assert deleted(plan) == ["web-pod-2"]
    process.reconcile()
    assert created(process.plan()) == ["web-pod-3"]
    process.reconcile()
    assert process.plan().steps == (), "the new pod is not ready yet"
    assert len(cluster.active()) == 3


def test_update_with_surge_creates_first() -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    _, process = start(3, updateStrategy=strategy)
    template = {**TEMPLATE, "metadata": {"labels": {"app": "web", "v": "2"}}}
    plan = respec(process, replicas=3, updateStrategy=strategy, template=template)

    assert (created(plan), deleted(plan)) == (["web-pod-3"], [])


def test_next_look_is_when_a_pod_becomes_available() -> None:
    cluster, process = start(2, minReadySeconds=30)
    cluster.later(10)

    assert process.plan().requeue_after == 20
    cluster.later(20)
    assert process.plan().requeue_after is None


def test_every_deletion_names_one_incarnation() -> None:
    cluster, process = start(3)
    steps = respec(process, replicas=0).steps

    assert {step.uid for step in steps if isinstance(step, Delete)} == {
        pod["metadata"]["uid"] for pod in cluster.pods.values()
    }
    assert SET_UID not in {getattr(step, "uid", "") for step in steps}
