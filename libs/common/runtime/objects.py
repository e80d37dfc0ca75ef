"""Objects: the number of primaries by condition, for alerts on objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from libs.common.kinds import Manifest
from libs.common.metric_specs import OBJECTS
from libs.common.metrics import Metrics
from libs.common.runtime.informer import Informer, Origin
from libs.common.runtime.store import Change

type _Series = tuple[str, str, str]
"""Type, status and reason of a condition."""

_MAX_SERIES: Final = 200
"""There are few reasons by design, but tenants may write the status of their objects."""
_OTHER: Final = "Other"
_NO_STATUS: Final[_Series] = ("Ready", "Unknown", "NoStatus")


class ObjectCounter:
    """Counts the primaries of a controller by condition, based on their changes.

    Args:
        controller: Name of the controller.
        informer: Informer of the primaries.
        metrics: Metrics of the process.
        reports_ready: Whether the primaries have the condition Ready.
    """

    def __init__(
        self, controller: str, informer: Informer, metrics: Metrics, *, reports_ready: bool = True
    ) -> None:
        """Count the objects in the store, and register for changes."""
        self._controller = controller
        self._without_status = (_NO_STATUS,) if reports_ready else ()
        self._informer = informer
        self._gauge = metrics.gauge(OBJECTS)
        self._known: set[_Series] = set()
        informer.add_handler(self._changed, self._recount)
        self._recount()

    def _changed(self, change: Change, _: Origin | None) -> None:
        for manifest, step in ((change.old, -1), (change.new, 1)):
            for series in self._find_series(manifest):
                self._labels(series).inc(step)

    def _recount(self) -> None:
        for series in self._known:
            self._labels(series).set(0)
        for manifest in self._informer.store.list():
            for series in self._find_series(manifest):
                self._labels(series).inc()

    def _labels(self, series: _Series) -> Any:
        if series not in self._known and len(self._known) >= _MAX_SERIES:
            # The series of Ready remain exact.
            series = (series[0] if series[0] == "Ready" else _OTHER, series[1], _OTHER)
        self._known.add(series)
        return self._gauge.labels(self._controller, *series)

    def _find_series(self, manifest: Manifest | None) -> Iterator[_Series]:
        if manifest is None:
            return
        status = manifest.get("status")
        listed = status.get("conditions") if isinstance(status, Mapping) else None
        conditions = [each for each in listed or () if isinstance(each, Mapping)]
        if not conditions:
            yield from self._without_status
        for condition in conditions:
            state = condition.get("status")
            known = state if state in ("True", "False") else "Unknown"
            yield str(condition.get("type", "")), known, str(condition.get("reason") or "")
