"""Ephemeral containers and patches of pods. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from libs.common.kinds import POD, Manifest
from libs.common.plan import Patch, escape_pointer
from operators.jmxexporter.api.v1alpha1 import ConfigSource
from operators.jmxexporter.injector.messages import (
    CONFIG_VARIABLE,
    KEY_VARIABLE,
    REQUEST_VARIABLE,
    Action,
    Request,
)
from operators.jmxexporter.injector.precheck import (
    INJECTOR_BYTES,
    PRECHECK_VARIABLE,
    render_precheck,
)
from operators.jmxexporter.naming import injector_name
from operators.jmxexporter.pods import Container, Pod
from operators.jmxexporter.presets import PRESETS

UNKNOWN_USER: Final = 65532
"""User and group of an injector that detects the user and group of the JVM."""


@dataclass(frozen=True, slots=True)
class Image:
    """The image of injectors, and the key that they bring to guards.

    Attributes:
        public_key: Key by which guards know the operator, as base64; empty if it has none.
    """

    name: str
    pull_policy: str = "IfNotPresent"
    public_key: str = ""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The user and group of an injector."""

    uid: int = UNKNOWN_USER
    gid: int = UNKNOWN_USER


def build_injector(
    name: str,
    container: Container,
    request: Request,
    source: ConfigSource,
    user: Credentials,
    image: Image,
) -> Manifest:
    """Build the ephemeral container that executes a request.

    It runs with the user and group of the JVM, because the JVM accepts commands from nobody else,
    and never has more rights than its target container.
    """
    environment: list[Manifest] = [
        {"name": REQUEST_VARIABLE, "value": request.render()},
        {"name": PRECHECK_VARIABLE, "value": _build_precheck(request)},
    ]
    if request.action is not Action.STOP:
        environment.append(_build_config(source))
        environment += _build_secrets(request)
    if request.action is Action.ENSURE and image.public_key:
        environment.append({"name": KEY_VARIABLE, "value": image.public_key})
    return {
        "name": name,
        "image": image.name,
        "imagePullPolicy": image.pull_policy,
        "command": ["/app/bin/python", "-P", "-m", "operators.jmxexporter.injector"],
        "env": environment,
        "targetContainerName": container.name,
        "terminationMessagePolicy": "File",
        "securityContext": build_security_context(container, user),
    }


def _build_precheck(request: Request) -> str:
    """Build what an injector checks first; `spec.minFreeMemory` may be lower than its own need."""
    return render_precheck(
        need=min(INJECTOR_BYTES, request.memory_bytes),
        limit=request.memory_limit,
        container_id=request.visible_container,
    )


def _build_config(source: ConfigSource) -> Manifest:
    if source.preset is not None:
        return {"name": CONFIG_VARIABLE, "value": PRESETS[source.preset]}
    reference = {"name": source.config_map_name, "key": source.config_map_key, "optional": True}
    return {"name": CONFIG_VARIABLE, "valueFrom": {"configMapKeyRef": reference}}


def _build_secrets(request: Request) -> list[Manifest]:
    """Build the variables that the kubelet fills in from Secrets, which we do not read."""
    return [
        # Optional: the injector says which one is missing, instead of waiting for it.
        {
            "name": name,
            "valueFrom": {"secretKeyRef": {"name": secret, "key": key, "optional": True}},
        }
        for secret, key, name in request.secrets
    ]


def build_security_context(container: Container, user: Credentials) -> Manifest:
    """Build the security context of an injector: user, group and capabilities.

    The kernel lets a process inspect another process only if that has no additional capabilities.
    So for a JVM that runs as root, the injector has the capabilities of its container, and no more.
    """
    root = user.uid == 0
    capabilities = dict(container.capabilities) if root else {"drop": ["ALL"]}
    return {
        "runAsUser": user.uid,
        "runAsGroup": user.gid,
        "runAsNonRoot": not root,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": capabilities,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def build_injection(
    pod: Pod,
    container: Container,
    request: Request,
    source: ConfigSource,
    user: Credentials,
    image: Image,
) -> Patch:
    """Build the patch that adds an injector to a pod.

    The patch applies only to the resource version that was observed: the name is derived from the
    length of the list, and an outdated plan could add a second injector, which nobody can remove.
    """
    name = injector_name(request.id, request.container_id, pod.ephemeral)
    injector = build_injector(name, container, request, source, user, image)
    path, value = "/spec/ephemeralContainers", [injector]
    operation: Manifest = {"op": "add", "path": path, "value": value}
    if pod.ephemeral:
        operation = {"op": "add", "path": f"{path}/-", "value": injector}
    return Patch(
        POD,
        pod.key,
        pod.uid,
        [operation],
        resource_version=pod.resource_version,
        subresource="ephemeralcontainers",
    )


def build_annotation_patch(pod: Pod, wanted: Mapping[str, str | None]) -> Patch | None:
    """Build the patch that sets annotations, or removes those that are None.

    Returns:
        The patch; None if nothing needs to change.
    """
    held = pod.annotations or {}
    changes = {name: value for name, value in wanted.items() if held.get(name) != value}
    if not changes:
        return None
    operations: list[Manifest] = []
    if pod.annotations is None:
        operations.append({"op": "add", "path": "/metadata/annotations", "value": {}})
    for name, value in changes.items():
        path = f"/metadata/annotations/{escape_pointer(name)}"
        operations.append(
            {"op": "remove", "path": path}
            if value is None
            else {"op": "add", "path": path, "value": value}
        )
    return Patch(POD, pod.key, pod.uid, operations, resource_version=pod.resource_version)
