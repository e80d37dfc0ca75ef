"""Names, labels and annotations of the pods of a PodSet.

The name of a pod is a lock: the API server allows only one pod with a name at a time, so two
writers cannot both fill the same slot.
"""

from __future__ import annotations

from typing import Final

from libs.common.naming import short_hash

GROUP: Final = "batch.tutorial.kubebuilder.io"
"""API group of PodSet, and prefix of the labels and annotations that belong to it."""
SET_LABEL: Final = f"{GROUP}/podset"
"""Label on each pod: name of the PodSet, which selects the pods if spec.selector is not set."""
SLOT_LABEL: Final = f"{GROUP}/slot"
"""Label on each pod: number of its slot, which its name contains as well."""
TEMPLATE_HASH_LABEL: Final = f"{GROUP}/template-hash"
"""Label on each pod: hash of the template from which it was created."""
TEMPLATE_ALIAS_LABEL: Final = f"{GROUP}/template-alias"
"""Label on a revision: hash of a template that is written differently and means the same."""
ATTEMPT_ANNOTATION: Final = f"{GROUP}/attempt"
"""Annotation on a pod: the number of successive earlier pods in its slot that failed soon after
their start."""
DELETION_COST_ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation of Kubernetes on a pod: a scale-down deletes pods with a lower cost first."""

_UID_HASH_LENGTH: Final = 5
_INFIX: Final = "-pod-"
_SLOT_DIGITS: Final = 9


def pod_name(set_name: str, slot: int) -> str:
    """Return the name of the pod in a slot: `<set>-pod-<slot>`."""
    return f"{set_name}{_INFIX}{slot}"


def revision_name(set_name: str, set_uid: str, template_hash: str) -> str:
    """Return the name of the revision that records a template: `<set>-<hash>-<hash of the UID>`.

    The UID prevents name conflicts with the revisions of a deleted PodSet of the same name, which
    exist until the garbage collector deletes them.
    """
    return f"{set_name}-{template_hash}-{short_hash(set_uid, length=_UID_HASH_LENGTH)}"


def parse_revision_name(set_name: str, name: str) -> str:
    """Return the hash of the template in the name of a revision; empty for any other name."""
    template_hash, dash, _ = name.removeprefix(f"{set_name}-").partition("-")
    return template_hash if dash and name.startswith(f"{set_name}-") else ""


def parse_slot(set_name: str, name: str) -> int | None:
    """Return the slot in a pod name of the PodSet, or None for any other name."""
    owner, slot = parse_pod_name(name)
    return slot if owner == set_name else None


def parse_pod_name(name: str) -> tuple[str, int | None]:
    """Return the name of the PodSet and the slot that a pod name contains.

    Returns:
        An empty name and None if no PodSet would create this name: `web-pod-01`, `web-pod-`.
    """
    owner, infix, digits = name.rpartition(_INFIX)
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _SLOT_DIGITS
    if not infix or not owner or not is_number or str(int(digits)) != digits:
        return "", None
    return owner, int(digits)
