"""The jmxexporter operator over HTTP, against the fake API and a kubelet without time."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from libs.common.conditions import find_condition
from libs.common.crd import build_crd
from libs.common.kinds import CONFIG_MAP, ENDPOINT_SLICE, POD, SERVICE, Key, Manifest
from libs.common.testing.clock import Ahead
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.jmxexporter.api.v1alpha1 import (
    PROMETHEUS_JMX_EXPORTER,
    PrometheusJmxExporter,
    Reason,
)
from operators.jmxexporter.controller import OPERATOR
from operators.jmxexporter.injector.messages import Action, JvmReport, Report, Request, State
from operators.jmxexporter.injector.messages import Reason as Told
from operators.jmxexporter.naming import STARTED
from operators.jmxexporter.pods import Pod, Run
from operators.jmxexporter.samples import (
    CONFIG_HASH,
    SHOP,
    Answer,
    answer_well,
    build_config_map,
    build_exporter,
    build_pod,
    build_pod_status,
    build_report,
    run_injectors,
)
from operators.jmxexporter.started import Started

JMX = Key("default", "jmx")
OTHER = "rules:\n- pattern: other\n"


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        api.register(build_crd(PrometheusJmxExporter))
        api.create(build_config_map())
        yield api


@pytest.fixture
def clock() -> Ahead:
    return Ahead()


@pytest.fixture
async def harness(api: FakeApi, clock: Ahead) -> AsyncIterator[OperatorHarness]:
    async with OperatorHarness(OPERATOR, api.config, clock=clock) as harness:
        yield harness


async def play(api: FakeApi, harness: OperatorHarness, answer: Answer = answer_well) -> None:
    """Let operator and kubelet react to each other until both are silent."""
    while True:
        await harness.settled()
        version = api.store.version
        run_injectors(api, answer)
        if api.store.version == version:
            return


def status(api: FakeApi, key: Key = JMX) -> Manifest:
    found: Manifest = api.get(PROMETHEUS_JMX_EXPORTER, key)["status"]
    return found


def condition(api: FakeApi, name: str = "Ready", key: Key = JMX) -> tuple[str, str]:
    found = find_condition(api.get(PROMETHEUS_JMX_EXPORTER, key), name)
    assert found is not None
    return found["status"], found["reason"]


def runs(api: FakeApi, key: Key = SHOP) -> list[Run]:
    return list(Pod.parse(api.get(POD, key)).runs)


def refuse(reason: Told, **rest: Any) -> Answer:
    def answer(request: Request, run: Run) -> Report:
        return Report((build_report(request, run, State.REFUSED, reason),))

    return answer


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
    def answer(request: Request, run: Run) -> Report:
        if (run.uid, run.gid) == (1000, 1000):
            return answer_well(request, run)
        told = Told.UID_MISMATCH
        return Report((JvmReport(pid=1, reason=told, message="other", uid=1000, gid=1000),))

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


@pytest.mark.parametrize(
    ("text", "words"),
    [("rules: [", "not YAML"), ("hostPort: other:1234", "hostPort"), ("rulse: []", "unknown")],
)
async def test_configuration_that_cannot_be_used_reaches_no_pod(
    api: FakeApi, harness: OperatorHarness, text: str, words: str
) -> None:
    api.patch(CONFIG_MAP, ("default", "jmx-config"), {"data": {"config.yaml": text}})
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, harness)

    assert condition(api, "ConfigValid") == ("False", Reason.CONFIG_INVALID)
    ready = find_condition(api.get(PROMETHEUS_JMX_EXPORTER, JMX), "Ready")
    assert ready is not None
    assert words in ready["message"]
    assert runs(api) == []


async def test_missing_config_map_is_waited_for(api: FakeApi, harness: OperatorHarness) -> None:
    api.delete(CONFIG_MAP, Key("default", "jmx-config"))
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, harness)
    assert condition(api, "ConfigValid") == ("False", Reason.CONFIG_MISSING)

    api.create(build_config_map())
    await play(api, harness)

    assert condition(api) == ("True", Reason.ALL_SERVING)


async def test_configuration_that_one_jvm_refuses_is_spared_the_others(
    api: FakeApi, harness: OperatorHarness
) -> None:
    for number in range(4):
        api.create(build_pod(f"shop-{number}"))
    api.create(build_exporter(maxConcurrent=1))
    await play(api, harness, refuse(Told.CONFIG_INVALID))

    assert condition(api, "ConfigValid") == ("False", Reason.CONFIG_INVALID)
    assert sum(len(runs(api, Key("default", f"shop-{number}"))) for number in range(4)) == 1


async def test_death_of_a_jvm_opens_the_circuit_breaker(
    api: FakeApi, harness: OperatorHarness
) -> None:
    for number in range(4):
        api.create(build_pod(f"shop-{number}"))
    api.create(build_exporter(maxConcurrent=1))
    await play(api, harness, refuse(Told.JVM_TERMINATED))
    assert condition(api, "Degraded") == ("True", Reason.JVM_TERMINATED)
    assert condition(api) == ("False", Reason.JVM_TERMINATED)
    touched = [number for number in range(4) if runs(api, Key("default", f"shop-{number}"))]
    assert len(touched) == 1

    # Neither a restart nor the end of the witness closes it.
    await harness.restart()
    api.delete(POD, Key("default", f"shop-{touched[0]}"))
    await play(api, harness)
    assert condition(api, "Degraded") == ("True", Reason.JVM_TERMINATED)

    api.patch(PROMETHEUS_JMX_EXPORTER, JMX, {"spec": {"timeoutSeconds": 50}})
    await play(api, harness)
    assert condition(api, "Degraded") == ("False", Reason.HEALTHY)
    assert status(api)["instrumentedPods"] == 3


async def test_container_that_took_its_injector_along_opens_the_circuit_breaker(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """The JVM is the first process: its end ends the injector, which cannot report."""
    api.create(build_pod())
    api.create(build_pod("shop-1"))
    api.create(build_exporter(maxConcurrent=1))

    def die(request: Request, run: Run) -> None:
        name, _, number = request.container_id.rpartition("-")
        assert number == "0", name
        (fresh,) = build_pod_status(SHOP.name, "app", restart=1)["containerStatuses"]
        ended = {
            "exitCode": 1,
            "containerID": f"containerd://{request.container_id}",
            "finishedAt": "2026-01-01T00:10:01Z",
        }
        key = Key("default", request.container_id.removesuffix("-app-0"))
        fresh["containerID"] = f"containerd://{key.name}-app-1"
        fresh["lastState"] = {"terminated": ended}
        api.patch_status(POD, key, {"containerStatuses": [fresh]})

    await play(api, harness, die)

    assert condition(api, "Degraded") == ("True", Reason.JVM_TERMINATED)


async def test_target_that_refuses_is_not_tried_again(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, harness, refuse(Told.ATTACH_DISABLED))

    assert condition(api) == ("False", Reason.TARGETS_FAILED)
    (failure,) = status(api)["failures"]
    assert (failure["pod"], failure["reason"]) == (SHOP.name, Reason.ATTACH_DISABLED)
    assert len(runs(api)) == 1
    assert "prometheus.io/scrape" not in (api.get(POD, SHOP)["metadata"].get("annotations") or {})


async def test_attempts_are_counted(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pod())
    api.create(build_exporter(maxAttempts=2, backoffSeconds=1))
    await play(api, harness, refuse(Told.NOT_READY))

    assert len(runs(api)) == 2
    assert condition(api) == ("False", Reason.TARGETS_FAILED)
    assert status(api)["failures"][0]["attempts"] == 2


async def test_pod_gets_no_more_injectors_than_its_budget(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pod())
    api.create(build_exporter(maxEphemeralContainers=1))
    await play(api, harness)

    api.patch(CONFIG_MAP, ("default", "jmx-config"), {"data": {"config.yaml": OTHER}})
    await play(api, harness)

    assert len(runs(api)) == 1
    assert status(api)["failures"][0]["reason"] == Reason.BUDGET_EXHAUSTED


async def test_containers_of_a_pod_take_turns(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pod(SHOP.name, "app", "side", "istio-proxy"))
    api.create(build_exporter(lastPort=9409))
    await harness.settled()
    assert [run.container for run in runs(api)] == ["app"]

    await play(api, harness)

    assert [run.container for run in runs(api)] == ["app", "side"]


async def test_sidecar_without_a_jvm_is_no_failure(api: FakeApi, harness: OperatorHarness) -> None:
    def answer(request: Request, run: Run) -> Report:
        if run.container == "side":
            return Report(reason=Told.NO_JVM_FOUND, message="none")
        return answer_well(request, run)

    api.create(build_pod(SHOP.name, "app", "side"))
    api.create(build_exporter())
    await play(api, harness, answer)

    assert condition(api) == ("True", Reason.ALL_SERVING)


async def test_dry_run_asks_and_changes_nothing(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pod())
    api.create(build_exporter(mode="DryRun"))
    await play(api, harness)

    assert [run.request.action for run in runs(api)] == [Action.CHECK]
    assert condition(api) == ("False", Reason.DRY_RUN)
    assert status(api)["metricsEndpoints"][0]["state"] == "WouldInject"
    assert "prometheus.io/scrape" not in (api.get(POD, SHOP)["metadata"].get("annotations") or {})


async def test_paused_exporter_touches_nothing(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pod())
    api.create(build_exporter(mode="Paused"))
    await play(api, harness)

    assert runs(api) == []
    assert condition(api) == ("False", Reason.PAUSED)


async def test_older_exporter_has_the_pod(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pod())
    first = api.create(build_exporter("first"))
    second = api.create(build_exporter("second", port=9500))
    old, young = sorted(
        (first, second),
        key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["uid"]),
    )
    await play(api, harness)
    names = [Key("default", each["metadata"]["name"]) for each in (old, young)]
    # Of two that are made in one second the younger may be seen first, and has to let go.
    ensured = [run.request.id for run in runs(api) if run.request.action is Action.ENSURE]
    assert ensured[-1] == old["metadata"]["uid"]
    assert condition(api, "Conflicting", names[1]) == ("True", Reason.OLDER_EXPORTER)
    assert condition(api, "Conflicting", names[0]) == ("False", Reason.NO_CONFLICT)

    api.delete(PROMETHEUS_JMX_EXPORTER, names[0])
    await play(api, harness)

    assert condition(api, "Conflicting", names[1]) == ("False", Reason.NO_CONFLICT)
    assert condition(api, key=names[1]) == ("True", Reason.ALL_SERVING)


async def test_annotations_of_somebody_else_stay(api: FakeApi, harness: OperatorHarness) -> None:
    own = {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"}
    api.create(build_pod(annotations=own))
    api.create(build_exporter())
    await play(api, harness)

    assert api.get(POD, SHOP)["metadata"]["annotations"] == own
    assert status(api)["failures"][0]["reason"] == Reason.FOREIGN_ANNOTATIONS
    api.delete(PROMETHEUS_JMX_EXPORTER, JMX)
    await play(api, harness)
    assert api.get(POD, SHOP)["metadata"]["annotations"] == own


async def test_deletion_ends_the_endpoint_and_takes_the_annotations_away(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pod(annotations={"mine": "1"}))
    api.create(build_exporter())
    await play(api, harness)

    api.delete(PROMETHEUS_JMX_EXPORTER, JMX)
    await play(api, harness)

    assert api.find(PROMETHEUS_JMX_EXPORTER, JMX) is None
    assert [run.request.action for run in runs(api)] == [Action.ENSURE, Action.STOP]
    assert api.get(POD, SHOP)["metadata"]["annotations"] == {"mine": "1"}


async def test_deletion_goes_on_after_a_crash(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, harness)
    api.delete(PROMETHEUS_JMX_EXPORTER, JMX)
    await harness.eventually(lambda: len(runs(api)) == 2)

    await harness.restart(crash=True)
    await play(api, harness)

    assert api.find(PROMETHEUS_JMX_EXPORTER, JMX) is None
    assert [run.request.action for run in runs(api)] == [Action.ENSURE, Action.STOP]
    assert not api.get(POD, SHOP)["metadata"].get("annotations")


async def test_deletion_waits_for_an_injector_and_gives_up_in_the_end(
    api: FakeApi, harness: OperatorHarness, clock: Ahead
) -> None:
    api.create(build_pod(annotations={"mine": "1"}))
    api.create(build_exporter())
    await play(api, harness)
    api.delete(PROMETHEUS_JMX_EXPORTER, JMX)
    await harness.settled()
    assert len(runs(api)) == 2
    assert api.find(PROMETHEUS_JMX_EXPORTER, JMX) is not None

    # The injector never starts; a new process looks again at once, not when the next look is due.
    clock.seconds = 3600
    await harness.restart()
    await harness.settled()

    assert api.find(PROMETHEUS_JMX_EXPORTER, JMX) is None
    assert api.get(POD, SHOP)["metadata"]["annotations"] == {"mine": "1"}


async def test_pod_that_is_no_longer_selected_is_let_go(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, harness)

    api.patch(POD, SHOP, {"metadata": {"labels": {"app": "other"}}})
    await play(api, harness)

    assert [run.request.action for run in runs(api)] == [Action.ENSURE, Action.STOP]
    assert not api.get(POD, SHOP)["metadata"].get("annotations")
    assert condition(api) == ("True", Reason.NO_PODS)


async def test_pods_of_other_namespaces_are_none_of_its_business(
    api: FakeApi, harness: OperatorHarness
) -> None:
    pod = build_pod()
    pod["metadata"]["namespace"] = "elsewhere"
    api.create(pod)
    api.create(build_exporter())
    await play(api, harness)

    assert condition(api) == ("True", Reason.NO_PODS)
    assert "ephemeralContainers" not in api.get(POD, Key("elsewhere", SHOP.name))["spec"]


async def test_refusal_of_the_ephemeral_container_is_shown(
    api: FakeApi, harness: OperatorHarness
) -> None:
    message = "admission webhook denied the request"
    api.fail("patch", POD, status=403, times=None, message=message)
    api.create(build_pod())
    api.create(build_exporter())

    await harness.eventually(lambda: condition(api) == ("False", Reason.REFUSED))


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


async def test_only_some_pods_are_worked_on_at_a_time(
    api: FakeApi, harness: OperatorHarness
) -> None:
    for number in range(6):
        api.create(build_pod(f"shop-{number}"))
    api.create(build_exporter(maxConcurrent=2))
    await harness.settled()

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
    await harness.settled()
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
    assert condition(api) == ("True", Reason.ALL_SERVING)
    (endpoint,) = status(api)["metricsEndpoints"]
    assert (endpoint["state"], endpoint["port"]) == ("StartedWith", 9400)
    annotations = api.get(POD, SHOP)["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == "9400"
    assert api.objects(ENDPOINT_SLICE)

    api.patch(PROMETHEUS_JMX_EXPORTER, JMX, {"spec": {"port": 9500}})
    await play(api, harness)
    (failure,) = status(api)["failures"]
    assert failure["reason"] == Reason.RESTART_REQUIRED
    assert api.get(POD, SHOP)["metadata"]["annotations"]["prometheus.io/port"] == "9400"
    assert runs(api) == []
