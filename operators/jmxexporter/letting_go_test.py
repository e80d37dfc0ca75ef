"""Pods are let go, over HTTP: by deletion, by another selector, to an older exporter."""

from __future__ import annotations

from libs.common.kinds import EVENT, POD, Key
from libs.common.testing.clock import AdvancedClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER
from operators.jmxexporter.injector.messages import Action, Report, Request
from operators.jmxexporter.pods import InjectorRun
from operators.jmxexporter.reasons import Reason
from operators.jmxexporter.samples import (
    SHOP,
    build_exporter,
    build_pod,
)
from operators.jmxexporter.shown import JMX, condition, play, runs, status


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
    api: FakeApi, harness: OperatorHarness, clock: AdvancedClock
) -> None:
    api.create(build_pod(annotations={"mine": "1"}))
    api.create(build_exporter())
    await play(api, harness)
    api.delete(PROMETHEUS_JMX_EXPORTER, JMX)
    await harness.converged()
    assert len(runs(api)) == 2
    assert api.find(PROMETHEUS_JMX_EXPORTER, JMX) is not None

    # The injector never starts; a new process checks immediately, not when the next check is due.
    clock.seconds = 3600
    await harness.restart()
    await harness.converged()

    assert api.find(PROMETHEUS_JMX_EXPORTER, JMX) is None
    assert api.get(POD, SHOP)["metadata"]["annotations"] == {"mine": "1"}
    await harness.eventually(
        lambda: any(
            event["type"] == "Warning" and event["note"].startswith("Gave up waiting")
            for event in api.objects(EVENT)
        ),
        "a Warning says that endpoints may still serve",
    )


async def test_deletion_warns_of_endpoints_that_refuse_to_stop(
    api: FakeApi, harness: OperatorHarness
) -> None:
    """For example because the pod has no memory left for an injector."""
    api.create(build_pod())
    api.create(build_exporter())
    await play(api, harness)

    def refuse(request: Request, run: InjectorRun) -> Report:
        return Report(reason=Reason.TOO_LITTLE_MEMORY, message="3 MiB left")

    api.delete(PROMETHEUS_JMX_EXPORTER, JMX)
    await play(api, harness, refuse)

    assert api.find(PROMETHEUS_JMX_EXPORTER, JMX) is None
    await harness.eventually(
        lambda: any(
            event["type"] == "Warning" and "shop-0 (TooLittleMemory)" in event["note"]
            for event in api.objects(EVENT)
        ),
        "a Warning names the pods that may still serve",
    )


async def test_deletion_gives_up_where_injectors_are_not_allowed_any_more(
    api: FakeApi, harness: OperatorHarness, clock: AdvancedClock
) -> None:
    """For example by a policy that was added since: an exporter must not stay indefinitely."""
    api.create(build_pod(annotations={"mine": "1"}))
    api.create(build_exporter())
    await play(api, harness)
    api.fail("patch", POD, status=403, times=None, subresource="ephemeralcontainers")
    api.delete(PROMETHEUS_JMX_EXPORTER, JMX)
    await harness.idle()
    assert api.find(PROMETHEUS_JMX_EXPORTER, JMX) is not None

    clock.seconds = 3600
    await harness.restart()
    await harness.eventually(lambda: api.find(PROMETHEUS_JMX_EXPORTER, JMX) is None)

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
