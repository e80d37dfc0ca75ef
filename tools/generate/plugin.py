"""Render what `kubectl slipway` knows about the kinds: operator, conditions, reasons."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from libs.common.crd import CustomResource
from libs.common.kinds import Kind
from tools.generate.enums import member_docs
from tools.generate.sources import OperatorSource

PATH: Final = Path("kubectl_slipway", "kinds.json")
"""Where the file is written."""


def render_plugin_kinds(operators: Sequence[OperatorSource]) -> dict[Path, str]:
    """Render the kinds of all operators, by name."""
    kinds = {
        kind: _describe(operator, models[0])
        for operator in operators
        for (_, kind), models in operator.kinds().items()
    }
    return {PATH: json.dumps(kinds, indent=1, sort_keys=True, ensure_ascii=False) + "\n"}


def _describe(operator: OperatorSource, model: type[CustomResource]) -> dict[str, Any]:
    meta = model.crd_meta
    return {
        "operator": operator.id,
        "group": meta.kind.group,
        "conditions": sorted(member_docs(meta.conditions)) if meta.conditions else [],
        "reasons": member_docs(meta.reasons) if meta.reasons else {},
        "verbs": _list_verbs(operator, meta.kind),
    }


def _list_verbs(operator: OperatorSource, kind: Kind) -> dict[str, list[str]]:
    """Return what the operator must be allowed to do, by subresource."""
    verbs: dict[str, set[str]] = {}
    for rule in operator.rules:
        for resource in rule.resources if kind.group in rule.api_groups else ():
            plural, _, subresource = resource.partition("/")
            if plural == kind.plural and subresource != "finalizers":
                verbs.setdefault(subresource, set()).update(rule.verbs)
    return {subresource: sorted(each) for subresource, each in sorted(verbs.items())}
