"""Manifests of the simulator as a Deployment in a cluster for tests and demonstrations. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from lab.kubevirt_sim.behavior import PREFIX
from lab.kubevirt_sim.registration import NAME, build_registration
from libs.common.kinds import Manifest

PORT: Final = 8443
"""Port of the subresources and webhooks."""
GUEST_PORT: Final = 6443
"""Port of the APIs of the clusters that guests make."""
NAMESPACE: Final = "kubevirt-sim"
_LABELS: Final = {"app.kubernetes.io/name": NAME}
_CERTIFICATES: Final = "/certificates"


def build_manifests(
    image: str,
    certificates: Mapping[str, bytes],
    *,
    namespace: str = NAMESPACE,
    settings: Mapping[str, str] | None = None,
) -> list[Manifest]:
    """Build everything that runs the simulator in a cluster.

    Args:
        image: Image of the simulator.
        certificates: `ca.crt`, `tls.crt` and `tls.key` of its server, for the name of its Service.
        namespace: Namespace to run in.
        settings: Further settings, by flag without dashes, such as `speed`.
    """
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        _build("v1", "ServiceAccount", namespace),
        _build_role(),
        _build_binding(namespace),
        {
            **_build("v1", "Secret", namespace),
            "type": "kubernetes.io/tls",
            "data": {
                name: base64.b64encode(certificates[name]).decode()
                for name in ("tls.crt", "tls.key")
            },
        },
        {
            **_build("v1", "Service", namespace),
            "spec": {
                "selector": _LABELS,
                "ports": [
                    {"name": "https", "port": 443, "targetPort": PORT},
                    {"name": "guests", "port": GUEST_PORT, "targetPort": GUEST_PORT},
                ],
            },
        },
        _build_deployment(image, namespace, settings or {}, certificates["tls.crt"]),
        *build_registration(namespace, 443, certificates["ca.crt"]),
    ]


def service_name(namespace: str = NAMESPACE) -> str:
    """Return the name that the certificate of the server is for."""
    return f"{NAME}.{namespace}.svc"


def _build(api_version: str, kind: str, namespace: str) -> Manifest:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": NAME, "namespace": namespace, "labels": dict(_LABELS)},
    }


def _build_role() -> Manifest:
    writes = ["get", "list", "watch", "create", "update", "patch", "delete"]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": NAME, "labels": dict(_LABELS)},
        "rules": [
            {
                "apiGroups": ["kubevirt.io", "cdi.kubevirt.io", "snapshot.kubevirt.io"],
                "resources": ["*"],
                "verbs": writes,
            },
            {
                "apiGroups": ["instancetype.kubevirt.io"],
                "resources": ["*"],
                "verbs": ["get", "list", "watch"],
            },
            {
                "apiGroups": ["snapshot.storage.k8s.io"],
                "resources": ["volumesnapshots", "volumesnapshots/status"],
                "verbs": writes,
            },
            {
                "apiGroups": ["snapshot.storage.k8s.io"],
                "resources": ["volumesnapshotclasses"],
                "verbs": ["get", "list", "watch"],
            },
            {
                "apiGroups": [""],
                "resources": [
                    "nodes",
                    "nodes/status",
                    "persistentvolumeclaims",
                    "persistentvolumeclaims/status",
                    "persistentvolumes",
                    "pods",
                    "pods/binding",
                    "pods/status",
                ],
                "verbs": writes,
            },
            {
                # What machines were started from.
                "apiGroups": ["apps"],
                "resources": ["controllerrevisions"],
                "verbs": writes,
            },
            {
                # First settings of guests, by name, as a launcher reads them.
                "apiGroups": [""],
                "resources": ["secrets"],
                "verbs": ["get"],
            },
            {
                "apiGroups": ["apiextensions.k8s.io"],
                "resources": ["customresourcedefinitions"],
                "verbs": writes,
            },
            {
                "apiGroups": ["storage.k8s.io"],
                "resources": ["storageclasses"],
                "verbs": ["get", "list", "watch", "create"],
            },
            {
                "apiGroups": ["coordination.k8s.io"],
                "resources": ["leases"],
                "verbs": ["get", "create", "patch"],
            },
            {
                # Permission to clone disks of another namespace.
                "apiGroups": ["authorization.k8s.io"],
                "resources": ["subjectaccessreviews"],
                "verbs": ["create"],
            },
            {
                # The load balancer that is played.
                "apiGroups": [""],
                "resources": ["services", "services/status"],
                "verbs": ["get", "list", "watch", "patch"],
            },
            {
                "apiGroups": [""],
                "resources": ["events"],
                "verbs": ["get", "list", "watch", "create"],
            },
            {
                "apiGroups": ["events.k8s.io"],
                "resources": ["events"],
                "verbs": ["create", "patch"],
            },
        ],
    }


def _build_binding(namespace: str) -> Manifest:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": NAME, "labels": dict(_LABELS)},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": NAME,
        },
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
    }


def _build_deployment(
    image: str, namespace: str, settings: Mapping[str, str], certificate: bytes
) -> Manifest:
    flags = {
        "watch-namespaces": "*",
        "leader-elect": "false",
        "action-address": f"0.0.0.0:{PORT}",
        "guest-address": f"0.0.0.0:{GUEST_PORT}",
        "certificate-file": f"{_CERTIFICATES}/tls.crt",
        "key-file": f"{_CERTIFICATES}/tls.key",
        **settings,
    }
    container = {
        "name": "simulator",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": [f"--{name}={value}" for name, value in sorted(flags.items())],
        "ports": [
            {"name": "https", "containerPort": PORT},
            {"name": "guests", "containerPort": GUEST_PORT},
        ],
        "readinessProbe": {
            "httpGet": {"path": "/healthz", "port": PORT, "scheme": "HTTPS"},
            "periodSeconds": 2,
        },
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "certificates", "mountPath": _CERTIFICATES, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
    pod = {
        "serviceAccountName": NAME,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "certificates", "secret": {"secretName": NAME}},
            # OpenSSL reads certificates from files only.
            {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
        ],
    }
    return {
        **_build("apps/v1", "Deployment", namespace),
        "spec": {
            "replicas": 1,
            # Two simulators would play the same nodes.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": _LABELS},
            "template": {
                "metadata": {
                    "labels": _LABELS,
                    # The server reads its certificate when it starts.
                    "annotations": {f"{PREFIX}certificate": sha256(certificate).hexdigest()},
                },
                "spec": pod,
            },
        },
    }
