"""The jmxexporter operator on a real cluster, with real JVMs in pods as closed as can be."""

from __future__ import annotations

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from libs.common.kinds import CONFIG_MAP, ENDPOINT_SLICE, POD, SERVICE, Key
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER
from operators.jmxexporter.injector.access_jvm_test import certify, generate, render
from tests.e2e.cluster import Cluster, Serve, eventually
from tests.e2e.jmx_pods import (
    CONFIG,
    SCRAPE,
    build_client,
    build_exporter,
    build_pod,
    create_secret,
    is_unharmed,
    load_sample,
    make_namespace,
)
from tools.cluster.docker import ensure_docker
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.progress import open_progress

LOGIN = "prometheus:secret-1"
OTHER = CONFIG.replace("shop_orders", "shop_sales")
# Its own time-out of two seconds is too short on a busy node.
CRICTL = ("crictl", "--timeout", "50s")


@pytest.fixture(scope="module", autouse=True)
def operator(serve: Serve, kind_cluster: KindCluster) -> None:
    """Install the operator, and load an application, for all tests here."""
    load_sample(kind_cluster)
    serve("jmxexporter", settings__webhooks=True)


@pytest.fixture
async def namespace(cluster: Cluster) -> str:
    return await make_namespace(cluster)


async def scrape(cluster: Cluster, namespace: str, pod: str = "shop") -> dict[str, Metric]:
    """Scrape a pod through the API server, and read it as Prometheus does."""
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}:9400/proxy/metrics"
    text = await cluster.run(cluster.kubectl, "get", "--raw", path)
    return {family.name: family for family in text_string_to_metric_families(text)}


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
        return bool(held["status"].get("metricsEndpoints"))

    await eventually(is_shown, "the endpoint is shown")
    exporter = await cluster.wait_ready(PROMETHEUS_JMX_EXPORTER, key)
    (endpoint,) = exporter["status"]["metricsEndpoints"]
    assert (endpoint["pod"], endpoint["port"], endpoint["state"]) == ("shop", 9400, "Serving")
    annotations = (await cluster.client.get(POD, key))["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == "9400"

    patch = [{"op": "replace", "path": "/data/config.yaml", "value": OTHER}]
    await cluster.client.patch(CONFIG_MAP, Key(namespace, "jmx-config"), patch)
    await eventually(lambda: serves("shop_sales"), "the other configuration is served")
    injectors = (await cluster.client.get(POD, key))["spec"]["ephemeralContainers"]
    assert len(injectors) == 1, "the operator sent the other configuration"

    await cluster.delete(PROMETHEUS_JMX_EXPORTER, key)
    await cluster.wait_gone(PROMETHEUS_JMX_EXPORTER, key)
    metadata = (await cluster.client.get(POD, key))["metadata"]
    assert not [name for name in metadata.get("annotations") or {} if "prometheus" in name]
    with pytest.raises(AssertionError):
        await scrape(cluster, namespace)
    assert await is_unharmed(cluster, namespace)


async def test_endpoint_serves_clients_with_certificate_and_login_and_follows_the_rules(
    cluster: Cluster, namespace: str
) -> None:
    authority, server, client = generate("ec"), generate("rsa"), generate("ec")
    root = certify(authority, authority)
    for name, key in (("shop-tls", server), ("client-tls", client)):
        certificate = certify(key, authority, name)
        await create_secret(
            cluster, namespace, name, tls__crt=certificate, tls__key=render(key), ca__crt=root
        )
    user, _, password = LOGIN.partition(":")
    await create_secret(cluster, namespace, "shop-login", username=user, password=password)
    for pod in (build_pod(namespace), build_client(namespace)):
        await cluster.client.create(POD, pod)
    exporter = build_exporter(
        namespace,
        tls={"secretName": "shop-tls", "clientCertificates": "Require"},
        basicAuth={"secretName": "shop-login"},
    )
    await cluster.client.create(PROMETHEUS_JMX_EXPORTER, exporter)

    async def scrape(*, certificate: str = "yes", login: str = LOGIN) -> str:
        address = (await cluster.client.get(POD, Key(namespace, "shop")))["status"].get("podIP", "")
        command = ("exec", "client", "--", "python3.13", "-c", SCRAPE)
        return await cluster.kubectl_run(namespace, *command, address, certificate, login)

    async def serves(name: str) -> bool:
        found = await scrape()
        assert name in found, found
        return True

    await eventually(lambda: serves("shop_orders"), "orders are served")
    await cluster.wait_ready(PROMETHEUS_JMX_EXPORTER, Key(namespace, "shop"))
    assert (await scrape(login="prometheus:other")).strip() == "401"
    assert (await scrape(certificate="")).strip() == "401"

    patch = [{"op": "replace", "path": "/data/config.yaml", "value": OTHER}]
    await cluster.client.patch(CONFIG_MAP, Key(namespace, "jmx-config"), patch)

    await eventually(lambda: serves("shop_sales"), "the other configuration is served")
    held = await cluster.client.get(POD, Key(namespace, "shop"))
    assert len(held["spec"]["ephemeralContainers"]) == 1, "the operator sent the rules"
    assert await is_unharmed(cluster, namespace)


async def test_jvm_that_must_not_be_touched_is_not(cluster: Cluster, namespace: str) -> None:
    key = Key(namespace, "shop")
    variable = {"name": "JAVA_TOOL_OPTIONS", "value": "-XX:+DisableAttachMechanism"}
    await cluster.client.create(POD, build_pod(namespace, env=[variable]))
    await cluster.client.create(POD, build_pod(namespace, "no-tmp", volumeMounts=[]))
    await cluster.client.create(PROMETHEUS_JMX_EXPORTER, build_exporter(namespace))

    async def is_reported() -> bool:
        held = await cluster.client.get(PROMETHEUS_JMX_EXPORTER, key)
        failures = (held.get("status") or {}).get("failures") or []
        reported = {each["pod"]: each["reason"] for each in failures}
        assert reported == {"shop": "AttachDisabled", "no-tmp": "TmpNotWritable"}, failures
        return True

    await eventually(is_reported, "both refusals are told")
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


async def test_jvm_that_cannot_be_attached_to_begins_with_the_exporter(
    cluster: Cluster, namespace: str
) -> None:
    key = Key(namespace, "shop")
    await cluster.client.create(
        PROMETHEUS_JMX_EXPORTER, build_exporter(namespace, startup="NewPods")
    )
    variable = {"name": "JAVA_TOOL_OPTIONS", "value": "-XX:+DisableAttachMechanism"}
    # Nor is there a /tmp that it could write to.
    pod = build_pod(namespace, env=[variable], volumeMounts=[])

    async def is_prepared() -> bool:
        response = await cluster.client.create(POD, pod, dry_run=True)
        return "initContainers" in response["spec"]

    await eventually(is_prepared, "new pods are prepared")
    await cluster.client.create(POD, pod)

    async def is_served() -> bool:
        return "shop_orders" in await scrape(cluster, namespace)

    await eventually(is_served, "orders are served from the start on")
    exporter = await cluster.wait_ready(PROMETHEUS_JMX_EXPORTER, key)
    (endpoint,) = exporter["status"]["metricsEndpoints"]
    assert (endpoint["state"], endpoint["port"]) == ("StartedWith", 9400)
    held = await cluster.client.get(POD, key)
    assert not held["spec"].get("ephemeralContainers"), "nothing was put beside it"
    look = (
        "print(*(line.split()[3].partition(',')[0] for line in open('/proc/mounts')"
        " if line.split()[1] == '/slipway-jmx'))"
    )
    mounted = await cluster.kubectl_run(namespace, "exec", "shop", "--", "python3.13", "-c", look)
    assert mounted.strip() == "ro", "the application could replace what its JVM loads"
    assert await is_unharmed(cluster, namespace)


async def test_neighbor_container_finds_nothing_that_the_jvm_loads(
    cluster: Cluster, namespace: str
) -> None:
    """All containers of the pod run as the same user, and share /dev/shm."""
    for name, volume in (("shop", "other"), ("shared", "tmp")):
        pod = build_pod(namespace, name)
        spec = pod["spec"]
        neighbor = {**spec["containers"][0], "name": "neighbor", "args": []}
        neighbor["command"] = ["python3.13", "-c", "import time; time.sleep(3600)"]
        neighbor["volumeMounts"] = [{"name": volume, "mountPath": "/tmp"}]
        spec["containers"].append(neighbor)
        spec["volumes"].append({"name": "other", "emptyDir": {}})
        await cluster.client.create(POD, pod)
    exporter = build_exporter(namespace, containers={"include": ["app"]})
    await cluster.client.create(PROMETHEUS_JMX_EXPORTER, exporter)

    async def is_served() -> bool:
        return "shop_orders" in await scrape(cluster, namespace)

    async def is_refused() -> bool:
        held = await cluster.client.get(PROMETHEUS_JMX_EXPORTER, Key(namespace, "shop"))
        failures = (held.get("status") or {}).get("failures") or []
        return [(each["pod"], each["reason"]) for each in failures] == [("shared", "SharedTmp")]

    await eventually(is_served, "orders are served")
    look = (
        "import glob; open('/dev/shm/probe', 'w').close(); open('/tmp/probe', 'w').close();"
        "print(glob.glob('/dev/shm/*') + glob.glob('/tmp/*'))"
    )
    command = ("exec", "shop", "-c", "neighbor", "--", "python3.13", "-c", look)
    found = await cluster.kubectl_run(namespace, *command)
    assert found.strip() == "['/dev/shm/probe', '/tmp/probe']"
    await eventually(is_refused, "the pod whose containers share /tmp is reported")
    held = await cluster.client.get(POD, Key(namespace, "shared"))
    assert not held["spec"].get("ephemeralContainers")


async def test_several_pods_at_once_are_found_by_a_service_and_nothing_stays_behind(
    cluster: Cluster, namespace: str
) -> None:
    key, names = Key(namespace, "shop"), [f"shop-{n}" for n in range(3)]
    for name in names:
        await cluster.client.create(POD, build_pod(namespace, name))
    await cluster.client.create(
        PROMETHEUS_JMX_EXPORTER, build_exporter(namespace, service={}, maxConcurrent=3)
    )

    async def find_published() -> list[str]:
        slices = await cluster.client.list(ENDPOINT_SLICE, namespace)
        return sorted(
            endpoint["targetRef"]["name"]
            for each in slices.items
            for endpoint in each.get("endpoints") or []
        )

    async def are_published() -> bool:
        return await find_published() == names

    await eventually(are_published, "all pods are published")
    await cluster.wait_ready(PROMETHEUS_JMX_EXPORTER, key)
    assert all([await is_unharmed(cluster, namespace, name) for name in names])

    await cluster.delete(POD, Key(namespace, names.pop()))
    await eventually(are_published, "a pod that is gone is not published any more")

    await cluster.delete(PROMETHEUS_JMX_EXPORTER, key)
    await cluster.wait_gone(PROMETHEUS_JMX_EXPORTER, key)

    async def is_clean() -> bool:
        services = await cluster.client.list(SERVICE, namespace)
        return not services.items and not await find_published()

    await eventually(is_clean, "Service and slices are collected")
    for name in names:
        metadata = (await cluster.client.get(POD, Key(namespace, name)))["metadata"]
        assert not [each for each in metadata.get("annotations") or {} if "prometheus" in each]
        assert await is_unharmed(cluster, namespace, name)


async def test_container_that_ends_while_it_is_worked_on_is_served_once_it_is_back(
    cluster: Cluster, namespace: str, kind_cluster: KindCluster
) -> None:
    key = Key(namespace, "shop")
    await cluster.client.create(POD, build_pod(namespace))
    await cluster.client.create(PROMETHEUS_JMX_EXPORTER, build_exporter(namespace))
    docker = ensure_docker(open_progress("e2e-jmx"), kind_cluster.cache)
    node = kind_cluster.nodes(docker)[0]["Names"]

    async def stop_at_work() -> bool:
        held = await cluster.client.get(POD, key)
        injectors = held["status"].get("ephemeralContainerStatuses") or []
        if not any("running" in each["state"] for each in injectors):
            assert not any("terminated" in each["state"] for each in injectors), "it was too fast"
            return False
        return True

    await eventually(stop_at_work, "an injector is at work")
    first = (await cluster.client.get(POD, key))["status"]["containerStatuses"][0]["containerID"]
    identity = first.rpartition("//")[2]
    docker.read("exec", node, *CRICTL, "stop", "--timeout", "0", identity)

    async def is_served_or_reported() -> bool:
        held = await cluster.client.get(PROMETHEUS_JMX_EXPORTER, key)
        conditions = (held.get("status") or {}).get("conditions") or []
        found = {each["type"]: each["status"] for each in conditions}
        if found.get("Degraded") == "True":
            # The breaker cannot know who ended the container; a person checks and continues.
            patch = {"spec": {"timeoutSeconds": 39}}
            await cluster.client.patch(PROMETHEUS_JMX_EXPORTER, key, patch)
            return False
        endpoints = (held.get("status") or {}).get("metricsEndpoints") or []
        return any(each["containerId"] not in first for each in endpoints)

    await eventually(is_served_or_reported, "the new container is served")
    assert "shop_orders" in await scrape(cluster, namespace)
    (status,) = (await cluster.client.get(POD, key))["status"]["containerStatuses"]
    assert status["restartCount"] == 1, "nobody but the test ended it"


async def test_pod_that_a_node_sets_up_anew_after_its_restart_is_served_again(
    cluster: Cluster, namespace: str, kind_cluster: KindCluster
) -> None:
    """What the kubelet does after a reboot: another sandbox and address, other containers.

    The node of this cluster is its control plane, so the sandbox alone is ended here.
    """
    key = Key(namespace, "shop")
    await cluster.client.create(POD, build_pod(namespace))
    await cluster.client.create(PROMETHEUS_JMX_EXPORTER, build_exporter(namespace, service={}))

    async def find_published() -> list[str]:
        slices = await cluster.client.list(ENDPOINT_SLICE, namespace)
        endpoints = [each for held in slices.items for each in held.get("endpoints") or []]
        return [address for each in endpoints for address in each["addresses"]]

    async def is_published() -> bool:
        held = await cluster.client.get(POD, key)
        return await find_published() == [held["status"].get("podIP")]

    await eventually(is_published, "the pod is published")
    before = (await cluster.client.get(POD, key))["status"]
    docker = ensure_docker(open_progress("e2e-jmx"), kind_cluster.cache)
    node = kind_cluster.nodes(docker)[0]["Names"]
    words = ("exec", node, *CRICTL)
    named = ("--namespace", namespace, "--name", "^shop$")
    docker.read(*words, "stopp", docker.read(*words, "pods", "--quiet", *named).strip())

    async def is_served_again() -> bool:
        status = (await cluster.client.get(POD, key))["status"]
        (container,) = status["containerStatuses"]
        held = await cluster.client.get(PROMETHEUS_JMX_EXPORTER, key)
        served = [each["containerId"] for each in held["status"].get("metricsEndpoints") or []]
        return (
            status.get("podIP") not in (None, before["podIP"])
            and [container["containerID"].rpartition("//")[2]] == served
            and served[0] not in before["containerStatuses"][0]["containerID"]
        )

    await eventually(is_served_again, "the new container is served")
    await eventually(is_published, "its new address is published")
    assert "shop_orders" in await scrape(cluster, namespace)
    (status,) = (await cluster.client.get(POD, key))["status"]["containerStatuses"]
    assert "running" in status["state"]
    # Not by the count of restarts: the kubelet may have tried to start one in the dying sandbox.
    sandbox = docker.read(*words, "pods", "--quiet", "--state", "ready", *named)
    ran = docker.read(*words, "ps", "--all", "--quiet", "--pod", sandbox.strip(), "--name", "^app$")
    assert len(ran.split()) == 1, "nobody but the node ended it"
