"""Fixtures: a cluster on the fake API, and the plugin as a user runs it."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import pytest

from kubectl_slipway.cli import main
from kubectl_slipway.kubectl import Kubectl
from libs.common.conditions import render_time
from libs.common.crd import build_crd
from libs.common.kinds import POD, Manifest, build_object
from libs.common.testing.fakeapi import FakeApi
from operators.clusters.api import RESOURCES as CLUSTERS
from operators.compute.api import RESOURCES as COMPUTE
from operators.ipam.api import RESOURCES as IPAM
from operators.jmxexporter.api import RESOURCES as JMX
from operators.network.api import RESOURCES as NETWORK
from operators.podset.api import RESOURCES as PODSET
from operators.pulsarconsumer.api import RESOURCES as PULSAR
from operators.volumes.api import RESOURCES as VOLUMES

MODELS = {
    "clusters": CLUSTERS,
    "compute": COMPUTE,
    "ipam": IPAM,
    "jmxexporter": JMX,
    "network": NETWORK,
    "podset": PODSET,
    "pulsarconsumer": PULSAR,
    "volumes": VOLUMES,
}
SYSTEM = "slipway-system"


@dataclass
class Answer:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


@dataclass
class Lab:
    """A cluster on the fake API."""

    api: FakeApi
    capsys: pytest.CaptureFixture[str]

    async def run(self, *argv: str) -> Answer:
        """Run the plugin as a user does, in a thread, because it does not use asyncio."""
        self.capsys.readouterr()
        try:
            code = await asyncio.to_thread(main, argv)
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = self.capsys.readouterr()
        return Answer(code, out, err)

    def put(self, *manifests: Manifest) -> None:
        for each in manifests:
            self.api.create(each)

    def install(self, *ids: str, **options: Any) -> None:
        """Install operators: Deployment, pod and Lease, as the charts create them."""
        for id in ids:
            self.put(*build_operator(id, **options))


def ago(seconds: float) -> str:
    return render_time(datetime.now(UTC) - timedelta(seconds=seconds))


def build_operator(
    id: str,
    *,
    watches: str = "*",
    replicas: int = 1,
    ready: int = 1,
    holder: str | None = None,
    renewed: float = 1,
    waiting: Mapping[str, Any] | None = None,
    env: Sequence[Manifest] = (),
) -> Iterator[Manifest]:
    """Build the objects that `helm install` and a running operator create."""
    labels = {
        "app.kubernetes.io/name": id,
        "app.kubernetes.io/instance": id,
        "app.kubernetes.io/component": "operator",
        "app.kubernetes.io/part-of": "slipway",
    }
    variables = [{"name": f"{id.upper()}_WATCH_NAMESPACES", "value": watches}, *env]
    container = {"name": "operator", "image": f"slipway/{id}:0.1.0", "env": variables}
    pod_spec = {"serviceAccountName": id, "containers": [container]}
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": id,
            "namespace": SYSTEM,
            "labels": {**labels, "app.kubernetes.io/version": "0.1.0"},
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec},
        },
        "status": {"replicas": replicas, "readyReplicas": ready, "observedGeneration": 1},
    }
    state = {"waiting": dict(waiting)} if waiting else {"running": {}}
    yield build_object(
        POD,
        f"{id}-5d8f-abcde",
        SYSTEM,
        metadata={"labels": labels},
        spec=pod_spec,
        status={
            "phase": "Pending" if waiting else "Running",
            "containerStatuses": [
                {
                    "name": "operator",
                    "image": f"slipway/{id}:0.1.0",
                    "imageID": "",
                    "ready": ready > 0,
                    "restartCount": 0,
                    "state": state,
                }
            ],
        },
    )
    moment = datetime.now(UTC) - timedelta(seconds=renewed)
    yield {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": id, "namespace": SYSTEM},
        "spec": {
            "holderIdentity": f"{id}-5d8f-abcde" if holder is None else holder,
            "leaseDurationSeconds": 15,
            "renewTime": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }


@pytest.fixture
async def lab(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[Lab]:
    """Run an API server with the kinds of all operators, and no operator.

    The plugin connects without kubectl; `kubectl_test.py` connects with it.
    """
    # Objects are 5 minutes old: an operator would have done something about them.
    async with FakeApi(now=lambda: datetime.now(UTC) - timedelta(minutes=5)) as api:
        for crd in build_crds():
            api.register(crd)
        api.create(build_namespace(SYSTEM))
        host, port = urlsplit(api.url).hostname or "", urlsplit(api.url).port
        monkeypatch.setattr(Kubectl, "start", lambda _: None)
        monkeypatch.setattr(Kubectl, "connect", lambda _: http.client.HTTPConnection(host, port))
        monkeypatch.setattr(
            Kubectl, "namespace", property(lambda each: each.flag("namespace") or "default")
        )
        yield Lab(api, capsys)


@cache
def build_crds() -> list[Manifest]:
    """Build the CRDs with the labels of the charts."""
    found = []
    for id, models in MODELS.items():
        for model in models:
            crd = build_crd(model)
            crd["metadata"]["labels"] = {"app.kubernetes.io/name": id}
            found.append(crd)
    return found


def build_namespace(name: str, **labels: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
