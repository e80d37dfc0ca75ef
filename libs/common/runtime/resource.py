"""Resource: the attributes that identify a process in traces."""

from __future__ import annotations

from libs.common.config import ConnectionConfig
from libs.common.settings import CommonSettings


def build_resource(
    settings: CommonSettings, config: ConnectionConfig, version: str
) -> dict[str, str]:
    """Build the attributes that identify the process in traces."""
    resource = {
        "service.version": version,
        "k8s.pod.name": settings.pod_name,
        "k8s.namespace.name": settings.pod_namespace or config.namespace,
    }
    return {name: value for name, value in resource.items() if value}
