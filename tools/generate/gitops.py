"""Render what Argo CD and Flux install: one file per tool and operator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from libs.common import fastyaml
from libs.common.kinds import Manifest
from libs.common.project.sources import OperatorSource
from libs.common.project.text import render_notice, render_yaml
from tools.generate.sources import GENERATOR

CHARTS: Final = "registry.example.com/team/charts"
"""Registry of the charts; `./dev release --registry registry.example.com/team` pushes there."""
NAMESPACE: Final = "slipway-system"
"""Namespace of the releases, which only administrators enter, as in the README."""
_WATCH: Final = {"namespaces": ["team-a"]}
"""Namespaces of users, as in the README."""
_FOLDER: Final = Path("deploy", "gitops")


def render_gitops(operator: OperatorSource, root: Path) -> dict[Path, str]:
    """Render the Argo CD Application and the Flux HelmRelease of an operator that has a chart."""
    chart = root / operator.chart / "Chart.yaml"
    if not chart.is_file():
        return {}
    version = str(fastyaml.load(chart.read_text())["version"])
    notice = render_notice(f"{GENERATOR} from {operator.chart.as_posix()}/Chart.yaml")
    return {
        _FOLDER
        / "argocd"
        / f"{operator.id}.yaml": _render(notice, [build_application(operator.id, version)]),
        _FOLDER
        / "flux"
        / f"{operator.id}.yaml": _render(
            notice, [build_repository(operator.id, version), build_release(operator.id)]
        ),
    }


def build_application(operator_id: str, version: str) -> Manifest:
    """Build the Application of Argo CD."""
    # Argo CD excludes Leases by default, so the operator creates its own.
    values = {"replicas": 2, "watch": _WATCH, "lease": {"create": False}}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": operator_id, "namespace": "argocd"},
        "spec": {
            "project": "default",
            "source": {
                "repoURL": CHARTS,
                "chart": operator_id,
                "targetRevision": version,
                "helm": {"releaseName": operator_id, "valuesObject": values},
            },
            "destination": {"server": "https://kubernetes.default.svc", "namespace": NAMESPACE},
            "syncPolicy": {
                "automated": {"prune": True, "selfHeal": True},
                # CRDs exceed the size limit of the annotation that client-side apply writes.
                "syncOptions": ["CreateNamespace=true", "ServerSideApply=true"],
            },
        },
    }


def build_repository(operator_id: str, version: str) -> Manifest:
    """Build the OCIRepository of Flux; it follows the patch releases of a minor version."""
    major, minor, _ = version.split(".", 2)
    return {
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "OCIRepository",
        "metadata": {"name": operator_id, "namespace": NAMESPACE},
        "spec": {
            "interval": "1h",
            "url": f"oci://{CHARTS}/{operator_id}",
            "ref": {"semver": f"{major}.{minor}.x"},
            "layerSelector": {
                "mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
                "operation": "copy",
            },
        },
    }


def build_release(operator_id: str) -> Manifest:
    """Build the HelmRelease of Flux."""
    return {
        "apiVersion": "helm.toolkit.fluxcd.io/v2",
        "kind": "HelmRelease",
        "metadata": {"name": operator_id, "namespace": NAMESPACE},
        "spec": {
            "interval": "1h",
            "chartRef": {"kind": "OCIRepository", "name": operator_id},
            # The charts install CRDs as templates, not from a folder crds/.
            "install": {"crds": "Skip"},
            "upgrade": {"crds": "Skip"},
            "values": {"replicas": 2, "watch": _WATCH},
        },
    }


def _render(notice: str, manifests: Sequence[Manifest]) -> str:
    return notice + "---\n".join(render_yaml(manifest) for manifest in manifests)
