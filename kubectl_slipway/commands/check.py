"""`kubectl slipway check`: check whether a cluster meets the requirements of the operators."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from kubectl_slipway.cluster import Cluster
from kubectl_slipway.errors import Exit
from kubectl_slipway.model import known_kinds
from kubectl_slipway.output import print_data, print_table

_OLDEST = (1, 32)
_OPTIONAL = (
    ("kubevirt.io", "VirtualMachine", "KubeVirt", "compute, clusters"),
    ("cdi.kubevirt.io", "DataVolume", "CDI", "compute, clusters"),
    ("k8s.cni.cncf.io", "NetworkAttachmentDefinition", "Multus", "network (backend Multus)"),
    ("monitoring.coreos.com", "ServiceMonitor", "Prometheus operator", "monitoring"),
    ("snapshot.storage.k8s.io", "VolumeSnapshot", "snapshot controller", "volumes, compute"),
    ("keda.sh", "ScaledObject", "KEDA", "pulsarconsumer (engine KEDA)"),
    ("cert-manager.io", "Certificate", "cert-manager", "webhooks (webhooks.certManager)"),
)


@dataclass(frozen=True)
class Result:
    """One check: ok, missing (an optional part) or failed."""

    check: str
    result: str
    detail: str


def run(cluster: Cluster, options: argparse.Namespace) -> Exit:
    """Print one row per check."""
    results = [
        _check_version(cluster),
        *_check_parts(cluster),
        *_check_operators(cluster),
        *_check_certificates(cluster),
    ]
    if options.output != "table":
        print_data([asdict(each) for each in results], options.output)
    else:
        rows = [(each.check, each.result, each.detail) for each in results]
        print_table(("CHECK", "RESULT", "DETAIL"), rows)
    return Exit.PROBLEM if any(each.result == "failed" for each in results) else Exit.OK


def _check_version(cluster: Cluster) -> Result:
    version = cluster.api.get("/version")
    numbers = tuple(
        int(re.sub(r"\D.*", "", str(version.get(key, "0"))) or 0) for key in ("major", "minor")
    )
    wanted = ".".join(map(str, _OLDEST))
    text = str(version.get("gitVersion"))
    if numbers >= _OLDEST:
        return Result("Kubernetes version", "ok", text)
    return Result("Kubernetes version", "failed", f"{text}; the operators need {wanted} or later")


def _check_parts(cluster: Cluster) -> Iterator[Result]:
    for group, kind, name, users in _OPTIONAL:
        if cluster.catalog.get(group, kind):
            yield Result(name, "ok", f"{kind}.{group} is served")
        else:
            yield Result(name, "missing", f"needed by: {users}")


def _check_operators(cluster: Cluster) -> Iterator[Result]:
    if cluster.operators is None:
        return
    installed = {each.id for each in cluster.operators}
    kinds = {each.kind: each for each in cluster.catalog.ours}
    for id in sorted({each["operator"] for each in known_kinds().values()}):
        wanted = [kind for kind, each in known_kinds().items() if each["operator"] == id]
        missing = [kind for kind in wanted if kind not in kinds]
        if id not in installed:
            served = [kind for kind in wanted if kind in kinds]
            if served:
                detail = f"CRDs are installed ({', '.join(served)}), the operator is not"
                yield Result(f"operator {id}", "failed", detail)
        elif missing:
            yield Result(f"operator {id}", "failed", f"CRDs are missing: {', '.join(missing)}")
        else:
            yield Result(f"operator {id}", "ok", "CRDs and Deployment are installed")


def _check_certificates(cluster: Cluster) -> Iterator[Result]:
    """Check the certificates of webhooks that cert-manager issues."""
    for operator in cluster.operators or ():
        if not operator.certificate_secret:
            continue
        check = f"webhook certificate of {operator.id} in {operator.namespace}"
        resource = cluster.catalog.get("cert-manager.io", "Certificate")
        listed = cluster.try_list(resource.path(operator.namespace)) if resource else []
        if listed is None:
            yield Result(check, "missing", "you may not list Certificates")
            continue
        found = [
            each for each in listed if each["spec"].get("secretName") == operator.certificate_secret
        ]
        if not found:
            detail = (
                f"no Certificate writes Secret {operator.certificate_secret}; someone else must"
            )
            yield Result(check, "missing", detail)
        for each in found:
            yield _check_certificate(check, each)


def _check_certificate(check: str, certificate: dict[str, Any]) -> Result:
    name, status = certificate["metadata"]["name"], certificate.get("status") or {}
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    ready, issuing = conditions.get("Ready", {}), conditions.get("Issuing", {})
    if ready.get("status") == "True":
        return Result(check, "ok", f"Certificate {name} is ready until {status.get('notAfter')}")
    cause = issuing.get("message") or ready.get("message") or "cert-manager has not seen it yet"
    return Result(check, "failed", f"Certificate {name} is not ready: {cause}")
