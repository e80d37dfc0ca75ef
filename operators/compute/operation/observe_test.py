"""Which Operations a change wakes."""

from __future__ import annotations

import pytest

from libs.common.clock import SystemClock
from libs.common.kinds import Manifest
from libs.common.metrics import Metrics
from libs.common.runtime.wiring import build_cache
from operators.compute.api.operation import OPERATION
from operators.compute.operation.controller import build_operations
from operators.compute.operation.observe import map_sibling
from operators.compute.samples import build_operation
from operators.compute.settings import Settings


def build(name: str, phase: str, target: str = "web") -> Manifest:
    operation = build_operation("Reboot", name, target)
    operation["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "1"}
    operation["status"] = {"phase": phase}
    return operation


@pytest.mark.parametrize(
    ("phase", "woken"),
    [("Running", ["next"]), ("Succeeded", ["done", "failed", "next"])],
    ids=["progress wakes what waits", "an end wakes the history too"],
)
def test_progress_of_an_operation_does_not_wake_those_that_ended(
    phase: str, woken: list[str]
) -> None:
    cache = build_cache([build_operations(Settings())], (), SystemClock(), Metrics())
    changed = build("now", phase)
    others = [build("done", "Succeeded"), build("failed", "Failed"), build("next", "Pending")]
    for each in (changed, *others, build("other", "Pending", "db")):
        cache.informer(OPERATION).put(each)

    assert sorted(key.name for key in map_sibling(changed, cache)) == woken
