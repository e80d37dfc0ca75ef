"""Operator: the declaration of an operator, and its main function.

```python
OPERATOR = Operator("podset", (build_controller,), summary="Keeps a number of pods.")
```

`libs.common.startup` runs it, so that signals are handled during its import.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
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
from libs.common.runtime.manager import Manager, RunnableBuilder
from libs.common.runtime.permissions import derive_rules
from libs.common.runtime.release import release
from libs.common.settings import CommonSettings, build_settings, parse_settings
from libs.common.stall import StackDump

log = structlog.get_logger(__name__)

type ControllerFactory = Callable[[Any], Controller | None]
"""Builds a controller from the settings of the operator, or returns None if they disable it."""

_SWITCH_SECONDS: Final = 0.0005
"""Time for which a thread keeps the interpreter while another thread waits. Event sources may have
their own threads; with Python's default of 5 ms, each of their events could delay a reconcile by
that time."""
_COMMANDS: Final = """
Other commands:
  {0} release [--flag value ...]  remove the finalizers from all objects, and exit
  {0} check URL                   query a probe; exit with 0 if it succeeds
  {0} --version                   print the version, and exit
"""
_OK: Final = 0
_FAILED: Final = 1
_CHECK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Operator:
    """The declaration of an operator.

    Attributes:
        id: Id, which is the name of package, image, release and Lease, and the prefix of settings.
        controllers: Builders of its controllers; a builder returns None if the settings disable the
            controller.
        settings: Its settings class. Defaults to the settings that every operator has.
        permissions: Permissions in addition to the permissions of its controllers; see `rules`.
        metrics: Its own metrics, in addition to the metrics of the runtime.
        runnables: Further tasks on every replica, such as webhooks.
        summary: Purpose of the operator, in one sentence.
        gc_threshold: Generation-0 threshold of the garbage collector; with large caches of
            long-lived objects, frequent full collections waste time.
        all_namespaces: Whether the operator only works if it watches the whole cluster, for example
            because it creates namespaces. It is then the default of its chart, and the process
            refuses to start with other settings.
        version: Version of the build, from OPERATOR_VERSION in the environment, else `dev`.
    """

    id: str
    controllers: Sequence[ControllerFactory]
    settings: type[CommonSettings] = CommonSettings
    permissions: Sequence[PolicyRule] = ()
    metrics: Sequence[MetricSpec] = ()
    runnables: Sequence[RunnableBuilder] = ()
    summary: str = ""
    gc_threshold: int = 50_000
    all_namespaces: bool = False
    version: str = field(default_factory=lambda: os.environ.get("OPERATOR_VERSION") or "dev")

    def __post_init__(self) -> None:
        """Give the common settings the prefix of the operator."""
        if self.settings is CommonSettings:
            object.__setattr__(self, "settings", build_settings(self.id))

    def build_controllers(self, settings: CommonSettings) -> list[Controller]:
        """Build the controllers for the given settings."""
        built = (build(settings) for build in self.controllers)
        return [controller for controller in built if controller is not None]

    def rules(self, settings: CommonSettings | None = None) -> tuple[PolicyRule, ...]:
        """Return its permissions, without the common permissions of all operators.

        Args:
            settings: Settings that select the controllers; None for the defaults.
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
            options: Arguments of the manager: clock, sources and hooks for tests.
        """
        controllers = self.build_controllers(settings)
        return Manager(
            self.id,
            settings,
            config,
            controllers,
            metrics=self.metrics,
            runnables=self.runnables,
            version=self.version,
            **options,
        )


def main(operator: Operator, argv: Sequence[str] | None = None) -> int:
    """Run an operator as a process.

    Without a command, the operator runs until SIGTERM or SIGINT. `release` removes its finalizers
    from all objects before an uninstall; `check URL` queries a probe, for images without a shell
    and curl; `--version` prints the version.

    Returns:
        Exit status: 0 for a normal exit, 1 for a failure that a restart may fix.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = arguments.pop(0) if arguments and arguments[0] in ("release", "check") else "run"
    if command == "check":
        return _check(arguments)
    if arguments == ["--version"]:
        print(f"{operator.id} {operator.version}")
        return _OK
    settings = parse_settings(operator.settings, arguments, epilog=_COMMANDS.format(operator.id))
    if operator.all_namespaces and not settings.watches_all_namespaces:
        print(
            f"{operator.id} needs all namespaces: set --watch-namespaces='*', or "
            "watch.clusterWide=true in the values of its chart",
            file=sys.stderr,
        )
        return _FAILED
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
            # An OSError here means that a bind address is in use.
            print(f"{operator.id}: {err}", file=sys.stderr)
            return _FAILED


async def _run(operator: Operator, settings: CommonSettings) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    Diagnostics(settings).install(loop)
    raise_file_limit()
    config = await load_config(settings.kubeconfig, settings.context)
    # Called when the caches are filled: a full collection with 100,000 objects stops the loop for
    # seconds.
    manager = operator.build_manager(settings, config, on_synced=gc.freeze)
    with StackDump():
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


def raise_file_limit() -> None:
    """Raise the limit of open files to the highest allowed one, as programs in Go do.

    Each watch needs a connection: one for each kind and namespace that are selected.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems refuse a value that they report as the highest.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _check(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print("usage: check URL", file=sys.stderr)
        return _FAILED
    url = arguments[0]
    if not url.startswith(("http://", "https://")):
        print(f"{url}: not an HTTP URL", file=sys.stderr)
        return _FAILED
    try:
        # The probe is in the same pod, so proxies from the environment do not apply.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=_CHECK_SECONDS) as response:
            print(f"{url}: {response.status} {response.read(256).decode(errors='replace').strip()}")
    except (urllib.error.URLError, OSError) as err:
        print(f"{url}: {err}", file=sys.stderr)
        return _FAILED
    return _OK


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop if it is installed: requests take a third less time."""
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop
    return None
