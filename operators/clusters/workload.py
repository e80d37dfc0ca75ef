"""Client of the API of a managed cluster. Works without a Kubernetes cluster around it.

Each query and each step has a time-out, and errors are returned as messages: an unreachable cluster
is an observation, and never a reason to fail a reconcile.
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import aiohttp

from libs.common.client import Client
from libs.common.conditions import render_time
from libs.common.config import ConnectionConfig
from libs.common.errors import (
    ApiError,
    Conflict,
    NotFound,
    SlipwayError,
    Unreachable,
)
from libs.common.kinds import NODE, POD, Key, Manifest, is_deleting, key_of
from libs.common.ownership import controller_of
from libs.common.reading import text_at, text_map_at
from libs.common.tasks import run_together
from libs.common.transport import cause_of
from operators.clusters.addon_writer import apply_addon, read_record
from operators.clusters.addons import AddonStep
from operators.clusters.certificates import ETCD_AUTHORITY, Authorities, Pair, sign_client
from operators.clusters.etcd import Etcd, RemoveMember
from operators.clusters.etcd_client import (
    EtcdError,
    Post,
    exchange,
    list_members,
    remove_member,
)
from operators.clusters.naming import DRAINING, MANAGED, OPERATOR_ID
from operators.clusters.nodes import ClusterStep, NodeStep, NodeStepKind
from operators.clusters.observed import Node, Workload
from operators.clusters.port_forward import forward_port
from operators.clusters.served_certificates import ServedCertificates
from operators.clusters.service_client import list_services, write_address
from operators.clusters.services import Admission, GuestService, Publish
from operators.clusters.upgrade import SetProxyVersion, SetVersion, VersionStep
from operators.clusters.version_writer import (
    read_proxy_version,
    read_version,
    write_proxy_version,
    write_version,
)

_MIRROR: Final = "kubernetes.io/config.mirror"
_NOT_FOUND: Final = 404
_LATER: Final = 429
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_AT_ONCE: Final = 4
_ETCD_PORT: Final = 2379
_TIMES_FOR_ADDON: Final = 6
_READ_LIMIT: Final = 8 * 2**20
"""Bytes that the API of a cluster may send for each request: about 600 nodes. Its tenant can
replace the API server by any program, and the operator serves other tenants as well."""
_PAGE: Final = 50
_LARGEST: Final = 20_000
"""Maximum number of labels and taints of all nodes, which the operator keeps in memory."""


@dataclass(frozen=True, slots=True)
class Access:
    """Address and credentials of the API of a cluster.

    Attributes:
        ca: Certificate of its authority.
        authorities: Certificate authorities of the cluster, to reach its etcd; None if etcd is not
            queried.
        admission: Which Services can get an address; None if Services are not listed.
    """

    url: str
    host: str
    ca: str
    user: Pair
    authorities: Authorities | None = None
    admission: Admission | None = None


class Workloads(Protocol):
    """Clients of the APIs of managed clusters."""

    async def look(self, access: Access) -> Workload:
        """Query the nodes of a cluster; never raise an error because of the cluster."""

    async def take(self, access: Access, step: ClusterStep, now: datetime) -> str:
        """Execute a step; return the error that prevented it, or an empty text."""

    async def apply(self, access: Access, step: AddonStep) -> str:
        """Apply an addon; return the error that prevented it, or an empty text."""

    def forget(self, host: str) -> None:
        """Forget a deleted cluster by the name in its certificate."""


class KubernetesWorkloads:
    """Clients of the APIs of managed clusters over HTTPS.

    Args:
        timeout: Maximum seconds of a query or a step.
    """

    def __init__(self, timeout: float) -> None:
        """Store the settings; each query opens its own connection."""
        self._timeout = timeout
        self._certificates = ServedCertificates()

    async def look(self, access: Access) -> Workload:
        """Query the nodes of a cluster, and the pods of nodes that are being drained."""
        try:
            async with asyncio.timeout(self._timeout), self._connect(access) as client:
                held = await _list_nodes(client)
                # Concurrently: a removed pool may have too many nodes to query one by one in time.
                nodes = await run_together(*(_observe(client, node) for node in held))
                expires, addons, version, proxy_version, further = await run_together(
                    self._find_expiry(access, client.config.tls),
                    read_record(client),
                    read_version(client),
                    read_proxy_version(client),
                    self._look_further(client, access, nodes),
                )
        except (SlipwayError, TimeoutError, ssl.SSLError) as err:
            return Workload(asked=True, message=_explain(access, err))
        return replace(
            further,
            asked=True,
            reachable=True,
            nodes={node.name: node for node in nodes},
            certificate_expires=expires,
            addons=addons,
            version=version,
            proxy_version=proxy_version,
        )

    async def _look_further(
        self, client: Client, access: Access, nodes: Sequence[Node]
    ) -> Workload:
        """Query what must not hide the nodes if it fails: etcd and Services."""
        etcd, found = await run_together(
            self._list_members(client, access, nodes),
            self._list_services(client, access.admission),
        )
        if isinstance(found, str):
            return Workload(etcd=etcd, services_problem=found)
        return Workload(etcd=etcd, services=found)

    async def _list_members(self, client: Client, access: Access, nodes: Sequence[Node]) -> Etcd:
        if access.authorities is None:
            return Etcd()
        try:
            # If etcd does not respond, the nodes must be reported nevertheless.
            async with asyncio.timeout(self._timeout / 2):
                return await list_members(self._reach_etcd(client, access), list_serving(nodes))
        except TimeoutError:
            return Etcd(problem="etcd did not respond in time")

    async def _list_services(
        self, client: Client, admission: Admission | None
    ) -> tuple[GuestService, ...] | str:
        """List Services; return why they cannot be listed, which must not hide the nodes."""
        if admission is None:
            return ""
        try:
            async with asyncio.timeout(self._timeout / 2):
                return await list_services(client, admission)
        except TimeoutError:
            return "the Services of the cluster were not listed in time"
        except SlipwayError as err:
            return str(err)

    def _reach_etcd(self, client: Client, access: Access) -> Post:
        tls = client.config.tls
        if tls is None or access.authorities is None:
            return partial(_post_through_proxy, client)
        inner = build_etcd_tls(access.authorities, datetime.now(UTC))
        return partial(_post_through_port, access, tls, inner)

    async def _find_expiry(self, access: Access, tls: ssl.SSLContext | None) -> datetime | None:
        if tls is None:
            return None
        return await self._certificates.look(access.url, access.host, tls)

    async def take(self, access: Access, step: ClusterStep, now: datetime) -> str:
        """Execute a step; if its object no longer exists, the step counts as executed."""
        try:
            async with asyncio.timeout(self._timeout), self._connect(access) as client:
                if isinstance(step, RemoveMember):
                    await self._remove_member(client, access, step)
                else:
                    await _take(client, step, now)
        except NotFound:
            return ""
        except (Conflict, EtcdError) as err:
            # The API responds. After a conflict, the next query returns the current object.
            return f"{step}: {err}"
        except (SlipwayError, TimeoutError, ssl.SSLError) as err:
            return _explain(access, err)
        return ""

    async def _remove_member(self, client: Client, access: Access, step: RemoveMember) -> None:
        nodes = await _list_nodes(client)
        # Do not send the request to the member itself: it would stop before it responds.
        others = [each for each in list_serving(nodes) if each != step.node]
        await remove_member(self._reach_etcd(client, access), others, step.member)

    async def apply(self, access: Access, step: AddonStep) -> str:
        """Apply an addon by server-side apply, with a longer time-out, as it can be large."""
        try:
            limit = self._timeout * _TIMES_FOR_ADDON
            async with asyncio.timeout(limit), self._connect(access) as client:
                return await apply_addon(client, step)
        except (SlipwayError, TimeoutError, ssl.SSLError) as err:
            return _explain(access, err)

    def forget(self, host: str) -> None:
        """Forget the certificates of a deleted cluster."""
        self._certificates.forget(host)

    def _connect(self, access: Access) -> Client:
        tls = build_tls(access) if access.url.startswith("https:") else None
        config = ConnectionConfig(access.url, tls_server_name=access.host, tls=tls)
        return Client(
            config,
            user_agent=OPERATOR_ID,
            request_timeout=self._timeout,
            max_in_flight=_AT_ONCE,
            read_limit=_READ_LIMIT,
        )


def build_tls(access: Access) -> ssl.SSLContext:
    """Build a TLS context from credentials in memory.

    Raises:
        ssl.SSLError: The credentials are invalid.
    """
    return _build_tls(access.ca, access.user)


def _build_tls(ca: str, user: Pair) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca)
    # OpenSSL reads client certificates only from files; this file is deleted before the function
    # returns.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "user.pem")
        path.touch(mode=0o600)
        path.write_text(user.certificate + user.key)
        context.load_cert_chain(path)
    return context


def build_etcd_tls(authorities: Authorities, now: datetime) -> ssl.SSLContext:
    """Build a TLS context for etcd, with a certificate that is valid for an hour.

    Args:
        authorities: Certificate authorities of the cluster; etcd has its own.
        now: Time.
    """
    lifetime = timedelta(hours=1)
    pair = sign_client(
        authorities, "clusters", "slipway.dev", now, lifetime, authority=ETCD_AUTHORITY
    )
    return _build_tls(authorities.files[f"{ETCD_AUTHORITY}.crt"], pair)


def list_serving(nodes: Iterable[Node]) -> list[str]:
    """Return the names of the control plane nodes that are ready."""
    return sorted(each.name for each in nodes if each.ready and not each.pool)


async def _post_through_port(
    access: Access,
    server: ssl.SSLContext,
    inner: ssl.SSLContext,
    node: str,
    path: str,
    body: Manifest,
) -> Manifest:
    """Send a request to the etcd of a node by port forwarding through its kubelet."""
    pod = Key("kube-system", f"etcd-{node}")
    try:
        async with forward_port(
            access.url,
            pod,
            _ETCD_PORT,
            server=server,
            server_name=access.host,
            inner=inner,
            inner_name=node,
        ) as (reader, writer):
            return await exchange(reader, writer, path, body)
    except (OSError, aiohttp.ClientError) as err:
        raise EtcdError(f"pod kube-system/{pod.name} cannot be reached: {cause_of(err)}") from err


async def _post_through_proxy(client: Client, node: str, path: str, body: Manifest) -> Manifest:
    """Send a request to an etcd without TLS; only fakes of clusters in tests have one."""
    proxy = f"/api/v1/namespaces/kube-system/pods/etcd-{node}:{_ETCD_PORT}/proxy"
    try:
        return await client.raw("POST", proxy + path, body)
    except NotFound as err:
        raise EtcdError(str(err), 404) from err
    except SlipwayError as err:
        raise EtcdError(str(err)) from err


async def _list_nodes(client: Client) -> list[Node]:
    """List the nodes, and keep only their views in memory.

    Raises:
        Unreachable: The nodes have too many labels and taints.
    """
    nodes: list[Node] = []
    size = 0
    async for page in client.pages(NODE, page=_PAGE):
        nodes = [] if page.first else nodes
        found = [Node.parse(each) for each in page.items if text_at(each, "metadata", "name")]
        size += sum(1 + len(each.labels) + len(each.taints) for each in found)
        if size > _LARGEST:
            raise Unreachable("list nodes", f"more than {_LARGEST} nodes, labels and taints")
        nodes.extend(found)
    return nodes


async def _observe(client: Client, node: Node) -> Node:
    if node.draining_since is None:
        return node
    return replace(node, pods_left=len(await _list_leaving(client, node.name)))


async def _list_leaving(client: Client, node: str) -> list[tuple[Key, bool]]:
    """Return the pods that must leave a node, and whether each is being deleted.

    Pods of DaemonSets stay.
    """
    pods = client.pages(POD, field_selector=f"spec.nodeName={node}", page=_PAGE)
    return [
        (key_of(pod), is_deleting(pod))
        async for page in pods
        for pod in page.items
        if text_at(pod, "metadata", "name") and _has_to_leave(pod)
    ]


def _has_to_leave(pod: Manifest) -> bool:
    owner = controller_of(pod) or {}
    stays = owner.get("kind") == "DaemonSet" or _MIRROR in text_map_at(
        pod, "metadata", "annotations"
    )
    return not stays and text_at(pod, "status", "phase") not in _ENDED


async def _take(client: Client, step: NodeStep | VersionStep | Publish, now: datetime) -> None:
    if isinstance(step, Publish):
        await write_address(client, step, now)
    elif isinstance(step, SetVersion):
        await write_version(client, step)
    elif isinstance(step, SetProxyVersion):
        await write_proxy_version(client, step)
    else:
        await _take_on_node(client, step, now)


async def _take_on_node(client: Client, step: NodeStep, now: datetime) -> None:
    key = Key("", step.node)
    match step.kind:
        case NodeStepKind.CORDON:
            await client.patch(NODE, key, _mark(step, render_time(now)))
        case NodeStepKind.UNCORDON:
            await client.patch(NODE, key, _mark(step, None))
        case NodeStepKind.REMOVE:
            await client.delete(NODE, key, uid=step.uid)
        case NodeStepKind.MARK:
            await client.patch(NODE, key, _render_update(step))
        case NodeStepKind.EVICT:
            await _evict_all(client, step.node)


def _mark(step: NodeStep, since: str | None) -> Manifest:
    return {
        # The UID in the patch is a precondition, so that a new Node with this name is not changed.
        "metadata": {"uid": step.uid, "annotations": {DRAINING: since}},
        "spec": {"unschedulable": True if since else None},
    }


def _render_update(step: NodeStep) -> Manifest:
    assert step.marks is not None, "a step of this kind carries what it sets"
    # The patch replaces the list of taints as a whole. The resource version prevents that it
    # removes a taint that another client has added in the meantime.
    patch: Manifest = {
        "metadata": {
            "uid": step.uid,
            "resourceVersion": step.version,
            "labels": dict(step.marks.labels),
            "annotations": {MANAGED: step.marks.managed},
        }
    }
    if step.marks.taints is not None:
        patch["spec"] = {"taints": [dict(taint) for taint in step.marks.taints]}
    return patch


async def _evict_all(client: Client, node: str) -> None:
    """Evict every pod that must leave; a refused eviction does not prevent the others.

    Raises:
        ApiError: Error of the first refused eviction.
    """
    refusals = []
    for pod, leaves in await _list_leaving(client, node):
        if leaves:
            continue
        try:
            await _evict(client, pod)
        except ApiError as err:
            refusals.append(err)
    if refusals:
        raise refusals[0]


async def _evict(client: Client, key: Key) -> None:
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": key.name, "namespace": key.namespace},
    }
    try:
        await client.raw("POST", POD.path(key.namespace, key.name, "eviction"), eviction)
    except ApiError as err:
        # The pod no longer exists, or a PodDisruptionBudget or a webhook protects it for now; then
        # the next query leads to another attempt.
        if err.status not in (_NOT_FOUND, _LATER):
            raise


def _explain(access: Access, err: Exception) -> str:
    words = "no response in time" if isinstance(err, TimeoutError) else str(err)
    return f"the API at {access.url} cannot be used: {words}"
