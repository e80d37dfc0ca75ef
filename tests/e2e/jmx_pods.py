"""What the end-to-end tests of jmxexporter share: pods with JVMs, and an exporter for them."""

from __future__ import annotations

from typing import Final

from libs.common.kinds import CONFIG_MAP, POD, Key, Manifest, build_object
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER
from tests.e2e.cluster import Cluster
from tools.cluster.docker import ensure_docker
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.progress import open_progress
from tools.images.build import ensure_base
from tools.jvm.image import SAMPLE, ensure_sample_image

CONFIG: Final = "rules:\n- pattern: shop<type=Orders><>Count\n  name: shop_orders\n"


def load_sample(kind_cluster: KindCluster) -> None:
    """Build the image of the sample application, and load it into the nodes."""
    progress = open_progress("e2e-jmx")
    docker = ensure_docker(progress, kind_cluster.cache)
    ensure_sample_image(docker, ensure_base(docker, progress), progress, kind_cluster.cache)
    kind_cluster.load([SAMPLE], progress)


async def make_namespace(cluster: Cluster) -> str:
    """Make a namespace that takes nothing but restricted pods, with a configuration."""
    name = await cluster.make_namespace(
        "jmx",
        **{
            "pod-security.kubernetes.io/enforce": "restricted",
            "banzaicloud.com/jmx-startup": "enabled",
        },
    )
    config_map: Manifest = build_object(
        CONFIG_MAP, "jmx-config", name, data={"config.yaml": CONFIG}
    )
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
    return build_object(
        POD,
        name,
        namespace,
        metadata={"labels": {"app": "shop"}},
        spec={
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
    )


def build_exporter(namespace: str, **spec: object) -> Manifest:
    return build_object(
        PROMETHEUS_JMX_EXPORTER,
        "shop",
        namespace,
        spec={
            "labelSelector": {"app": "shop"},
            "config": {"configMapName": "jmx-config"},
            "port": 9400,
            "minReadySeconds": 6,
            **spec,
        },
    )


async def is_unharmed(cluster: Cluster, namespace: str, pod: str = "shop") -> bool:
    """Return whether the application runs as it did, without a restart."""
    held = await cluster.client.get(POD, Key(namespace, pod))
    (status,) = held["status"]["containerStatuses"]
    return status["restartCount"] == 0 and "running" in status["state"]
