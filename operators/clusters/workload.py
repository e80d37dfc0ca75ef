"""The outside system: the API of a cluster that was made. Usable without Kubernetes around it.

Each question and each step is bounded in time, and whatever goes wrong becomes words: that a
cluster cannot be asked is a fact like any other, and never a reason to fail a pass.
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from libs.common.client import Client
from libs.common.conditions import render_time
from libs.common.config import ConnectionConfig
from libs.common.contracts.reading import text_at, text_map_at
from libs.common.errors import Conflict, NotFound, SlipwayError, TooManyRequests
from libs.common.kinds import NODE, POD, Key, Manifest, is_deleting, key_of
from libs.common.ownership import controller_of
from operators.clusters.certificates import Pair
from operators.clusters.naming import DRAINING, OPERATOR
from operators.clusters.nodes import NodeStep, NodeStepKind
from operators.clusters.observed import Node, Workload

_MIRROR: Final = "kubernetes.io/config.mirror"
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True)
class Access:
    """Say how the API of a cluster is reached.

    Attributes:
        url: Where it is.
        host: Name that its certificate is for.
        ca: Certificate of its authority.
        user: Credentials of the operator.
    """

    url: str
    host: str
    ca: str
    user: Pair


class Workloads(Protocol):
    """Reaches the APIs of clusters."""

    async def look(self, access: Access) -> Workload:
        """Ask for the nodes of a cluster; never raises for what is wrong out there."""

    async def take(self, access: Access, step: NodeStep, now: datetime) -> str:
        """Take a step; returns what kept it from being taken, empty for nothing."""


class KubernetesWorkloads:
    """Reach the APIs of clusters over HTTPS.

    Args:
        timeout: Seconds for a question or a step.
    """

    def __init__(self, timeout: float) -> None:
        """Keep the settings; connections are made for each question."""
        self._timeout = timeout

    async def look(self, access: Access) -> Workload:
        """Ask for the nodes of a cluster, and for the pods of those that are drained."""
        try:
            async with asyncio.timeout(self._timeout), self._connect(access) as client:
                held = (await client.list(NODE)).items
                # Side by side: a pool that goes may be of more nodes than there is time for.
                nodes = await asyncio.gather(*(_observe(client, node) for node in held))
        except (SlipwayError, TimeoutError, ssl.SSLError) as err:
            return Workload(asked=True, message=_explain(access, err))
        return Workload(True, True, nodes={node.name: node for node in nodes})

    async def take(self, access: Access, step: NodeStep, now: datetime) -> str:
        """Take a step; a Node that is gone, or another by now, counts as done."""
        try:
            async with asyncio.timeout(self._timeout), self._connect(access) as client:
                await _take(client, step, now)
        except (NotFound, Conflict):
            return ""
        except (SlipwayError, TimeoutError, ssl.SSLError) as err:
            return _explain(access, err)
        return ""

    def _connect(self, access: Access) -> Client:
        tls = build_tls(access) if access.url.startswith("https:") else None
        config = ConnectionConfig(access.url, tls_server_name=access.host, tls=tls)
        return Client(
            config, user_agent=OPERATOR, request_timeout=self._timeout, max_in_flight=_AT_ONCE
        )


def build_tls(access: Access) -> ssl.SSLContext:
    """Build a TLS context from credentials in memory.

    Raises:
        ssl.SSLError: They cannot be read.
    """
    context = ssl.create_default_context(cadata=access.ca)
    # OpenSSL reads certificates of clients from files only; this one is gone when the call returns.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "user.pem")
        path.touch(mode=0o600)
        path.write_text(access.user.certificate + access.user.key)
        context.load_cert_chain(path)
    return context


async def _observe(client: Client, manifest: Manifest) -> Node:
    node = Node.parse(manifest)
    if node.draining_since is None:
        return node
    return Node.parse(manifest, len(await _list_leaving(client, node.name)))


async def _list_leaving(client: Client, node: str) -> list[Manifest]:
    """List the pods that have to leave a node: not those of DaemonSets, which never do."""
    pods = await client.list(POD, field_selector=f"spec.nodeName={node}")
    return [pod for pod in pods.items if _has_to_leave(pod)]


def _has_to_leave(pod: Manifest) -> bool:
    owner = controller_of(pod) or {}
    stays = owner.get("kind") == "DaemonSet" or _MIRROR in text_map_at(
        pod, "metadata", "annotations"
    )
    return not stays and text_at(pod, "status", "phase") not in _ENDED


async def _take(client: Client, step: NodeStep, now: datetime) -> None:
    key = Key("", step.node)
    match step.kind:
        case NodeStepKind.CORDON:
            await client.patch(NODE, key, _mark(step, render_time(now)))
        case NodeStepKind.UNCORDON:
            await client.patch(NODE, key, _mark(step, None))
        case NodeStepKind.REMOVE:
            await client.delete(NODE, key, uid=step.uid)
        case NodeStepKind.EVICT:
            for pod in await _list_leaving(client, step.node):
                if not is_deleting(pod):
                    await _evict(client, pod)


def _mark(step: NodeStep, since: str | None) -> Manifest:
    return {
        # A UID in a patch is a precondition: another Node of the name is left alone.
        "metadata": {"uid": step.uid, "annotations": {DRAINING: since}},
        "spec": {"unschedulable": True if since else None},
    }


async def _evict(client: Client, pod: Manifest) -> None:
    key = key_of(pod)
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": key.name, "namespace": key.namespace},
    }
    try:
        await client.raw("POST", POD.path(key.namespace, key.name, "eviction"), eviction)
    except (NotFound, TooManyRequests):
        # Gone, or held by a PodDisruptionBudget: then it is asked again at the next look.
        return


def _explain(access: Access, err: Exception) -> str:
    words = "no answer in time" if isinstance(err, TimeoutError) else str(err)
    return f"the API at {access.url} cannot be used: {words}"
