"""Memory limits of containers: what an injector is told of them, and when they change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from libs.common.kinds import Manifest
from operators.jmxexporter.injector.messages import Request
from operators.jmxexporter.injector.precheck import INJECTOR_BYTES, PRECHECK_VARIABLE
from operators.jmxexporter.pods import Pod, shrink_pod
from operators.jmxexporter.reasons import Reason
from operators.jmxexporter.reconcile_test import NOW, end, parse_exporter, take
from operators.jmxexporter.samples import build_pod

MIB = 1 << 20


def limit(quantity: str | None) -> Manifest:
    return {} if quantity is None else {"resources": {"limits": {"memory": quantity, "cpu": "1"}}}


def build_limited_pod(
    spec: str | None, status: str | None = None, pod: str | None = None, **rest: Any
) -> Manifest:
    """Build a pod with a limit in the container's spec, in its status, and of the pod."""
    manifest = build_pod(**limit(pod), **rest)
    manifest["spec"]["containers"][0] |= limit(spec)
    manifest["status"]["containerStatuses"][0] |= limit(status)
    return manifest


def read_precheck(pod: Manifest) -> Mapping[str, str]:
    """Read what the last injector of a pod checks first."""
    variables = {
        each["name"]: each.get("value", "")
        for each in pod["spec"]["ephemeralContainers"][-1]["env"]
    }
    return dict(word.split("=") for word in variables[PRECHECK_VARIABLE].split())


@pytest.mark.parametrize(
    ("spec", "status", "pod", "found"),
    [
        (None, None, None, 0),
        ("128Mi", None, None, 128 * MIB),
        # A resize that the node has not carried out yet.
        ("256Mi", "128Mi", None, 128 * MIB),
        (None, None, "64Mi", 64 * MIB),
        ("128Mi", "128Mi", "64Mi", 64 * MIB),
        ("32Mi", None, "64Mi", 32 * MIB),
        ("much", None, None, 0),
    ],
)
def test_lowest_limit_that_holds_is_known_of_whole_and_shrunk_pods(
    spec: str | None, status: str | None, pod: str | None, found: int
) -> None:
    manifest = build_limited_pod(spec, status, pod)

    for view in (Pod.parse(manifest), Pod.parse(shrink_pod(manifest))):
        assert [container.memory_limit for container in view.containers] == [found]


@pytest.mark.parametrize(
    ("tuning", "need"), [({}, INJECTOR_BYTES), ({"minFreeMemory": "8Mi"}, 8 * MIB)]
)
def test_injector_is_told_what_to_check_before_it_loads(tuning: dict[str, Any], need: int) -> None:
    pod = build_limited_pod("128Mi")
    take(pod, parse_exporter(**tuning))

    assert read_precheck(pod) == {"need": str(need), "limit": str(128 * MIB), "container": ""}


def test_container_is_named_if_the_containers_share_their_processes() -> None:
    pod = build_limited_pod(None, shareProcessNamespace=True)
    take(pod, parse_exporter())

    assert read_precheck(pod)["container"] == "shop-0-app-0"


def test_container_is_tried_again_after_its_limit_was_raised_in_place() -> None:
    pod = build_limited_pod("128Mi", "128Mi")
    take(pod, parse_exporter())
    end(pod, Reason.TOO_LITTLE_MEMORY)
    assert take(pod, parse_exporter(), NOW + timedelta(days=1)) == 0

    pod["status"]["containerStatuses"][0] |= limit("256Mi")

    assert take(pod, parse_exporter(), NOW + timedelta(days=1)) == 1


def test_jvm_that_serves_gets_no_injector_because_of_another_limit() -> None:
    pod = build_limited_pod("128Mi", "128Mi")
    take(pod, parse_exporter())
    end(pod, "ok")

    pod["status"]["containerStatuses"][0] |= limit("256Mi")

    assert take(pod, parse_exporter()) == 0


def test_request_of_an_earlier_release_has_no_limit() -> None:
    assert Request.parse('{"id":"u-1","action":"Stop"}').memory_limit == 0
