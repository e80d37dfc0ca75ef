"""Scaled time: waits that take a minute in production are short in a trial.

Only the durations of waits change, not the logic of the operator. `run_child` runs in a forked
child: it scales the time, applies a mutant if requested, and runs the operator as its image does.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Callable
from typing import Any, Final

from lab.sweep.modes import RENEW_SECONDS, REQUEST_TIMEOUT
from libs.common.runtime import (
    assembly,
    kopf_sessions,
    kopf_settings,
    kopf_source,
    operator,
    reflector,
    runner,
    streams,
    sweep,
)
from libs.common.runtime.backoff import BackoffPolicy
from libs.common.runtime.manager import Manager

_PATIENCE: Final = 15.0
"""Request timeout in all other trials; responses may be slow on a busy machine."""
SWEEP_PERIOD: Final = 0.7
"""Seconds between sweeps, in trials in which only a sweep can recover."""
LEASE_SECONDS: Final = 5

_SOURCE_BACKOFF: Final = BackoffPolicy(0.05, 0.5, jitter=0.5)
_SWEEP_BACKOFF: Final = BackoffPolicy(0.2, 2.0)
_FLAGS: Final = {
    "log-level": "debug",
    "backoff-base-seconds": "0.05",
    "backoff-max-seconds": "1",
    "drain-timeout-seconds": "1",
    "lease-duration-seconds": str(LEASE_SECONDS),
    "renew-deadline-seconds": str(RENEW_SECONDS),
    "retry-period-seconds": "0.4",
}


def build_arguments(
    *,
    namespace: str,
    kubeconfig: str,
    port: int,
    election: bool = False,
    sweeps: bool = False,
    impatient: bool = False,
) -> list[str]:
    """Build the command line of an operator in a trial.

    Args:
        namespace: Namespace that it watches, and of its Lease.
        kubeconfig: Path of a kubeconfig for the proxy.
        port: Port of probes and metrics, on the loopback address.
        election: Whether it takes part in a leader election.
        sweeps: Whether it often compares its caches with lists; otherwise so rarely that a sweep
            never hides events that the watches missed.
        impatient: Whether it uses the short request timeout.
    """
    flags = {
        **_FLAGS,
        "kubeconfig": kubeconfig,
        "metrics-bind-address": f"127.0.0.1:{port}",
        "health-probe-bind-address": f"127.0.0.1:{port}",
        "watch-namespaces": namespace,
        "pod-namespace": namespace,
        "leader-elect": "true" if election else "false",
        "sweep-period-seconds": str(SWEEP_PERIOD) if sweeps else "600",
        "request-timeout-seconds": str(REQUEST_TIMEOUT if impatient else _PATIENCE),
    }
    return [f"--{name}={value}" for name, value in flags.items()]


def run_child(request: dict[str, Any], working: Callable[[], None]) -> int:
    """Run an operator in a forked child.

    Args:
        request: `operator`, `arguments`, `scaled` and optionally `mutant`.
        working: Called when the operator's workers have started.
    """
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        os.environ.pop(name, None)
    scale_time()
    _announce(working)
    module = importlib.import_module(f"operators.{request['operator']}.controller")
    for name, waits in request["scaled"].items():
        _set(importlib.import_module(name), **waits)
    if request.get("mutant"):
        from lab.sweep.mutants import MUTANTS

        MUTANTS[request["mutant"]].change()
    return operator.main(module.OPERATOR, request["arguments"])


def scale_time() -> None:
    """Shorten the waits of the runtime and of kopf."""
    _set(runner, _STALE_RETRY=0.05, _UNKNOWN_RETRY=0.1)
    _set(streams, RECONNECT=_SOURCE_BACKOFF)
    _set(reflector, RECONNECT=_SOURCE_BACKOFF)
    _set(kopf_sessions, RECONNECT=_SOURCE_BACKOFF)
    _set(assembly, _POLL_SECONDS=0.2)
    _set(sweep, _GRACE=0.3, _RETRY=_SWEEP_BACKOFF, _CATCH_UP_RETRY=0.2)
    build = kopf_settings.build_settings

    def build_scaled(*args: Any) -> Any:
        settings = build(*args)
        settings.watching.reconnect_backoff = 0.02
        return settings

    waits = {"RECONNECT": _SOURCE_BACKOFF, "_BEGIN_SECONDS": 10.0}
    _set(kopf_source, build_settings=build_scaled, **waits)


def _set(module: Any, **values: Any) -> None:
    for name, value in values.items():
        if not hasattr(module, name):
            raise AttributeError(f"{module.__name__} has no {name} any more; adapt lab/sweep")
        number = isinstance(value, int | float)
        if isinstance(getattr(module, name), int | float) is not number:
            raise TypeError(f"{module.__name__}.{name} has another type now; adapt lab/sweep")
        setattr(module, name, value)


def _announce(working: Callable[[], None]) -> None:
    run = Manager.run

    async def announced(self: Manager, stop: asyncio.Event) -> bool:
        async def tell() -> None:
            await self.working.wait()
            working()

        task = asyncio.create_task(tell())
        try:
            return await run(self, stop)
        finally:
            task.cancel()

    Manager.run = announced  # type: ignore[method-assign]  # tells the sweep that trials can begin
