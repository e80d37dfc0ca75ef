"""Templates that mean the same: a PodSet keeps its pods whenever a Deployment does."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from libs.common.client import Client
from libs.common.kinds import (
    CONTROLLER_REVISION,
    EVENT,
    POD,
    Key,
    Kind,
    Manifest,
    build_object,
    key_of,
    uid_of,
)
from libs.common.testing.apiserver import ControlPlane, find_assets
from libs.common.testing.harness import OperatorHarness
from operators.podset.controller import PODSET

pytestmark = pytest.mark.apiserver

DEPLOYMENT: Final = Kind("apps", "v1", "Deployment", "deployments")
REPLICA_SET: Final = Kind("apps", "v1", "ReplicaSet", "replicasets")
LABELS: Final = {"app": "web"}
TEMPLATE: Final[Manifest] = {
    "metadata": {"labels": LABELS, "annotations": {"divisor": "1000m"}},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "busybox:1",
                "env": [
                    {"name": "A", "value": "1"},
                    {
                        "name": "CPU",
                        "valueFrom": {
                            "resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}
                        },
                    },
                ],
                "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "1000m", "memory": "1Ki"}, "requests": {}},
                "readinessProbe": {"httpGet": {"port": 80}},
            },
            {"name": "side", "image": "busybox"},
        ],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1024Mi"}}],
        "nodeSelector": {"a": "1", "b": "2"},
    },
}

type Change = Callable[[Manifest, Manifest], object]


def rewrite_limits(_: Manifest, main: Manifest) -> None:
    main["resources"]["limits"] = {"memory": "1024", "cpu": "1"}


CHANGES: Final[tuple[Change, ...]] = (
    # These mean the same.
    lambda spec, _: spec.update(restartPolicy="Always"),
    lambda spec, _: spec.update(dnsPolicy="ClusterFirst", schedulerName="default-scheduler"),
    lambda spec, _: spec.update(terminationGracePeriodSeconds=30, securityContext={}),
    lambda spec, _: spec.update(tolerations=[], hostNetwork=False),
    lambda spec, _: spec["volumes"][0]["emptyDir"].update(sizeLimit="1Gi"),
    lambda spec, _: spec.update(nodeSelector={"b": "2", "a": "1"}),
    lambda _, main: main.update(imagePullPolicy="IfNotPresent", stdin=False),
    lambda _, main: main.update(terminationMessagePath="/dev/termination-log", args=None),
    lambda _, main: main["ports"][0].update(protocol="TCP"),
    lambda _, main: main["readinessProbe"].update(periodSeconds=10, failureThreshold=3),
    lambda _, main: main["readinessProbe"]["httpGet"].update(path="/", scheme="HTTP"),
    lambda _, main: main["env"][1]["valueFrom"]["resourceFieldRef"].update(divisor="0.001"),
    rewrite_limits,
    lambda _, main: main["resources"].update(requests=None),
    # These do not, although some look so.
    lambda _, main: main["resources"]["limits"].update(cpu="1001m"),
    lambda _, main: main["env"].reverse(),
    lambda _, main: main["env"].append({"name": "B"}),
    lambda _, main: main.update(securityContext={}),
    lambda spec, _: spec.update(affinity={}),
    lambda spec, _: spec["containers"].reverse(),
    lambda spec, _: spec["containers"][1].update(imagePullPolicy="IfNotPresent"),
    lambda spec, _: spec["volumes"][0].update(emptyDir={}),
    lambda spec, _: spec.update(terminationGracePeriodSeconds=31),
)
ALIKE: Final = 14
"""Number of changes that mean the same; every other case of the test has only such changes."""
CASES: Final = 60


def vary(rng: random.Random, changes: tuple[Change, ...]) -> Manifest:
    """Write the template in another way."""
    template = copy.deepcopy(TEMPLATE)
    main = template["spec"]["containers"][0]
    for change in rng.sample(changes, rng.randint(1, 4)):
        change(template["spec"], main)
    if rng.random() < 0.1:
        template["metadata"]["annotations"]["divisor"] = "1"
    return template


@pytest.fixture
def controllers(kube_apiserver: ControlPlane) -> Iterator[None]:
    """Run the controller of Deployments."""
    if not (find_assets() / "kube-controller-manager").exists():
        pytest.skip("the binaries for tests, as others publish them, lack kube-controller-manager")
    kube_apiserver.start_controller_manager("--controllers=deployment-controller")
    yield
    kube_apiserver.kill("kube-controller-manager")


@pytest.mark.usefixtures("controllers")
async def test_set_keeps_its_revision_whenever_a_deployment_keeps_its_replica_set(
    client: Client, real_operator: OperatorHarness, kube_namespace: str
) -> None:
    rng = random.Random(5)
    templates = {
        f"t{number}": vary(rng, CHANGES[: ALIKE if number % 2 else None]) for number in range(CASES)
    }
    selector = {"matchLabels": LABELS}
    first = {"replicas": 0, "selector": selector, "template": TEMPLATE}
    kinds = (DEPLOYMENT, PODSET)
    for name in templates:
        for kind in kinds:
            await client.create(kind, build_object(kind, name, kube_namespace, spec=first))
    await wait_for_all(client, real_operator, kube_namespace)
    for name, template in templates.items():
        change = [{"op": "replace", "path": "/spec/template", "value": template}]
        for kind in kinds:
            await client.patch(kind, Key(kube_namespace, name), change)
    await wait_for_all(client, real_operator, kube_namespace)

    kept = await find_kept(client, kube_namespace, DEPLOYMENT, REPLICA_SET)
    assert await find_kept(client, kube_namespace, PODSET, CONTROLLER_REVISION) == kept
    assert CASES / 4 < len(kept) < CASES * 3 / 4


async def wait_for_all(client: Client, real_operator: OperatorHarness, namespace: str) -> None:
    """Wait until controllers have seen all Deployments and PodSets."""
    for kind in (DEPLOYMENT, PODSET):

        async def seen(kind: Kind = kind) -> bool:
            found = (await client.list(kind, namespace)).items
            return all(
                (each.get("status") or {}).get("observedGeneration")
                == each["metadata"]["generation"]
                for each in found
            )

        await real_operator.eventually(seen, f"each {kind.kind} is observed")


async def find_kept(client: Client, namespace: str, owner: Kind, revision: Kind) -> set[str]:
    """Return the names of the objects that have one revision."""
    names = {
        uid_of(each): each["metadata"]["name"]
        for each in (await client.list(owner, namespace)).items
    }
    owners = [
        each["metadata"]["ownerReferences"][0]["uid"]
        for each in (await client.list(revision, namespace)).items
    ]
    return {name for uid, name in names.items() if owners.count(uid) == 1}


async def test_pods_stay_while_the_template_is_rewritten_and_move_when_it_changes(
    client: Client, real_operator: OperatorHarness, kube_namespace: str
) -> None:
    key = Key(kube_namespace, "web")
    strategy = {"type": "Recreate", "recreate": {"maxUnavailable": "100%"}}
    spec = {"replicas": 2, "template": TEMPLATE, "updateStrategy": strategy}
    await client.create(PODSET, build_object(PODSET, *reversed(key), spec=spec))
    await real_operator.converged()
    pods = await uids(client, kube_namespace)

    async def write(template: Manifest) -> None:
        change = [{"op": "replace", "path": "/spec/template", "value": template}]
        await client.patch(PODSET, key, change)
        await real_operator.converged()

    rewritten = copy.deepcopy(TEMPLATE)
    rewritten["spec"].update(restartPolicy="Always", securityContxt={})
    await write(rewritten)
    assert await uids(client, kube_namespace) == pods
    await real_operator.restart()
    await real_operator.converged()
    assert await uids(client, kube_namespace) == pods
    status = (await client.get(PODSET, key))["status"]
    assert status["updatedReplicas"] == 2

    # A pod that is replaced while the set has the other spelling counts as a pod of the template.
    pod = await client.get(POD, Key(kube_namespace, "web-pod-0"))
    await client.delete(POD, key_of(pod), uid=uid_of(pod))
    await real_operator.converged()
    assert (await client.get(PODSET, key))["status"]["updatedReplicas"] == 2
    pods = await uids(client, kube_namespace)
    await write(TEMPLATE)
    assert await uids(client, kube_namespace) == pods

    changed = copy.deepcopy(rewritten)
    changed["spec"]["terminationGracePeriodSeconds"] = 1
    await write(changed)
    assert not await uids(client, kube_namespace) & pods

    async def warned() -> bool:
        events = (await client.list(EVENT, kube_namespace)).items
        text = 'spec.template: unknown field "template.spec.securityContxt"'
        return any(text in each.get("note", "") for each in events)

    await real_operator.eventually(warned, "an Event about the unknown field")


async def uids(client: Client, namespace: str) -> set[str]:
    """Return the UIDs of all pods."""
    return {uid_of(pod) for pod in (await client.list(POD, namespace)).items}
