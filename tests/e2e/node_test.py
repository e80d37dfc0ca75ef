"""The nodes that `./dev up` builds, if they contain anything of this project."""

from __future__ import annotations

import json

from libs.common.kinds import POD, Key
from tests.e2e.cluster import Cluster, eventually

_ASK = "nslookup kubernetes.default.svc.cluster.local && nc -w 5 kubernetes.default 443 < /dev/null"
"""Asks one Service by UDP and one by TCP."""


async def test_services_answer_after_kube_proxy_was_restarted(cluster: Cluster) -> None:
    async def proxies() -> list[str]:
        args = ["get", "pods", "--selector", "k8s-app=kube-proxy", "--output", "json"]
        pods = json.loads(await cluster.kubectl_run("kube-system", *args))["items"]
        assert all(pod["status"]["phase"] == "Running" for pod in pods), "kube-proxy starts"
        return [pod["metadata"]["uid"] for pod in pods]

    before = set(await proxies())
    await cluster.kubectl_run("kube-system", "delete", "pods", "--selector", "k8s-app=kube-proxy")

    async def restarted() -> bool:
        return len(now := await proxies()) == len(before) and before.isdisjoint(now)

    await eventually(restarted, "kube-proxy runs again on every node")
    namespace = await cluster.make_namespace("node")
    image = ["--image", "busybox:latest", "--image-pull-policy", "IfNotPresent"]
    command = ["--restart", "Never", "--", "sh", "-c", _ASK]
    await cluster.kubectl_run(namespace, "run", "ask", *image, *command)

    async def answered() -> bool:
        pod = await cluster.client.get(POD, Key(namespace, "ask"))
        assert pod["status"]["phase"] in ("Succeeded", "Failed"), pod["status"]
        return True

    await eventually(answered, "the pod has asked")
    said = await cluster.kubectl_run(namespace, "logs", "ask")
    pod = await cluster.client.get(POD, Key(namespace, "ask"))
    assert pod["status"]["phase"] == "Succeeded", said
