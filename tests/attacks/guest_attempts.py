"""Attempts of root in a cluster: what its API server and its etcd send to the operator.

The operator's own client asks hostile servers. The machines do not exist.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import orjson
from aiohttp import web

from libs.common.kinds import CONFIG_MAP, NODE, SERVICE, Manifest, build_object
from libs.common.testing.fakeapi import FakeApi
from libs.common.transport_answers_test import serving
from operators.clusters.addons import BadAddon, read_manifests
from operators.clusters.certificates import Pair
from operators.clusters.etcd_client import EtcdError, exchange
from operators.clusters.observed import Workload
from operators.clusters.services import Admission
from operators.clusters.workload import Access, KubernetesWorkloads
from tests.attacks.attempt import Act, Attempt
from tests.attacks.stage import SUCCEEDS, Stage

_WHO: Final = "root of a machine of a cluster"
_BOUNDED: Final = "bounded: the cluster counts as unreachable"
_HARMLESS: Final = "an ordinary cluster"
_TIMEOUT: Final = 120.0
_BETWEEN_BYTES: Final = 0.05


async def look(url: str, timeout: float = _TIMEOUT, services: int = 0) -> Workload:
    """Look at a cluster as the operator does."""
    admission = Admission("edge", services) if services else None
    access = Access(url, "", "", Pair("", ""), admission=admission)
    return await KubernetesWorkloads(timeout).look(access)


def answer(build: Callable[[web.BaseRequest], web.Response], words: str) -> Act:
    """Build an attempt in which the API server of the cluster answers each request alike."""

    async def act(_: Stage) -> str:
        async with serving(build) as url:
            found = await look(url)
        assert words in found.message, found.message
        return "the operator believes it" if found.reachable else _BOUNDED

    return act


def hold(*manifests: Manifest, words: str, outcome: str, services: int = 0) -> Act:
    """Build an attempt in which the cluster has objects that are too many or too large."""

    async def act(_: Stage) -> str:
        async with FakeApi() as api:
            for each in manifests:
                api.create(each)
            found = await look(api.url, services=services)
        assert found.version == "", "nothing is read from it"
        told = f"{found.message} {found.services_problem}"
        assert words in told, told
        return outcome

    return act


async def be_ordinary(_: Stage) -> str:
    """Look at a cluster with a node, a Service and its version."""
    async with FakeApi() as api:
        api.create(build_object(NODE, "edge-web-0"))
        api.create(_build_version("kubernetesVersion: v1.34.2"))
        found = await look(api.url, services=2)
    is_read = "edge-web-0" in found.nodes and found.version == "v1.34.2"
    return SUCCEEDS if found.reachable and is_read else found.message


def _build_version(text: str) -> Manifest:
    data = {"ClusterConfiguration": text}
    return build_object(CONFIG_MAP, "kubeadm-config", "kube-system", data=data)


def _send(body: bytes, **headers: str) -> Callable[[web.BaseRequest], web.Response]:
    kind = {"Content-Type": "application/json"}
    return lambda _: web.Response(body=body, headers={**kind, **headers})


def _page(_: web.BaseRequest) -> web.Response:
    node = build_object(NODE, "n", spec={"providerID": "x" * 100_000})
    return web.Response(body=orjson.dumps({"items": [node], "metadata": {"continue": "more"}}))


async def drip(_: Stage) -> str:
    """Send a response one byte at a time, without an end."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(_BETWEEN_BYTES)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        found = await look(f"http://{host}:{port}", timeout=2)
        server.close_clients()
    assert "in time" in found.message, found.message
    return _BOUNDED if not found.reachable else "the operator believes it"


async def redirect(_: Stage) -> str:
    """Redirect the operator to another server, such as the API of the management cluster."""
    followed: list[str] = []

    def receive(request: web.BaseRequest) -> web.Response:
        followed.append(request.path)
        return web.Response(body=b"{}", headers={"Content-Type": "application/json"})

    async with serving(receive) as target:

        def move(request: web.BaseRequest) -> web.Response:
            return web.Response(status=307, headers={"Location": f"{target}{request.path}"})

        async with serving(move) as url:
            found = await look(url)
        assert not found.reachable
        outcome = "followed" if followed else "refused: redirects are not followed"
        await look(target)
        assert followed, "the other server counts requests"
    return outcome


