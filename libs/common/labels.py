"""Labels and annotations that all operators use, and label selectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
"""Label on each child: the id of the operator that manages it."""
INSTANCE: Final = "app.kubernetes.io/instance"
"""Label on each child: the name of its owner, truncated to 63 characters."""
APPLIED_HASH: Final = "slipway.dev/applied-hash"
"""Annotation on applied children: hash of the desired state that was sent last."""
FORCE_FINALIZE: Final = "slipway.dev/force-finalize"
"""Annotation that a person sets to `true` to delete an object without its clean-up."""
PAUSED: Final = "slipway.dev/paused"
"""Annotation that a person sets to `true` to stop reconciliation of one object."""

SERVICE_NAME: Final = "kubernetes.io/service-name"
"""Label on an EndpointSlice: the name of its Service."""
SERVICE_PROXY: Final = "service.kubernetes.io/service-proxy-name"
"""Label on a Service: the program that serves it instead of kube-proxy."""
SKIP_MIRROR: Final = "endpointslice.kubernetes.io/skip-mirror"
"""Label on Endpoints that need no EndpointSlice, because somebody writes one."""
SLICE_MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
"""Label on an EndpointSlice: who writes its endpoints."""

_NAME: Final = r"([A-Za-z0-9][-A-Za-z0-9_./]*)"
_SET_RULE: Final = re.compile(_NAME + r"\s+(in|notin)\s*\(([^()]*)\)")
_EQUAL_RULE: Final = re.compile(_NAME + r"\s*(==|=|!=)\s*([^\s,()!=]*)")
_EXISTS_RULE: Final = re.compile(r"(!?)\s*" + _NAME)


def matches_selector(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether labels satisfy a `LabelSelector` (`matchLabels` and `matchExpressions`).

    An empty selector matches everything, as in Kubernetes. An expression that Kubernetes does not
    know, such as of a later version, matches nothing.
    """
    for name, value in (selector.get("matchLabels") or {}).items():
        if labels.get(name) != value:
            return False
    return all(_holds(rule, labels) for rule in selector.get("matchExpressions") or ())


def compile_selectors(
    label_selector: str, field_selector: str = ""
) -> Callable[[Mapping[str, Any]], bool]:
    """Compile the selectors of a list or watch into a function that matches objects.

    Args:
        label_selector: In the syntax of `kubectl -l`.
        field_selector: In the syntax of `kubectl --field-selector`; the fields are paths in the
            object.

    Raises:
        ValueError: A requirement cannot be parsed.
    """
    rules = {"matchExpressions": [_parse_rule(part) for part in _split_rules(label_selector)]}
    fields = [_parse_field(part) for part in _split_rules(field_selector)]

    def selects(manifest: Mapping[str, Any]) -> bool:
        labels = manifest["metadata"].get("labels") or {}
        return matches_selector(rules, labels) and all(
            (_field(manifest, path) == value) is equal for path, equal, value in fields
        )

    return selects


def _split_rules(text: str) -> list[str]:
    # Commas within parentheses separate the values of a set.
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def _parse_rule(part: str) -> dict[str, Any]:
    if found := _SET_RULE.fullmatch(part):
        operator = "In" if found[2] == "in" else "NotIn"
        values = [value.strip() for value in found[3].split(",")]
        return {"key": found[1], "operator": operator, "values": values}
    if found := _EQUAL_RULE.fullmatch(part):
        operator = "NotIn" if found[2] == "!=" else "In"
        return {"key": found[1], "operator": operator, "values": [found[3]]}
    if found := _EXISTS_RULE.fullmatch(part):
        return {"key": found[2], "operator": "DoesNotExist" if found[1] else "Exists"}
    raise ValueError(f"Cannot parse the selector {part!r}")


def _parse_field(part: str) -> tuple[list[str], bool, str]:
    found = _EQUAL_RULE.fullmatch(part)
    if found is None:
        raise ValueError(f"Cannot parse the field selector {part!r}")
    return found[1].split("."), found[2] != "!=", found[3]


def _field(manifest: Mapping[str, Any], path: Sequence[str]) -> str:
    value: Any = manifest
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def render_selector(selector: Mapping[str, Any]) -> str:
    """Render a `LabelSelector` as text for `labelSelector=` and `kubectl -l`."""
    parts = [
        f"{name}={value}" for name, value in sorted((selector.get("matchLabels") or {}).items())
    ]
    parts.extend(_render_rule(rule) for rule in selector.get("matchExpressions") or ())
    return ",".join(parts)


def _holds(rule: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    name, values = str(rule.get("key")), rule.get("values") or ()
    match rule.get("operator"):
        case "In":
            return name in labels and labels[name] in values
        case "NotIn":
            return labels.get(name) not in values
        case "Exists":
            return name in labels
        case "DoesNotExist":
            return name not in labels
        case _:
            return False


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
