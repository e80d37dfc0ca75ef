"""What `./dev bench library` measures in a process of its own, which prints its figures as JSON.

It imports what an operator imports, and little else: its memory is a part of the figures.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog

from lab.bench.processes import percentile, read_usage
from libs.common.client import Client
from libs.common.clock import SystemClock
from libs.common.config import ConnectionConfig
from libs.common.kinds import POD
from libs.common.metrics import Metrics
from libs.common.runtime import Manager
from libs.common.runtime.listing import list_scope
from libs.common.runtime.wiring import build_cache
from operators.podset.controller import OPERATOR as PODSETS

_LAG_SECONDS: Final = 0.005
_POLL: Final = 0.02
_SETTINGS: Final = {
    "leader_elect": False,
    "metrics_bind_address": "0",
    "health_probe_bind_address": "0",
    "cache_sync_timeout_seconds": 600,
}

type Figures = dict[str, float]


@asynccontextmanager
async def sample_lag() -> AsyncIterator[list[float]]:
    """Collect how late the event loop is, in milliseconds."""
    lags: list[float] = []

    async def sample() -> None:
        while True:
            due = time.perf_counter() + _LAG_SECONDS
            await asyncio.sleep(_LAG_SECONDS)
            lags.append((time.perf_counter() - due) * 1000)

    task = asyncio.create_task(sample())
    try:
        yield lags
    finally:
        task.cancel()


def read_memory() -> float:
    """Return the resident memory of this process in MiB."""
    return read_usage(os.getpid()).memory_mib


def summarize(seconds: float, base: float, lags: Sequence[float]) -> Figures:
    """Return the figures of a process that has filled its caches."""
    usage = read_usage(os.getpid())
    return {
        "seconds": seconds,
        "base MiB": base,
        "resident MiB": usage.memory_mib,
        "peak MiB": usage.peak_mib,
        "lag p99 ms": percentile(lags, 0.99),
        "lag worst ms": max(lags),
    }


async def fill_pods(url: str) -> Figures:
    """Fill podset's cache of pods, then list them again."""
    controllers = PODSETS.build_controllers(PODSETS.settings())
    informer = build_cache(controllers, (), SystemClock(), Metrics()).informer(POD)
    async with Client(ConnectionConfig(url)) as client, sample_lag() as lags:
        base, started = read_memory(), time.perf_counter()
        await list_scope(client, informer, "")
        seconds = time.perf_counter() - started
        gc.freeze()
        figures = summarize(seconds, base, lags)
        await list_scope(client, informer, "")
        return figures | {"peak of 2nd list MiB": read_usage(os.getpid()).peak_mib}


async def fill_primaries(url: str, source: str) -> Figures:
    """Start an operator and wait until its caches are filled."""
    # Imported here: it is not a part of the other measurements.
    from libs.common.testing.widget import OPERATOR, Settings

    settings = Settings.model_validate({**_SETTINGS, "source": source})
    manager = OPERATOR.build_manager(settings, ConnectionConfig(url), on_synced=gc.freeze)
    async with sample_lag() as lags:
        base, started = read_memory(), time.perf_counter()
        running = asyncio.create_task(_run(manager))
        while not manager.cache.synced:
            await asyncio.sleep(_POLL)
        figures = summarize(time.perf_counter() - started, base, lags)
    running.cancel()
    return figures


async def _run(manager: Manager) -> None:
    try:
        await manager.run(asyncio.Event())
    finally:
        await manager.abandon()


def main(arguments: Sequence[str]) -> int:
    """Measure a figure against a server, and print it."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    gc.set_threshold(PODSETS.gc_threshold, 20, 100)
    measures: dict[str, Any] = {"pods": fill_pods, "primaries": fill_primaries}
    name, *options = arguments
    print(json.dumps(asyncio.run(measures[name](*options))))
    return 0
