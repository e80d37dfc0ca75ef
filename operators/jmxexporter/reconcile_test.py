"""What is decided for containers, whatever their injectors have been through."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.kinds import Manifest
from operators.jmxexporter.api.v1alpha1 import PrometheusJmxExporter, Reason
from operators.jmxexporter.config import Config
from operators.jmxexporter.injector.messages import JvmReport, Report, State
from operators.jmxexporter.injector.messages import Reason as Told
from operators.jmxexporter.pods import Pod, shrink_pod
from operators.jmxexporter.reconcile import Limits, Observed, list_addresses, plan_exporter
from operators.jmxexporter.resources import Image
from operators.jmxexporter.samples import (
    CONFIG,
    CONFIG_HASH,
    answer_well,
    build_exporter,
    build_pod,
    build_report,
    build_run_status,
)
from operators.jmxexporter.started import Started

NOW = datetime(2026, 1, 2, tzinfo=UTC)
LIMITS = Limits(Image("injector"))
GOOD = Config(CONFIG, CONFIG_HASH)
OUTCOMES = st.sampled_from([*Told, None, "ok"])


def parse_exporter(**spec: Any) -> PrometheusJmxExporter:
    manifest = build_exporter(**spec)
    manifest["metadata"] |= {"uid": "u-1", "generation": 1}
    return PrometheusJmxExporter.parse(manifest)


def take(pod: Manifest, exporter: PrometheusJmxExporter, now: datetime = NOW) -> int:
    """Take the steps that are planned for a pod, and return how many injectors they put."""
    plan = plan_exporter(exporter, Observed(GOOD, [Pod.parse(pod)]), now, LIMITS)
    put = [action.step for action in plan.actions if action.job is not None]
    for step in put:
        (operation,) = step.operations
        value = operation["value"]
        injectors = value if isinstance(value, list) else [value]
        pod["spec"].setdefault("ephemeralContainers", []).extend(injectors)
    return len(put)


def end(pod: Manifest, outcome: Told | str | None) -> None:
    """Let the last injector end in a way."""
    run = Pod.parse(pod).runs[-1]
    report: Report | None
    if outcome == "ok":
        report = answer_well(run.request, run)
    elif outcome is None:
        report = None
    else:
        report = Report((build_report(run.request, run, State.REFUSED, outcome),))
    held = pod["status"].setdefault("ephemeralContainerStatuses", [])
    held.append(build_run_status(run, report))


@given(st.lists(OUTCOMES, min_size=1, max_size=12), st.integers(1, 4), st.integers(1, 5))
def test_container_is_never_tried_more_often_than_allowed(
    outcomes: list[Told | str | None], attempts: int, budget: int
) -> None:
    exporter = parse_exporter(maxAttempts=attempts, maxEphemeralContainers=budget)
    pod, now = build_pod(), NOW

    for outcome in outcomes:
        now += timedelta(days=1)
        if take(pod, exporter, now):
            assert take(pod, exporter, now) == 0, "an injector is at work"
            end(pod, outcome)

    runs = Pod.parse(pod).runs
    assert len(runs) <= min(attempts, budget)
    last = runs[-1].report
    if last is not None and any(jvm.state is State.SERVING for jvm in last.jvms):
        assert take(pod, exporter, now + timedelta(days=9)) == 0


@given(st.lists(OUTCOMES, min_size=1, max_size=6))
def test_nothing_is_touched_any_more_once_a_jvm_was_lost(outcomes: list[Told | str | None]) -> None:
    exporter = parse_exporter(maxAttempts=10)
    pod = build_pod()
    take(pod, exporter)
    end(pod, Told.JVM_TERMINATED)

    plan = plan_exporter(
        exporter, Observed(GOOD, [Pod.parse(pod), Pod.parse(build_pod("other"))]), NOW, LIMITS
    )

    assert plan.lost
    assert not [action for action in plan.actions if action.job is not None]


def test_pod_is_left_alone_until_it_is_ready_long_enough() -> None:
    pod = build_pod()
    exporter = parse_exporter(minReadySeconds=3600)
    young = datetime(2026, 1, 1, 0, 59, tzinfo=UTC)

    plan = plan_exporter(exporter, Observed(GOOD, [Pod.parse(pod)]), young, LIMITS)

    assert not plan.actions
    assert plan.targets[0].reason is Reason.POD_NOT_READY
    assert plan.next_look == datetime(2026, 1, 1, 1, tzinfo=UTC)
    assert take(pod, exporter, young + timedelta(minutes=1)) == 1


def test_injector_that_cannot_start_holds_up_no_other_pod() -> None:
    exporter = parse_exporter(maxConcurrent=1)
    stuck, other = build_pod(), build_pod("other")
    take(stuck, exporter)
    name = stuck["spec"]["ephemeralContainers"][0]["name"]
    waiting = {"name": name, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    stuck["status"]["ephemeralContainerStatuses"] = [waiting]

    plan = plan_exporter(
        exporter, Observed(GOOD, [Pod.parse(stuck), Pod.parse(other)]), NOW, LIMITS
    )

    assert [action.step.key.name for action in plan.actions] == ["other"]
    assert plan.targets[0].message == "ImagePullBackOff"


def test_root_gets_what_its_container_has_and_no_more() -> None:
    context = {"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}
    pod = build_pod(securityContext={"runAsUser": 0, "runAsGroup": 0})
    pod["spec"]["containers"][0]["securityContext"] = context

    take(pod, parse_exporter())

    security = pod["spec"]["ephemeralContainers"][0]["securityContext"]
    assert security["capabilities"] == context["capabilities"]
    assert (security["runAsUser"], security["runAsNonRoot"]) == (0, False)


def test_shrunk_pod_says_all_that_the_plan_reads() -> None:
    pod = build_pod(annotations={"prometheus.io/port": "1", "other": "2"})
    exporter = parse_exporter()
    take(pod, exporter)
    end(pod, "ok")
    whole = Pod.parse(pod)

    shrunk = Pod.parse(shrink_pod(pod))

    assert shrunk.annotations == {"prometheus.io/port": "1"}
    assert (shrunk.runs, shrunk.containers) == (whole.runs, whole.containers)
    assert (shrunk.key, shrunk.ready_since, shrunk.ip) == (whole.key, whole.ready_since, whole.ip)


def test_report_of_several_jvms_is_as_bad_as_its_worst() -> None:
    exporter = parse_exporter()
    pod = build_pod()
    take(pod, exporter)
    run = Pod.parse(pod).runs[-1]
    fine = build_report(run.request, run, State.SERVING)
    bad = JvmReport(pid=9, main="Other", reason=Told.ATTACH_DISABLED, message="no")
    pod["status"]["ephemeralContainerStatuses"] = [build_run_status(run, Report((fine, bad)))]

    plan = plan_exporter(exporter, Observed(GOOD, [Pod.parse(pod)]), NOW, LIMITS)

    assert plan.targets[0].reason is Reason.ATTACH_DISABLED
    assert [jvm.port for jvm in plan.targets[0].reports] == [9400, 0]


def test_jvm_stays_published_while_a_new_configuration_is_on_its_way() -> None:
    exporter, pod = parse_exporter(), build_pod()
    take(pod, exporter)
    end(pod, "ok")
    changed = Config("rules: []", "another")

    for _ in ("due", "at work"):
        plan = plan_exporter(exporter, Observed(changed, [Pod.parse(pod)]), NOW, LIMITS)
        assert [address.port for address in list_addresses(plan.targets)] == [9400]
        for action in plan.actions:
            pod["spec"]["ephemeralContainers"].append(action.step.operations[0]["value"])
    assert len(Pod.parse(pod).runs) == 2
    end(pod, Told.PORT_IN_USE)
    plan = plan_exporter(exporter, Observed(changed, [Pod.parse(pod)]), NOW, LIMITS)
    assert list_addresses(plan.targets) == []


@pytest.mark.parametrize("told", [{"port": 0}, {"last_port": 70_000}, {"path": "/" * 200}])
def test_annotation_that_no_webhook_of_ours_wrote_spoils_nothing(told: dict[str, Any]) -> None:
    """Whoever makes pods can write it, and the status of all pods has to hold it."""
    good = Started("jmx", ("app",), 9400, 9400, "/metrics", "jmx-config/config.yaml")

    assert Started.parse(good.render()) == good
    assert Started.parse(json.dumps({**json.loads(good.render()), **told})) is None
