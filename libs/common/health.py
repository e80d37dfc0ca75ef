"""Serves /healthz, /readyz and /metrics to the kubelet and to Prometheus.

The server starts first, so that the kubelet considers a process alive that waits for its caches or
for leadership. Readiness must never depend on leadership: a standby that is not ready blocks the
rolling update of its own Deployment.

The pages have the format of Kubernetes components: `ok`, or, with `?verbose` and on failure, one
line for each check: `[+]ping ok` or `[-]watch failed: no event for 901 s`. `/healthz/<name>` is a
single check, and `?exclude=<name>` skips one.
"""

import asyncio
import inspect
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, Self

import structlog
from aiohttp import web

from libs.common.listener import Listener
from libs.common.metric_specs import EVENT_LOOP_LAG
from libs.common.metrics import CONTENT_TYPE, Metrics
from libs.common.metrics_access import (
    ALLOWED,
    FORBIDDEN,
    UNAUTHORIZED,
    UNDECIDED,
    MetricsAccess,
)
from libs.common.redaction import redact_text
from libs.common.settings.addresses import BindAddress, parse_bind_address
from libs.common.stall import StallReporter
from libs.common.tasks import run_together


class CheckNote(str):
    """A note that a passing check reports."""

    __slots__ = ()


type Check = Callable[[], str | Awaitable[str | None] | None]
"""A check: returns the problem as text, or None or a CheckNote if it passes; an exception is a
failure."""
type ProbeName = Literal["healthz", "readyz"]

# The kubelet waits one second by default, so a check that takes longer fails.
_CHECK_TIMEOUT_SECONDS: Final = 0.8
_PING: Final = "ping"

_REFUSALS: Final[Mapping[int, str]] = {
    UNAUTHORIZED: "send a valid bearer token\n",
    FORBIDDEN: "the user of the token may not get the non-resource URL /metrics\n",
    UNDECIDED: "the API server could not authorize the request; see the log of the operator\n",
}

log = structlog.get_logger("health")


class HealthServer:
    """One or two HTTP servers for probes and metrics.

    Idiomatic use:

        server = HealthServer(metrics, settings.metrics_bind_address, ...)
        server.add_health_check("elector", elector.check)
        async with server:
            ...
    """

    def __init__(
        self,
        metrics: Metrics,
        metrics_bind_address: str = ":8080",
        health_probe_bind_address: str = ":8081",
        *,
        tls: ssl.SSLContext | None = None,
        access: MetricsAccess | None = None,
    ) -> None:
        """Store the addresses; nothing listens before start().

        Args:
            metrics: Metrics for /metrics.
            metrics_bind_address: Such as `:8080`; `0` disables it.
            health_probe_bind_address: Address of /healthz and /readyz, in the same form. Both
                addresses can be equal if metrics have neither TLS nor access control.
            tls: TLS context of the metrics server; None for plain HTTP.
            access: Decides who can read /metrics; None for everybody. `close` closes it.

        Raises:
            ValueError: An address cannot be parsed.
        """
        self._metrics = metrics
        self._tls = tls
        self._access = access
        self._addresses: dict[str, BindAddress | None] = {
            "metrics": parse_bind_address(metrics_bind_address),
            "probes": parse_bind_address(health_probe_bind_address),
        }
        self._checks: dict[ProbeName, dict[str, Check]] = {
            "healthz": {_PING: lambda: None},
            "readyz": {_PING: lambda: None},
        }
        self._failing: dict[ProbeName, frozenset[str]] = {}
        self._listeners: list[Listener] = []
        self._ports: dict[str, int] = {}

    def add_health_check(self, name: str, check: Check) -> None:
        """Add a check to /healthz; while it fails, the kubelet restarts the container."""
        self._checks["healthz"][name] = check

    def add_ready_check(self, name: str, check: Check) -> None:
        """Add a check to /readyz; it must not depend on who leads."""
        self._checks["readyz"][name] = check

    @property
    def metrics_port(self) -> int:
        """Port of /metrics after the start; 0 if disabled."""
        return self._ports.get("metrics", 0)

    @property
    def probe_port(self) -> int:
        """Port of /healthz and /readyz after the start; 0 if disabled."""
        return self._ports.get("probes", 0)

    async def start(self) -> None:
        """Start to listen.

        Raises:
            OSError: An address is in use or does not belong to this machine.
        """
        metrics = [web.get("/metrics", self._serve_metrics)]
        routes = {"metrics": metrics, "probes": self._probe_routes()}
        probes = self._addresses["probes"]
        # Port 0 twice means two different ports.
        shared = bool(probes and probes.port and probes == self._addresses["metrics"])
        if shared:
            routes = {"probes": [*routes["metrics"], *routes["probes"]]}
        try:
            for name, handlers in routes.items():
                if address := self._addresses[name]:
                    tls = self._tls if name == "metrics" else None
                    self._ports[name] = await self._listen(address, handlers, tls)
        except OSError:
            await self.close()
            raise
        if shared:
            self._ports["metrics"] = self._ports["probes"]
        log.info("Serving probes and metrics", **self._ports)

    async def close(self) -> None:
        """Stop listening; running requests are completed."""
        while self._listeners:
            await self._listeners.pop().close()
        self._ports.clear()
        if self._access is not None:
            await self._access.close()

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def _listen(
        self, address: BindAddress, routes: list[web.RouteDef], tls: ssl.SSLContext | None
    ) -> int:
        app = web.Application()
        app.add_routes(routes)
        self._listeners.append(Listener(app))
        return await self._listeners[-1].start(address, tls)

    def _probe_routes(self) -> list[web.RouteDef]:
        return [
            web.get(r"/{probe:healthz|livez|readyz}", self._serve_probe),
            web.get(r"/{probe:healthz|livez|readyz}/{check}", self._serve_probe),
        ]

    async def _serve_metrics(self, request: web.Request) -> web.Response:
        if self._access is not None:
            status = await self._access.decide(request.headers.get("Authorization", ""))
            if status != ALLOWED:
                return web.Response(status=status, text=_REFUSALS[status])
        return web.Response(
            body=self._metrics.render(),
            headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"},
        )

    async def _serve_probe(self, request: web.Request) -> web.Response:
        probe: ProbeName = "readyz" if request.match_info["probe"] == "readyz" else "healthz"
        checks = self._checks[probe]
        if name := request.match_info.get("check"):
            if name not in checks:
                return web.Response(status=404, text=f"no check {name!r}\n")
            checks = {name: checks[name]}
        excluded = set(request.query.getall("exclude", []))
        names = [name for name in checks if name not in excluded]
        reasons = await run_together(*(_run_check(checks[name]) for name in names))
        results = dict(zip(names, reasons, strict=True))
        failing = frozenset(name for name, reason in results.items() if _fails(reason))
        if not name:
            self._log_change(probe, failing, results)
        verbose = "verbose" in request.query or bool(failing)
        return web.Response(
            status=500 if failing else 200,
            text=_render_results(probe, results) if verbose else "ok",
            headers={"Cache-Control": "no-store"},
        )

    def _log_change(
        self, probe: ProbeName, failing: frozenset[str], results: dict[str, str | None]
    ) -> None:
        # The kubelet checks every few seconds; log only changes.
        if failing == self._failing.get(probe, frozenset()):
            return
        self._failing[probe] = failing
        reasons = {name: results[name] for name in sorted(failing)}
        if failing:
            log.warning("Failing a probe", probe=probe, reasons=reasons)
        else:
            log.info("Probe passes again", probe=probe)


