"""Guests that run kubeadm, simulated: a fake API for each cluster, whose Nodes guests register.

No component of Kubernetes runs in these clusters. The simulator only provides what other programs
see: an API over HTTPS with the certificates that the guest was given, which keeps objects as the
real one does, and a Node for each guest that has booted with the data to join. A Node is ready for
as long as its guest runs; the API responds for as long as a guest of the control plane runs. There
is no etcd, so no node of a control plane can be replaced. The image of a guest counts as one of the
version that `kubeadm-config` has when the guest joins with its disk. The state of a cluster
survives reboots of its guests. After a restart of the simulator only the existence of a cluster is
known, from a mark on the claims of the disks of its control plane: guests join it again.

All clusters are behind one address. Which one is meant, the name in the TLS handshake says.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

import structlog
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lab.kubevirt_sim.behavior import PREFIX
from lab.kubevirt_sim.cloud_init import Member
from libs.common.client import Client
from libs.common.conditions import render_time
from libs.common.errors import NotFound, SlipwayError
from libs.common.kinds import (
    CONFIG_MAP,
    NODE,
    PVC,
    SECRET,
    Key,
    Manifest,
    build_object,
    is_deleting,
    key_of,
    uid_of,
)
from libs.common.reading import map_at, maps_at, text_at, text_map_at
from libs.common.testing.fakeapi import FakeApi

log = structlog.get_logger(__name__)

_LOOK_SECONDS: Final = 0.3
_CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"
_CHUNK: Final = 65_536
ETCD: Final = PREFIX + "etcd"
"""Annotation on the claim of a disk of a control plane: the names of the API of its cluster."""
VERSION: Final = PREFIX + "version"
"""Annotation on the claim of a disk of a control plane: the version of its cluster."""
DISK: Final = PREFIX + "disk"
"""Annotation on a Node: the claim of the disk that its guest joined with."""
CONFIG: Final = Key("kube-system", "kubeadm-config")
"""ConfigMap of a cluster with the configuration that kubeadm reads at a join."""

type Guest = tuple[Manifest, Member]
"""A virtual machine instance that runs, and how its guest is a node."""


@dataclass(slots=True)
class GuestCluster:
    """One simulated cluster.

    Attributes:
        ca: Certificate of its authority, which identifies the cluster.
        hosts: Names that its API is asked for by.
        api: Its API.
        tls: TLS of its API.
        planes: Names of guests of its control plane.
        running: Names of guests that run.
    """

    ca: str
    hosts: tuple[str, ...]
    api: FakeApi
    tls: ssl.SSLContext
    planes: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)

    @property
    def answers(self) -> bool:
        """Whether a guest of the control plane runs."""
        return bool(self.planes & self.running)


class GuestClusters:
    """A fake kubeadm in guests.

    Args:
        client: Reads the first settings of guests, as a launcher does.
        list_instances: Lists all virtual machine instances.
        host: Address to listen on.
        port: Port; 0 for any that is free.

    Attributes:
        lifetime: How long the certificates of APIs that begin from now on are valid.
    """

    def __init__(
        self, client: Client, list_instances: Callable[[], Iterable[Manifest]], host: str, port: int
    ) -> None:
        """Prepare; nothing listens before the context is entered."""
        self._client = client
        self._list = list_instances
        self._address = (host, port)
        self._stack = contextlib.AsyncExitStack()
        self._clusters: dict[str, GuestCluster] = {}
        self._members: dict[str, Member | None] = {}
        self.lifetime = timedelta(days=365)
        self.port = 0

    async def __aenter__(self) -> Self:
        """Listen, and begin to look at guests."""
        base = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        base.verify_mode = ssl.CERT_REQUIRED
        base.sni_callback = self._choose
        host, port = self._address
        server = await asyncio.start_server(self._serve, host, port, ssl=base)
        await self._stack.enter_async_context(server)
        self.port = server.sockets[0].getsockname()[1]
        task = asyncio.create_task(self._run(), name="guests")
        self._stack.push_async_callback(_cancel, task)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop; the clusters are gone."""
        await self._stack.aclose()

    @property
    def clusters(self) -> list[GuestCluster]:
        """The clusters that have begun."""
        return list(self._clusters.values())

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except SlipwayError as err:
                log.warning("Failing to look at guests", error=str(err))
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Let guests begin or join their clusters, and tell these which run."""
        running: dict[str, list[Guest]] = {}
        for vmi in self._list():
            if text_at(vmi, "status", "phase") != "Running" or is_deleting(vmi):
                continue
            member = await self._find_member(vmi)
            if member is not None:
                running.setdefault(member.ca, []).append((vmi, member))
        for ca, guests in running.items():
            cluster = self._clusters.get(ca) or await self._begin(guests)
            if cluster is not None:
                await self._boot(cluster, guests)
        for cluster in self._clusters.values():
            cluster.running = {key_of(vmi).name for vmi, _ in running.get(cluster.ca, ())}
            _report(cluster)

    async def _find_member(self, vmi: Manifest) -> Member | None:
        """Read the first settings of a guest, once for each run of its machine."""
        uid = uid_of(vmi)
        if uid not in self._members:
            name = next(
                (
                    text_at(volume, "cloudInitNoCloud", "secretRef", "name")
                    for volume in maps_at(vmi, "spec", "volumes")
                    if "cloudInitNoCloud" in volume
                ),
                "",
            )
            self._members[uid] = (
                await self._read(Key(key_of(vmi).namespace, name)) if name else None
            )
        return self._members[uid]

    async def _read(self, key: Key) -> Member | None:
        try:
            secret = await self._client.get(SECRET, key)
        except NotFound:
            return None
        data = text_at(secret, "data", "userdata")
        return Member.parse(base64.b64decode(data).decode())

    async def _begin(self, guests: Sequence[Guest]) -> GuestCluster | None:
        """Begin a cluster, or take one up again that a disk of its control plane has."""
        for vmi, member in guests:
            hosts, version = (
                (member.hosts, member.version) if member.begins else await self._recall(vmi)
            )
            if not hosts or not member.ca_key:
                continue
            api = await self._stack.enter_async_context(FakeApi())
            tls = build_tls(replace(member, hosts=hosts), self.lifetime)
            cluster = GuestCluster(member.ca, hosts, api, tls)
            self._clusters[member.ca] = cluster
            api.create(build_config(version))
            log.info("Simulating an API of a cluster", node=key_of(vmi).name, hosts=list(hosts))
            return cluster
        return None

    async def _boot(self, cluster: GuestCluster, guests: Sequence[Guest]) -> None:
        for vmi, member in guests:
            if member.ca_key and key_of(vmi).name not in cluster.planes:
                await self._remember(vmi, cluster)
                cluster.planes.add(key_of(vmi).name)
        cluster.running = {key_of(vmi).name for vmi, _ in guests}
        for vmi, member in guests if cluster.answers else ():
            name = key_of(vmi).name
            disk = _claim_of(vmi)
            _join(cluster.api, name, member, disk.name if disk is not None else "")

    # What the disks know of a cluster.

    async def _recall(self, vmi: Manifest) -> tuple[tuple[str, ...], str]:
        key = _claim_of(vmi)
        try:
            claim = await self._client.get(PVC, key) if key else {}
        except NotFound:
            return (), ""
        notes = text_map_at(claim, "metadata", "annotations")
        hosts = notes.get(ETCD, "")
        return tuple(hosts.split(",")) if hosts else (), notes.get(VERSION, "")

    async def _remember(self, vmi: Manifest, cluster: GuestCluster) -> None:
        key = _claim_of(vmi)
        notes = {ETCD: ",".join(cluster.hosts), VERSION: read_version(cluster.api)}
        if key is not None:
            with contextlib.suppress(NotFound):
                await self._client.patch(PVC, key, {"metadata": {"annotations": notes}})

    # The address.

    def _choose(
        self, tls: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext
    ) -> int | None:
        for cluster in self._clusters.values():
            if name in cluster.hosts and cluster.answers:
                tls.context = cluster.tls
                return None
        return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tls = writer.get_extra_info("ssl_object")
        cluster = next((each for each in self._clusters.values() if each.tls is tls.context), None)
        if cluster is None:
            writer.close()
            return
        address = urlsplit(cluster.api.url)
        inner, outer = await asyncio.open_connection(address.hostname, address.port)
        await asyncio.gather(_pump(reader, outer), _pump(inner, writer))


def _claim_of(vmi: Manifest) -> Key | None:
    """Return the claim of the disk that a guest boots from; None for one without a disk."""
    for volume in maps_at(vmi, "spec", "volumes"):
        claim = text_at(volume, "persistentVolumeClaim", "claimName")
        if name := text_at(volume, "dataVolume", "name") or claim:
            return Key(key_of(vmi).namespace, name)
    return None


def build_config(version: str) -> Manifest:
    """Build the ConfigMap that `kubeadm init` leaves."""
    kind = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"
    text = f"{kind}kubernetesVersion: {version}\n"
    config = build_object(CONFIG_MAP, CONFIG.name, CONFIG.namespace)
    return {**config, "data": {"ClusterConfiguration": text}}


def read_version(api: FakeApi) -> str:
    """Return the version that guests join a cluster with."""
    text = text_at(api.get(CONFIG_MAP, CONFIG), "data", "ClusterConfiguration")
    return text_at(yaml.safe_load(text) or {}, "kubernetesVersion")


def _join(api: FakeApi, name: str, member: Member, disk: str) -> None:
    """Let a guest register its Node, or take over the one of its name with another disk."""
    node, key = api.find(NODE, Key("", name)), Key("", name)
    if node is not None and text_map_at(node, "metadata", "annotations").get(DISK) == disk:
        return
    if node is None:
        api.create(build_node(name, member))
        log.info("Simulating a node that joined", node=name)
    version = read_version(api)
    api.patch(NODE, key, {"metadata": {"annotations": {DISK: disk}}})
    api.patch_status(NODE, key, {**_status(True), "nodeInfo": {"kubeletVersion": version}})


def build_node(name: str, member: Member) -> Manifest:
    """Build the Node that a kubelet registers."""
    role = {_CONTROL_PLANE: ""} if member.ca_key else {}
    return build_object(
        NODE,
        name,
        metadata={
            "labels": {"kubernetes.io/hostname": name, **role, **member.labels},
            "annotations": {"sim.slipway.dev/simulated": "true"},
        },
        spec={"taints": [dict(each) for each in member.taints]} if member.taints else {},
        status=_status(True),
    )


def _report(cluster: GuestCluster) -> None:
    """Say of each Node whether its guest runs, as kubelets and the node controller do."""
    for node in cluster.api.objects(NODE):
        name = key_of(node).name
        ready = any(
            each.get("type") == "Ready" and each.get("status") == "True"
            for each in maps_at(node, "status", "conditions")
        )
        if ready != (name in cluster.running):
            version = map_at(node, "status", "nodeInfo")
            status = {**_status(not ready), "nodeInfo": dict(version)}
            cluster.api.patch_status(NODE, Key("", name), status)


def _status(ready: bool) -> Manifest:
    condition = {
        "type": "Ready",
        "status": "True" if ready else "Unknown",
        "reason": "KubeletReady" if ready else "NodeStatusUnknown",
        "message": "the simulated kubelet is ready" if ready else "Kubelet stopped posting status",
        "lastTransitionTime": render_time(datetime.now(UTC)),
    }
    return {"conditions": [condition]}


def build_tls(member: Member, lifetime: timedelta) -> ssl.SSLContext:
    """Build the TLS of an API, with a certificate that the authority of the cluster signs."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(cadata=member.ca)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "server.pem")
        path.write_text(_sign_server(member, lifetime))
        tls.load_cert_chain(path)
    return tls


def _sign_server(member: Member, lifetime: timedelta) -> str:
    ca = x509.load_pem_x509_certificate(member.ca.encode())
    signer = serialization.load_pem_private_key(member.ca_key.encode(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey), "the authorities of clusters are such"
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=10))
        .not_valid_after(now + lifetime)
        .add_extension(
            x509.SubjectAlternativeName([_alternative(host) for host in member.hosts]), False
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False
        )
        .sign(signer, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode() + private.decode()


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
