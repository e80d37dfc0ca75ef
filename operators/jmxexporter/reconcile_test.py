"""What is decided for containers, whatever their injectors have been through."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.kinds import Manifest
from operators.jmxexporter.api.v1alpha1 import PrometheusJmxExporter
from operators.jmxexporter.config import Config
from operators.jmxexporter.injector.messages import Action, JvmReport, Report, Request, State
from operators.jmxexporter.phases import Phase
from operators.jmxexporter.pods import Pod, shrink_pod
from operators.jmxexporter.reasons import Reason
from operators.jmxexporter.reconcile import (
    Limits,
    Observed,
    list_addresses,
    may_still_inject,
    plan_exporter,
    plan_stops,
)
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
WHOLE = (
    Reason.NO_JVM_FOUND,
    Reason.CONFIG_CHANGED,
    Reason.TOO_MANY_JVMS,
    Reason.INJECTOR_NOT_STARTED,
)
"""Reasons that injectors give for a container, not for a JVM."""
OUTCOMES = st.sampled_from([*Reason, None, "ok"])


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


def end(pod: Manifest, outcome: Reason | str | None) -> None:
    """Let the last injector end in a way."""
    run = Pod.parse(pod).runs[-1]
    report: Report | None
    if outcome == "ok":
        report = answer_well(run.request, run)
    elif outcome in WHOLE:
        report = Report(reason=str(outcome), message="of the whole container")
    elif outcome is None:
        report = None
    else:
        report = Report((build_report(run.request, run, State.REFUSED, outcome),))
    held = pod["status"].setdefault("ephemeralContainerStatuses", [])
    held.append(build_run_status(run, report))


@given(st.lists(OUTCOMES, min_size=1, max_size=12), st.integers(1, 4), st.integers(1, 5))
def test_container_is_never_tried_more_often_than_allowed(
    outcomes: list[Reason | str | None], attempts: int, budget: int
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


@pytest.mark.parametrize("ahead", [-300, 0, 299, 310, 900, 3600])
@pytest.mark.parametrize("backoff", [1, 3600])
def test_node_whose_clock_is_wrong_is_served_and_left(ahead: int, backoff: int) -> None:
    exporter = parse_exporter(backoffSeconds=backoff)
    pod, now = build_pod(), NOW

    def run_node() -> Report:
        nonlocal now
        while not take(pod, exporter, now):
            now += timedelta(seconds=60)
            assert now < NOW + timedelta(days=1)
        run, node = Pod.parse(pod).runs[-1], now + timedelta(seconds=ahead + 2)
        late = node.timestamp() > run.request.not_after
        report = answer_well(run.request, run)
        if late:
            report = Report(reason=Reason.INJECTOR_NOT_STARTED)
        status = build_run_status(run, report)
        status["state"]["terminated"]["finishedAt"] = node.isoformat()
        pod["status"].setdefault("ephemeralContainerStatuses", []).append(status)
        return report

    reports = [run_node()]
    if not reports[0].jvms:
        reports.append(run_node())
    assert reports[-1].jvms, "the second injector has enough time"

    stop = plan_stops(exporter, [Pod.parse(pod)], now, LIMITS)
    (action,) = stop.actions
    (operation,) = action.step.operations
    request = Request.parse(operation["value"]["env"][0]["value"])
    assert request.not_after > (now + timedelta(seconds=ahead + 2)).timestamp()


def test_stop_in_a_pod_that_is_not_ready_runs_as_the_user_of_the_jvm() -> None:
    """The JVM responds to nobody else, so a stop as another user costs an attempt."""
    exporter, pod = parse_exporter(), build_pod()
    take(pod, exporter)
    end(pod, "ok")
    pod["status"]["conditions"][0]["status"] = "False"

    (action,) = plan_stops(exporter, [Pod.parse(pod)], NOW, LIMITS).actions

    (operation,) = action.step.operations
    context = operation["value"]["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"]) == (1234, 5678)


@pytest.mark.parametrize("others", [0, 3])
def test_jvms_lost_in_two_pods_or_in_the_only_one_stop_all_injections(others: int) -> None:
    exporter = parse_exporter(maxAttempts=10)
    pods = [build_pod(f"shop-{number}") for number in range(1 + others)]
    for pod in pods[:2]:
        take(pod, exporter)
        end(pod, Reason.JVM_TERMINATED)

    plan = plan_exporter(exporter, Observed(GOOD, [Pod.parse(pod) for pod in pods]), NOW, LIMITS)

    assert plan.lost
    assert not [action for action in plan.actions if action.job is not None]


@pytest.mark.parametrize("reason", [Reason.JVM_TERMINATED, Reason.CONFIG_INVALID])
def test_report_of_one_pod_slows_injections_down_and_does_not_stop_them(
    reason: Reason,
) -> None:
    """A process of the pod could have written the report."""
    exporter = parse_exporter(maxConcurrent=5)
    pods = [build_pod(f"shop-{number}") for number in range(4)]
    take(pods[0], exporter)
    end(pods[0], reason)

    plan = plan_exporter(exporter, Observed(GOOD, [Pod.parse(pod) for pod in pods]), NOW, LIMITS)

    assert (plan.lost, plan.rejected) == ("", "")
    assert len([action for action in plan.actions if action.job is not None]) == 1


def test_message_of_an_injector_that_was_killed_is_no_report() -> None:
    exporter, pod = parse_exporter(), build_pod()
    take(pod, exporter)
    end(pod, "ok")
    pod["status"]["ephemeralContainerStatuses"][-1]["state"]["terminated"]["exitCode"] = 137

    (target,) = plan_exporter(exporter, Observed(GOOD, [Pod.parse(pod)]), NOW, LIMITS).targets

    assert list(target.endpoints) == []
    assert take(pod, exporter) == 1, "it is tried again, as after an injector without a report"


@pytest.mark.parametrize(
    "context", [{"runAsNonRoot": True}, {"runAsUser": 1234, "runAsGroup": 5678}]
)
def test_no_report_makes_an_injector_run_as_root(context: dict[str, Any]) -> None:
    exporter, pod = parse_exporter(), build_pod(securityContext=context)
    take(pod, exporter)
    run = Pod.parse(pod).runs[-1]
    forged = JvmReport(pid=1, reason=Reason.UID_MISMATCH, message="other", uid=0, gid=0)
    pod["status"]["ephemeralContainerStatuses"] = [build_run_status(run, Report((forged,)))]

    take(pod, exporter, NOW + timedelta(days=1))

    users = [each["securityContext"]["runAsUser"] for each in pod["spec"]["ephemeralContainers"]]
    assert len(users) == 2
    assert 0 not in users


def test_pod_on_the_network_of_its_node_is_served_only_if_asked_for() -> None:
    pod = build_pod(hostNetwork=True)
    observed = Observed(GOOD, [Pod.parse(pod)])

    refused = plan_exporter(parse_exporter(), observed, NOW, LIMITS)

    assert not refused.actions
    assert [target.reason for target in refused.targets] == [Reason.HOST_NETWORK]
    assert take(pod, parse_exporter(hostNetwork="Allow")) == 1


@pytest.mark.parametrize(
    ("mount", "refused"),
    [
        ({"name": "shared", "mountPath": "/data"}, True),
        ({"name": "shared", "mountPath": "/data", "readOnly": True}, True),
        ({"name": "shared", "mountPath": "/data", "subPath": "app/logs"}, True),
        ({"name": "shared", "mountPath": "/data", "subPath": "application"}, False),
        ({"name": "other", "mountPath": "/tmp"}, False),
    ],
)
@pytest.mark.parametrize("shrunk", [False, True])
@pytest.mark.parametrize("sidecar", [False, True])
def test_container_that_shares_its_tmp_with_a_neighbor_is_left_alone(
    mount: dict[str, Any], refused: bool, shrunk: bool, sidecar: bool
) -> None:
    pod = build_pod("shop-0", *(("app",) if sidecar else ("app", "neighbor")))
    app = {"name": "shared", "mountPath": "/tmp/", "subPath": "app"}
    pod["spec"]["containers"][0]["volumeMounts"] = [app]
    if sidecar:
        neighbor: Manifest = {"name": "neighbor", "restartPolicy": "Always"}
        pod["spec"]["initContainers"] = [neighbor]
    else:
        neighbor = pod["spec"]["containers"][1]
    neighbor["volumeMounts"] = [mount]
    observed = Observed(GOOD, [Pod.parse(shrink_pod(pod) if shrunk else pod)])
    exporter = parse_exporter(containers={"include": ["app"]})

    plan = plan_exporter(exporter, observed, NOW, LIMITS)

    (target,) = plan.targets
    assert (target.reason == Reason.SHARED_TMP, not plan.actions) == (refused, refused)


@pytest.mark.parametrize("shrunk", [False, True])
@pytest.mark.parametrize("volume", [{"hostPath": {"path": "/data"}}, {"emptyDir": {}}], ids=str)
def test_container_whose_tmp_is_a_directory_of_the_node_is_left_alone(
    volume: dict[str, Any], shrunk: bool
) -> None:
    # A pod of another namespace can mount that directory, and replace the jars.
    pod = build_pod()
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "scratch", "mountPath": "/tmp"}]
    pod["spec"]["volumes"] = [{"name": "scratch", **volume}, {"name": "x", "hostPath": {}}]
    observed = Observed(GOOD, [Pod.parse(shrink_pod(pod) if shrunk else pod)])

    plan = plan_exporter(parse_exporter(), observed, NOW, LIMITS)

    (target,) = plan.targets
    refused = "hostPath" in volume
    assert (target.reason == Reason.SHARED_TMP, not plan.actions) == (refused, refused)
    assert ("another pod of the node can mount" in target.message) == refused


def test_injector_that_does_not_start_is_given_up_and_told_to_do_nothing() -> None:
    exporter, pod = parse_exporter(maxAttempts=2), build_pod()
    take(pod, exporter)
    name = pod["spec"]["ephemeralContainers"][0]["name"]
    waiting = {"name": name, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    pod["status"]["ephemeralContainerStatuses"] = [waiting]

    before = plan_exporter(exporter, Observed(GOOD, [Pod.parse(pod)]), NOW, LIMITS)
    late = NOW + timedelta(seconds=302)

    assert before.next_look == NOW + timedelta(seconds=301)
    assert Pod.parse(pod).runs[0].request.not_after == (NOW + timedelta(seconds=300)).timestamp()
    assert take(pod, exporter, late + timedelta(minutes=5)) == 1
    last = plan_exporter(exporter, Observed(GOOD, [Pod.parse(pod)]), NOW + timedelta(1), LIMITS)
    (target,) = last.targets
    assert (target.phase, target.reason) == (Phase.FAILED, Reason.INJECTOR_NOT_STARTED)


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
    bad = JvmReport(pid=9, main="Other", reason=Reason.ATTACH_DISABLED, message="no")
    pod["status"]["ephemeralContainerStatuses"] = [build_run_status(run, Report((fine, bad)))]

    plan = plan_exporter(exporter, Observed(GOOD, [Pod.parse(pod)]), NOW, LIMITS)

    assert plan.targets[0].reason is Reason.ATTACH_DISABLED
    assert [jvm.port for jvm in plan.targets[0].reports] == [9400, 0]


UNPUBLISHED = {Reason.JVM_TERMINATED, Reason.NOT_SERVING}


@pytest.mark.parametrize("outcome", [*sorted(set(Reason) - {Reason.NO_JVM_FOUND}), None])
def test_jvm_stays_published_until_it_is_known_to_have_stopped(
    outcome: Reason | None,
) -> None:
    """A typo in a rule must not remove a JVM from Prometheus that serves as before."""
    exporter, pod = parse_exporter(maxAttempts=1), build_pod()
    take(pod, exporter)
    end(pod, "ok")
    changed = Config("rules: []", "another")

    for _ in ("due", "at work"):
        plan = plan_exporter(exporter, Observed(changed, [Pod.parse(pod)]), NOW, LIMITS)
        assert [address.port for address in list_addresses(plan.targets)] == [9400]
        for action in plan.actions:
            pod["spec"]["ephemeralContainers"].append(action.step.operations[0]["value"])
    assert len(Pod.parse(pod).runs) == 2
    end(pod, outcome)

    plan = plan_exporter(exporter, Observed(changed, [Pod.parse(pod)]), NOW, LIMITS)

    addresses = [address.port for address in list_addresses(plan.targets)]
    assert addresses == ([] if outcome in UNPUBLISHED else [9400])
    assert plan.targets[0].phase is Phase.FAILED


def test_failed_report_tells_what_the_jvm_still_serves() -> None:
    exporter, pod = parse_exporter(maxAttempts=1, lastPort=9410), build_pod()
    take(pod, exporter)
    end(pod, "ok")
    moved = parse_exporter(maxAttempts=1, port=9500, lastPort=9510, path="/other")
    take(pod, moved)
    run = Pod.parse(pod).runs[-1]
    report = build_report(run.request, run, State.FAILED, Reason.AGENT_ERROR)
    served = replace(report, port=9400, config_hash=CONFIG_HASH)
    pod["status"]["ephemeralContainerStatuses"].append(build_run_status(run, Report((served,))))

    (target,) = plan_exporter(moved, Observed(GOOD, [Pod.parse(pod)]), NOW, LIMITS).targets

    shown = [(each.jvm.port, each.path, each.jvm.config_hash) for each in target.endpoints]
    assert shown == [(9400, "/metrics", CONFIG_HASH)]


def test_endpoint_of_a_jvm_that_was_replaced_in_its_container_is_forgotten() -> None:
    exporter, pod = parse_exporter(), build_pod()
    take(pod, exporter)
    end(pod, "ok")
    changed = parse_exporter(port=9500)
    take(pod, changed)
    run = Pod.parse(pod).runs[-1]
    other = replace(build_report(run.request, run, State.SERVING), pid=77)
    pod["status"]["ephemeralContainerStatuses"].append(build_run_status(run, Report((other,))))

    (target,) = plan_exporter(changed, Observed(GOOD, [Pod.parse(pod)]), NOW, LIMITS).targets

    assert [(each.jvm.pid, each.jvm.port) for each in target.endpoints] == [(77, 9500)]


@pytest.mark.parametrize(
    "tuning",
    [{"timeoutSeconds": 50}, {"maxJvms": 7}, {"minFreeMemory": "32Mi"}, {"backoffSeconds": 7}],
)
def test_limit_that_changes_spends_no_injector_on_a_jvm_that_serves(tuning: dict[str, Any]) -> None:
    pod = build_pod()
    take(pod, parse_exporter())
    end(pod, "ok")

    assert take(pod, parse_exporter(**tuning)) == 0


@pytest.mark.parametrize(
    ("outcome", "tuning"),
    [
        (Reason.TIMEOUT, {"timeoutSeconds": 50}),
        (Reason.TOO_LITTLE_MEMORY, {"minFreeMemory": "32Mi"}),
        (Reason.TOO_MANY_JVMS, {"maxJvms": 7}),
    ],
)
def test_limit_that_may_have_been_the_cause_is_tried_at_once(
    outcome: Reason, tuning: dict[str, Any]
) -> None:
    pod = build_pod()
    take(pod, parse_exporter(maxAttempts=1))
    end(pod, outcome)
    assert take(pod, parse_exporter(maxAttempts=1), NOW + timedelta(days=1)) == 0

    assert take(pod, parse_exporter(maxAttempts=1, **tuning)) == 1


@pytest.mark.parametrize(
    "outcome",
    [Reason.NO_JVM_FOUND, Reason.ATTACH_DISABLED, Reason.UNSUPPORTED_JVM],
)
def test_container_that_cannot_be_served_is_asked_again_for_other_processes_only(
    outcome: Reason,
) -> None:
    exporter, pod = parse_exporter(), build_pod()
    take(pod, exporter)
    end(pod, outcome)
    changed = Config("rules: []", "another")

    plan = plan_exporter(exporter, Observed(changed, [Pod.parse(pod)]), NOW, LIMITS)
    assert not plan.actions
    assert take(pod, parse_exporter(mainClass="Shop")) == 1


def test_endpoint_is_stopped_even_if_the_pod_had_all_its_injectors() -> None:
    exporter, pod = parse_exporter(maxEphemeralContainers=1), build_pod()
    take(pod, exporter)
    end(pod, "ok")

    plan = plan_stops(exporter, [Pod.parse(pod)], NOW, LIMITS)

    assert [action.job for action in plan.actions] == [Action.STOP]


@pytest.mark.parametrize("reported", [{"port": 0}, {"last_port": 70_000}, {"path": "/" * 200}])
def test_annotation_that_no_webhook_of_ours_wrote_spoils_nothing(reported: dict[str, Any]) -> None:
    """Anyone who creates pods can write it, and the status must have room for all pods."""
    good = Started("jmx", ("app",), 9400, 9400, "/metrics", "jmx-config/config.yaml")

    assert Started.parse(good.render()) == good
    assert Started.parse(json.dumps({**json.loads(good.render()), **reported})) is None


def test_injector_whose_end_nobody_reports_holds_up_no_other_pod_for_good() -> None:
    """Its node is lost, or the kernel holds it: nobody can end an ephemeral container."""
    exporter = parse_exporter(maxConcurrent=1)
    lost, other = build_pod(), build_pod("other")
    take(lost, exporter)
    name = lost["spec"]["ephemeralContainers"][0]["name"]
    running = {"name": name, "state": {"running": {"startedAt": "2026-01-02T00:00:01Z"}}}
    lost["status"]["ephemeralContainerStatuses"] = [running]
    lost["status"]["conditions"][0]["status"] = "False"
    observed = Observed(GOOD, [Pod.parse(lost), Pod.parse(other)])

    before = plan_exporter(exporter, observed, NOW, LIMITS)
    assert not before.actions
    assert before.next_look is not None
    after = plan_exporter(exporter, observed, before.next_look, LIMITS)

    assert [action.step.key.name for action in after.actions] == ["other"]
    assert not may_still_inject(observed.pods[0], "u-1", before.next_look)
    lost["status"]["conditions"][0]["status"] = "True"
    assert take(lost, exporter, before.next_look + timedelta(minutes=5)) == 1