async def _run_check(check: Check) -> str | None:
    try:
        async with asyncio.timeout(_CHECK_TIMEOUT_SECONDS):
            result = check()
            return await result if inspect.isawaitable(result) else result
    except TimeoutError:
        return f"no result within {_CHECK_TIMEOUT_SECONDS:g} s"
    except Exception as err:  # noqa: BLE001 whatever a check raises means that it failed
        return f"{type(err).__name__}: {err}"


def _fails(reason: str | None) -> bool:
    return bool(reason) and not isinstance(reason, CheckNote)


def _render_results(probe: ProbeName, results: dict[str, str | None]) -> str:
    lines = [_render_result(name, reason) for name, reason in results.items()]
    result = "failed" if any(map(_fails, results.values())) else "passed"
    return "\n".join([*lines, f"{probe} check {result}", ""])


def _render_result(name: str, reason: str | None) -> str:
    if not reason:
        return f"[+]{name} ok"
    sign = f"[-]{name} failed" if _fails(reason) else f"[+]{name} ok"
    return f"{sign}: {redact_text(reason)}"


class LoopLagMonitor:
    """Measures how late the event loop runs its timers.

    A lag means that something blocks the loop and delays watches, probes and renewals.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        interval: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Publish the lag as a metric.

        Args:
            metrics: Metrics that declare `operator_event_loop_lag_seconds`.
            interval: Seconds between two measurements.
            clock: Returns seconds.
        """
        self._interval = interval
        self._clock = clock
        self._due: float | None = None
        self._last_lag = 0.0
        metrics.gauge(EVENT_LOOP_LAG).set_function(self.lag_seconds)

    def lag_seconds(self) -> float:
        """Return the last lag, or the delay of the running measurement if that is greater."""
        overdue = 0.0 if self._due is None else self._clock() - self._due
        return max(self._last_lag, overdue, 0.0)

    def check(self, limit: float = 30.0) -> str | None:
        """Return a check that fails if the lag is greater than a limit in seconds."""
        lag = self.lag_seconds()
        return f"the event loop lags by {lag:.1f} s" if lag > limit else None

    async def run(self) -> None:
        """Measure until cancelled, and log it if the loop is blocked."""
        with StallReporter(self.lag_seconds):
            while True:
                self._due = self._clock() + self._interval
                await asyncio.sleep(self._interval)
                self.measured()

    def measured(self) -> None:
        """Record the time at which a due timer ran."""
        if self._due is not None:
            self._last_lag = max(0.0, self._clock() - self._due)
