"""Changes to objects of the demo, so that its graphs show something."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tools.cluster.kubectl import Kubectl, render_list
from tools.cluster.progress import Progress

_ROUNDS: Final = (2, 6, 3, 9, 1, 5, 12, 4)
"""Numbers of pods, one after another."""
_ROUND_SECONDS: Final = 12.0

type Manifest = dict[str, Any]


def make_traffic(
    operators: Sequence[str], kubectl: Kubectl, namespace: str, progress: Progress
) -> None:
    """Change objects of the operators for a minute or two, and delete them at the end.

    Raises:
        ToolError: The cluster refuses a change.
    """
    builders = [_BUILDERS[operator] for operator in operators if operator in _BUILDERS]
    if not builders:
        progress.say("No changes for the graphs: they are made with podset and volumes.")
        return
    seconds = len(_ROUNDS) * _ROUND_SECONDS
    with progress.step("Changing objects, so that the graphs move", f"{seconds:.0f} s"):
        try:
            for number in _ROUNDS:
                progress.note(f"{number} pods")
                manifests = [one for build in builders for one in build(number)]
                _apply(kubectl, namespace, manifests)
                time.sleep(_ROUND_SECONDS)
        finally:
            # The same builders name what there was in any round.
            last = [one for build in builders for one in build(max(_ROUNDS))]
            _run(kubectl, namespace, last, "delete", "--ignore-not-found", "--wait=false")


def _build_podsets(number: int) -> list[Manifest]:
    version = "batch.tutorial.kubebuilder.io/v1"
    missing = {
        # No registry has this name: the set stays not ready, which the dashboards show.
        "template": {
            "metadata": {"labels": {"app": "traffic-broken"}},
            "spec": {"containers": [{"name": "main", "image": "registry.invalid/missing:1"}]},
        },
        "replicas": 1,
    }
    return [
        {
            "apiVersion": version,
            "kind": "PodSet",
            "metadata": {"name": f"traffic-{index}"},
            "spec": {"replicas": max(0, number - index)},
        }
        for index in range(3)
    ] + [
        {
            "apiVersion": version,
            "kind": "PodSet",
            "metadata": {"name": "traffic-broken"},
            "spec": missing,
        }
    ]


def _build_volumes(number: int) -> list[Manifest]:
    return [
        {
            "apiVersion": "storage.slipway.dev/v1alpha1",
            "kind": "DemoVolume",
            "metadata": {"name": f"traffic-{index}"},
            "spec": {"size": "1Gi"},
        }
        for index in range(number)
    ]


_BUILDERS: Final[Mapping[str, Callable[[int], list[Manifest]]]] = {
    "podset": _build_podsets,
    "volumes": _build_volumes,
}


def _apply(kubectl: Kubectl, namespace: str, manifests: Sequence[Manifest]) -> None:
    _run(kubectl, namespace, manifests, "apply")


def _run(
    kubectl: Kubectl, namespace: str, manifests: Sequence[Manifest], verb: str, *flags: str
) -> None:
    stdin = render_list(manifests)
    kubectl.read(verb, "--namespace", namespace, *flags, "--filename", "-", stdin=stdin)
