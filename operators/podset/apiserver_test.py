"""PodSet on a real API server: what its CRD enforces, and that its pods are accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from libs.common.client import Client
from libs.common.errors import Invalid
from libs.common.kinds import (
    EVENT,
    NAMESPACE,
    POD,
    POD_DISRUPTION_BUDGET,
    Key,
    Kind,
    Manifest,
    build_object,
)
from libs.common.testing.apiserver import ControlPlane, find_assets
from libs.common.testing.harness import OperatorHarness
from operators.podset.controller import PODSET

pytestmark = pytest.mark.apiserver

AUTOSCALER = Kind("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
EXAMPLES = sorted((Path(__file__).parent / "examples").glob("*.yaml"))
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "image": "busybox"}]},
}


def build_podset(namespace: str, name: str = "web", /, **spec: Any) -> Manifest:
    return build_object(PODSET, name, namespace, spec=spec)


async def test_unknown_field_of_a_template_is_reported(
    client: Client, real_operator: OperatorHarness, kube_namespace: str
) -> None:
    container = {"name": "main", "image": "busybox", "livenesProbe": {"exec": {"command": ["x"]}}}
    spec = {"containers": [container], "securityContxt": {}}
    await client.create(PODSET, build_podset(kube_namespace, replicas=3, template={"spec": spec}))
    await real_operator.converged()

    async def notes() -> list[str]:
        events = await client.list(EVENT, kube_namespace)
        return sorted(each["note"] for each in events.items if each["reason"] == "ServerWarning")

    async with asyncio.timeout(60):
        while len(await notes()) < 2:
            await asyncio.sleep(0.05)
    prefix = "The API server warns about an object that was created: unknown field"
    assert await notes() == [
        f'{prefix} "spec.containers[0].livenesProbe"',
        f'{prefix} "spec.securityContxt"',
    ]


async def test_template_with_the_metadata_that_tools_write_is_applied(
    client: Client, real_operator: OperatorHarness, kube_namespace: str
) -> None:
    # emqx#8599, scylla-operator#1249: Flux and Argo CD use server-side apply.
    metadata = {
        **TEMPLATE["metadata"],
        "creationTimestamp": None,
        "name": "web",
        "namespace": "elsewhere",
        "finalizers": ["example.com/drain"],
    }
    template = {**TEMPLATE, "metadata": metadata}
    manifest = build_podset(kube_namespace, replicas=1, template=template)
    await client.apply(PODSET, manifest, field_manager="flux")
    await real_operator.converged()

    pod = await client.get(POD, Key(kube_namespace, "web-pod-0"))
    assert pod["metadata"]["finalizers"] == ["example.com/drain"]


@pytest.mark.parametrize(
    "spec",
    [
        {"replicas": 3},
        {"replicas": 0, "template": TEMPLATE},
        {"template": TEMPLATE, "selector": {"matchLabels": {"app": "web"}}},
        {"updateStrategy": {"type": "Recreate", "recreate": {"maxSurge": "100%", "partition": 3}}},
        {"updateStrategy": {"type": "Recreate"}, "backoff": {"baseSeconds": 1}},
        {"updateStrategy": {"type": "RollingUpdate"}},
        {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}}},
    ],
    ids=str,
)
async def test_good_spec_is_accepted(client: Client, kube_namespace: str, spec: Any) -> None:
    await client.create(PODSET, build_podset(kube_namespace, **spec))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"replicas": -1}, "spec.replicas"),
        ({"replicas": 10_001}, "spec.replicas"),
        ({"selector": {"matchLabels": {"app": "web"}}}, "selector needs a template"),
        (
            {"selector": {"matchLabels": {"app": "other"}}, "template": TEMPLATE},
            "must have every label of selector.matchLabels",
        ),
        ({"selector": {}, "template": TEMPLATE}, "selector must not be empty"),
        ({"template": {"spec": {"containers": []}}}, "spec.template.spec.containers"),
        ({"updateStrategy": {"recreate": {}}}, "recreate may be set only if type is Recreate"),
        (
            {"updateStrategy": {"type": "Recreate", "rollingUpdate": {}}},
            "rollingUpdate may be set only if type is RollingUpdate",
        ),
        (
            {"updateStrategy": {"type": "Recreate", "recreate": {"maxSurge": "101%"}}},
            "must be a number that is not negative or a percentage",
        ),
        (
            {"updateStrategy": {"type": "Recreate", "recreate": {"maxUnavailable": -1}}},
            "must be a number that is not negative or a percentage",
        ),
        ({"backoff": {"baseSeconds": 400}}, "baseSeconds must not exceed maxSeconds"),
        ({"podReplacementPolicy": "Never"}, "spec.podReplacementPolicy"),
    ],
    ids=str,
)
async def test_bad_spec_is_refused_in_words(
    client: Client, kube_namespace: str, spec: Any, message: str
) -> None:
    with pytest.raises(Invalid) as caught:
        await client.create(PODSET, build_podset(kube_namespace, **spec))

    assert message in str(caught.value)


async def test_selector_cannot_change(client: Client, kube_namespace: str) -> None:
    spec = {"template": TEMPLATE, "selector": {"matchLabels": {"app": "web"}}}
    await client.create(PODSET, build_podset(kube_namespace, **spec))
    expression = {"key": "app", "operator": "Exists"}

    for selector in ({"matchExpressions": [expression]}, None):
        with pytest.raises(Invalid, match=r"selector (is immutable|cannot be set or removed)"):
            await client.patch(PODSET, Key(kube_namespace, "web"), {"spec": {"selector": selector}})


async def test_name_of_a_set_with_dns_names_leaves_room_for_its_pods(
    real_operator: OperatorHarness, client: Client, kube_namespace: str
) -> None:
    # The highest slot of 10,000 pods and as much surge has five digits.
    longest = "a" * 52
    spec = {"serviceName": "db", "replicas": 1}
    await client.create(PODSET, build_podset(kube_namespace, longest, **spec))
    await real_operator.converged()
    pod = await client.get(POD, Key(kube_namespace, f"{longest}-pod-0"))
    assert len(pod["spec"]["hostname"]) == 58
    with pytest.raises(Invalid, match="name must have at most 52 characters"):
        await client.create(PODSET, build_podset(kube_namespace, "a" * 53, **spec))
    key = Key(kube_namespace, longest)
    with pytest.raises(Invalid, match="serviceName"):
        await client.patch(PODSET, key, {"spec": {"serviceName": "other"}})


async def test_name_that_is_no_label_value_is_refused(client: Client, kube_namespace: str) -> None:
    await client.create(PODSET, build_podset(kube_namespace, "a" * 63))
    with pytest.raises(Invalid, match="name must have at most 63 characters"):
        await client.create(PODSET, build_podset(kube_namespace, "a" * 64))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
async def test_pods_of_an_example_are_accepted_in_a_restricted_namespace(
    real_operator: OperatorHarness, client: Client, kube_namespace: str, path: Path
) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await client.patch(NAMESPACE, Key("", kube_namespace), {"metadata": {"labels": labels}})
    podset, *_ = yaml.safe_load_all(path.read_text())
    podset["metadata"]["namespace"] = kube_namespace
    await client.create(PODSET, podset)
    await real_operator.converged()

    listing = await client.list(POD, kube_namespace)
    assert len(listing.items) == podset["spec"]["replicas"]


async def test_set_follows_its_scale_subresource_and_rests(
    real_operator: OperatorHarness, client: Client, kube_namespace: str
) -> None:
    key = Key(kube_namespace, "web")
    await client.create(PODSET, build_podset(kube_namespace, replicas=2))
    await real_operator.converged()
    await client.patch(PODSET, key, {"spec": {"replicas": 40}}, subresource="scale")
    await real_operator.converged()
    assert len((await client.list(POD, kube_namespace)).items) == 40

    scale = await client.get(PODSET, key, subresource="scale")
    assert scale["status"]["replicas"] == 40
    found = await client.list(POD, kube_namespace, label_selector=scale["status"]["selector"])
    assert len(found.items) == 40
    before = (await client.get(PODSET, key))["metadata"]["resourceVersion"]
    await real_operator.restart()
    await real_operator.converged()
    assert (await client.get(PODSET, key))["metadata"]["resourceVersion"] == before


async def test_deleted_pod_without_a_node_comes_back_under_its_name(
    real_operator: OperatorHarness, client: Client, kube_namespace: str
) -> None:
    await client.create(PODSET, build_podset(kube_namespace, replicas=2))
    await real_operator.converged()
    before = await client.get(POD, Key(kube_namespace, "web-pod-1"))
    uid = before["metadata"]["uid"]
    await client.delete(POD, Key(kube_namespace, "web-pod-1"), uid=uid)
    await real_operator.converged()

    after = await client.get(POD, Key(kube_namespace, "web-pod-1"))
    assert after["metadata"]["uid"] != uid
    assert len((await client.list(POD, kube_namespace)).items) == 2


async def test_update_of_pods_without_a_node_keeps_their_slots(
    real_operator: OperatorHarness, client: Client, kube_namespace: str
) -> None:
    strategy = {"type": "Recreate", "recreate": {"maxUnavailable": "100%"}}
    spec = {"replicas": 5, "template": TEMPLATE, "updateStrategy": strategy}
    await client.create(PODSET, build_podset(kube_namespace, **spec))
    await real_operator.converged()
    template = {"metadata": {"annotations": {"version": "2"}}}
    await client.patch(PODSET, Key(kube_namespace, "web"), {"spec": {"template": template}})
    await real_operator.converged()

    pods = (await client.list(POD, kube_namespace)).items
    assert [pod["metadata"]["name"] for pod in pods] == [f"web-pod-{slot}" for slot in range(5)]
    assert all(pod["metadata"]["annotations"]["version"] == "2" for pod in pods)


@pytest.fixture
def controllers(client: Client, kube_apiserver: ControlPlane) -> Iterator[None]:
    """Run the controllers of Kubernetes that find the pods of a set by its scale subresource."""
    if not (find_assets() / "kube-controller-manager").exists():
        pytest.skip("the binaries for tests, as others publish them, lack kube-controller-manager")
    names = "horizontal-pod-autoscaler-controller,disruption-controller"
    period = "--horizontal-pod-autoscaler-sync-period=1s"
    kube_apiserver.start_controller_manager(f"--controllers={names}", period)
    yield
    kube_apiserver.kill("kube-controller-manager")


@pytest.mark.usefixtures("controllers")
async def test_autoscaler_and_disruption_budget_know_how_many_pods_a_set_has(
    real_operator: OperatorHarness, client: Client, kube_namespace: str
) -> None:
    await client.create(PODSET, build_podset(kube_namespace, replicas=1))
    await real_operator.converged()
    # Below the least number an autoscaler needs no metrics to know what to do.
    target = {"apiVersion": PODSET.api_version, "kind": PODSET.kind, "name": "web"}
    bounds = {"scaleTargetRef": target, "minReplicas": 4, "maxReplicas": 9}
    await client.create(AUTOSCALER, build_object(AUTOSCALER, "web", kube_namespace, spec=bounds))
    spec = {"maxUnavailable": "25%", "selector": {"matchLabels": {"app": "web"}}}
    budget = build_object(POD_DISRUPTION_BUDGET, "web", kube_namespace, spec=spec)
    await client.create(POD_DISRUPTION_BUDGET, budget)

    key = Key(kube_namespace, "web")

    async def knows() -> bool:
        shown = (await client.get(POD_DISRUPTION_BUDGET, key)).get("status") or {}
        return bool(shown.get("expectedPods") == 4 and shown.get("desiredHealthy") == 3)

    await real_operator.eventually(knows, "the budget counts on four pods")
    assert (await client.get(PODSET, key))["spec"]["replicas"] == 4
