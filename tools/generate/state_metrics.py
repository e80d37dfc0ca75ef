"""Render the configuration by which kube-state-metrics shows the objects of all operators.

kube-state-metrics reads custom kinds by a file of `CustomResourceStateMetrics`. Each kind gets the
same metrics, which follow from its schema: its conditions, the integers at the top level of its
status, and the number of replicas that it asks for. A new field needs no change here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from libs.common.crd import CustomResource, build_crd
from libs.common.kinds import Manifest
from libs.common.project.sources import OperatorSource
from libs.common.project.text import render_yaml
from tools.generate.sources import GENERATOR

FOLDER: Final = Path("deploy", "kube-state-metrics")
"""Where the files are written."""

_STATES: Final = ["True", "False", "Unknown"]
_NAME: Final = "slipway-kube-state-metrics"


def render_state_metrics(operators: Sequence[OperatorSource]) -> dict[Path, str]:
    """Render the configuration, and the ClusterRole that kube-state-metrics needs for it."""
    models = [model for operator in operators for model in _list_stored(operator)]
    config = {
        "kind": "CustomResourceStateMetrics",
        "spec": {"resources": [build_resource(model) for model in models]},
    }
    origin = f"{GENERATOR} from operators/*/api"
    return {
        FOLDER / "custom-resource-state.yaml": render_yaml(config, origin=origin),
        FOLDER / "cluster-role.yaml": render_yaml(build_role(models), origin=origin),
    }


def build_resource(model: type[CustomResource]) -> Manifest:
    """Build the metrics of one kind."""
    kind = model.crd_meta.kind
    schema = _schema_of(model)
    status = schema.get("properties", {}).get("status", {}).get("properties", {})
    labels = {"name": ["metadata", "name"]}
    if kind.namespaced:
        labels = {"namespace": ["metadata", "namespace"], **labels}
    metrics: list[Manifest] = [
        _build_gauge(
            "created",
            f"Unix time at which the {kind.kind} was created.",
            ["metadata", "creationTimestamp"],
        ),
        _build_gauge(
            "metadata_generation",
            f"Generation of the spec of the {kind.kind}.",
            ["metadata", "generation"],
        ),
    ]
    if "conditions" in status:
        metrics.append(_build_conditions(kind.kind))
    scale = model.crd_meta.scale
    if scale is not None:
        path = scale.spec_replicas.strip(".").split(".")
        text = f"Number of replicas that the {kind.kind} asks for."
        metrics.append(_build_gauge("spec_replicas", text, path))
    for field, described in status.items():
        if described.get("type") == "integer":
            text = " ".join(str(described.get("description", field)).split())
            metrics.append(_build_gauge(f"status_{_snake(field)}", text, ["status", field]))
    return {
        "groupVersionKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "resourcePlural": kind.plural,
        "metricNamePrefix": f"slipway_{kind.kind.lower()}",
        "labelsFromPath": labels,
        "metrics": metrics,
    }


def build_role(models: Iterable[type[CustomResource]]) -> Manifest:
    """Build the ClusterRole that lets kube-state-metrics read the kinds."""
    plurals: dict[str, list[str]] = {}
    for model in models:
        plurals.setdefault(model.crd_meta.kind.group, []).append(model.crd_meta.kind.plural)
    verbs = ["get", "list", "watch"]
    crds = {
        "apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"],
        "verbs": ["list", "watch"],
    }
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": _NAME},
        "rules": [
            crds,
            *(
                {"apiGroups": [group], "resources": sorted(names), "verbs": verbs}
                for group, names in sorted(plurals.items())
            ),
        ],
    }


def _list_stored(operator: OperatorSource) -> Iterator[type[CustomResource]]:
    """Yield the stored version of each kind."""
    for models in operator.kinds().values():
        yield next(model for model in models if model.crd_meta.storage)


def _schema_of(model: type[CustomResource]) -> Mapping[str, Any]:
    (version,) = build_crd(model)["spec"]["versions"]
    schema: Mapping[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def _build_gauge(name: str, text: str, path: Sequence[str]) -> Manifest:
    # Without a value there is no series: a missing number is not zero.
    return {
        "name": name,
        "help": text,
        "each": {"type": "Gauge", "gauge": {"path": list(path)}},
    }


def _build_conditions(kind: str) -> Manifest:
    return {
        "name": "status_condition",
        "help": f"Conditions of the {kind}: 1 for the status that holds, otherwise 0.",
        "each": {
            "type": "StateSet",
            "stateSet": {
                "path": ["status", "conditions"],
                "labelsFromPath": {"condition": ["type"]},
                "labelName": "status",
                "valueFrom": ["status"],
                "list": _STATES,
            },
        },
    }


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()
