"""Normalized state: two runs must agree in it, so values that always differ are masked. Pure.

Only this file lists the masked fields. UIDs are replaced by names instead of a mask, so that a
reference to the wrong incarnation is still detected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from libs.common.kinds import Manifest
from libs.common.labels import APPLIED_HASH

MASKED: Final = frozenset(
    {
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "managedFields",
        "generation",
        "deletionTimestamp",
        "lastTransitionTime",
        "startTime",
        "clusterIP",
        "clusterIPs",
        "healthCheckNodePort",
        APPLIED_HASH,  # It covers the UID of the owner.
    }
)
"""Fields that always differ between runs."""
_UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def normalize(manifest: Manifest, names: Mapping[str, str], namespace: str) -> Manifest:
    """Normalize one object.

    Args:
        manifest: The object.
        names: Title of the object by UID.
        namespace: Namespace of the trial.
    """
    generation = manifest["metadata"].get("generation")
    masked = mask(manifest)
    if generation is not None and "status" in masked:
        masked["status"] = _relate(masked["status"], generation)
    text = json.dumps(masked, sort_keys=True)
    text = _UID.sub(lambda match: f"<{names.get(match.group(), 'unknown')}>", text)
    normalized: Manifest = json.loads(_hide(text, namespace))
    return normalized


def _hide(text: str, namespace: str) -> str:
    return text.replace(namespace, "<namespace>")


def mask(value: Any) -> Any:
    """Leave out what differs in each run."""
    if isinstance(value, dict):
        # UIDs in references are replaced by names; the UID of the object itself is masked.
        if "controller" in value or set(value) == {"name", "uid"}:
            return {name: mask(item) for name, item in value.items()}
        return {
            name: _mask_uid(name, item)
            for name, item in value.items()
            if name not in MASKED or name == "uid"
        }
    return [mask(item) for item in value] if isinstance(value, list) else value


def _relate(value: Any, generation: int) -> Any:
    """Make observed generations relative to the generation: the number of writes may differ.

    A delayed leader may write a spec again, and the next leader then writes it back.
    """
    if isinstance(value, dict):
        return {
            name: item - generation if name == "observedGeneration" else _relate(item, generation)
            for name, item in value.items()
        }
    return [_relate(item, generation) for item in value] if isinstance(value, list) else value


def _mask_uid(name: str, value: Any) -> Any:
    return "<masked>" if name == "uid" else mask(value)


def leave_out_others(manifest: Manifest) -> Manifest:
    """Leave out fields that the API server and other components write."""
    metadata = {**manifest["metadata"], "managedFields": 0, "resourceVersion": 0, "generation": 0}
    kept = {name: value for name, value in manifest.items() if name != "status"}
    if isinstance(kept.get("spec"), dict):
        # A binder or a scheduler may have filled these in.
        kept["spec"] = {
            name: value
            for name, value in kept["spec"].items()
            if name not in ("nodeName", "volumeName")
        }
    return {**kept, "metadata": metadata}
