"""Probes: what a process says of itself to the kubelet and to Prometheus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import aiohttp

_TIMEOUT: Final = aiohttp.ClientTimeout(total=3.0)
_PATHS: Final = ("/healthz", "/readyz")


@dataclass(frozen=True, slots=True)
class Probes:
    """The results of the probes.

    Attributes:
        problems: What is not well, in words.
        metrics: The page of metrics.
    """

    problems: list[str]
    metrics: str


async def read_probes(port: int) -> Probes:
    """Ask a process on the loopback address for its probes and its metrics."""
    problems, metrics = [], ""
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", timeout=_TIMEOUT) as client:
        try:
            for path in _PATHS:
                async with client.get(path) as response:
                    if response.status != 200:
                        text = " ".join((await response.text()).split())
                        problems.append(f"{path} says {response.status}: {text[:200]}")
            async with client.get("/metrics") as response:
                metrics = await response.text()
        except (aiohttp.ClientError, TimeoutError) as err:
            problems.append(f"nobody answers the probes: {type(err).__name__}")
    return Probes(problems, metrics)
