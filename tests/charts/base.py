"""What the suites share: how they render a chart and find their way in manifests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from libs.common.kinds import Manifest
from libs.common.metric_specs import MetricSpec
from libs.common.runtime import Operator
from libs.common.testing.helm import render_chart

NAMESPACE: Final = "team-a"
"""Namespace of the release in tests; not `default`, so that nobody relies on that."""
EVERYTHING: Final[Mapping[str, Any]] = {
    "replicas": 2,
    "rbac": {"userRoles": True},
    "networkPolicy": {"enabled": True},
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "dashboard": {"enabled": True},
    "tracing": {"endpoint": "http://collector.tracing:4318"},
}
"""Values that make a chart render every object that it has."""
POLICIES: Final = frozenset({"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"})
"""Kinds of the admission policy that a chart may have."""
CLUSTER_SCOPED: Final = POLICIES | {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
}


class SuiteBase:
    """Base of the suites; the test of a chart sets the class variables."""

    operator: ClassVar[Operator]
    """The operator that the chart installs."""
    workload_metrics: ClassVar[Sequence[MetricSpec]] = ()
    """Metrics of the pods that the operator runs for its users, if the dashboard shows them."""
    computed: ClassVar[frozenset[str]] = frozenset()
    """Variables that the chart computes if no setting sets them."""
    guards: ClassVar[bool] = False
    """Whether the chart has an admission policy."""
    signs: ClassVar[bool] = False
    """Whether the chart has a Secret for the key with which the operator signs what it sends."""

    @property
    def chart(self) -> str:
        """Name of the chart, which is the id of the operator."""
        return self.operator.id

    def render(
        self, values: Mapping[str, Any] | None = None, *kinds: str, namespace: str = NAMESPACE
    ) -> list[Manifest]:
        """Render the chart, hooks included; without kinds all objects."""
        return render_chart(self.chart, values, namespace=namespace, show_only=kinds)

    def render_one(self, kind: str, values: Mapping[str, Any] | None = None) -> Manifest:
        """Render the only object of a kind; of several, the object named like the release."""
        found = self.render(values, kind)
        found = [one for one in found if one["metadata"]["name"] == self.chart] or found

        assert len(found) == 1, f"{self.chart}: {len(found)} objects of kind {kind}"
        return found[0]

    def render_container(self, values: Mapping[str, Any] | None = None) -> Manifest:
        """Render the container of the Deployment."""
        container: Manifest = dig(
            self.render_one("Deployment", values), "spec.template.spec.containers.0"
        )
        return container

    def render_env(self, values: Mapping[str, Any] | None = None) -> dict[str, str]:
        """Render the variables that set something, without what the chart computes."""
        return {
            entry["name"]: entry["value"]
            for entry in self.render_container(values)["env"]
            if "value" in entry and entry["name"] not in {"OPERATOR_VERSION", *self.computed}
        }


def dig(manifest: Any, path: str) -> Any:
    """Return the value at a dotted path, or None if there is none. Digits index lists."""
    for part in path.split("."):
        if isinstance(manifest, list):
            index = int(part)
            manifest = manifest[index] if index < len(manifest) else None
        elif isinstance(manifest, Mapping):
            manifest = manifest.get(part)
        else:
            return None
    return manifest


def nest(path: str, value: Any) -> dict[str, Any]:
    """Build values that have `value` at a dotted path."""
    for part in reversed(path.split(".")):
        value = {part: value}
    nested: dict[str, Any] = value
    return nested


def find_pods(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Return every pod spec, in Pods as well as in templates."""
    specs = (dig(one, "spec.template.spec") or one["spec"] for one in manifests if "spec" in one)
    return [spec for spec in specs if isinstance(spec, dict) and "containers" in spec]


def is_hook(manifest: Manifest) -> bool:
    """Return whether Helm runs an object at some moment instead of installing it."""
    return "helm.sh/hook" in (manifest["metadata"].get("annotations") or {})


def name_of(manifest: Manifest) -> str:
    """Name an object in messages: `Role/podset`."""
    return f"{manifest['kind']}/{manifest['metadata']['name']}"
