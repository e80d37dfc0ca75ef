"""What cannot be served, over HTTP: refused, told, and never tried blindly."""

from __future__ import annotations

import pytest

from libs.common.conditions import find_condition
from libs.common.kinds import CONFIG_MAP, POD, Key
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER
from operators.jmxexporter.discovery import SERVICE_MONITOR
from operators.jmxexporter.injector.messages import Report, Request
from operators.jmxexporter.pods import InjectorRun
from operators.jmxexporter.reasons import Reason
from operators.jmxexporter.samples import (
    SHOP,
    answer_well,
    build_config_map,
    build_exporter,
    build_pod,
    build_pod_status,
)
from operators.jmxexporter.shown import JMX, OTHER, condition, play, refuse, runs, status


@pytest.mark.parametrize(
    ("text", "words"),
    [("rules: [", "not YAML"), ("hostPort: other:1234", "hostPort"), ("rules: {}", "a list")],
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


async def test_pod_of_windows_is_left_alone(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pod("windows", os={"name": "windows"}))
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, harness)

    assert (runs(api, Key("default", "windows")), len(runs(api))) == ([], 1)


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
    await play(api, harness, refuse(Reason.CONFIG_INVALID))

    assert condition(api, "ConfigValid") == ("False", Reason.CONFIG_INVALID)
    # Two witnesses are needed: one pod alone could have forged its report.
    assert sum(len(runs(api, Key("default", f"shop-{number}"))) for number in range(4)) == 2


async def test_container_that_restarts_may_accept_the_configuration(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, harness, refuse(Reason.CONFIG_INVALID))
    assert condition(api, "ConfigValid") == ("False", Reason.CONFIG_INVALID)

    fresh = build_pod_status(SHOP.name, "app", restart=1)["containerStatuses"]
    api.patch_status(POD, SHOP, {"containerStatuses": fresh})
    await play(api, harness)

    assert condition(api, "ConfigValid") == ("True", Reason.CONFIG_ACCEPTED)
    assert condition(api) == ("True", Reason.ALL_SERVING)


async def test_death_of_a_jvm_opens_the_circuit_breaker(
    api: FakeApi, harness: OperatorHarness
) -> None:
    for number in range(4):
        api.create(build_pod(f"shop-{number}"))
    api.create(build_exporter(maxConcurrent=1))
    await play(api, harness, refuse(Reason.JVM_TERMINATED))
    assert condition(api, "Degraded") == ("True", Reason.JVM_TERMINATED)
    assert condition(api) == ("False", Reason.JVM_TERMINATED)
    touched = [number for number in range(4) if runs(api, Key("default", f"shop-{number}"))]
    assert len(touched) == 2, "two witnesses: a pod could have forged its report"
    assert harness.metric("jmxexporter_jvms_lost_total") == 1

    # Neither a restart nor the end of a witness closes it.
    await harness.restart()
    api.delete(POD, Key("default", f"shop-{touched[0]}"))
    await play(api, harness)
    assert condition(api, "Degraded") == ("True", Reason.JVM_TERMINATED)

    api.patch(PROMETHEUS_JMX_EXPORTER, JMX, {"spec": {"timeoutSeconds": 50}})
    await play(api, harness)
    assert condition(api, "Degraded") == ("False", Reason.HEALTHY)
    assert status(api)["instrumentedPods"] == 3
    assert status(api)["failedPods"] == 0


async def test_container_that_took_its_injector_along_opens_the_circuit_breaker(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """The JVM is the first process: its end ends the injector, which cannot report."""
    api.create(build_pod())
    api.create(build_pod("shop-1"))
    api.create(build_exporter(maxConcurrent=1))

    def die(request: Request, run: InjectorRun) -> None:
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
    await play(api, harness, refuse(Reason.ATTACH_DISABLED))

    assert condition(api) == ("False", Reason.TARGETS_FAILED)
    (failure,) = status(api)["failures"]
    assert (failure["pod"], failure["reason"]) == (SHOP.name, Reason.ATTACH_DISABLED)
    assert len(runs(api)) == 1
    assert "prometheus.io/scrape" not in (api.get(POD, SHOP)["metadata"].get("annotations") or {})


async def test_attempts_are_counted(api: FakeApi, harness: OperatorHarness) -> None:
    api.create(build_pod())
    api.create(build_exporter(maxAttempts=2, backoffSeconds=1))
    await play(api, harness, refuse(Reason.NOT_READY))

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


async def test_sidecar_without_a_jvm_is_no_failure(api: FakeApi, harness: OperatorHarness) -> None:
    def answer(request: Request, run: InjectorRun) -> Report:
        if run.container == "side":
            return Report(reason=Reason.NO_JVM_FOUND, message="none")
        return answer_well(request, run)

    api.create(build_pod(SHOP.name, "app", "side"))
    api.create(build_exporter())
    await play(api, harness, answer)

    assert condition(api) == ("True", Reason.ALL_SERVING)


async def test_refusal_of_the_ephemeral_container_is_shown(
    api: FakeApi, harness: OperatorHarness
) -> None:
    message = "admission webhook denied the request"
    api.fail("patch", POD, status=403, times=None, message=message)
    api.create(build_pod())
    api.create(build_exporter())

    await harness.eventually(lambda: condition(api) == ("False", Reason.REFUSED))


async def test_service_monitor_is_made_once_the_cluster_has_the_kind(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pod())
    api.create(build_exporter(service={"monitor": {}}))
    await play(api, harness)
    assert condition(api) == ("False", Reason.MONITOR_UNAVAILABLE)

    api.register(SERVICE_MONITOR)
    await harness.eventually(lambda: condition(api) == ("True", Reason.ALL_SERVING))
    assert len(api.objects(SERVICE_MONITOR)) == 1


async def test_pattern_that_cannot_be_read_costs_no_pod_an_injector(
    api: FakeApi, harness: OperatorHarness
) -> None:
    api.create(build_pod())
    api.create(build_exporter(mainClass="Shop("))
    await play(api, harness)

    assert condition(api) == ("False", Reason.INVALID_SPEC)
    ready = find_condition(api.get(PROMETHEUS_JMX_EXPORTER, JMX), "Ready")
    assert ready is not None
    assert "spec.mainClass" in ready["message"]
    assert runs(api) == []

    api.delete(PROMETHEUS_JMX_EXPORTER, JMX)
    await harness.converged()
    assert api.find(PROMETHEUS_JMX_EXPORTER, JMX) is None
