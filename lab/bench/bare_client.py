"""The floor of the benchmark: a client that creates pods, or deletes them, and does nothing else.

It watches nothing, decides nothing and keeps nothing; it has as many requests in flight as an
operator may have. No controller that speaks JSON can be faster on the same API server.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Self

import aiohttp
import orjson
import uvloop

from lab.bench.pods import build_pod_spec
from libs.common.config import load_config
from libs.common.kinds import POD, build_object

_IN_FLIGHT: Final = 32
_STOP_SECONDS: Final = 15.0


class BareClient:
    """The client in its own process.

    Args:
        kubeconfig: How it reaches the API server.
    """

    def __init__(self, kubeconfig: Path) -> None:
        """Prepare; the process starts with the context."""
        self._args = [sys.executable, "-m", "lab.bench.bare_client", str(kubeconfig)]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Start the process and wait until it takes orders."""
        self._process = subprocess.Popen(
            self._args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        assert self._process is not None
        self._process.communicate(timeout=_STOP_SECONDS)

    def order(self, verb: str, namespace: str, count: int) -> None:
        """Have pods of a namespace created or deleted; returns immediately.

        Args:
            verb: `create` or `delete`.
            namespace: Where.
            count: How many.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{verb} {namespace} {count}\n")
        self._process.stdin.flush()

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process is not None
        return self._process.pid


async def _serve(kubeconfig: str) -> None:
    config = await load_config(kubeconfig)
    headers = {"Authorization": await config.authorization(), "Content-Type": "application/json"}
    connector = aiohttp.TCPConnector(limit=_IN_FLIGHT, ssl=config.ssl_context() or True)
    async with aiohttp.ClientSession(config.server, connector=connector, headers=headers) as http:
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            verb, namespace, count = line.split()

            async def create(number: int, namespace: str = namespace) -> None:
                name, spec = f"web-{number}", build_pod_spec()
                labels = {"labels": {"app": "web", "version": "v0.1"}}
                body = build_object(POD, name, namespace, metadata=labels, spec=spec)
                async with http.post(POD.path(namespace), data=orjson.dumps(body)) as response:
                    orjson.loads(await response.read())

            async def delete(number: int, namespace: str = namespace) -> None:
                async with http.delete(POD.path(namespace, f"web-{number}")) as response:
                    orjson.loads(await response.read())

            await _send({"create": create, "delete": delete}[verb], int(count))


async def _send(request: Callable[[int], Awaitable[None]], count: int) -> None:
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await request(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(_IN_FLIGHT):
            group.create_task(work())


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1]))
