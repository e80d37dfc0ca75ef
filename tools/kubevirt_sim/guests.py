"""Guests that run kubeadm, simulated: a fake API for each cluster, whose Nodes guests register.

Nothing of Kubernetes runs in these clusters. What is there is what others see of them: an
API over HTTPS with the certificates that the guest was given, which keeps objects as the real one
does, and a Node for each guest that has booted with the data to join. A Node is ready for as long
as its guest runs; the API answers for as long as a guest of the control plane does. etcd is what
survives a reboot: the state of a cluster is kept until the simulator ends.

All clusters are behind one address. Which one is meant, the name in the TLS handshake says.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from libs.common.client import Client
from libs.common.conditions import render_time
from libs.common.contracts.reading import maps_at, text_at
from libs.common.errors import NotFound, SlipwayError
from libs.common.kinds import NODE, SECRET, Key, Manifest, build_object, is_deleting, key_of, uid_of
from libs.common.testing.fakeapi import FakeApi
from tools.kubevirt_sim.cloud_init import Member

log = structlog.get_logger(__name__)

_LOOK_SECONDS: Final = 0.3
_CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"
_CHUNK: Final = 65_536


@dataclass(slots=True)
class GuestCluster:
    """One simulated cluster.

    Attributes:
        ca: Certificate of its authority; clusters are told apart by it.
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
    """Play kubeadm in guests.

    Args:
        client: Reads the first settings of guests, as a launcher does.
        list_instances: Lists all virtual machine instances.
        host: Address to listen on.
        port: Port; 0 for any that is free.
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
        running: dict[str, list[tuple[str, Member]]] = {}
        for vmi in self._list():
            if text_at(vmi, "status", "phase") != "Running" or is_deleting(vmi):
                continue
            member = await self._find_member(vmi)
            if member is not None:
                running.setdefault(member.ca, []).append((key_of(vmi).name, member))
        for guests in running.values():
            for name, member in sorted(guests, key=lambda guest: not guest[1].begins):
                await self._boot(name, member)
        for cluster in self._clusters.values():
            cluster.running = {name for name, _ in running.get(cluster.ca, ())}
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

    async def _boot(self, name: str, member: Member) -> None:
        cluster = self._clusters.get(member.ca)
        if cluster is None:
            if not member.begins:
                return
            cluster = await self._begin(name, member)
        if member.ca_key:
            cluster.planes.add(name)
        if cluster.answers or member.begins:
            node = build_node(name, member)
            if cluster.api.find(NODE, Key("", name)) is None:
                cluster.api.create(node)
                log.info("Simulating a node that joined", node=name)

    async def _begin(self, name: str, member: Member) -> GuestCluster:
        api = await self._stack.enter_async_context(FakeApi())
        cluster = GuestCluster(member.ca, member.hosts, api, build_tls(member))
        self._clusters[member.ca] = cluster
        log.info("Simulating kubeadm init", node=name, hosts=list(member.hosts))
        return cluster

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
            cluster.api.patch_status(NODE, Key("", name), _status(not ready))


def _status(ready: bool) -> Manifest:
    condition = {
        "type": "Ready",
        "status": "True" if ready else "Unknown",
        "reason": "KubeletReady" if ready else "NodeStatusUnknown",
        "message": "the simulated kubelet is ready" if ready else "Kubelet stopped posting status",
        "lastTransitionTime": render_time(datetime.now(UTC)),
    }
    return {"conditions": [condition], "nodeInfo": {"kubeletVersion": "simulated"}}


def build_tls(member: Member) -> ssl.SSLContext:
    """Build the TLS of an API, with a certificate that the authority of the cluster signs."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(cadata=member.ca)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "server.pem")
        path.write_text(_sign_server(member))
        tls.load_cert_chain(path)
    return tls


def _sign_server(member: Member) -> str:
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
        .not_valid_after(now + timedelta(days=30))
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
