"""Single decisions whose change no other test would notice."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from libs.common.conditions import find_condition
from libs.common.kinds import ENDPOINT_SLICE, POD, SERVICE, Key, Manifest
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.jmxexporter.api.v1alpha1 import PrometheusJmxExporter
from operators.jmxexporter.guard_calls import GuardKey, GuardState
from operators.jmxexporter.injector.messages import Report, Request
from operators.jmxexporter.phases import Phase
from operators.jmxexporter.pods import Pod, shrink_pod
from operators.jmxexporter.reasons import Reason
from operators.jmxexporter.reconcile import Observed, Plan, plan_exporter
from operators.jmxexporter.reconcile_test import GOOD, LIMITS, NOW, end, parse_exporter, take
from operators.jmxexporter.resources import Image, build_annotation_patch
from operators.jmxexporter.samples import FINISHED, SHOP, build_exporter, build_pod
from operators.jmxexporter.shown import condition, play, runs, status
from operators.jmxexporter.startup import CONFIG_VOLUME, VOLUME, build_startup_patch
from operators.jmxexporter.status import build_status


def test_delay_doubles_with_each_attempt() -> None:
    exporter, pod = parse_exporter(maxAttempts=5, backoffSeconds=30), build_pod()
    ended = NOW.replace(year=2026, month=1, day=1, hour=0, minute=10, second=2)

    for delay in (30, 60, 120):
        take(pod, exporter, ended + timedelta(days=1))
        end(pod, Reason.NOT_READY)
        early = plan_exporter(
            exporter, Observed(GOOD, [Pod.parse(pod)]), ended + timedelta(seconds=1), LIMITS
        )
        assert early.next_look == ended + timedelta(seconds=delay)


def test_jvm_that_ended_for_an_earlier_spec_keeps_the_breaker_closed() -> None:
    pod = build_pod()
    take(pod, parse_exporter())
    end(pod, Reason.JVM_TERMINATED)
    exporter = parse_exporter()
    later = exporter.model_copy(
        update={"metadata": exporter.metadata.model_copy(update={"generation": 2})}
    )
    observed = Observed(GOOD, [Pod.parse(pod)])

    assert plan_exporter(exporter, observed, NOW, LIMITS).lost
    assert not plan_exporter(later, observed, NOW, LIMITS).lost


@pytest.mark.parametrize(
    ("finished", "lost"),
    [
        ("2026-01-01T00:09:49Z", False),
        # The runtime of a busy node notes the start of the injector late.
        ("2026-01-01T00:09:50Z", True),
        ("2026-01-01T00:10:00Z", True),
        ("2026-01-01T00:10:12Z", True),
        ("2026-01-01T00:10:13Z", False),
    ],
)
def test_container_counts_as_lost_only_if_it_ended_during_the_injection(
    finished: str, lost: bool
) -> None:
    """The injector ran from 00:10:00 to 00:10:02; the node may note both 10 s late."""
    pod = build_pod()
    take(pod, parse_exporter())
    end(pod, None)
    before = pod["status"]["containerStatuses"][0]["containerID"]
    ended = {"containerID": before, "finishedAt": finished, "exitCode": 137}
    pod["status"]["containerStatuses"][0] |= {
        "containerID": "containerd://shop-0-app-1",
        "lastState": {"terminated": ended},
    }

    plan = plan_exporter(parse_exporter(), Observed(GOOD, [Pod.parse(pod)]), NOW, LIMITS)

    assert bool(plan.lost) is lost


async def test_pod_without_any_jvm_is_named_as_a_failure(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, harness, lambda *_: Report(reason=Reason.NO_JVM_FOUND, message="no JVM"))

    (failure,) = status(api)["failures"]
    assert (failure["pod"], failure["reason"]) == (SHOP.name, Reason.NO_JVM_FOUND)
    assert status(api)["failedPods"] == 1


async def test_service_that_cannot_be_written_is_tried_again(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.fail("patch", SERVICE, status=500, times=2)
    api.fail("create", SERVICE, status=500, times=2)
    api.create(build_pod())
    api.create(build_exporter(service={}))

    await harness.eventually(lambda: bool(runs(api)), "an injector is there")
    await play(api, harness)
    await harness.eventually(lambda: len(api.objects(SERVICE)) == 1)
    await harness.eventually(lambda: condition(api) == ("True", Reason.ALL_SERVING))
    assert api.objects(ENDPOINT_SLICE)


def test_annotations_of_others_survive_a_patch_from_an_older_look() -> None:
    """The patch may add the whole map; the version keeps it from replacing a newer one."""
    pod = build_pod()
    pod["metadata"] |= {"uid": "p-1", "resourceVersion": "7"}

    patch = build_annotation_patch(Pod.parse(pod), {"a": "1"})

    assert patch is not None
    assert patch.kind == POD
    assert patch.operations[0] == {"op": "add", "path": "/metadata/annotations", "value": {}}
    assert (patch.uid, patch.resource_version) == ("p-1", "7")


def prepare() -> list[Manifest]:
    exporter = PrometheusJmxExporter.parse(build_exporter(startup="NewPods"))
    pod: Manifest = {
        "metadata": {"name": "shop"},
        "spec": {"containers": [{"name": "app", "image": "shop"}]},
    }
    return build_startup_patch(exporter, pod, Image("injector"))


def find(path: str) -> Manifest:
    (found,) = (each for each in prepare() if each["path"] == path)
    value = found["value"]
    return {each["name"]: each for each in value}


def test_containers_can_write_neither_the_jars_nor_the_configuration() -> None:
    mounts = find("/spec/containers/0/volumeMounts")

    assert mounts[VOLUME]["readOnly"] is True
    assert mounts[CONFIG_VOLUME]["readOnly"] is True


def test_container_that_was_given_up_has_no_further_turn() -> None:
    exporter, pod = parse_exporter(maxAttempts=1), build_pod()
    take(pod, exporter)
    end(pod, Reason.ATTACH_REFUSED)

    (target,) = plan_exporter(exporter, Observed(GOOD, [Pod.parse(pod)]), NOW, LIMITS).targets

    assert (target.phase, target.attempts) == (Phase.FAILED, 1)


def crash(pod: Manifest, restarts: int) -> None:
    """Let the container of a pod end once more, and run again."""
    (held,) = pod["status"]["containerStatuses"]
    name = pod["metadata"]["name"]
    ended = {"containerID": held["containerID"], "finishedAt": FINISHED, "exitCode": 143}
    held |= {
        "containerID": f"containerd://{name}-app-{restarts}",
        "lastState": {"terminated": ended},
        "restartCount": restarts,
    }


def plan(*pods: Manifest, **observed: Any) -> Plan:
    views = [Pod.parse(shrink_pod(pod)) for pod in pods]
    return plan_exporter(parse_exporter(), Observed(GOOD, views, **observed), NOW, LIMITS)


def crash_during_injection(name: str) -> Manifest:
    pod = build_pod(name)
    take(pod, parse_exporter())
    end(pod, None)
    crash(pod, 1)
    return pod


def test_pod_that_ends_for_reasons_of_its_own_does_not_stop_the_others() -> None:
    unstable, healthy = crash_during_injection("a"), [build_pod(f"b-{n}") for n in range(3)]

    first = plan(unstable, *healthy)
    crash(unstable, 2)
    second = plan(unstable, *healthy)

    assert (first.broken, first.targets[0].reason) == (False, Reason.JVM_TERMINATED)
    assert [action.step.key.name for action in first.actions] == ["b-0"], "one at a time"
    assert second.targets[0].reason is Reason.CONTAINER_UNSTABLE
    assert len(second.actions) == 3, "it slows nobody down once it has crashed without us"


def test_breaker_closes_when_the_containers_also_end_without_an_injection() -> None:
    pods = [crash_during_injection(name) for name in ("a", "b")]
    assert plan(*pods).lost
    crash(pods[0], 2)
    assert plan(*pods, broken=True).broken
    crash(pods[1], 2)

    assert not plan(*pods, broken=True).broken


def test_breaker_closes_at_a_later_time_in_an_annotation() -> None:
    pods = [crash_during_injection(name) for name in ("a", "b")]

    again = plan(*pods, resumed=NOW)

    assert (again.lost, again.broken) == ("", False)
    assert len(again.actions) == 2


def test_clock_of_a_node_does_not_decide_which_jvms_a_resume_forgives() -> None:
    pods = [crash_during_injection(name) for name in ("a", "b")]

    # The containers ended long before that by the clock of their node.
    found = plan(*pods, resumed=NOW - timedelta(seconds=1))

    assert found.lost


def test_resume_by_a_clock_that_is_ahead_takes_effect_at_its_time() -> None:
    """Until then JVMs could end without a limit."""
    pods = [Pod.parse(crash_during_injection(name)) for name in ("a", "b")]
    observed = Observed(GOOD, pods, resume_at=NOW + timedelta(hours=1))

    found = plan_exporter(parse_exporter(), observed, NOW, LIMITS)

    assert (bool(found.lost), found.next_look) == (True, observed.resume_at)
    shown = build_status(parse_exporter(), observed, found, [], current=[], now=NOW)
    degraded = find_condition({"status": shown}, "Degraded")
    assert degraded is not None
    assert "jmx-resume is ahead of the clock of the operator" in degraded["message"]


@pytest.mark.parametrize(("tls", "login"), [(True, False), (False, True), (False, False)])
def test_secrets_are_read_again_once_when_a_certificate_ends_or_all_clients_are_refused(
    tls: bool, login: bool
) -> None:
    closed = {"tls": {"secretName": "cert"}} if tls else {}
    closed |= {"basicAuth": {"secretName": "login"}} if login else {}
    exporter, pod, now = parse_exporter(**closed), build_pod(), NOW + timedelta(days=1)
    take(pod, exporter)
    end(pod, "ok")

    def look(renew_at: datetime | None) -> Plan:
        view = Pod.parse(pod)
        (run,) = view.runs[-1:]
        key = GuardKey(run.request.container_id, 1, 100)
        state = GuardState(
            run.name, GOOD.hash, now, config_hash=GOOD.hash, scrape="it ended", renew_at=renew_at
        )
        observed = Observed(GOOD, [view], states={key: state}, signs=True)
        return plan_exporter(exporter, observed, now, LIMITS)

    def inject(found: Plan) -> int:
        steps = [action.step for action in found.actions if action.job]
        for step in steps:
            (operation,) = step.operations
            pod["spec"]["ephemeralContainers"].append(operation["value"])
            end(pod, "ok")
        return len(steps)

    renew_at = now - timedelta(minutes=1)
    assert inject(look(None)) == 0
    assert inject(look(renew_at)) == (tls or login)
    again = look(renew_at)
    assert inject(again) == 0
    assert again.targets[0].reason is Reason.SCRAPE_FAILED


def test_static_pod_is_named_and_holds_no_slot() -> None:
    static = build_pod("a", annotations={"kubernetes.io/config.mirror": "x"})

    found = plan(static, build_pod("b"))

    assert found.targets[0].reason is Reason.STATIC_POD
    assert [action.step.key.name for action in found.actions] == ["b"]


# A webhook chooses the code of its refusal.
@pytest.mark.parametrize(
    ("code", "message"),
    [
        (403, "static pods do not support ephemeral containers"),
        (422, 'admission webhook "a.example.com" denied the request: no'),
        (409, 'admission webhook "a.example.com" denied the request: no'),
    ],
)
async def test_pod_that_the_api_server_refuses_blocks_no_other(
    api: FakeApi, harness: OperatorHarness, code: int, message: str
) -> None:
    api.create(build_pod("a"))
    api.create(build_pod("b"))
    api.fail(
        "patch",
        POD,
        status=code,
        times=None,
        message=message,
        name="a",
        subresource="ephemeralcontainers",
    )
    api.create(build_exporter(maxConcurrent=1))

    await play(api, harness)

    await harness.eventually(lambda: len(runs(api, Key("default", "b"))) == 1)
    await play(api, harness)
    (failure,) = status(api)["failures"]
    assert (failure["pod"], failure["reason"]) == ("a", Reason.REFUSED)
    assert message in failure["message"]
    tried = [each for each in api.writes(kind=POD) if each.key.name == "a"]
    assert len(tried) == 1, "the next attempt comes later"


async def test_pod_of_the_same_name_is_not_the_one_that_was_refused(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pod())
    api.fail("patch", POD, status=403, times=1, message="no", subresource="ephemeralcontainers")
    api.create(build_exporter(backoffSeconds=3600))
    await play(api, harness)
    assert not runs(api)

    api.delete(POD, SHOP)
    api.create(build_pod())
    await play(api, harness)

    await harness.eventually(lambda: len(runs(api)) == 1)


def test_endpoint_of_an_exporter_that_lost_its_finalizer_makes_room() -> None:
    """Its port is taken in each JVM; for example the operator was away when it was deleted."""
    exporter, pod = parse_exporter(), build_pod()
    metadata = exporter.metadata.model_copy(update={"uid": "former"})
    take(pod, exporter.model_copy(update={"metadata": metadata}))
    end(pod, "ok")

    def find_former(*exporters: str) -> tuple[str, ...]:
        observed = Observed(GOOD, [Pod.parse(pod)], exporters=frozenset(exporters))
        actions = plan_exporter(exporter, observed, NOW, LIMITS).actions
        (step,) = (action.step for action in actions if action.job)
        (operation,) = step.operations
        return Request.parse(operation["value"]["env"][0]["value"]).former

    assert find_former("u-1") == ("former",)
    assert find_former("u-1", "former") == ()
