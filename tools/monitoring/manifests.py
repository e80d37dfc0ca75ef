"""The objects of Prometheus and Grafana, as they are applied."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

NAME: Final = "slipway-monitoring"
PROMETHEUS_PORT: Final = 30090
GRAFANA_PORT: Final = 30030
"""Ports of the nodes."""
SCRAPE_SECONDS: Final = 5

type Manifest = dict[str, Any]

_LABELS: Final = {"app.kubernetes.io/part-of": NAME}
_USER: Final = 65532
_METRICS_PORT: Final = 8080


def build_prometheus(
    image: str, namespace: str, operators: Sequence[str], rules: Sequence[Manifest]
) -> list[Manifest]:
    """Build Prometheus for the operators of a namespace, in which it runs.

    Args:
        image: Its image.
        namespace: Namespace of the operators.
        operators: Ids of the operators, which are the names of their releases.
        rules: Objects of kind PrometheusRule, of the charts.
    """
    groups = [group for rule in rules for group in rule["spec"]["groups"]]
    files = {
        "prometheus.yml": json.dumps(build_config(namespace, operators), indent=1),
        "rules.yml": json.dumps({"groups": groups}, indent=1),
    }
    command = ["prometheus", "--config.file=/etc/prometheus/prometheus.yml"]
    command += ["--storage.tsdb.path=/data", "--storage.tsdb.retention.time=1d"]
    return [
        *(_build_headless(operator) for operator in operators),
        _build("v1", "ConfigMap", "slipway-prometheus", {"data": files}),
        *_build_server(
            "slipway-prometheus",
            image,
            port=(9090, PROMETHEUS_PORT),
            command=command,
            mounts={"/etc/prometheus": "slipway-prometheus"},
            ready="/-/ready",
        ),
    ]


def build_config(namespace: str, operators: Sequence[str]) -> Manifest:
    """Build the configuration of Prometheus: the labels are those that a ServiceMonitor sets.

    Prometheus finds replicas by DNS: the package of Debian cannot ask the API server, and no
    permissions are needed.
    """
    return {
        "global": {
            "scrape_interval": f"{SCRAPE_SECONDS}s",
            "evaluation_interval": f"{SCRAPE_SECONDS}s",
        },
        "rule_files": ["/etc/prometheus/rules.yml"],
        "scrape_configs": [
            {
                "job_name": operator,
                "dns_sd_configs": [
                    {
                        "names": [f"{_headless_name(operator)}.{namespace}.svc"],
                        "type": "A",
                        "port": _METRICS_PORT,
                        "refresh_interval": f"{SCRAPE_SECONDS}s",
                    }
                ],
                "relabel_configs": [
                    {"target_label": "namespace", "replacement": namespace},
                    # The name of the pod is not in its DNS record.
                    {"source_labels": ["__address__"], "target_label": "pod"},
                ],
            }
            for operator in operators
        ],
    }


def _build_headless(operator: str) -> Manifest:
    spec = {
        "clusterIP": "None",
        "selector": {"app.kubernetes.io/name": operator, "app.kubernetes.io/instance": operator},
        # A replica that is not ready is scraped as well.
        "publishNotReadyAddresses": True,
        "ports": [{"port": _METRICS_PORT}],
    }
    return _build("v1", "Service", _headless_name(operator), {"spec": spec})


def _headless_name(operator: str) -> str:
    return f"{NAME}-{operator}"


def build_grafana(image: str, dashboards: Mapping[str, str]) -> list[Manifest]:
    """Build Grafana with the dashboards of the charts, for everyone who reaches it.

    Args:
        image: Its image.
        dashboards: JSON by file name.
    """
    source = {
        "name": "Prometheus",
        "uid": "prometheus",
        "type": "prometheus",
        "access": "proxy",
        "url": "http://slipway-prometheus:9090",
        "isDefault": True,
        "jsonData": {"timeInterval": f"{SCRAPE_SECONDS}s"},
    }
    provider = {"name": "slipway", "type": "file", "options": {"path": "/dashboards"}}
    folder = "/etc/grafana/provisioning"
    environment = {
        "GF_AUTH_ANONYMOUS_ENABLED": "true",
        "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_PATHS_DATA": "/data",
    }
    return [
        _build(
            "v1",
            "ConfigMap",
            "slipway-grafana-datasources",
            {"data": {"prometheus.yaml": json.dumps({"apiVersion": 1, "datasources": [source]})}},
        ),
        _build(
            "v1",
            "ConfigMap",
            "slipway-grafana-providers",
            {"data": {"slipway.yaml": json.dumps({"apiVersion": 1, "providers": [provider]})}},
        ),
        _build("v1", "ConfigMap", "slipway-grafana-dashboards", {"data": dict(dashboards)}),
        *_build_server(
            "slipway-grafana",
            image,
            port=(3000, GRAFANA_PORT),
            environment=environment,
            mounts={
                f"{folder}/datasources": "slipway-grafana-datasources",
                f"{folder}/dashboards": "slipway-grafana-providers",
                "/dashboards": "slipway-grafana-dashboards",
            },
            ready="/api/health",
        ),
    ]


def _build(api_version: str, kind: str, name: str, fields: Mapping[str, Any]) -> Manifest:
    metadata = {"name": name, "labels": dict(_LABELS)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _build_server(
    name: str,
    image: str,
    *,
    port: tuple[int, int],
    mounts: Mapping[str, str],
    ready: str,
    command: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> list[Manifest]:
    """Build a Deployment that mounts ConfigMaps, and a Service at a port of the nodes."""
    own, of_nodes = port
    selector = {"app.kubernetes.io/name": name}
    container = {
        "name": "server",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        **({"command": list(command)} if command else {}),
        "env": [{"name": key, "value": value} for key, value in (environment or {}).items()],
        "ports": [{"containerPort": own}],
        "readinessProbe": {"httpGet": {"path": ready, "port": own}, "periodSeconds": 1},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "data", "mountPath": "/tmp"},  # In its container.
            *({"name": f"config-{index}", "mountPath": path} for index, path in enumerate(mounts)),
        ],
    }
    pod = {
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "data", "emptyDir": {}},
            *(
                {"name": f"config-{index}", "configMap": {"name": source}}
                for index, source in enumerate(mounts.values())
            ),
        ],
    }
    deployment = {
        "spec": {
            # Two processes must not share the data of one.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": {**_LABELS, **selector}}, "spec": pod},
        }
    }
    service = {
        "spec": {
            "type": "NodePort",
            "selector": selector,
            "ports": [{"port": own, "nodePort": of_nodes}],
        }
    }
    return [
        _build("apps/v1", "Deployment", name, deployment),
        _build("v1", "Service", name, service),
    ]
