"""Probes and metrics of a process, as the kubelet and Prometheus read them."""

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
        problems: Descriptions of failed probes.
        metrics: Text of the metrics page.
    """

    problems: list[str]
    metrics: str


async def read_probes(port: int) -> Probes:
    """Read the probes and metrics of a process on the loopback address."""
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
