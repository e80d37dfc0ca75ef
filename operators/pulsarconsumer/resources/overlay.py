"""Merges the pod template of the user into the pod that the operator builds.

Maps are merged, and values of the user win. Lists of named items are merged by name: containers,
volumes, mounts, variables. The variables and files of the contract cannot be overwritten, because
they make the pod a consumer of this PulsarConsumer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from libs.common.kinds import Manifest
from operators.pulsarconsumer.naming import CONTAINER

_JOINED_MAPS: Final = frozenset({"securityContext", "resources", "nodeSelector"})


def merge_pod_spec(base: Manifest, overlay: Mapping[str, Any]) -> Manifest:
    """Merge a pod spec into another; parts with an unexpected shape are passed on unchanged."""
    result = dict(base)
    for name, value in overlay.items():
        match name:
            case "containers":
                result[name] = _join_named(base[name], value, _join_container)
            case "volumes":
                result[name] = _join_named(base[name], value, _keep)
            case _:
                result[name] = _join(name, base.get(name), value)
    return result


def _join_container(base: Manifest, overlay: Mapping[str, Any]) -> Manifest:
    if base["name"] != CONTAINER:
        return dict(overlay)
    result = dict(base)
    for name, value in overlay.items():
        match name:
            case "env" | "volumeMounts":
                result[name] = _join_named(base[name], value, _keep)
            case "ports":
                result[name] = _join_named(base[name], value, lambda _, new: dict(new))
            case _:
                result[name] = _join(name, base.get(name), value)
    return result


def _join_named(
    base: Sequence[Manifest],
    overlay: object,
    join: Callable[[Manifest, Mapping[str, Any]], Manifest],
) -> list[Any]:
    """Merge lists by name, items of the base first; values other than lists of maps are dropped."""
    if not isinstance(overlay, Sequence) or isinstance(overlay, str):
        return list(base)
    items = [item for item in overlay if isinstance(item, Mapping)]
    by_name = {item.get("name"): item for item in items}
    names = {item["name"] for item in base}
    joined = [
        join(item, by_name[item["name"]]) if item["name"] in by_name else item for item in base
    ]
    return [*joined, *(dict(item) for item in items if item.get("name") not in names)]


def _keep(base: Manifest, _: Mapping[str, Any]) -> Manifest:
    return base


def _join(name: str, base: object, value: object) -> object:
    if name in _JOINED_MAPS and isinstance(base, Mapping) and isinstance(value, Mapping):
        return {**base, **value}
    return value
