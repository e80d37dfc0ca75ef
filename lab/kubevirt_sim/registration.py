"""Manifests by which an API server finds the simulator: Service, APIService, webhooks. Pure."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

from lab.kubevirt_sim.server import REVIEW_PATH
from libs.common.kinds import Kind, Manifest, build_object
from libs.contracts.cdi import DATA_VOLUME
from libs.contracts.kubevirt import (
    SUBRESOURCES_GROUP,
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
)

NAME: Final = "kubevirt-sim"
"""Name of everything that is installed for the simulator."""
API_SERVICE: Final = Kind(
    "apiregistration.k8s.io", "v1", "APIService", "apiservices", namespaced=False
)
WEBHOOKS: Final = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)

GROUP_VERSION: Final = f"v1.{SUBRESOURCES_GROUP}"
"""Name of the APIService."""


def build_registration(namespace: str, port: int, authority: bytes) -> list[Manifest]:
    """Build the APIService and the webhooks of a simulator behind a Service.

    Args:
        namespace: Namespace of the Service, which is called `kubevirt-sim`.
        port: Port of the Service.
        authority: Certificate of the authority that signed the server's, as PEM.
    """
    bundle = base64.b64encode(authority).decode()
    return [_build_api_service(namespace, port, bundle), _build_webhooks(namespace, port, bundle)]


def _build_api_service(namespace: str, port: int, bundle: str) -> Manifest:
    return build_object(
        API_SERVICE,
        GROUP_VERSION,
        spec={
            "group": SUBRESOURCES_GROUP,
            "version": "v1",
            "groupPriorityMinimum": 1000,
            "versionPriority": 15,
            "caBundle": bundle,
            "service": {"namespace": namespace, "name": NAME, "port": port},
        },
    )


def _build_webhooks(namespace: str, port: int, bundle: str) -> Manifest:
    service = {"namespace": namespace, "name": NAME, "port": port, "path": REVIEW_PATH}
    client = {"service": service, "caBundle": bundle}
    machines = [
        _build_rule(VIRTUAL_MACHINE, "CREATE", "UPDATE"),
        _build_rule(VIRTUAL_MACHINE_INSTANCE_MIGRATION, "CREATE"),
        _build_rule(DATA_VOLUME, "CREATE", "UPDATE"),
    ]
    evictions = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods/eviction"],
        "operations": ["CREATE"],
    }
    launchers = {
        "name": "only-vms",
        "expression": 'object.metadata.name.startsWith("virt-launcher")',
    }
    # As with KubeVirt and CDI, nobody changes machines and disks, or evicts a launcher, while they
    # are down. Evictions of other pods must remain possible.
    return build_object(
        WEBHOOKS,
        NAME,
        webhooks=[
            _build_webhook("validator", "Fail", client, machines),
            {
                **_build_webhook("eviction-interceptor", "Fail", client, [evictions]),
                "matchConditions": [launchers],
            },
        ],
    )


def _build_webhook(name: str, policy: str, client: Manifest, rules: Sequence[Manifest]) -> Manifest:
    return {
        "name": f"{name}.kubevirt-sim.slipway.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "NoneOnDryRun",
        "failurePolicy": policy,
        "timeoutSeconds": 5,
        "clientConfig": client,
        "rules": list(rules),
    }


def _build_rule(kind: Kind, *operations: str) -> Manifest:
    return {
        "apiGroups": [kind.group],
        "apiVersions": [kind.version],
        "resources": [kind.plural],
        "operations": list(operations),
    }
