"""Render the kustomize bases from the charts, which needs helm.

Kept apart from the other renderers: helm reads the tree, so those must have been written before,
and a machine without helm can do all but this.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from libs.common import fastyaml
from libs.common.kinds import Manifest
from libs.common.project.errors import GenerateError
from libs.common.project.text import render_notice, render_yaml
from tools.generate.sources import GENERATOR, ROOT, find_operators

_NAMESPACE: Final = "slipway-system"
_WATCHED: Final = "default"
"""Namespace of users; every cluster has it."""
_REGISTRY: Final = "registry.invalid"
"""Registry that no resolver knows (RFC 2606); overlays replace it."""
_TIMEOUT_SECONDS: Final = 60
_MONITORING: Final = ("serviceMonitor.enabled", "prometheusRule.enabled", "dashboard.enabled")
_COMPONENTS: Final = Path("deploy", "kustomize", "components", "monitoring")
_SHARED_DASHBOARD: Final = "slipway-operators.json"
_HOOK: Final = "helm.sh/hook"
_HELM_LABELS: Final = frozenset({"app.kubernetes.io/managed-by", "helm.sh/chart"})
"""Labels by which tools recognize what Helm manages; kustomize applies the bases."""


def render_bases(
    helm: Path, root: Path = ROOT, ids: Iterable[str] | None = None
) -> dict[Path, str]:
    """Render the base and the monitoring component of each operator that has a chart.

    Args:
        helm: The helm binary.
        root: Root of the repository.
        ids: Operators to render, all by default.

    Raises:
        GenerateError: helm cannot render a chart; carries its words.
    """
    files: dict[Path, str] = {}
    for operator_id in find_operators(root) if ids is None else ids:
        if not (root / "helm" / operator_id / "Chart.yaml").is_file():
            continue
        base = render_chart(helm, root, operator_id)
        files |= _render_base(operator_id, base)
        watched = render_chart(helm, root, operator_id, _MONITORING)
        added = _without(watched, base)
        files |= _render_shared_dashboard(added)
        files |= _render_monitoring(operator_id, added)
    return files


def render_chart(
    helm: Path, root: Path, operator_id: str, switched_on: Sequence[str] = ()
) -> list[Manifest]:
    """Render a chart with its default values into manifests, hooks left out."""
    command = [str(helm), "template", operator_id, f"helm/{operator_id}", "-n", _NAMESPACE]
    command += ["--set", f"image.registry={_REGISTRY},watch.namespaces={{{_WATCHED}}}"]
    for value in switched_on:
        command += ["--set", f"{value}=true"]
    run = subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
    )
    if run.returncode:
        raise GenerateError([f"helm/{operator_id}: {run.stderr.strip()}"])
    documents = fastyaml.load_all(run.stdout)
    return [_without_release(document) for document in documents if not is_hook(document)]


def _render_base(operator_id: str, manifests: list[Manifest]) -> dict[Path, str]:
    folder = Path("deploy", "kustomize", "base", operator_id)
    crds = [one for one in manifests if one["kind"] == "CustomResourceDefinition"]
    others = [one for one in manifests if one not in crds]
    kustomization: Manifest = {"resources": [f"../../crds/{operator_id}", "manifests.yaml"]}
    if crds:
        # kustomize adds the labels that all objects have, so they stand here once.
        shared = crds[0]["metadata"]["labels"]
        kustomization["labels"] = [{"pairs": shared}]
        for manifest in others:
            _drop_labels(manifest, shared)
    return {
        folder / "manifests.yaml": _render_documents(operator_id, others),
        folder / "kustomization.yaml": _render_kustomization(operator_id, kustomization),
    }


def _drop_labels(manifest: Manifest, shared: Manifest) -> None:
    labels = {
        name: value
        for name, value in manifest["metadata"].pop("labels").items()
        if shared.get(name) != value
    }
    if labels:
        manifest["metadata"]["labels"] = labels


def _render_shared_dashboard(manifests: list[Manifest]) -> dict[Path, str]:
    """Render the dashboard that all charts have: a component that adds it to their ConfigMaps."""
    folder = _COMPONENTS / "dashboard"
    for manifest in manifests:
        if text := (manifest.get("data") or {}).pop(_SHARED_DASHBOARD, None):
            labels = {"app.kubernetes.io/part-of": "slipway", "grafana_dashboard": "1"}
            selector = ",".join(f"{label}={value}" for label, value in labels.items())
            target = {"kind": "ConfigMap", "labelSelector": selector}
            patch = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "any"},
                "data": {_SHARED_DASHBOARD: text},
            }
            component = {"patches": [{"path": "dashboard.yaml", "target": target}]}
            return {
                folder / "dashboard.yaml": _render_documents("operator-common", [patch]),
                folder
                / "kustomization.yaml": _render_kustomization(
                    "operator-common", component, "Component"
                ),
            }
    return {}


def _render_monitoring(operator_id: str, manifests: list[Manifest]) -> dict[Path, str]:
    if not manifests:
        return {}
    folder = _COMPONENTS / operator_id
    component = {"resources": ["manifests.yaml"], "components": ["../dashboard"]}
    return {
        folder / "manifests.yaml": _render_documents(operator_id, manifests),
        folder / "kustomization.yaml": _render_kustomization(operator_id, component, "Component"),
    }


def _render_documents(operator_id: str, manifests: list[Manifest]) -> str:
    header = render_notice(f"{GENERATOR} from helm/{operator_id}")
    return header + "---\n".join(render_yaml(manifest) for manifest in manifests)


def _render_kustomization(chart: str, content: Manifest, kind: str = "Kustomization") -> str:
    version = "v1alpha1" if kind == "Component" else "v1beta1"
    document = {"apiVersion": f"kustomize.config.k8s.io/{version}", "kind": kind, **content}
    return render_yaml(document, origin=f"{GENERATOR} from helm/{chart}")


def _without_release(manifest: Manifest) -> Manifest:
    """Return an object without what only a release has: labels of Helm, the namespace in alerts.

    kustomize moves the objects into another namespace, but looks into no expression.
    """
    groups = manifest["spec"]["groups"] if manifest["kind"] == "PrometheusRule" else ()
    for group in groups:
        for rule in group["rules"]:
            rule["expr"] = rule["expr"].replace(f',namespace="{_NAMESPACE}"', "")
    return drop_helm_labels(manifest)


def drop_helm_labels(manifest: Manifest) -> Manifest:
    """Delete the labels by which tools recognize objects of Helm, in place."""
    template = (manifest.get("spec") or {}).get("template") or {}
    for metadata in (manifest["metadata"], template.get("metadata") or {}):
        labels = metadata.get("labels") or {}
        for label in _HELM_LABELS & labels.keys():
            del labels[label]
    return manifest


def is_hook(manifest: Manifest) -> bool:
    """Return whether an object is a hook of Helm."""
    return _HOOK in (manifest["metadata"].get("annotations") or {})


def _without(manifests: list[Manifest], base: list[Manifest]) -> list[Manifest]:
    """Return the manifests that the base does not have."""
    known = {_identify(manifest) for manifest in base}
    return [manifest for manifest in manifests if _identify(manifest) not in known]


def _identify(manifest: Manifest) -> tuple[Any, ...]:
    metadata = manifest["metadata"]
    return manifest["apiVersion"], manifest["kind"], metadata.get("namespace"), metadata["name"]
