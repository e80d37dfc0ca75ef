"""Manifests of the pods of a PodSet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from libs.common.crd import PodTemplate
from libs.common.kinds import POD, Manifest, build_object
from libs.common.labels import INSTANCE, MANAGED_BY
from libs.common.naming import short_hash
from operators.podset.api.v1 import PodSet
from operators.podset.naming import (
    ATTEMPT_ANNOTATION,
    SET_LABEL,
    SLOT_LABEL,
    TEMPLATE_HASH_LABEL,
    pod_name,
)

OPERATOR_ID: Final = "podset"
DEFAULT_IMAGE: Final = "busybox"
"""Image of the pods of a PodSet without a template."""
_HASH_LENGTH: Final = 10
_NOBODY: Final = 65534


@dataclass(frozen=True, slots=True)
class Blueprint:
    """The data that all pods of one template share.

    Attributes:
        labels: Labels of a pod, except the label with its slot.
        spec: Spec of a pod; shared by all manifests, so never change it.
        template: The template; None for the default pod.
    """

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: Manifest
    template_hash: str
    selector: Manifest
    template: PodTemplate | None = None

    def with_hash(self, template_hash: str) -> Blueprint:
        """Return the same template under the hash of a template that means the same."""
        labels = {**self.labels, TEMPLATE_HASH_LABEL: template_hash}
        return replace(self, labels=labels, template_hash=template_hash)


def build_blueprint(podset: PodSet, *, default_image: str = DEFAULT_IMAGE) -> Blueprint:
    """Build the blueprint of spec.template."""
    return build_blueprint_of(podset, podset.spec.template, default_image=default_image)


def build_blueprint_of(
    podset: PodSet, template: PodTemplate | None, *, default_image: str = DEFAULT_IMAGE
) -> Blueprint:
    """Build the blueprint of one template of a PodSet.

    Args:
        podset: The PodSet.
        template: The template; None for the default pod.
        default_image: Image of the default pod.
    """
    name = podset.metadata.name
    if template is None:
        labels = {"app": name, "version": "v0.1"}
        annotations: Mapping[str, str] = {}
        spec = build_default_spec(default_image)
    else:
        labels, annotations = dict(template.metadata.labels), template.metadata.annotations
        spec = template.spec
    # The spec of the default pod is not part of the hash: a new default image or a new version of
    # the operator does not change the PodSet, so it must not replace the pods.
    hashed = {} if template is None else spec
    parts: dict[str, Any] = {"labels": labels, "annotations": dict(annotations), "spec": hashed}
    if template is not None and template.metadata.finalizers:
        parts["finalizers"] = template.metadata.finalizers
    template_hash = _hash_of(parts)
    return Blueprint(
        labels={
            # The template may override these labels, because Services select by them.
            MANAGED_BY: OPERATOR_ID,
            INSTANCE: name,
            **labels,
            SET_LABEL: name,
            TEMPLATE_HASH_LABEL: template_hash,
        },
        annotations=annotations,
        spec=spec,
        template_hash=template_hash,
        selector=build_selector(podset),
        template=template,
    )


def build_selector(podset: PodSet) -> Manifest:
    """Build the selector of the pods: spec.selector, or the label of the PodSet if it is unset."""
    selector = podset.spec.selector
    if selector is not None:
        return selector.to_manifest()
    return {"matchLabels": {SET_LABEL: podset.metadata.name}}


def build_pod(
    podset: PodSet, blueprint: Blueprint, slot: int, owner: Manifest, *, attempt: int = 0
) -> Manifest:
    """Build the pod of a slot.

    Args:
        podset: The PodSet.
        blueprint: Data that the pods of its template share.
        slot: Number of the slot.
        owner: Controller reference to the PodSet.
        attempt: Number of earlier pods in a row that failed soon after their start.
    """
    metadata: Manifest = {
        "labels": {**blueprint.labels, SLOT_LABEL: str(slot)},
        "ownerReferences": [owner],
    }
    if blueprint.template is not None and blueprint.template.metadata.finalizers:
        metadata["finalizers"] = blueprint.template.metadata.finalizers
    annotations = dict(blueprint.annotations)
    if attempt:
        annotations[ATTEMPT_ANNOTATION] = str(attempt)
    if annotations:
        metadata["annotations"] = annotations
    name = pod_name(podset.metadata.name, slot)
    place, service, spec = podset.metadata.namespace, podset.spec.service_name, blueprint.spec
    if service is not None:
        spec = {**spec, "hostname": name, "subdomain": service}
    return build_object(POD, name, place, metadata=metadata, spec=spec)


def build_default_spec(image: str) -> Manifest:
    """Build the spec of the default pod: a busybox that sleeps for an hour.

    The pod meets the restricted Pod Security Standard, so it runs in restricted namespaces as well.
    """
    return {
        "containers": [
            {
                "name": "busybox",
                "image": image,
                # Use an image that is already on the node, even if the registry is unreachable.
                "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "3600"],
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                },
            }
        ],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "runAsGroup": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "automountServiceAccountToken": False,
        # As process 1, `sleep` ignores SIGTERM, so a longer grace period would only delay deletion.
        "terminationGracePeriodSeconds": 1,
    }


def _hash_of(template: Mapping[str, Any]) -> str:
    text = json.dumps(template, sort_keys=True, separators=(",", ":"), default=str)
    return short_hash(text, length=_HASH_LENGTH)
