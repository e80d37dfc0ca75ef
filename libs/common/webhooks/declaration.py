"""Webhook: a webhook that the API server calls, from which a project generates its chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from libs.common.kinds import Kind, Manifest


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook that the API server calls before it writes objects of a kind.

    Attributes:
        kind: Kind of the objects.
        operations: Operations for which it is called: CREATE, UPDATE, DELETE.
        namespace_labels: Labels of the namespaces for which it is called; empty for all watched
            namespaces.
        validating: Whether it only judges objects. Otherwise it can change them as well, and
            webhooks that run later can change what it has judged.
        failure_policy: What the API server does if it cannot ask: `Fail` refuses the write,
            `Ignore` accepts it. Empty means `Fail` for a validating webhook, otherwise `Ignore`.
        timeout_seconds: Seconds after which the API server stops waiting, from 1 to 30.
        object_labels: Labels of the objects for which it is called; empty for all. Users can set
            labels, so a judgement must not depend on them.
        match_conditions: Conditions in CEL by name, all of which must be true for a call.
    """

    kind: Kind
    operations: Sequence[str] = ("CREATE", "UPDATE")
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    validating: bool = False
    failure_policy: Literal["", "Fail", "Ignore"] = ""
    timeout_seconds: int = 3
    object_labels: Mapping[str, str] = field(default_factory=dict)
    match_conditions: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Path under which the operator serves it."""
        return f"/{self.kind.plural}"

    def to_chart(self) -> Manifest:
        """Return its entry in `files/webhooks.yaml` of a chart."""
        rule = {
            "apiGroups": [self.kind.group],
            "apiVersions": [self.kind.version],
            "resources": [self.kind.plural],
            "operations": list(self.operations),
            "scope": "Namespaced" if self.kind.namespaced else "Cluster",
        }
        conditions = [
            {"name": name, "expression": text} for name, text in self.match_conditions.items()
        ]
        return {
            "name": self.kind.resource,
            "path": self.path,
            "validating": self.validating,
            "failurePolicy": self.failure_policy or ("Fail" if self.validating else "Ignore"),
            "timeoutSeconds": self.timeout_seconds,
            "namespaceLabels": dict(self.namespace_labels),
            "objectLabels": dict(self.object_labels),
            "matchConditions": conditions,
            "rules": [rule],
        }
