"""Names, labels and annotations of the pods of a set.

The name of a pod is a lock: the API server lets one object of a name exist at a time, so two
writers that want the same slot cannot both get it.
"""

from __future__ import annotations

from typing import Final

from libs.common.naming import short_hash

GROUP: Final = "batch.tutorial.kubebuilder.io"
"""API group of PodSet, and prefix of the labels and annotations that belong to it."""
SET_LABEL: Final = f"{GROUP}/podset"
"""Label on each pod: the name of the set, by which a set without a selector finds its pods."""
SLOT_LABEL: Final = f"{GROUP}/slot"
"""Label on each pod: the number of its slot, as the name has it."""
TEMPLATE_HASH_LABEL: Final = f"{GROUP}/template-hash"
"""Label on each pod: hash of the template that it was made from."""
ATTEMPT_ANNOTATION: Final = f"{GROUP}/attempt"
"""Annotation on a pod: the number of successive earlier pods in its slot that failed soon after
their start."""
DELETION_COST_ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation of Kubernetes on a pod: pods of low cost go first when the set shrinks."""

_UID_HASH_LENGTH: Final = 5
_INFIX: Final = "-pod-"
_SLOT_DIGITS: Final = 9


def pod_name(set_name: str, slot: int) -> str:
    """Return the name of the pod in a slot: `<set>-pod-<slot>`."""
    return f"{set_name}{_INFIX}{slot}"


def revision_name(set_name: str, set_uid: str, template_hash: str) -> str:
    """Return the name of the revision that records a template: `<set>-<hash>-<hash of the UID>`.

    The UID keeps a set from meeting the revisions of a deleted set of the same name, which exist
    until the garbage collector has found them.
    """
    return f"{set_name}-{template_hash}-{short_hash(set_uid, length=_UID_HASH_LENGTH)}"


def parse_slot(set_name: str, name: str) -> int | None:
    """Return the slot that a pod name of the set has, or None for any other name."""
    owner, slot = parse_pod_name(name)
    return slot if owner == set_name else None


def parse_pod_name(name: str) -> tuple[str, int | None]:
    """Return the name of the set and the slot that a pod name stands for.

    Returns:
        An empty name and None for a name that no set would give: `web-pod-01`, `web-pod-`.
    """
    owner, infix, digits = name.rpartition(_INFIX)
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _SLOT_DIGITS
    if not infix or not owner or not is_number or str(int(digits)) != digits:
        return "", None
    return owner, int(digits)
