"""Addons: manifests in ConfigMaps that are applied through the API of the cluster. Pure.

A digest of the applied content is recorded in the managed cluster itself. So each content is
applied once, a crash before the digest is recorded only repeats the work, and a cluster that is
restored from a backup of etcd gets the missing content again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from libs.common import fastyaml
from libs.common.conditions import Condition
from libs.common.kinds import Manifest
from libs.common.reading import text_at
from operators.clusters.api.reasons import ConditionType, Reason
from operators.clusters.api.v1alpha1 import KubernetesCluster
from operators.clusters.naming import ADDON_LABEL
from operators.clusters.observed import Observed

_FIRST: Final = ("Namespace", "CustomResourceDefinition")
"""Kinds that are applied first, because other objects need them."""


class BadAddon(ValueError):
    """The content of an addon cannot be applied; the message names the key of the ConfigMap."""


@dataclass(frozen=True, slots=True)
class AddonStep:
    """A step that applies an addon through the API of the cluster and records its digest there.

    Attributes:
        data: Manifests as YAML, by the key of the ConfigMap.
    """

    name: str
    digest: str
    data: Mapping[str, str]


def digest_of(data: Mapping[str, str]) -> str:
    """Return a digest of the content of an addon."""
    found = hashlib.sha256()
    for key, text in sorted(data.items()):
        for part in (key, text):
            found.update(f"{len(part)}:".encode() + part.encode())
    return found.hexdigest()[:32]


def plan_addons(cluster: KubernetesCluster, observed: Observed) -> tuple[AddonStep, ...]:
    """Return the addons to apply now, in the order of the spec."""
    if not observed.workload.reachable:
        return ()
    steps = []
    for addon in cluster.spec.addons:
        data = observed.addons.get(addon.config_map_ref.name)
        if data is None:
            continue
        digest = digest_of(data)
        if observed.workload.addons.get(addon.name) != digest:
            steps.append(AddonStep(addon.name, digest, data))
    return tuple(steps)


def evaluate_addons(cluster: KubernetesCluster, observed: Observed) -> Condition | None:
    """Build the condition AddonsApplied; None for a cluster without addons."""
    type_ = ConditionType.ADDONS_APPLIED
    asked = cluster.spec.addons
    if not asked:
        return None
    for addon in asked:
        if addon.config_map_ref.name not in observed.addons:
            message = (
                f"spec.addons: ConfigMap {addon.config_map_ref.name} does not exist or does not "
                f"have the label {ADDON_LABEL}=true"
            )
            return Condition.false(type_, Reason.ADDON_MISSING, message)
    if not observed.workload.reachable:
        message = "the API of the cluster does not respond"
        return Condition.unknown(type_, Reason.UNREACHABLE, message)
    for name, problem in sorted(observed.addon_problems.items()):
        return Condition.false(type_, Reason.ADDON_FAILED, f"addon {name}: {problem}")
    if waiting := plan_addons(cluster, observed):
        return Condition.false(type_, Reason.APPLYING, f"addon {waiting[0].name} is being applied")
    applied = "1 addon was" if len(asked) == 1 else f"{len(asked)} addons were"
    return Condition.true(type_, Reason.AVAILABLE, f"{applied} applied")


def read_manifests(data: Mapping[str, str]) -> list[Manifest]:
    """Parse the manifests of an addon, and sort kinds that others need to the front.

    Raises:
        BadAddon: A manifest is invalid.
    """
    found: list[Manifest] = []
    left = fastyaml.MOST
    for key, text in sorted(data.items()):
        documents = _load(key, text)
        # Empty documents are not in the list, and each costs as much time as a value.
        left = _check_values(key, documents, left - text.count("\n---"))
        found += _list_manifests(key, documents)
    return sorted(found, key=lambda each: each["kind"] not in _FIRST)


def _load(key: str, text: str) -> list[Any]:
    try:
        return fastyaml.load_untrusted(text)
    except fastyaml.TooLarge as err:
        raise BadAddon(f"{key}: {err}") from err
    except yaml.YAMLError as err:
        mark = getattr(err, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise BadAddon(f"{key} is not valid YAML{where}") from err


def _list_manifests(key: str, documents: list[Any]) -> Iterator[Manifest]:
    for number, document in enumerate(documents, 1):
        is_list = isinstance(document, dict) and str(document.get("kind")).endswith("List")
        items = document.get("items") if is_list else None
        for item in items if isinstance(items, list) else [document]:
            if not isinstance(item, dict) or not (
                text_at(item, "apiVersion")
                and text_at(item, "kind")
                and text_at(item, "metadata", "name")
            ):
                raise BadAddon(f"{key}: document {number} needs apiVersion, kind, metadata.name")
            yield item


def _check_values(key: str, value: Any, left: int) -> int:
    """Refuse values that JSON cannot express, and too many values; return how many may follow."""
    waiting = [value]
    while waiting:
        held = waiting.pop()
        left -= 1
        if left < 0:
            raise BadAddon(f"the keys up to {key} have more than {fastyaml.MOST} values")
        if isinstance(held, dict):
            # Numbers and booleans become strings, as in kubectl.
            if not all(isinstance(name, str | int | float) for name in held):
                raise BadAddon(f"{key} has a key that is not a string; put it in quotes")
            waiting.extend(held.values())
        elif isinstance(held, list):
            waiting.extend(held)
        elif not isinstance(held, str | int | float | None):
            raise BadAddon(f"{key} has a value of a type that JSON does not have; remove its tag")
    return left
