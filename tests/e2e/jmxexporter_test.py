"""The jmxexporter operator on a real cluster, with real JVMs in pods as closed as can be."""

from __future__ import annotations

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from libs.common.kinds import CONFIG_MAP, POD, Key, Manifest
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER
from tests.e2e.cluster import Cluster, Serve, eventually
from tools.cluster.docker import ensure_docker
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.progress import open_progress
from tools.images.build import ensure_base
from tools.jvm.image import SAMPLE, ensure_sample_image

CONFIG = "rules:\n- pattern: shop<type=Orders><>Count\n  name: shop_orders\n"
OTHER = CONFIG.replace("shop_orders", "shop_sales")


@pytest.fixture(scope="module", autouse=True)
def operator(serve: Serve, kind_cluster: KindCluster) -> None:
    """Install the operator, and load an application, for all tests here."""
    progress = open_progress("e2e-jmx")
    docker = ensure_docker(progress, kind_cluster.cache)
    ensure_sample_image(docker, ensure_base(docker, progress), progress, kind_cluster.cache)
    kind_cluster.load([SAMPLE], progress)
    serve("jmxexporter")


@pytest.fixture
async def namespace(cluster: Cluster) -> str:
    """Make a namespace that takes nothing but restricted pods."""
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    name = await cluster.make_namespace("jmx", **restricted)
    config_map: Manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "jmx-config", "namespace": name},
        "data": {"config.yaml": CONFIG},
    }
    await cluster.client.create(CONFIG_MAP, config_map)
    return name


def build_pod(namespace: str, name: str = "shop", **options: object) -> Manifest:
    container: Manifest = {
        "name": "app",
        "image": SAMPLE,
        "imagePullPolicy": "Never",
        "args": ["8080"],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
        **options,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "shop"}},
        "spec": {
            "securityContext": {
                "runAsUser": 1234,
                "runAsGroup": 5678,
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
            "terminationGracePeriodSeconds": 1,
        },
    }


def build_exporter(namespace: str, **spec: object) -> Manifest:
    return {
        "apiVersion": PROMETHEUS_JMX_EXPORTER.api_version,
        "kind": PROMETHEUS_JMX_EXPORTER.kind,
        "metadata": {"name": "shop", "namespace": namespace},
        "spec": {
            "labelSelector": {"app": "shop"},
            "config": {"configMapName": "jmx-config"},
            "port": 9400,
            "minReadySeconds": 6,
            **spec,
        },
    }


async def scrape(cluster: Cluster, namespace: str, pod: str = "shop") -> dict[str, Metric]:
    """Scrape a pod through the API server, and read it as Prometheus does."""
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}:9400/proxy/metrics"
    text = await cluster.run(cluster.kubectl, "get", "--raw", path)
    return {family.name: family for family in text_string_to_metric_families(text)}


async def is_unharmed(cluster: Cluster, namespace: str, pod: str = "shop") -> bool:
    """Tell whether the application runs as it did, without a restart."""
    held = await cluster.client.get(POD, Key(namespace, pod))
    (status,) = held["status"]["containerStatuses"]
    return status["restartCount"] == 0 and "running" in status["state"]


async def test_running_jvm_is_served_changed_and_let_go(cluster: Cluster, namespace: str) -> None:
    key = Key(namespace, "shop")
    await cluster.client.create(POD, build_pod(namespace))
    await cluster.client.create(PROMETHEUS_JMX_EXPORTER, build_exporter(namespace))

    async def serves(name: str) -> bool:
        return name in await scrape(cluster, namespace)

    await eventually(lambda: serves("shop_orders"), "orders are served")
    assert (await scrape(cluster, namespace))["jmx_scrape_error"].samples[0].value == 0

    async def is_shown() -> bool:
        held = await cluster.client.get(PROMETHEUS_JMX_EXPORTER, key)
        return bool(held["status"]["metricsEndpoints"])

    await eventually(is_shown, "the endpoint is shown")
    exporter = await cluster.wait_ready(PROMETHEUS_JMX_EXPORTER, key)
    (endpoint,) = exporter["status"]["metricsEndpoints"]
    assert (endpoint["pod"], endpoint["port"], endpoint["state"]) == ("shop", 9400, "Serving")
    annotations = (await cluster.client.get(POD, key))["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == "9400"

    patch = [{"op": "replace", "path": "/data/config.yaml", "value": OTHER}]
    await cluster.client.patch(CONFIG_MAP, Key(namespace, "jmx-config"), patch)
    await eventually(lambda: serves("shop_sales"), "the other configuration is served")

    await cluster.delete(PROMETHEUS_JMX_EXPORTER, key)
    await cluster.wait_gone(PROMETHEUS_JMX_EXPORTER, key)
    metadata = (await cluster.client.get(POD, key))["metadata"]
    assert not [name for name in metadata.get("annotations") or {} if "prometheus" in name]
    with pytest.raises(AssertionError):
        await scrape(cluster, namespace)
    assert await is_unharmed(cluster, namespace)


async def test_jvm_that_must_not_be_touched_is_not(cluster: Cluster, namespace: str) -> None:
    key = Key(namespace, "shop")
    variable = {"name": "JAVA_TOOL_OPTIONS", "value": "-XX:+DisableAttachMechanism"}
    await cluster.client.create(POD, build_pod(namespace, env=[variable]))
    await cluster.client.create(POD, build_pod(namespace, "no-tmp", volumeMounts=[]))
    await cluster.client.create(PROMETHEUS_JMX_EXPORTER, build_exporter(namespace))

    async def is_told() -> bool:
        held = await cluster.client.get(PROMETHEUS_JMX_EXPORTER, key)
        failures = (held.get("status") or {}).get("failures") or []
        told = {each["pod"]: each["reason"] for each in failures}
        assert told == {"shop": "AttachDisabled", "no-tmp": "TmpNotWritable"}, failures
        return True

    await eventually(is_told, "both refusals are told")
    assert await is_unharmed(cluster, namespace)
    assert await is_unharmed(cluster, namespace, "no-tmp")


async def test_pattern_that_java_cannot_read_harms_nobody(cluster: Cluster, namespace: str) -> None:
    key = Key(namespace, "shop")
    bad = "rules:\n- pattern: '(['\n"
    patch = [{"op": "replace", "path": "/data/config.yaml", "value": bad}]
    await cluster.client.patch(CONFIG_MAP, Key(namespace, "jmx-config"), patch)
    await cluster.client.create(POD, build_pod(namespace))
    await cluster.client.create(PROMETHEUS_JMX_EXPORTER, build_exporter(namespace))

    async def is_rejected() -> bool:
        held = await cluster.client.get(PROMETHEUS_JMX_EXPORTER, key)
        conditions = (held.get("status") or {}).get("conditions") or []
        found = {each["type"]: (each["status"], each["reason"]) for each in conditions}
        return found.get("ConfigValid") == ("False", "ConfigInvalid")

    await eventually(is_rejected, "the configuration is rejected")
    assert await is_unharmed(cluster, namespace)
    with pytest.raises(AssertionError):
        await scrape(cluster, namespace)

    patch = [{"op": "replace", "path": "/data/config.yaml", "value": CONFIG}]
    await cluster.client.patch(CONFIG_MAP, Key(namespace, "jmx-config"), patch)
    await cluster.wait_ready(PROMETHEUS_JMX_EXPORTER, key)
    assert await is_unharmed(cluster, namespace)
