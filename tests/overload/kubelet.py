"""Plays the probes of a kubelet, with the values of a chart."""

from __future__ import annotations

import asyncio
import ssl
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from libs.common.testing.helm import render_chart

_PROBES: Final = ("startupProbe", "livenessProbe", "readinessProbe")
_TICK_SECONDS: Final = 0.05
_LATE_SECONDS: Final = 0.5
"""A failed probe during which this process itself ran so late says nothing about the container."""


def read_probes(chart: str) -> Mapping[str, Any]:
    """Return the probes of the container in the chart of an operator."""
    (deployment,) = render_chart(chart, {}, namespace="default", show_only=("Deployment",))
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    return {name: container[name] for name in _PROBES}


@dataclass(slots=True)
class Kubelet:
    """Probes one container until cancelled, and records what it would do.

    Attributes:
        probes: Probes of the container.
        url: Base URL of its probes.
        paths: Path of each probe that differs from the chart.
        started: Seconds until the startup probe succeeded; None before.
        ready: Seconds until the container was ready; None before.
        kills: Why the container would have been killed.
        slowest: Seconds of the slowest liveness probe that succeeded.
    """

    probes: Mapping[str, Any]
    url: str
    paths: Mapping[str, str] = field(default_factory=dict)
    started: float | None = None
    ready: float | None = None
    kills: list[str] = field(default_factory=list)
    slowest: float = 0.0
    _begun: float = field(default_factory=time.monotonic)
    _late: float = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the start of the container."""
        return time.monotonic() - self._begun

    async def run(self) -> None:
        """Run the startup probe, then the others."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._measure_lateness())
            await self._pass("startupProbe")
            self.started = self.elapsed
            group.create_task(self._watch_liveness())
            await self._pass("readinessProbe")
            self.ready = self.elapsed

    async def _pass(self, name: str) -> None:
        failures = 0
        while not await self._probe(name):
            failures += 1
            if name == "startupProbe" and failures == self.probes[name]["failureThreshold"]:
                self.kills.append(f"{name} failed {failures} times")

    async def _watch_liveness(self) -> None:
        name, failures = "livenessProbe", 0
        while True:
            failures = 0 if await self._probe(name) else failures + 1
            if failures == self.probes[name]["failureThreshold"]:
                self.kills.append(f"{name} failed {failures} times")

    async def _probe(self, name: str) -> bool:
        """Probe until there is a result that counts; wait for the rest of the period."""
        probe = self.probes[name]
        url = self.url + self.paths.get(name, probe["httpGet"]["path"])
        while True:
            begun, self._late = time.monotonic(), 0.0
            passed = await asyncio.to_thread(_get, url, probe["timeoutSeconds"])
            took = time.monotonic() - begun
            if passed and name == "livenessProbe":
                self.slowest = max(self.slowest, took)
            await asyncio.sleep(max(0.0, probe["periodSeconds"] - took))
            if passed or self._late < _LATE_SECONDS:
                return passed

    async def _measure_lateness(self) -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(_TICK_SECONDS)
            self._late = max(self._late, time.monotonic() - begun - _TICK_SECONDS)


def _get(url: str, seconds: float) -> bool:
    context = ssl._create_unverified_context()  # noqa: S323,SLF001 the kubelet verifies nothing
    try:
        with urllib.request.urlopen(url, timeout=seconds, context=context) as response:
            return bool(response.status == 200)
    except OSError:
        return False
