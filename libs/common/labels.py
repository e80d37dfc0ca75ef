"""Labels and annotations that Slipway sets, and label selectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
"""Label on each child: the id of the operator that keeps it."""
INSTANCE: Final = "app.kubernetes.io/instance"
"""Label on each child: the name of the object it was made for, cut to 63 characters."""
APPLIED_HASH: Final = "slipway.dev/applied-hash"
"""Annotation on applied children: hash of the desired state that was sent last."""
FORCE_FINALIZE: Final = "slipway.dev/force-finalize"
"""Annotation that a person sets to `true` to let an object go without its clean-up."""
PAUSED: Final = "slipway.dev/paused"
"""Annotation that a person sets to `true` to stop reconciliation of one object."""


def matches_selector(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Tell whether labels satisfy a `LabelSelector` (`matchLabels` and `matchExpressions`).

    An empty selector matches everything, as in Kubernetes.

    Raises:
        ValueError: An expression has an operator that Kubernetes does not know.
    """
    for name, value in (selector.get("matchLabels") or {}).items():
        if labels.get(name) != value:
            return False
    return all(_holds(rule, labels) for rule in selector.get("matchExpressions") or ())


def render_selector(selector: Mapping[str, Any]) -> str:
    """Render a `LabelSelector` as the text that `labelSelector=` and `kubectl -l` take."""
    parts = [
        f"{name}={value}" for name, value in sorted((selector.get("matchLabels") or {}).items())
    ]
    parts.extend(_render_rule(rule) for rule in selector.get("matchExpressions") or ())
    return ",".join(parts)


def _holds(rule: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    name, values = rule["key"], rule.get("values") or ()
    match rule["operator"]:
        case "In":
            return name in labels and labels[name] in values
        case "NotIn":
            return labels.get(name) not in values
        case "Exists":
            return name in labels
        case "DoesNotExist":
            return name not in labels
        case unknown:
            raise ValueError(f"Unknown selector operator {unknown!r}")


def _render_rule(rule: Mapping[str, Any]) -> str:
    name = rule["key"]
    values: Sequence[str] = rule.get("values") or ()
    match rule["operator"]:
        case "In":
            return f"{name} in ({','.join(values)})"
        case "NotIn":
            return f"{name} notin ({','.join(values)})"
        case "Exists":
            return str(name)
        case "DoesNotExist":
            return f"!{name}"
        case unknown:
            raise ValueError(f"Unknown selector operator {unknown!r}")
