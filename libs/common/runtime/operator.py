"""Operator: what a package declares, and the process that it becomes.

```python
OPERATOR = Operator("podset", Settings, (build_controller,), summary="Keeps a number of pods.")
```

`libs.common.startup` runs it, so that signals are heeded while it is imported.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from libs.common.config import ConnectionConfig, load_config
from libs.common.errors import ConfigError, SlipwayError
from libs.common.logs import configure_logs, install_excepthooks
from libs.common.metric_specs import MetricSpec
from libs.common.rbac import PolicyRule
from libs.common.runtime.assembly import list_finalizers
from libs.common.runtime.controller import Controller
from libs.common.runtime.diagnostics import Diagnostics
from libs.common.runtime.manager import Manager, Part
from libs.common.runtime.permissions import derive_rules
from libs.common.runtime.release import release
from libs.common.settings import CommonSettings, parse_settings

log = structlog.get_logger(__name__)

type ControllerFactory = Callable[[Any], Controller | None]
"""Build a controller from the settings of the operator; None if they turn it off."""

_SWITCH_SECONDS: Final = 0.0005
"""How long a thread keeps the interpreter when another waits. Event sources may have threads of
their own; at Python's default of 5 ms, each of their events can hold a reconcile up that long."""
_COMMANDS: Final = """
Other commands:
  {0} release [--flag value ...]  remove the finalizers from all objects, and exit
  {0} check URL                   query a probe; exit with 0 if it succeeds
"""
_OK: Final = 0
_FAILED: Final = 1
_CHECK_SECONDS: Final = 5.0


def _find_version() -> str:
    return os.environ.get("OPERATOR_VERSION") or "dev"


@dataclass(frozen=True, slots=True)
class Operator:
    """Declare an operator.

    Attributes:
        id: Its one word: package, image, release, Lease, settings prefix.
        settings: Its settings class.
        controllers: Builders of its controllers; one that returns None is left out, as the settings
            ask.
        permissions: What it may do beyond what its controllers declare; see `rules`.
        metrics: Metrics of its own, beside those of the runtime.
        beside: What runs beside the controllers on every replica, such as webhooks.
        summary: What it does, in one sentence.
        gc_threshold: How the memory of this operator is collected: a generation-0 threshold; large
            caches of long-lived objects make frequent full collections a waste.
        version: Version of the build; OPERATOR_VERSION in the environment says it, else `dev`.
    """

    id: str
    settings: type[CommonSettings]
    controllers: Sequence[ControllerFactory]
    permissions: Sequence[PolicyRule] = ()
    metrics: Sequence[MetricSpec] = ()
    beside: Sequence[Part] = ()
    summary: str = ""
    gc_threshold: int = 50_000
    version: str = field(default_factory=_find_version)

    def build_controllers(self, settings: CommonSettings) -> list[Controller]:
        """Build the controllers for some settings."""
        built = (build(settings) for build in self.controllers)
        return [controller for controller in built if controller is not None]

    def rules(self, settings: CommonSettings | None = None) -> tuple[PolicyRule, ...]:
        """Return its permissions, without those of every operator.

        Args:
            settings: Settings that decide which controllers there are; the defaults if None.
        """
        controllers = self.build_controllers(settings or self.settings())
        return derive_rules(controllers, self.permissions)

    def build_manager(
        self, settings: CommonSettings, config: ConnectionConfig, **options: Any
    ) -> Manager:
        """Build the manager that runs the controllers.

        Args:
            settings: Settings of the process.
            config: Connection to the API server.
            options: Passed on to the manager: clock, sources and hooks of tests.
        """
        controllers = self.build_controllers(settings)
        return Manager(
            self.id,
            settings,
            config,
            controllers,
            metrics=self.metrics,
            beside=self.beside,
            version=self.version,
            **options,
        )


def main(operator: Operator, argv: Sequence[str] | None = None) -> int:
    """Run an operator as a process.

    Without a command the operator runs until SIGTERM or SIGINT. `release` takes its finalizers
    off all objects, for an uninstall that must not leave any behind; `check URL` asks a probe, for
    images that have no shell and no curl.

    Returns:
        Exit status: 0 for an orderly end, 1 for a failure that a restart may fix.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = arguments.pop(0) if arguments and arguments[0] in ("release", "check") else "run"
    if command == "check":
        return _check(arguments)
    settings = parse_settings(operator.settings, arguments, epilog=_COMMANDS.format(operator.id))
    configure_logs(settings.log_level, settings.log_format)
    install_excepthooks()
    gc.set_threshold(operator.gc_threshold, 20, 100)
    sys.setswitchinterval(_SWITCH_SECONDS)
    runner = _loop_factory()
    with asyncio.Runner(loop_factory=runner) as loop:
        try:
            if command == "release":
                return loop.run(_release(operator, settings))
            return loop.run(_run(operator, settings))
        except (ConfigError, OSError) as err:
            # An OSError that gets here is an address of ours that is taken.
            print(f"{operator.id}: {err}", file=sys.stderr)
            return _FAILED


async def _run(operator: Operator, settings: CommonSettings) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    Diagnostics(settings).install(loop)
    config = await load_config(settings.kubeconfig, settings.context)
    # Once the caches are filled: a full collection of 100,000 objects stops the loop for seconds.
    manager = operator.build_manager(settings, config, on_synced=gc.freeze)
    return _OK if await manager.run(stop) else _FAILED


async def _release(operator: Operator, settings: CommonSettings) -> int:
    config = await load_config(settings.kubeconfig, settings.context)
    controllers = operator.build_controllers(settings)
    try:
        await release(operator.id, settings, config, list_finalizers(controllers))
    except SlipwayError as err:
        log.error("Cannot release objects", error=str(err))
        return _FAILED
    return _OK


def _check(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print("usage: check URL", file=sys.stderr)
        return _FAILED
    url = arguments[0]
    if not url.startswith(("http://", "https://")):
        print(f"{url}: not an HTTP URL", file=sys.stderr)
        return _FAILED
    try:
        # The probe is in this very pod; a proxy of the environment is for the world outside.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=_CHECK_SECONDS) as answer:
            print(f"{url}: {answer.status} {answer.read(256).decode(errors='replace').strip()}")
    except (urllib.error.URLError, OSError) as err:
        print(f"{url}: {err}", file=sys.stderr)
        return _FAILED
    return _OK


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop if there is one: requests cost a third less there."""
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop
    return None
