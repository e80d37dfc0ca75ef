"""The main function of the app: settings, probes, signals, the worker, and the exit."""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, NoReturn

import structlog

from libs.common.health import HealthServer
from libs.common.logs import configure_logs, install_excepthooks
from libs.common.metrics import Metrics
from libs.common.telemetry_setup import build_telemetry
from operators.pulsarconsumer.app.handlers import (
    Handler,
    HandlerInvalid,
    close_handler,
    load_handler,
    open_handler,
)
from operators.pulsarconsumer.app.meters import Meters
from operators.pulsarconsumer.app.metrics import METRICS
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
from slipway_handler.calls import HandlerLoop, adapt

MISCONFIGURED: Final = 2
"""Exit status if settings, handler or schema are invalid, so that a restart does not help."""
FAILED: Final = 1
"""Exit status if the app stopped because of an error."""
_CLOSE_SECONDS: Final = 5.0
"""Time to close the connection after the drain, which fits into the grace period of the pod."""
_HOOKS_SECONDS: Final = 5.0
"""Time for `close` of the handler and for atexit functions, after that."""
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

log = structlog.get_logger("app")


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Consume until SIGTERM and return the exit status."""
    configure_logs()
    try:
        settings = load_settings(environ)
        configure_logs(settings.log_level)
        install_excepthooks()
        handler = load_handler(settings.handler)
        Payloads(settings)  # Raises an error if the schema definition is invalid.
    except SettingsInvalid as err:
        for fault in err.faults:
            log.error("Refusing a setting", fault=fault)
        return MISCONFIGURED
    except (HandlerInvalid, SchemaInvalid) as err:
        log.error("Invalid settings, not starting", reason=str(err))
        return MISCONFIGURED
    if unknown := find_unknown(environ):
        log.warning("Ignoring unknown environment variables", variables=unknown)
    if proxies := sorted(each for each in environ if each.upper() in _PROXIES and environ[each]):
        log.warning("Connections to Pulsar use no proxy", variables=proxies)
    return asyncio.run(serve(settings, handler, take_standard_output()))


async def serve(settings: Settings, handler: Handler, stream: MessageStream) -> int:
    """Serve probes and consume until a signal or the end of the worker; return the exit status."""
    metrics = Metrics(METRICS, framework=False)
    telemetry = build_telemetry(
        settings.otlp_endpoint,
        "pulsarconsumer-app",
        sample_ratio=settings.trace_sample_ratio,
        resource={"service.instance.id": settings.name} if settings.name else {},
        allowed_attributes=SPAN_ATTRIBUTES,
    )
    loop, handlers = asyncio.get_running_loop(), HandlerLoop()
    signaled, ended = asyncio.Event(), asyncio.Event()
    for number in _SIGNALS:
        loop.add_signal_handler(number, signaled.set)
    opening = _start(lambda: open_handler(handler, handlers), "handler-open")
    await _first(opening, signaled.wait())
    if not opening.done():
        log.info("Stopped before open() of the handler ended")
        return 0
    try:
        opening.result()
    except HandlerInvalid as err:
        log.error("Invalid settings, not starting", reason=str(err))
        return MISCONFIGURED
    worker = Worker(settings, adapt(handler, handlers), stream, Meters(metrics), telemetry)
    health = HealthServer(metrics, f":{settings.metrics_port}", f":{settings.health_port}")
    health.add_health_check("worker", worker.check_alive)
    health.add_ready_check("broker", worker.check_ready)

    def run() -> None:
        try:
            worker.run()
        finally:
            loop.call_soon_threadsafe(ended.set)

    async with health:
        threading.Thread(target=run, name="worker", daemon=True).start()
        await _first(signaled.wait(), ended.wait())
        await _drain(settings, worker, ended)
    closing = _start(lambda: close_handler(handler, handlers, _HOOKS_SECONDS), "handler-close")
    await asyncio.wait((closing,), timeout=_HOOKS_SECONDS)
    await telemetry.close()
    if worker.failure:
        log.error("Consumer stopped after a fatal error", reason=worker.failure)
    return FAILED if worker.failure else 0


def _start(work: Callable[[], None], name: str) -> asyncio.Future[None]:
    """Run code of a handler in a thread that does not delay the exit of the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def run() -> None:
        settle = partial(future.set_result, None)
        try:
            work()
        except BaseException as err:  # noqa: BLE001  # Passed to the future.
            settle = partial(future.set_exception, err)
        with suppress(RuntimeError):  # The loop has ended, so nobody waits for the future.
            loop.call_soon_threadsafe(settle)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


async def _first(*waits: Awaitable[object]) -> None:
    """Wait for the first of several; futures continue, coroutines are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task not in waits:
            task.cancel()


async def _drain(settings: Settings, worker: Worker, ended: asyncio.Event) -> None:
    """Wait until running handlers have ended; a second signal aborts the wait."""
    if ended.is_set():
        return
    log.info("Stopping", drain_timeout_seconds=settings.drain_timeout_seconds)
    worker.stop(time.monotonic() + settings.drain_timeout_seconds)
    if not worker.has_messages:
        return  # There is nothing to drain, and a running attempt to subscribe may take long.
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    try:
        await asyncio.wait_for(ended.wait(), settings.drain_timeout_seconds + _CLOSE_SECONDS)
    except TimeoutError:
        log.error("The connection was not closed in time, exiting anyway")
    else:
        log.info("Stopped")


def run_to_end(work: Callable[[], int]) -> NoReturn:
    """Run the app, then exit the process immediately, even after an unhandled error.

    A regular exit would wait for handlers that hang. A thread that is in a call of the client while
    the interpreter shuts down would abort the process with status 134.
    """
    try:
        status = work()
    except BaseException:
        log.exception("Unhandled error, exiting")
        status = FAILED
    end(status)


def end(status: int) -> NoReturn:
    """Run the atexit functions, then exit the process without shutting down the interpreter."""
    # There is no public function that runs them without finalizing the interpreter.
    hooks = threading.Thread(target=atexit._run_exitfuncs, daemon=True)  # noqa: SLF001
    hooks.start()
    hooks.join(_HOOKS_SECONDS)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
