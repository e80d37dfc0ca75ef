"""The invariants of `reconcile`, checked with random schedules of everything that goes wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from operators.podset.simulation import Cluster, Process, desire

_PICK = st.integers(min_value=0, max_value=1_000)
_STRATEGIES = st.sampled_from(
    [
        {"type": "OnDelete"},
        {"type": "Recreate"},
        {"type": "RollingUpdate"},
        {"type": "Recreate", "recreate": {"maxSurge": 2, "maxUnavailable": 0}},
        {"type": "Recreate", "recreate": {"maxSurge": "50%", "maxUnavailable": "50%"}},
        {"type": "Recreate", "recreate": {"maxUnavailable": "100%", "partition": 1}},
    ]
)


def template(version: str) -> dict[str, Any]:
    """Build a template that differs by version."""
    return {
        "metadata": {"labels": {"app": "web"}, "annotations": {"version": version}},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }


class PodSetMachine(RuleBasedStateMachine):
    """One leader at a time, whose view lags; users, kubelets and crashes do as they like."""

    policy = "TerminationStarted"

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.spec: dict[str, Any] = {}
        self.leader = Process(self.cluster, desire())

    @initialize(
        replicas=st.integers(0, 6),
        strategy=_STRATEGIES,
        history=st.integers(0, 2),
        min_ready=st.sampled_from([0, 5]),
    )
    def begin(self, replicas: int, strategy: Any, history: int, min_ready: int) -> None:
        self.spec = {
            "replicas": replicas,
            "updateStrategy": strategy,
            "failedPodsHistoryLimit": history,
            "minReadySeconds": min_ready,
            "podReplacementPolicy": self.policy,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template("1"),
        }
        self.leader = Process(self.cluster, desire(**self.spec))

    # What users do.

    @rule(replicas=st.integers(0, 6))
    def scale(self, replicas: int) -> None:
        self.spec["replicas"] = replicas

    @rule(version=st.sampled_from("123"))
    def change_template(self, version: str) -> None:
        self.spec["template"] = template(version)

    @rule()
    def see_spec(self) -> None:
        self.leader.desired = desire(**self.spec)

    @rule(pick=_PICK)
    def delete_by_hand(self, pick: int) -> None:
        name = self._pick(pick)
        if name:
            self.cluster.delete(name, self.cluster.pods[name]["metadata"]["uid"])

    @rule(pick=_PICK)
    def relabel(self, pick: int) -> None:
        name = self._pick(pick)
        if name:
            self.cluster.change(name, lambda pod: pod["metadata"]["labels"].pop("app", None))

    @rule(pick=_PICK)
    def abandon(self, pick: int) -> None:
        """Somebody takes the owner off a pod, as an orphaning deletion does."""
        name = self._pick(pick)
        if name:
            self.cluster.change(name, lambda pod: pod["metadata"].update(ownerReferences=[]))

    @rule(name=st.sampled_from([*(f"web-pod-{n}" for n in range(8)), "x"]), app=st.booleans())
    def make_bare_pod(self, name: str, app: bool) -> None:
        """Somebody creates a pod, maybe under the name of a slot, maybe one to adopt."""
        assume(name not in self.cluster.pods)
        labels = {"app": "web" if app else "other"}
        self.cluster.create({"metadata": {"name": name, "labels": labels}, "spec": {}})

    # What nodes do.

    @rule(pick=_PICK, ready=st.booleans())
    def run_pod(self, pick: int, ready: bool) -> None:
        name = self._pick(pick)
        if name and self.cluster.pods[name]["status"]["phase"] in ("Pending", "Running"):
            self.cluster.run(name, ready=ready)

    @rule(pick=_PICK, phase=st.sampled_from(["Failed", "Succeeded"]))
    def end_pod(self, pick: int, phase: str) -> None:
        name = self._pick(pick)
        if name:
            self.cluster.end(name, phase)

    @rule(pick=_PICK)
    def finish_termination(self, pick: int) -> None:
        going = [
            name
            for name, pod in sorted(self.cluster.pods.items())
            if pod["metadata"].get("deletionTimestamp")
        ]
        if going:
            self.cluster.vanish(going[pick % len(going)])

    @rule(seconds=st.integers(1, 400))
    def wait(self, seconds: int) -> None:
        self.cluster.later(seconds)

    # What the operator does.

    @rule(count=st.integers(1, 5))
    def deliver(self, count: int) -> None:
        self.leader.deliver(count)

    @rule(lose=st.sets(st.integers(0, 6)))
    def reconcile(self, lose: set[int]) -> None:
        self._guarded(lambda: self.leader.reconcile(lose=lose))

    @rule(steps=st.integers(0, 6))
    def crash_and_take_over(self, steps: int) -> None:
        self._guarded(lambda: self.leader.reconcile(crash_after=steps))
        self.leader = Process(self.cluster, desire(**self.spec))

    @invariant()
    def two_views_of_one_moment_agree(self) -> None:
        assert self.leader.plan() == self.leader.plan()

    def teardown(self) -> None:
        """Once nothing goes wrong any more, the set becomes what it should be, and stays so."""
        if not self.spec:
            return
        self.leader.desired = desire(**self.spec)
        for _ in range(60):
            self._heal()
            self.leader.deliver()
            if not self.leader.plan().steps and self.leader.plan().requeue_after is None:
                break
            self._guarded(self.leader.reconcile)
            self.cluster.later(301)

        assert len(self.cluster.active()) == self.spec["replicas"], self.leader.status()
        assert self.leader.plan().steps == ()
        assert Process(self.cluster, self.leader.desired).plan().steps == ()
        status = self.leader.status()
        ready = status["conditions"][0]
        assert ready["status"] == "True", status
        assert status["replicas"] == status["availableReplicas"] == self.spec["replicas"]
        self.cluster.later(10_000)
        assert self.leader.plan().steps == ()
        assert self.leader.plan().requeue_after is None

    def _guarded(self, work: Any) -> None:
        """Let the operator work; no create may take the set above what its spec allows."""
        desired, create = self.leader.desired, self.cluster.create
        bound = desired.podset.spec.replicas + desired.budget.surge

        def guarded(manifest: Any) -> Any:
            pod = create(manifest)
            counted = len(self.cluster.active())
            assert counted <= bound, f"{counted} active pods, {bound} allowed"
            return pod

        self.leader.cluster = _Guard(self.cluster, guarded)  # type: ignore[assignment] # a proxy
        try:
            work()
        finally:
            self.leader.cluster = self.cluster

    def _pick(self, pick: int) -> str:
        names = sorted(pod.name for pod in self.cluster.views() if not pod.is_deleting)
        return names[pick % len(names)] if names else ""

    def _heal(self) -> None:
        for name, pod in sorted(self.cluster.pods.items()):
            strict = self.policy == "TerminationComplete"
            in_the_way = strict and not pod["metadata"].get("ownerReferences")
            if pod["metadata"].get("deletionTimestamp") or in_the_way:
                self.cluster.vanish(name)
            elif pod["status"]["phase"] in ("Pending", "Running") and not _is_ready(pod):
                self.cluster.run(name)


class StrictPodSetMachine(PodSetMachine):
    """The same, with pods that are replaced only once they are gone."""

    policy = "TerminationComplete"


class _Guard:
    """A cluster whose creates are watched."""

    def __init__(self, cluster: Cluster, create: Any) -> None:
        self._cluster = cluster
        self.create = create

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


def _is_ready(pod: Any) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


_SETTINGS = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.parametrize("machine", [PodSetMachine, StrictPodSetMachine])
def test_one_leader_never_overshoots_and_settles_whatever_happens(
    machine: type[PodSetMachine],
) -> None:
    run_state_machine_as_test(machine, settings=_SETTINGS)


_ACTIONS = st.lists(
    st.tuples(st.sampled_from(["work", "deliver", "delete", "run", "vanish", "end"]), _PICK),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(replicas=st.integers(1, 5), surge=st.integers(0, 2), actions=_ACTIONS)
def test_strict_set_never_exceeds_its_window_with_two_leaders_of_any_age(
    replicas: int, surge: int, actions: list[tuple[str, int]]
) -> None:
    """Two processes write at the same time, each from a view as old as it likes."""
    desired = desire(
        replicas=replicas,
        podReplacementPolicy="TerminationComplete",
        template=template("1"),
        updateStrategy={"type": "Recreate", "recreate": {"maxSurge": surge}},
    )
    cluster = Cluster()
    leaders = [Process(cluster, desired), Process(cluster, desired)]
    for action, pick in actions:
        leader = leaders[pick % 2]
        names = sorted(cluster.pods)
        name = names[pick % len(names)] if names else ""
        if action == "work":
            leader.reconcile()
        elif action == "deliver":
            leader.deliver(pick % 4)
        elif name:
            _disturb(cluster, name, action)

        assert len(cluster.pods) <= replicas + surge


def _disturb(cluster: Cluster, name: str, action: str) -> None:
    pod = cluster.pods[name]
    match action:
        case "delete":
            cluster.delete(name, pod["metadata"]["uid"])
        case "run" if pod["status"]["phase"] in ("Pending", "Running"):
            cluster.run(name)
        case "vanish":
            cluster.vanish(name)
        case "end":
            cluster.end(name)


def test_two_leaders_that_know_nothing_of_each_other_make_the_same_pods() -> None:
    cluster = Cluster()
    first, second = (Process(cluster, desire(replicas=5)) for _ in range(2))
    second.reconcile()
    first.reconcile()

    assert cluster.active() == [f"web-pod-{slot}" for slot in range(5)]


def test_new_leader_fills_what_a_crash_left_open() -> None:
    cluster = Cluster()
    Process(cluster, desire(replicas=5)).reconcile(crash_after=2)
    Process(cluster, desire(replicas=5)).reconcile()

    assert cluster.active() == [f"web-pod-{slot}" for slot in range(5)]


def test_view_without_any_event_makes_no_pod_twice() -> None:
    # kubernetes#129795: expectations that expire under a slow watch make extra pods.
    cluster = Cluster()
    leader = Process(cluster, desire(replicas=5))
    for _ in range(5):
        leader.reconcile()
        cluster.later(600)

    assert len(cluster.active()) == 5


def test_pods_of_a_lost_response_are_counted() -> None:
    cluster = Cluster()
    leader = Process(cluster, desire(replicas=5))
    leader.reconcile(lose={0, 3})

    assert leader.plan().steps == ()


def test_stale_view_neither_creates_nor_deletes_in_turns() -> None:
    # kuberay#715: a stale cache causes create and delete churn.
    cluster = Cluster()
    leader = Process(cluster, desire(replicas=3))
    leader.reconcile()
    leader.desired = desire(replicas=1)
    leader.reconcile()
    before = len(cluster.history)
    for _ in range(3):
        leader.reconcile()

    assert len(cluster.history) == before
    assert leader.plan().steps == ()
