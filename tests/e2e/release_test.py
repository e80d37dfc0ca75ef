"""Installing, upgrading and uninstalling: nothing is lost, nothing is left behind."""

from __future__ import annotations

import pytest
import yaml

from libs.common.kinds import (
    CRD,
    DEPLOYMENT,
    LEASE,
    POD,
    PVC,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    Key,
)
from libs.common.testing.access import is_allowed
from operators.podset.controller import PODSET
from operators.volumes.api.v1alpha1 import DEMO_VOLUME
from tests.e2e.cluster import ROOT, Cluster, eventually
from tests.e2e.podset_test import SELECTOR, apply_sample
from tests.e2e.volumes_test import build_volume

KINDS = {
    "podset": "podsets.batch.tutorial.kubebuilder.io",
    "volumes": "demovolumes.storage.slipway.dev",
    "ipam": "ipclaims.ipam.slipway.dev",
    "network": "firewalls.network.slipway.dev",
    "compute": "instances.compute.slipway.dev",
    "clusters": "kubernetesclusters.clusters.slipway.dev",
    "pulsarconsumer": "pulsarconsumers.consumer.pulsarconsumer.krvarma.com",
    "jmxexporter": "prometheusjmxexporters.banzaicloud.com",
}
"""A kind of each operator."""
RIGHTS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
READS_SECRETS = ("compute", "clusters", "pulsarconsumer")
"""Operators that keep or read Secrets of their own namespace."""
READS_NODES = ("compute",)
"""Operators that look at nodes, which are of no namespace."""


async def test_helm_test_passes(cluster: Cluster) -> None:
    namespace = await cluster.make_namespace("helmtest")
    await cluster.install("podset", namespace)

    await cluster.run(cluster.helm, "test", "podset", "--namespace", namespace, "--timeout", "15m")


async def test_one_operator_needs_nothing_of_the_others(cluster: Cluster) -> None:
    """Two releases in two namespaces never affect each other."""
    first = await cluster.make_namespace("alone")
    second = await cluster.make_namespace("beside")
    await cluster.install("podset", first)
    await cluster.install("podset", second, crds__install=False)
    await cluster.apply_example("podset", "podset-sample", second)

    await cluster.wait_ready(PODSET, Key(second, "podset-sample"))


async def test_uninstall_leaves_nothing_but_crds_and_no_stuck_finalizer(cluster: Cluster) -> None:
    namespace = await cluster.make_namespace("uninstall")
    await cluster.install("volumes", namespace)
    await cluster.client.create(DEMO_VOLUME, build_volume(namespace, reclaimPolicy="Retain"))
    key = Key(namespace, "data")
    await eventually(lambda: cluster.client.get(PVC, key), "the claim exists")

    await cluster.uninstall("volumes", namespace)

    volume = await cluster.client.get(DEMO_VOLUME, key)
    assert not volume["metadata"].get("finalizers")
    assert await cluster.client.get(PVC, key)
    for kind in (DEPLOYMENT, ROLE, ROLE_BINDING, LEASE, SERVICE_ACCOUNT):
        names = [
            item["metadata"]["name"] for item in (await cluster.client.list(kind, namespace)).items
        ]
        assert [name for name in names if name != "default"] == [], kind
    crds = [item["metadata"]["name"] for item in (await cluster.client.list(CRD)).items]
    assert f"{DEMO_VOLUME.plural}.{DEMO_VOLUME.group}" in crds
    await cluster.delete(DEMO_VOLUME, key)
    await cluster.wait_gone(DEMO_VOLUME, key)


async def test_upgrade_rolls_without_touching_the_pods(cluster: Cluster) -> None:
    namespace = await cluster.make_namespace("upgrade")
    await cluster.install("podset", namespace, replicas=2)
    await cluster.apply_example("podset", "podset-sample", namespace)
    key = Key(namespace, "podset-sample")
    await cluster.wait_ready(PODSET, key)
    before = {
        pod["metadata"]["uid"]: pod["metadata"]["resourceVersion"]
        for pod in await cluster.running_pods(namespace, "app=podset-sample")
    }
    generation = (await cluster.client.get(PODSET, key))["metadata"]["resourceVersion"]

    await cluster.install("podset", namespace, replicas=2, podAnnotations__rolled="yes")
    await cluster.wait_deployed(namespace, "podset")

    async def leading() -> bool:
        lease = await cluster.client.get(LEASE, Key(namespace, "podset"))
        return bool(lease["spec"].get("holderIdentity"))

    await eventually(leading, "one of the new pods leads")
    after = {
        pod["metadata"]["uid"]: pod["metadata"]["resourceVersion"]
        for pod in await cluster.running_pods(namespace, "app=podset-sample")
    }
    assert after == before
    held = await cluster.client.get(PODSET, key)
    assert held["metadata"]["resourceVersion"] == generation


