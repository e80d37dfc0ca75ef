"""Members of etcd are listed and removed: against three real members over TLS."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from libs.common.kinds import Manifest
from operators.clusters.certificates import Authorities, make_authorities
from operators.clusters.etcd import Etcd, explain_incomplete, explain_unsafe
from operators.clusters.etcd_client import (
    EtcdError,
    exchange,
    list_members,
    parse_response,
    remove_member,
)
from operators.clusters.testing_tls import Servers
from operators.clusters.workload import build_etcd_tls

NAMES = tuple(f"edge-control-plane-{slot}" for slot in range(3))


@dataclass
class RealEtcd:
    """Members of one etcd on the loopback address, with the certificates that kubeadm would make.

    Attributes:
        program: The program etcd.
        folder: Where data, certificates and logs are.
        authorities: Certificate authorities of the cluster.
        ports: Client and peer port of each member, by name.
        processes: Members that run, by name.
    """

    program: Path
    folder: Path
    authorities: Authorities
    ports: dict[str, tuple[int, int]] = field(default_factory=dict)
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    async def start(self, name: str, members: tuple[str, ...] = NAMES, state: str = "new") -> None:
        """Start a member."""
        certificate, key = Servers(self.folder, self.authorities).sign(
            "etcd-ca", (name, "127.0.0.1")
        )
        trusted = self.folder / "ca.crt"
        trusted.write_text(self.authorities.files["etcd-ca.crt"])
        client, _ = self.ports[name]
        initial = ",".join(f"{each}={self.peer_url(each)}" for each in members)
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = await asyncio.create_subprocess_exec(
                self.program,
                f"--name={name}",
                f"--data-dir={self.folder / name}",
                f"--listen-client-urls=https://127.0.0.1:{client}",
                f"--advertise-client-urls=https://127.0.0.1:{client}",
                f"--listen-peer-urls={self.peer_url(name)}",
                f"--initial-advertise-peer-urls={self.peer_url(name)}",
                f"--initial-cluster={initial}",
                f"--initial-cluster-state={state}",
                f"--cert-file={certificate}",
                f"--key-file={key}",
                "--client-cert-auth=true",
                f"--trusted-ca-file={trusted}",
                f"--peer-cert-file={certificate}",
                f"--peer-key-file={key}",
                "--peer-client-cert-auth=true",
                f"--peer-trusted-ca-file={trusted}",
                "--unsafe-no-fsync",
                stdout=log,
                stderr=log,
            )

    def peer_url(self, name: str) -> str:
        """Return the URL by which other members reach a member."""
        return f"https://127.0.0.1:{self.ports[name][1]}"

    async def stop(self, name: str) -> None:
        """Kill a member, as a machine that is lost."""
        process = self.processes.pop(name)
        if process.returncode is None:
            process.kill()
        await process.wait()

    async def post(self, node: str, path: str, body: Manifest) -> Manifest:
        """Reach a member directly, where the operator goes through the API server."""
        tls = build_etcd_tls(self.authorities, datetime.now(UTC))
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", self.ports[node][0], ssl=tls, server_hostname=node
            )
        except OSError as err:
            raise EtcdError(str(err)) from err
        try:
            return await exchange(reader, writer, path, body)
        finally:
            writer.close()

    async def until(self, **healthy: int) -> Etcd:
        """Wait until so many members are listed and so many of them are healthy."""
        wanted = (healthy["members"], healthy["healthy"])
        async with asyncio.timeout(60):
            while True:
                etcd = await list_members(self.post, sorted(self.ports))
                found = sum(each.is_healthy for each in etcd.members)
                if (len(etcd.members), found) == wanted:
                    return etcd
                await asyncio.sleep(0.05)


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[RealEtcd]:
    """Run three members."""
    program = Path(os.environ.get("KUBEBUILDER_ASSETS", "/usr/local/kubebuilder/bin"), "etcd")
    if not program.exists():
        pytest.skip("etcd is not among the binaries of KUBEBUILDER_ASSETS")
    held = RealEtcd(program, tmp_path, make_authorities("edge", datetime.now(UTC)))
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2 * len(NAMES))]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    held.ports = {name: (ports[2 * i], ports[2 * i + 1]) for i, name in enumerate(NAMES)}
    try:
        for name in NAMES:
            await held.start(name)
        yield held
    finally:
        for name in list(held.processes):
            await held.stop(name)


async def test_lost_member_is_removed_and_its_node_joins_again(etcd: RealEtcd) -> None:
    whole = await etcd.until(members=3, healthy=3)
    assert [each.name for each in whole.members] == list(NAMES)
    assert explain_incomplete(whole, NAMES) == ""

    await etcd.stop(NAMES[1])
    broken = await etcd.until(members=3, healthy=2)
    lost = broken.find(NAMES[1], "")
    assert lost is not None and not lost.is_healthy
    assert explain_incomplete(broken, NAMES) == f"the member {NAMES[1]} of etcd is not healthy"
    assert explain_unsafe(broken, lost) == ""

    others = [NAMES[0], NAMES[2]]
    await remove_member(etcd.post, others, lost)
    await remove_member(etcd.post, others, lost)  # A crash after it repeats it.
    rest = await etcd.until(members=2, healthy=2)
    assert rest.find(NAMES[1], "") is None
    assert "is not a member of etcd yet" in explain_incomplete(rest, NAMES)

    # As kubeadm does: add a learner, start it with an empty disk, promote it.
    asked = {"peerURLs": [etcd.peer_url(NAMES[1])], "isLearner": True}
    added = await _insist(etcd, "/v3/cluster/member/add", asked)
    half = await etcd.until(members=3, healthy=2)
    unnamed = half.find(NAMES[1], "127.0.0.1")
    assert unnamed is not None and unnamed.id == added["member"]["ID"] and unnamed.is_learner
    etcd.folder.joinpath(NAMES[1]).rename(etcd.folder / "lost")
    await etcd.start(NAMES[1], state="existing")
    learner = await etcd.until(members=3, healthy=3)
    assert explain_incomplete(learner, NAMES) == f"the member {NAMES[1]} of etcd does not vote yet"
    await _insist(etcd, "/v3/cluster/member/promote", {"ID": unnamed.id})
    assert explain_incomplete(await etcd.until(members=3, healthy=3), NAMES) == ""


async def test_etcd_without_a_majority_is_not_touched(etcd: RealEtcd) -> None:
    whole = await etcd.until(members=3, healthy=3)
    await etcd.stop(NAMES[1])
    await etcd.stop(NAMES[2])

    lost = await list_members(etcd.post, NAMES)

    assert not lost.is_known and lost.problem
    member = whole.find(NAMES[1], "")
    assert member is not None
    with pytest.raises(EtcdError):
        await remove_member(etcd.post, NAMES[:1], member)


async def test_etcd_refuses_a_client_of_another_cluster(etcd: RealEtcd) -> None:
    await etcd.until(members=3, healthy=3)
    stranger = RealEtcd(
        etcd.program, etcd.folder, make_authorities("other", datetime.now(UTC)), etcd.ports
    )

    response = await list_members(stranger.post, NAMES)

    assert not response.is_known


async def _insist(etcd: RealEtcd, path: str, body: Manifest) -> Manifest:
    """Ask until etcd agrees, as kubeadm does: first all members must be connected and caught up."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await etcd.post(NAMES[0], path, body)
            except EtcdError:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("received", "words"),
    [
        (b"", "HTTP status 0"),
        (b'HTTP/1.0 404 Not Found\r\n\r\n{"message": "etcdserver: member not found"}', "member"),
        (b"HTTP/1.0 200 OK\r\n\r\nnot JSON", "HTTP status 200"),
        (b"HTTP/1.0 200 OK\r\n\r\n[]", "HTTP status 200"),
    ],
    ids=["nothing", "refusal", "text", "list"],
)
def test_response_that_is_no_success_is_an_error(received: bytes, words: str) -> None:
    with pytest.raises(EtcdError, match=words):
        parse_response(received)


def test_tls_is_for_etcd_alone() -> None:
    tls = build_etcd_tls(make_authorities("edge", datetime.now(UTC)), datetime.now(UTC))
    assert tls.verify_mode is ssl.CERT_REQUIRED and tls.check_hostname


async def test_response_without_end_is_cut_off() -> None:
    """Whoever is root on a node chooses what its etcd sends."""

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()

    async with await asyncio.start_server(flood, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        with pytest.raises(EtcdError, match="too large"):
            await exchange(reader, writer, "/v3/cluster/member/list", {})
        writer.close()
        server.close_clients()
