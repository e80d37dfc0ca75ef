"""A pod as the API server returns it for a pod on a node: about 5 KB."""

from __future__ import annotations

from typing import Final

from libs.common.kinds import Manifest

_TIME: Final = "2026-01-01T00:00:00Z"
_CONDITIONS: Final = (
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
)
_NAMESPACES: Final = 200
_PER_SET: Final = 20


def build_pod(number: int) -> Manifest:
    """Build one of many pods of PodSets."""
    name = f"set-{number // _PER_SET}"
    return {
        "metadata": _build_metadata(number, name),
        "spec": _build_spec(number),
        "status": _build_status(number),
    }


def _build_metadata(number: int, name: str) -> Manifest:
    return {
        "name": f"{name}-pod-{number % _PER_SET}",
        "namespace": f"namespace-{number // _PER_SET % _NAMESPACES}",
        "uid": f"00000000-0000-4000-8000-{number:012d}",
        "resourceVersion": str(1000 + number),
        "generation": 1,
        "creationTimestamp": _TIME,
        "labels": {
            "app": name,
            "app.kubernetes.io/instance": name,
            "app.kubernetes.io/managed-by": "podset",
            "batch.tutorial.kubebuilder.io/slot": str(number % _PER_SET),
        },
        "annotations": {"slipway.dev/applied-hash": f"{number:016x}"},
        "ownerReferences": [
            {
                "apiVersion": "batch.tutorial.kubebuilder.io/v1",
                "kind": "PodSet",
                "name": name,
                "uid": f"00000000-0000-4000-9000-{number // _PER_SET:012d}",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "managedFields": [_OURS, _KUBELET],
    }


def _build_entry(manager: str, operation: str, fields: Manifest, subresource: str = "") -> Manifest:
    entry = {
        "manager": manager,
        "operation": operation,
        "apiVersion": "v1",
        "time": _TIME,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return {**entry, "subresource": subresource} if subresource else entry


_OURS: Final = _build_entry(
    "podset",
    "Apply",
    {
        "f:metadata": {
            "f:labels": {"f:app": {}, "f:app.kubernetes.io/instance": {}},
            "f:ownerReferences": {'k:{"uid":"00000000-0000-4000-9000-000000000000"}': {}},
        },
        "f:spec": {"f:containers": {'k:{"name":"app"}': {".": {}, "f:env": {}, "f:image": {}}}},
    },
)
_KUBELET: Final = _build_entry(
    "kubelet",
    "Update",
    {
        "f:status": {
            "f:conditions": {
                f'k:{{"type":"{type_}"}}': {
                    ".": {},
                    "f:lastProbeTime": {},
                    "f:lastTransitionTime": {},
                    "f:observedGeneration": {},
                    "f:status": {},
                    "f:type": {},
                }
                for type_ in _CONDITIONS
            },
            "f:containerStatuses": {},
            "f:hostIP": {},
            "f:phase": {},
            "f:podIP": {},
            "f:podIPs": {".": {}, 'k:{"ip":"10.0.0.1"}': {".": {}, "f:ip": {}}},
            "f:startTime": {},
        }
    },
    "status",
)


def _build_spec(number: int) -> Manifest:
    names = [{"name": f"VARIABLE_{each}", "value": f"value-{each}"} for each in range(5)]
    keys = [
        {
            "name": f"CONFIG_{each}",
            "valueFrom": {"configMapKeyRef": {"name": "settings", "key": f"key-{each}"}},
        }
        for each in range(15)
    ]
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {
            "configMap": {
                "name": "kube-root-ca.crt",
                "items": [{"key": "ca.crt", "path": "ca.crt"}],
            }
        },
    ]
    return {
        "containers": [
            {
                "name": "app",
                "image": "registry.example.com/app:1.2.3",
                "env": [*names, *keys],
                "resources": {
                    "requests": {"cpu": "100m", "memory": "128Mi"},
                    "limits": {"memory": "256Mi"},
                },
                "volumeMounts": [{"name": "kube-api-access", "mountPath": "/var/run/secrets"}],
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "volumes": [
            {"name": "kube-api-access", "projected": {"sources": sources, "defaultMode": 420}}
        ],
        "restartPolicy": "Always",
        "nodeName": f"node-{number % 500}",
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{key}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for key in ("not-ready", "unreachable")
        ],
    }


def _build_status(number: int) -> Manifest:
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return {
        "phase": "Running",
        "conditions": [
            {
                "type": type_,
                "status": "True",
                "observedGeneration": 1,
                "lastProbeTime": None,
                "lastTransitionTime": _TIME,
            }
            for type_ in _CONDITIONS
        ],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "hostIP": "10.0.0.1",
        "startTime": _TIME,
        "containerStatuses": [
            {
                "name": "app",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": _TIME}},
                "image": "registry.example.com/app:1.2.3",
                "imageID": f"registry.example.com/app@sha256:{0:064x}",
                "containerID": f"containerd://{number:064x}",
            }
        ],
    }
