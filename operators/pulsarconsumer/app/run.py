"""The life of the process: settings, probes, signals, the worker, the end."""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import Final

import structlog

from libs.common.health import HealthServer
from libs.common.logs import configure_logs, install_excepthooks
from libs.common.metrics import Metrics
from libs.common.telemetry import build_telemetry
from operators.pulsarconsumer.app.handlers import (
    Handler,
    HandlerInvalid,
    HandlerLoop,
    adapt,
    close_handler,
    load_handler,
    open_handler,
)
from operators.pulsarconsumer.app.meters import Meters
from operators.pulsarconsumer.app.metrics import GAUGES
from operators.pulsarconsumer.app.processing import SPAN_ATTRIBUTES
from operators.pulsarconsumer.app.schemas import Payloads, SchemaInvalid
from operators.pulsarconsumer.app.settings import (
    Settings,
    SettingsInvalid,
    find_unknown,
    load_settings,
)
from operators.pulsarconsumer.app.streams import MessageStream, take_standard_output
from operators.pulsarconsumer.app.worker import Worker

MISCONFIGURED: Final = 2
"""Exit status when settings, handler or schema are wrong: a restart fixes nothing."""
FAILED: Final = 1
"""Exit status when the app ended by itself."""
_CLOSE_SECONDS: Final = 5.0
"""Time to close the connection after the drain; less than the pod's grace period leaves."""
_HOOKS_SECONDS: Final = 5.0
"""Time for `close` of the handler and for atexit, after that."""

log = structlog.get_logger("app")


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Consume until SIGTERM and return the exit status."""
    configure_logs()
    try:
        settings = load_settings(environ)
        configure_logs(settings.log_level)
        install_excepthooks()
        handler = load_handler(settings.handler)
        Payloads(settings)  # Now, so that a wrong definition ends the start.
    except SettingsInvalid as err:
        for fault in err.faults:
            log.error("Refusing a setting", fault=fault)
        return MISCONFIGURED
    except (HandlerInvalid, SchemaInvalid) as err:
        log.error("Invalid settings, not starting", reason=str(err))
        return MISCONFIGURED
    if unknown := find_unknown(environ):
        log.warning("Ignoring unknown environment variables", variables=unknown)
    return asyncio.run(serve(settings, handler, take_standard_output()))


async def serve(settings: Settings, handler: Handler, stream: MessageStream) -> int:
    """Serve probes and consume until a signal comes or the worker ends; return the exit status."""
    metrics = Metrics(GAUGES, framework=False)
    telemetry = build_telemetry(
        settings.otlp_endpoint,
        "pulsarconsumer-app",
        sample_ratio=settings.trace_sample_ratio,
        resource={"service.instance.id": settings.name} if settings.name else {},
        allowed_attributes=SPAN_ATTRIBUTES,
    )
    loop, handlers = asyncio.get_running_loop(), HandlerLoop()
    try:
        await asyncio.to_thread(open_handler, handler, handlers)
    except HandlerInvalid as err:
        log.error("Invalid settings, not starting", reason=str(err))
        return MISCONFIGURED
    worker = Worker(settings, adapt(handler, handlers), stream, Meters(metrics), telemetry)
    health = HealthServer(metrics, f":{settings.metrics_port}", f":{settings.health_port}")
    health.add_health_check("worker", worker.check_alive)
    health.add_ready_check("broker", worker.check_ready)
    signaled, ended = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signaled.set)

    def run() -> None:
        worker.run()
        loop.call_soon_threadsafe(ended.set)

    async with health:
        threading.Thread(target=run, name="worker", daemon=True).start()
        waits = [asyncio.create_task(event.wait()) for event in (signaled, ended)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        await _drain(settings, worker, ended)
        for task in waits:
            task.cancel()
    closing = threading.Thread(
        target=close_handler, args=(handler, handlers, _HOOKS_SECONDS), daemon=True
    )
    closing.start()
    await asyncio.to_thread(closing.join, _HOOKS_SECONDS)
    await telemetry.close()
    if worker.failure:
        log.error("Consumer stopped after a fatal error", reason=worker.failure)
    return FAILED if worker.failure else 0


async def _drain(settings: Settings, worker: Worker, ended: asyncio.Event) -> None:
    """Wait until what is under way has ended; a second signal cuts that short."""
    if ended.is_set():
        return
    log.info("Stopping", drain_timeout_seconds=settings.drain_timeout_seconds)
    worker.stop(time.monotonic() + settings.drain_timeout_seconds)
    if not worker.is_connected:
        return  # It holds nothing, and an attempt to subscribe may take long to end.
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    try:
        await asyncio.wait_for(ended.wait(), settings.drain_timeout_seconds + _CLOSE_SECONDS)
    except TimeoutError:
        log.error("Cannot close the connection in time")
    else:
        log.info("Stopped")


def end(status: int) -> None:
    """Run what is registered by atexit, then end the process.

    A handler that hangs, or a thread of the client, would hold up an ordinary end.
    """
    # There is no public function that runs these without ending the interpreter.
    hooks = threading.Thread(target=atexit._run_exitfuncs, daemon=True)  # noqa: SLF001
    hooks.start()
    hooks.join(_HOOKS_SECONDS)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
