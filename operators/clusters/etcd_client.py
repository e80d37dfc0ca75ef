"""Lists and removes members of etcd through its JSON gateway.

The gateway is served on the client port of etcd (`--enable-grpc-gateway`, on by default). 64-bit
numbers are strings in its JSON. Source: api/etcdserverpb/rpc.proto of etcd.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from libs.common.kinds import Manifest
from libs.common.reading import is_set_at, maps_at, text_at
from libs.common.tasks import run_together
from operators.clusters.etcd import Etcd, Member

_LIST: Final = "/v3/cluster/member/list"
_REMOVE: Final = "/v3/cluster/member/remove"
_STATUS: Final = "/v3/maintenance/status"
_SECONDS: Final = 2.0
_LARGEST: Final = 2**20
_NOT_FOUND: Final = 404

type Post = Callable[[str, str, Manifest], Awaitable[Manifest]]
"""Sends a request to the member of etcd on a node: its name, the path, the body."""


class EtcdError(Exception):
    """A member of etcd did not respond or refused; the message names the member and the cause."""

    def __init__(self, message: str, status: int = 0) -> None:
        """Store the HTTP status; 0 for no response."""
        super().__init__(message)
        self.status = status


async def list_members(post: Post, nodes: Sequence[str]) -> Etcd:
    """List the members of etcd, and query the health of each.

    Args:
        post: Sends a request to a member.
        nodes: Nodes of the control plane; the first one that responds provides the list.
    """
    problem = "no node of the control plane can be queried"
    for node in nodes:
        try:
            # Linearizable: a member that is disconnected from its cluster must not respond with its
            # outdated list.
            response = await _ask(post, node, _LIST, {"linearizable": True})
        except EtcdError as err:
            problem = str(err)
            continue
        members = maps_at(response, "members")
        found = await run_together(*(_observe(post, each, nodes) for each in members))
        return Etcd(tuple(sorted(found, key=lambda each: (each.name, each.id))))
    return Etcd(problem=problem)


async def remove_member(post: Post, nodes: Sequence[str], member: Member) -> None:
    """Remove a member from etcd.

    Args:
        post: Sends a request to a member.
        nodes: Nodes of the control plane; the first one that responds executes the request.
        member: Member to remove. If it no longer exists, this succeeds.

    Raises:
        EtcdError: No member executed the request. etcd itself refuses to lose its majority.
    """
    problem = EtcdError("no other node of the control plane can be queried")
    for node in nodes:
        try:
            await _ask(post, node, _REMOVE, {"ID": member.id})
        except EtcdError as err:
            if err.status == _NOT_FOUND:
                return
            problem = err
            if err.status:
                break
            continue
        return
    raise problem


async def _observe(post: Post, held: Mapping[str, Any], nodes: Sequence[str]) -> Member:
    name = text_at(held, "name")
    urls = held.get("peerURLs")
    return Member(
        id=text_at(held, "ID"),
        name=name,
        address=urlsplit(str(urls[0])).hostname or "" if isinstance(urls, list) and urls else "",
        is_learner=is_set_at(held, "isLearner"),
        is_healthy=name in nodes and await _is_healthy(post, name),
    )


async def _is_healthy(post: Post, node: str) -> bool:
    try:
        status = await _ask(post, node, _STATUS, {})
    except EtcdError:
        return False
    return text_at(status, "leader") not in ("", "0") and not status.get("errors")


async def _ask(post: Post, node: str, path: str, body: Manifest) -> Manifest:
    try:
        async with asyncio.timeout(_SECONDS):
            return await post(node, path, body)
    except TimeoutError:
        raise EtcdError(f"the member of etcd on {node} did not respond in time") from None


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: Manifest
) -> Manifest:
    """Send one request over an open connection, and read the response to its end.

    Raises:
        EtcdError: etcd refused; the message is its own.
    """
    sent = json.dumps(body).encode()
    # With HTTP/1.0, the response is not chunked and the connection is closed after it.
    head = f"POST {path} HTTP/1.0\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(sent)}\r\n\r\n".encode() + sent)
    await writer.drain()
    received = bytearray()
    while chunk := await reader.read(65_536):
        received += chunk
        if len(received) > _LARGEST:
            raise EtcdError("the response of etcd is too large")
    return parse_response(bytes(received))


def parse_response(received: bytes) -> Manifest:
    """Parse a complete HTTP/1.0 response.

    Raises:
        EtcdError: The response is an error, or not a valid response.
    """
    head, _, body = received.partition(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split()
    status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
    try:
        decoded: Any = orjson.loads(body)
    except ValueError:
        decoded = None
    if status != 200 or not isinstance(decoded, dict):
        said = text_at(decoded, "message") if isinstance(decoded, dict) else ""
        raise EtcdError(said or f"etcd responded with HTTP status {status}", status)
    return decoded
