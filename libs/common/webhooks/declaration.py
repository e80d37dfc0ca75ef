"""Webhook: a webhook that the API server calls, from which a project generates its chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from libs.common.kinds import Kind, Manifest


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook that the API server calls before it writes objects of a kind.

    Attributes:
        kind: Kind of the objects.
        operations: Operations for which it is called: CREATE, UPDATE, DELETE.
        namespace_labels: Labels of the namespaces for which it is called; empty for all watched
            namespaces.
    """

    kind: Kind
    operations: Sequence[str] = ("CREATE", "UPDATE")
    namespace_labels: Mapping[str, str] = field(default_factory=dict)

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
        return {
            "name": self.kind.resource,
            "path": self.path,
            "namespaceLabels": dict(self.namespace_labels),
            "rules": [rule],
        }
