"""The jmxexporter operator over HTTP, against the fake API and a kubelet without time."""

from __future__ import annotations

import hashlib

from libs.common.kinds import CONFIG_MAP, ENDPOINT_SLICE, EVENT, POD, SERVICE, Key
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER, PrometheusJmxExporter
from operators.jmxexporter.injector.messages import Action, JvmReport, Report, Request
from operators.jmxexporter.naming import OPT_OUT, STARTED
from operators.jmxexporter.pods import InjectorRun
from operators.jmxexporter.reasons import Reason
from operators.jmxexporter.samples import (
    CONFIG_HASH,
    SHOP,
    answer_well,
    build_exporter,
    build_pod,
    build_pod_status,
)
from operators.jmxexporter.shown import JMX, OTHER, condition, play, runs, status
from operators.jmxexporter.started import Started


async def test_running_jvm_is_served_and_found_by_prometheus(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, harness)

    assert condition(api) == ("True", Reason.ALL_SERVING)
    (endpoint,) = status(api)["metricsEndpoints"]
    assert (endpoint["pod"], endpoint["port"]) == (SHOP.name, 9400)
    assert endpoint["url"] == "http://10.0.0.7:9400/metrics"
    assert endpoint["configHash"] == CONFIG_HASH
    annotations = api.get(POD, SHOP)["metadata"]["annotations"]
    assert annotations["prometheus.io/scrape"] == "true"
    assert annotations["prometheus.io/port"] == "9400"
    assert annotations["jmx-prometheus-exporter"] == "verified"
    await harness.eventually(
        lambda: {event["note"] for event in api.objects(EVENT)}
        >= {
            "Added an injector to container app of pod shop-0: Ensure",
            "Annotated pod shop-0 for port 9400",
        },
        "Events say what was done",
    )
    assert harness.metric("jmxexporter_injectors_started_total", action="Ensure") == 1