async def flood_etcd(_: Stage) -> str:
    """Send an endless response of etcd."""
    return await _ask_etcd(endless=True)


async def answer_etcd(_: Stage) -> str:
    """Send an ordinary response of etcd."""
    return await _ask_etcd(endless=False)


async def _ask_etcd(*, endless: bool) -> str:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            while endless:
                writer.write(b"x" * 65_536)
                await writer.drain()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
            await writer.drain()
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            await exchange(reader, writer, "/v3/cluster/member/list", {})
        except EtcdError:
            return "bounded: etcd counts as unreachable"
        finally:
            writer.close()
            server.close_clients()
    return SUCCEEDS


def read_addon(text: str) -> Act:
    """Build an attempt to let the operator read the manifests of an addon."""

    async def act(_: Stage) -> str:
        try:
            read_manifests({"cni.yaml": text})
        except BadAddon:
            return "`AddonsApplied=False: AddonFailed`, which names the key"
        return SUCCEEDS

    return act


_SMALL_ADDON: Final = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
_DEEP_ADDON: Final = _SMALL_ADDON + "data: {a: " + "[" * 30_000 + "]" * 30_000 + "}\n"
_ALIASES: Final = f"{_SMALL_ADDON}data:\n  a: &a {'x' * 20_000}\n" + "".join(
    f"  k{number}: *a\n" for number in range(10_000)
)
_LABELS: Final = {f"l{number}": "" for number in range(5_000)}
_NODES: Final = [
    build_object(NODE, f"n-{number}", metadata={"labels": _LABELS}) for number in range(5)
]
_BALANCED: Final = {"type": "LoadBalancer", "ports": [{"port": 80}]}
_SERVICES: Final = [
    build_object(SERVICE, f"s{number}", "default", spec=_BALANCED) for number in range(2_001)
]
_DEEP_VERSION: Final = _build_version("a: " + "[" * 30_000)


def _guest(
    id_: str, what: str, attack: Act, outcome: str = _BOUNDED, prove: Act = be_ordinary
) -> Attempt:
    return Attempt(id_, _WHO, what, outcome, _HARMLESS, attack, prove)


def _tenant(id_: str, what: str, text: str) -> Attempt:
    return Attempt(
        id_,
        "editor of a tenant's namespace",
        what,
        "`AddonsApplied=False: AddonFailed`, which names the key",
        "an ordinary addon",
        read_addon(text),
        read_addon(_SMALL_ADDON),
    )


GUEST_ATTEMPTS: Final = (
    _guest(
        "endless",
        "answer a list of nodes with pages without end",
        answer(_page, "more than"),
    ),
    _guest(
        "gzip",
        "answer with 64 MiB of zeros in 64 kB of gzip",
        answer(
            _send(gzip.compress(b'{"a": "%s"}' % (b"0" * 2**26)), **{"Content-Encoding": "gzip"}),
            "more than",
        ),
    ),
    _guest("nested", "answer with 100,000 nested lists", answer(_send(b"[" * 100_000), "")),
    _guest("drip", "answer one byte at a time", drip),
    _guest(
        "labels",
        "give nodes 25,000 labels",
        hold(*_NODES, words="more than 20000", outcome=_BOUNDED),
    ),
    _guest(
        "services",
        "create 2,001 Services that ask for addresses",
        hold(
            *_SERVICES,
            words="more than 2000 Services",
            outcome="bounded: Services count as unreadable",
            services=2,
        ),
        "bounded: Services count as unreadable",
    ),
    _guest(
        "redirect",
        "redirect the operator to the API of the management cluster",
        redirect,
        "refused: redirects are not followed",
    ),
    _guest(
        "etcd",
        "answer for etcd without end",
        flood_etcd,
        "bounded: etcd counts as unreachable",
        answer_etcd,
    ),
    _guest(
        "kubeadm",
        "end the operator with 30,000 brackets in the version of the cluster",
        hold(_DEEP_VERSION, words="", outcome="bounded: the version counts as unreadable"),
        "bounded: the version counts as unreadable",
    ),
    _tenant("deep-addon", "end the operator with 30,000 brackets in an addon", _DEEP_ADDON),
    _tenant("alias-addon", "fill its memory with 10,000 aliases in an addon", _ALIASES),
)