async def test_killed_operator_takes_up_where_it_was(cluster: Cluster) -> None:
    namespace = await cluster.make_namespace("killed")
    await cluster.install("podset", namespace)
    key = await apply_sample(cluster, namespace)
    before = {pod["metadata"]["uid"] for pod in await cluster.running_pods(namespace, SELECTOR)}
    operator = (await cluster.running_pods(namespace, "app.kubernetes.io/name=podset"))[0]

    await cluster.delete(POD, Key(namespace, operator["metadata"]["name"]), grace_seconds=0)
    await cluster.client.patch(PODSET, key, {"spec": {"replicas": 4}})

    async def grown() -> bool:
        pods = await cluster.running_pods(namespace, SELECTOR)
        return len(pods) == 4 and before <= {pod["metadata"]["uid"] for pod in pods}

    await eventually(grown, "a fourth pod beside the three")


async def test_standby_takes_over_within_seconds(cluster: Cluster) -> None:
    namespace = await cluster.make_namespace("standby")
    await cluster.install("podset", namespace, replicas=2)
    await cluster.wait_deployed(namespace, "podset")
    key = await apply_sample(cluster, namespace)
    lease = await cluster.client.get(LEASE, Key(namespace, "podset"))
    leader = lease["spec"]["holderIdentity"].partition("_")[0]

    await cluster.delete(POD, Key(namespace, leader))
    await cluster.client.patch(PODSET, key, {"spec": {"replicas": 1}})

    async def handed_over() -> bool:
        lease = await cluster.client.get(LEASE, Key(namespace, "podset"))
        holder = lease["spec"].get("holderIdentity") or ""
        return bool(holder) and not holder.startswith(leader)

    await eventually(handed_over, "another pod leads", timeout=60)
    await cluster.wait_ready(PODSET, key)


async def test_operator_runs_under_restricted_pod_security(cluster: Cluster) -> None:
    namespace = await cluster.make_namespace(
        "restricted", **{"pod-security.kubernetes.io/enforce": "restricted"}
    )
    await cluster.install("podset", namespace)
    await cluster.apply_example("podset", "podset-sample", namespace)

    await cluster.wait_ready(PODSET, Key(namespace, "podset-sample"))


@pytest.mark.parametrize("operator", KINDS)
async def test_permissions_end_at_the_own_namespace(cluster: Cluster, operator: str) -> None:
    namespace = await cluster.make_namespace("rights")
    own = ("--namespace", namespace)
    # What a release may do shows without the release: nothing has to run for it.
    chart = str(ROOT / "helm" / operator)
    loaded = ("--set", "image.pullPolicy=Never")
    rendered = await cluster.run(cluster.helm, "template", operator, chart, *own, *loaded)
    rights = [each for each in yaml.safe_load_all(rendered) if each and each["kind"] in RIGHTS]
    manifests = yaml.safe_dump_all(rights)
    await cluster.kubectl_run(namespace, "apply", "--filename=-", stdin=manifests)
    account, elsewhere = Key(namespace, operator), "kube-system"
    rights_group = "rbac.authorization.k8s.io"
    questions = [
        {"verb": "list", "resource": "pods", "namespace": elsewhere},
        {"verb": "get", "resource": "secrets", "namespace": elsewhere},
        {"verb": "create", "resource": "pods", "subresource": "exec", "namespace": namespace},
        {"verb": "patch", "resource": "nodes"},
        {"verb": "create", "group": rights_group, "resource": "clusterroles"},
        {
            "verb": "create",
            "group": rights_group,
            "resource": "rolebindings",
            "namespace": namespace,
        },
    ]
    if operator not in READS_SECRETS:
        questions.append({"verb": "get", "resource": "secrets", "namespace": namespace})
    if operator not in READS_NODES:
        questions.append({"verb": "list", "resource": "nodes"})
    plural, _, group = KINDS[operator].partition(".")
    own_kind = {"verb": "list", "group": group, "resource": plural, "namespace": namespace}

    await eventually(
        lambda: is_allowed(cluster.client, account, own_kind),
        "the permissions that it needs are there",
    )
    allowed = [each for each in questions if await is_allowed(cluster.client, account, each)]

    await cluster.kubectl_run(namespace, "delete", "--filename=-", stdin=manifests)
    assert not allowed
