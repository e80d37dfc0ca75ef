"""Pods that admission changes on their way in."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

import aiohttp
import pytest

from libs.common.client import Client
from libs.common.conditions import find_condition
from libs.common.config import ConnectionConfig
from libs.common.kinds import POD, Key, Kind, Manifest, build_object
from libs.common.plan import Create
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.harness import OperatorHarness
from libs.common.testing.serving import serve
from operators.podset.api import PodSet
from operators.podset.controller import OPERATOR, PODSET
from operators.podset.naming import TEMPLATE_HASH_LABEL
from operators.podset.reconcile import Plan
from operators.podset.simulation import TEMPLATE, Cluster, Process, desire, start

SELECTOR = {"matchLabels": {"app": "web"}}


@pytest.mark.parametrize(
    ("spec", "labels", "words"),
    [
        ({"selector": SELECTOR}, {"app": "other"}, "spec.selector does not match"),
        ({"updateStrategy": {"type": "Recreate"}}, {TEMPLATE_HASH_LABEL: ""}, TEMPLATE_HASH_LABEL),
        ({"selector": SELECTOR}, {"team": "added", TEMPLATE_HASH_LABEL: ""}, ""),
        ({"updateStrategy": {"type": "Recreate"}}, {"app": "other"}, ""),
    ],
)
def test_new_pod_that_admission_made_another_one_is_objected_to(
    spec: dict[str, Any], labels: dict[str, str], words: str
) -> None:
    """Else it would be replaced, and the next one as well, without end."""
    process = Process(Cluster(), desire(replicas=1, template=TEMPLATE, **spec))
    (step,) = process.plan().steps
    assert isinstance(step, Create)
    assert step.objection is not None
    assert step.objection(step.manifest) == ""

    metadata = step.manifest["metadata"]
    changed = {**metadata, "labels": {**metadata["labels"], **labels}}

    objection = step.objection({**step.manifest, "metadata": changed})
    assert words in objection
    assert bool(words) == bool(objection)


def test_pod_that_admission_and_defaults_changed_is_not_of_an_older_template() -> None:
    """A sidecar that is injected, a default that the server fills in: the template is the same."""
    cluster, process = start(3, updateStrategy={"type": "Recreate"})

    def inject(pod: Manifest) -> None:
        proxy = {"name": "proxy", "image": "proxy", "restartPolicy": "Always"}
        pod["spec"] = {**pod["spec"], "initContainers": [proxy], "dnsPolicy": "ClusterFirst"}
        pod["metadata"]["labels"] = {**pod["metadata"]["labels"], "mesh": "on"}

    for name in cluster.active():
        cluster.change(name, inject)
    process.deliver()

    assert process.plan() == Plan()
    assert process.status()["updatedReplicas"] == 3


POLICY = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingAdmissionPolicy",
    "mutatingadmissionpolicies",
    namespaced=False,
)
BINDING = Kind(
    POLICY.group,
    POLICY.version,
    "MutatingAdmissionPolicyBinding",
    "mutatingadmissionpolicybindings",
    namespaced=False,
)


async def change_labels(harness: OperatorHarness, namespace: str) -> None:
    """Have a real API server give each new pod of a namespace the label `app=other`."""
    labels = 'Object{metadata: Object.metadata{labels: Object.metadata.labels{app: "other"}}}'
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    policy = {
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "resourceRules": [{**rule, "resources": ["pods"]}],
        },
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": labels},
            }
        ],
    }
    client = harness.client
    await client.create(POLICY, build_object(POLICY, namespace, spec=policy))
    await client.create(BINDING, build_object(BINDING, namespace, spec={"policyName": namespace}))
    probe = build_object(POD, "probe", namespace, metadata={"labels": {}}, spec=TEMPLATE["spec"])

    async def works() -> bool:
        response = await client.create(POD, probe, dry_run=True)
        return "app" in response["metadata"].get("labels", {})

    await harness.eventually(works, "the policy works")


@pytest.mark.apiserver
async def test_admission_that_takes_pods_from_their_set_floods_no_namespace(
    kube_apiserver: ControlPlane, kube_client: Client, kube_namespace: str
) -> None:
    await serve(kube_client, PodSet)
    spec = {"replicas": 5, "template": TEMPLATE, "selector": SELECTOR}
    settings: dict[str, Any] = {"watch_namespaces": (kube_namespace,)}
    async with OperatorHarness(OPERATOR, kube_apiserver.config, **settings) as harness:
        await change_labels(harness, kube_namespace)
        await kube_client.create(PODSET, build_object(PODSET, "web", kube_namespace, spec=spec))
        key = Key(kube_namespace, "web")

        async def tells() -> bool:
            found = find_condition(await kube_client.get(PODSET, key), "ReplicaFailure")
            return found is not None and found["reason"] == "FailedCreate"

        await harness.eventually(tells, "the set tells")
        before = harness.manager.runners[0].reconciles
        await harness.eventually(lambda: harness.manager.runners[0].reconciles > before + 2)

    found = find_condition(await kube_client.get(PODSET, key), "Ready") or {}
    assert "spec.selector does not match" in found["message"]
    assert len((await kube_client.list(POD, kube_namespace)).items) <= 1


async def post(config: ConnectionConfig, path: str, body: str) -> int:
    """Send a request that our own client could not encode, and return its status."""
    authorization = await config.authorization()
    async with (
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=config.ssl_context() or True),
            headers={"Authorization": authorization, "Content-Type": "application/json"},
        ) as session,
        session.post(config.server + path, data=body) as response,
    ):
        return response.status


@pytest.mark.apiserver
@pytest.mark.parametrize("levels", [220, 1_100])
async def test_deeply_nested_template_stops_no_other_set(
    client: Client, kube_apiserver: ControlPlane, kube_namespace: str, levels: int
) -> None:
    deep = build_object(PODSET, "deep", kube_namespace, spec={"template": TEMPLATE})
    text = json.dumps(deep).replace('"containers"', '"x": "DEEP", "containers"')
    text = text.replace('"DEEP"', '{"k":' * levels + "1" + "}" * levels)
    assert (
        await post(kube_apiserver.config, PODSET.path(kube_namespace), text) == HTTPStatus.CREATED
    )
    settings: dict[str, Any] = {"watch_namespaces": (kube_namespace,)}
    async with OperatorHarness(OPERATOR, kube_apiserver.config, **settings) as harness:
        await client.create(PODSET, build_object(PODSET, "web", kube_namespace, spec={}))
        for name in ("web", "deep"):

            async def has_pods(name: str = name) -> bool:
                held = await client.get(PODSET, Key(kube_namespace, name))
                return bool(held.get("status", {}).get("replicas"))

            await harness.eventually(has_pods, f"{name} has pods")
