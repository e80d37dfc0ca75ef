"""Services: the objects that the runners of a process share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from libs.common.client import Client
from libs.common.clock import Clock
from libs.common.kinds import Key, Kind
from libs.common.metrics import Metrics
from libs.common.runtime.cache import Cache
from libs.common.runtime.context import Recorder
from libs.common.runtime.guard import BindingGuard
from libs.common.runtime.namespace_queue import PRIORITY_LIVE
from libs.common.runtime.queue import WorkQueue
from libs.common.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class Services:
    """The objects that the runners of a process share."""

    client: Client
    cache: Cache
    recorder: Recorder
    clock: Clock
    telemetry: Telemetry
    metrics: Metrics
    guard: BindingGuard
    queues: list[tuple[Kind, WorkQueue]] = field(default_factory=list)

    def wake(self, kind: Kind, keys: Iterable[Key]) -> None:
        """Enqueue primaries of a kind in every controller that reconciles it."""
        for key in keys:
            for primary, queue in self.queues:
                if primary == kind:
                    queue.add(key, priority=PRIORITY_LIVE)