async def test_injector_has_the_ids_of_the_jvm_and_no_right_beyond(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, harness)

    (injector,) = api.get(POD, SHOP)["spec"]["ephemeralContainers"]
    assert injector["targetContainerName"] == "app"
    assert injector["securityContext"] == {
        "runAsUser": 1234,
        "runAsGroup": 5678,
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert "rules" not in str(injector["env"]), "the configuration comes by reference"


async def test_ids_that_nobody_tells_are_told_by_the_first_injector(
    api: FakeApi, harness: OperatorHarness
) -> None:
    def answer(request: Request, run: InjectorRun) -> Report:
        if (run.uid, run.gid) == (1000, 1000):
            return answer_well(request, run)
        reported = Reason.UID_MISMATCH
        return Report((JvmReport(pid=1, reason=reported, message="other", uid=1000, gid=1000),))

    api.create(build_pod(securityContext={}))
    api.create(build_exporter())
    await play(api, harness, answer)

    assert [(run.uid, run.gid) for run in runs(api)] == [(65532, 65532), (1000, 1000)]
    assert condition(api) == ("True", Reason.ALL_SERVING)


async def test_restarted_container_is_injected_again(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, harness)

    fresh = build_pod_status(SHOP.name, "app", restart=1)["containerStatuses"]
    api.patch_status(POD, SHOP, {"containerStatuses": fresh})
    await play(api, harness)

    assert [run.request.container_id for run in runs(api)] == ["shop-0-app-0", "shop-0-app-1"]
    assert status(api)["metricsEndpoints"][0]["containerId"] == "shop-0-app-1"


async def test_other_configuration_is_put_in(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, harness)

    api.patch(CONFIG_MAP, ("default", "jmx-config"), {"data": {"config.yaml": OTHER}})
    await play(api, harness)

    digest = hashlib.sha256(OTHER.encode()).hexdigest()
    assert [run.request.config_hash for run in runs(api)] == [CONFIG_HASH, digest]
    assert status(api)["metricsEndpoints"][0]["configHash"] == digest


async def test_containers_of_a_pod_take_turns(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pod(SHOP.name, "app", "side", "istio-proxy"))
    api.create(build_exporter(lastPort=9409))
    await harness.converged()
    assert [run.container for run in runs(api)] == ["app"]

    await play(api, harness)

    assert [run.container for run in runs(api)] == ["app", "side"]


async def test_dry_run_asks_and_changes_nothing(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pod())
    api.create(build_exporter(mode="DryRun"))
    await play(api, harness)

    assert [run.request.action for run in runs(api)] == [Action.CHECK]
    assert condition(api) == ("True", Reason.DRY_RUN)
    assert status(api)["metricsEndpoints"][0]["state"] == "WouldInject"
    assert "prometheus.io/scrape" not in (api.get(POD, SHOP)["metadata"].get("annotations") or {})


async def test_paused_exporter_touches_nothing(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pod())
    api.create(build_exporter(mode="Paused"))
    await play(api, harness)

    assert runs(api) == []
    assert condition(api) == ("True", Reason.PAUSED)


async def test_pod_that_does_not_run_yet_is_waited_for(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create({**build_pod(), "status": {"phase": "Pending"}})
    api.create(build_exporter())
    await play(api, harness)
    assert condition(api) == ("False", Reason.INJECTING)
    assert status(api)["pendingPods"] == 1

    api.patch_status(POD, SHOP, build_pod_status(SHOP.name, "app"))
    await play(api, harness)

    assert condition(api) == ("True", Reason.ALL_SERVING)


async def test_pod_that_never_becomes_ready_does_not_hold_up_the_others(
    api: FakeApi, harness: OperatorHarness
) -> None:
    stuck = build_pod("stuck")
    stuck["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    api.create(stuck)
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, harness)

    assert condition(api) == ("True", Reason.ALL_SERVING)
    assert status(api)["pendingPods"] == 1
    assert runs(api, Key("default", "stuck")) == []


async def test_native_sidecar_is_served_like_a_container(
    api: FakeApi, harness: OperatorHarness
) -> None:
    pod = build_pod()
    pod["spec"]["initContainers"] = [
        {"name": "setup", "image": "shop"},
        {"name": "side", "image": "shop", "restartPolicy": "Always"},
    ]
    running = {"name": "side", "containerID": "containerd://side-0", "state": {"running": {}}}
    done = {"name": "setup", "containerID": "containerd://setup-0", "state": {"terminated": {}}}
    pod["status"]["initContainerStatuses"] = [done, running]
    api.create(pod)
    api.create(build_exporter(lastPort=9409))
    await play(api, harness)

    assert [run.container for run in runs(api)] == ["app", "side"]
    assert condition(api) == ("True", Reason.ALL_SERVING)


async def test_annotations_are_switched_off_and_on_and_those_of_others_stay(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pod(annotations={"prometheus.io/path": "/own"}))
    api.create(build_pod("other"))
    api.create(build_exporter(annotations="None"))
    await play(api, harness)
    assert api.get(POD, SHOP)["metadata"]["annotations"] == {"prometheus.io/path": "/own"}
    assert not api.get(POD, Key("default", "other"))["metadata"].get("annotations")
    assert condition(api) == ("True", Reason.ALL_SERVING)
    assert not status(api).get("failures")

    api.patch(PROMETHEUS_JMX_EXPORTER, JMX, {"spec": {"annotations": "Prometheus"}})
    await play(api, harness)
    assert "prometheus.io/port" in api.get(POD, Key("default", "other"))["metadata"]["annotations"]

    api.patch(PROMETHEUS_JMX_EXPORTER, JMX, {"spec": {"annotations": "None"}})
    await play(api, harness)
    assert api.get(POD, SHOP)["metadata"]["annotations"] == {"prometheus.io/path": "/own"}
    assert not api.get(POD, Key("default", "other"))["metadata"].get("annotations")


async def test_expressions_select_pods_and_an_annotation_excludes_one(
    api: FakeApi, harness: OperatorHarness
) -> None:
    rule = {"key": "app", "operator": "In", "values": ["shop", "store"]}
    api.create(build_pod())
    api.create(build_pod("store-0", labels={"app": "store"}))
    api.create(build_pod("bank-0", labels={"app": "bank"}))
    api.create(build_exporter(labelSelector=None, selector={"matchExpressions": [rule]}))
    await play(api, harness)
    assert status(api)["instrumentedPods"] == 2
    assert runs(api, Key("default", "bank-0")) == []

    api.patch(POD, SHOP, {"metadata": {"annotations": {OPT_OUT: "true"}}})
    await play(api, harness)

    assert [run.request.action for run in runs(api)] == [Action.ENSURE, Action.STOP]
    assert status(api)["instrumentedPods"] == 1
    assert set(api.get(POD, SHOP)["metadata"]["annotations"]) == {OPT_OUT}


async def test_only_some_pods_are_worked_on_at_a_time(
    api: FakeApi, harness: OperatorHarness
) -> None:
    for number in range(6):
        api.create(build_pod(f"shop-{number}"))
    api.create(build_exporter(maxConcurrent=2))
    await harness.converged()

    touched = [number for number in range(6) if runs(api, Key("default", f"shop-{number}"))]
    assert len(touched) == 2
    await play(api, harness)
    assert status(api)["instrumentedPods"] == 6


async def test_fifty_pods_are_served_in_one_go_each_by_one_injector(
    api: FakeApi, harness: OperatorHarness
) -> None:
    names = [f"shop-{number:02}" for number in range(50)]
    for name in names:
        api.create(build_pod(name))
    api.create(build_exporter(maxConcurrent=50, service={}))
    await harness.converged()
    assert {len(runs(api, Key("default", name))) for name in names} == {1}, "all at once"

    await play(api, harness)

    assert status(api)["instrumentedPods"] == 50
    assert {len(runs(api, Key("default", name))) for name in names} == {1}
    (held,) = api.objects(ENDPOINT_SLICE)
    assert sorted(each["targetRef"]["name"] for each in held["endpoints"]) == names


SERVICE_KEY = Key("default", "jmx-jmx")


async def test_service_follows_where_metrics_are_served_and_goes_when_it_is_not_asked_for(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pod())
    api.create(build_exporter(service={}))
    await play(api, harness)

    assert api.get(SERVICE, SERVICE_KEY)["spec"]["clusterIP"] == "None"
    (held,) = api.objects(ENDPOINT_SLICE)
    assert held["endpoints"][0]["addresses"] == ["10.0.0.7"]
    assert held["ports"][0]["port"] == 9400

    mark = api.mark()
    await harness.restart()
    await play(api, harness)
    assert api.writes(since=mark) == [], "a settled exporter writes nothing"

    api.patch(PROMETHEUS_JMX_EXPORTER, JMX, {"spec": {"service": None}})
    await play(api, harness)
    assert not api.objects(ENDPOINT_SLICE)
    assert not api.objects(SERVICE)


async def test_monitor_without_its_operator_is_told(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pod())
    api.create(build_exporter(service={"monitor": {}}))
    await play(api, harness)

    assert condition(api) == ("False", Reason.MONITOR_UNAVAILABLE)
    assert status(api)["instrumentedPods"] == 1
    assert api.get(SERVICE, SERVICE_KEY), "the rest is there"


async def test_pod_that_began_with_the_exporter_is_shown_and_never_touched(
    api: FakeApi, harness: OperatorHarness
) -> None:
    exporter = PrometheusJmxExporter.parse(build_exporter())
    started = Started.of(exporter, ["app"])
    api.create(build_pod(annotations={STARTED: started.render()}))
    api.create(build_exporter(service={}))
    await play(api, harness)

    assert runs(api) == []
    assert condition(api) == ("Unknown", Reason.NOT_VERIFIED), "nobody answers at its address"
    (endpoint,) = status(api)["metricsEndpoints"]
    assert (endpoint["state"], endpoint["port"]) == ("NotVerified", 9400)
    annotations = api.get(POD, SHOP)["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == "9400"
    assert api.objects(ENDPOINT_SLICE)

    api.patch(PROMETHEUS_JMX_EXPORTER, JMX, {"spec": {"port": 9500}})
    await play(api, harness)
    (failure,) = status(api)["failures"]
    assert failure["reason"] == Reason.NOT_VERIFIED
    assert api.get(POD, SHOP)["metadata"]["annotations"]["prometheus.io/port"] == "9400"
    assert runs(api) == []
