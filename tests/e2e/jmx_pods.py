"""What the end-to-end tests of jmxexporter share: pods with JVMs, and an exporter for them."""

from __future__ import annotations

import base64
from typing import Final

from libs.common.kinds import CONFIG_MAP, POD, SECRET, Key, Manifest, build_object
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER
from tests.e2e.cluster import Cluster
from tools.cluster.docker import ensure_docker
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.progress import open_progress
from tools.images.build import ensure_base
from tools.jvm.image import SAMPLE, ensure_sample_image

CONFIG: Final = "rules:\n- pattern: shop<type=Orders><>Count\n  name: shop_orders\n"

SCRAPE: Final = """
import base64, ssl, sys, urllib.error, urllib.request
address, certificate, login = sys.argv[1:]
context = ssl.create_default_context(cafile="/tls/ca.crt")
context.check_hostname = False
# The certificates of this test name no key of their authority.
context.verify_flags &= ~ssl.VERIFY_X509_STRICT
if certificate:
    context.load_cert_chain("/tls/tls.crt", "/tls/tls.key")
request = urllib.request.Request(f"https://{address}:9400/metrics")
request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
try:
    with urllib.request.urlopen(request, context=context, timeout=20) as response:
        print(response.status, response.read().decode())
except urllib.error.HTTPError as error:
    print(error.code)
except OSError:
    print("no connection")
"""
"""Scrapes an endpoint by HTTPS: arguments are an address, `yes` for a certificate, and a login."""


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


async def create_secret(cluster: Cluster, namespace: str, name: str, **data: str) -> None:
    """Create a Secret; double underscores in keys stand for dots."""
    encoded = {
        key.replace("__", "."): base64.b64encode(value.encode()).decode()
        for key, value in data.items()
    }
    await cluster.client.create(SECRET, build_object(SECRET, name, namespace, data=encoded))


def build_client(namespace: str) -> Manifest:
    """Build a pod with the certificate of a client, in which scrapes are run."""
    pod = build_pod(namespace, "client")
    pod["metadata"]["labels"] = {"app": "client"}
    (container,) = pod["spec"]["containers"]
    container["command"] = ["python3.13", "-c", "import time; time.sleep(3600)"]
    container["volumeMounts"].append({"name": "tls", "mountPath": "/tls"})
    pod["spec"]["volumes"].append({"name": "tls", "secret": {"secretName": "client-tls"}})
    return pod
