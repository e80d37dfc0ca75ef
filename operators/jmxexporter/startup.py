"""Patches of an admission webhook that start the JVMs of new pods with the exporter. Pure.

They are for JVMs that cannot be attached to. A pod is changed only if no setting of the pod is
overridden; in doubt it stays unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from libs.common.kinds import Manifest
from libs.common.plan import annotate
from libs.common.quantity import parse_quantity
from libs.common.reading import map_at, maps_at, text_at, text_map_at
from operators.jmxexporter.api.v1alpha1 import HostNetwork, Mode, PrometheusJmxExporter, Startup
from operators.jmxexporter.injector.messages import ANY_HOST, START_VARIABLE
from operators.jmxexporter.memory import read_limit
from operators.jmxexporter.naming import MIRROR, STARTED
from operators.jmxexporter.pods import is_opted_out
from operators.jmxexporter.presets import PRESETS
from operators.jmxexporter.resources import UNKNOWN_USER, Image
from operators.jmxexporter.started import Started

VOLUME: Final = "slipway-jmx"
"""Volume with the jars, and the init container that fills it."""
CONFIG_VOLUME: Final = "slipway-jmx-config"
"""Volume with the configuration of the exporter."""
DIRECTORY: Final = "/slipway-jmx"
"""Path of the jars in containers."""
CONFIG_DIRECTORY: Final = "/slipway-jmx-config"
"""Path of the configuration in containers."""
ANSWER_FILE: Final = (
    "/tmp/slipway-jmx-answer.properties"  # noqa: S108 - for people; nothing reads it.
)
"""Path at which a JVM writes the outcome of the start, if it can write there."""
OPTIONS: Final = "JAVA_TOOL_OPTIONS"
"""Environment variable from which each JVM reads options."""

_AGENT: Final = f"-javaagent:{DIRECTORY}/agent.jar={DIRECTORY}/start.properties"
_CONFIG_FILE: Final = "config.yaml"
_OTHER_AGENT: Final = re.compile(
    r"-javaagent:\S*jmx_prometheus|-Djava\.security\.manager(?!=(dis)?allow)"
)
"""Options of a JVM that has an exporter already, or would stop it."""


def starts_pods(exporter: PrometheusJmxExporter) -> bool:
    """Return whether an exporter starts the JVMs of new pods."""
    return exporter.spec.startup is Startup.NEW_PODS and exporter.spec.mode is Mode.ACTIVE


def build_startup_patch(
    exporter: PrometheusJmxExporter, pod: Mapping[str, Any], image: Image
) -> list[Manifest]:
    """Build the JSON patch that starts the JVMs of a new pod with the exporter.

    Args:
        exporter: The exporter that manages the pod.
        pod: The pod that is about to be created.
        image: Image with the jars.

    Returns:
        The operations; none if the pod should stay unchanged.
    """
    spec = map_at(pod, "spec")
    if not starts_pods(exporter) or is_opted_out(pod) or _is_unsupported(pod, spec):
        return []
    if spec.get("hostNetwork") is True and exporter.spec.host_network is HostNetwork.REFUSE:
        return []
    places = [
        (index, container)
        for index, container in enumerate(maps_at(spec, "containers"))
        if _is_wanted(exporter, container)
        and _is_clear(container)
        and _has_memory(exporter, spec, container)
    ]
    if not places:
        return []
    started = Started.of(exporter, (text_at(each, "name") for _, each in places))
    patch = _annotate(pod, started)
    patch += _append(spec, "/spec", "volumes", _build_volumes(exporter))
    # Insert it before the other init containers: some may be sidecars, which never end.
    init = _build_init_container(exporter, started, image, spec, places[0][1])
    if maps_at(spec, "initContainers"):
        patch.append({"op": "add", "path": "/spec/initContainers/0", "value": init})
    else:
        patch.append({"op": "add", "path": "/spec/initContainers", "value": [init]})
    for index, container in places:
        path = f"/spec/containers/{index}"
        patch += _append(container, path, "volumeMounts", _build_mounts(exporter))
        patch += _set_options(container, path)
    return patch


def _is_unsupported(pod: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    annotations = text_map_at(pod, "metadata", "annotations")
    if MIRROR in annotations or STARTED in annotations:
        return True
    taken = {text_at(each, "name") for each in (*maps_at(spec, "volumes"),)}
    taken |= {text_at(each, "name") for each in maps_at(spec, "containers")}
    taken |= {text_at(each, "name") for each in maps_at(spec, "initContainers")}
    return text_at(spec, "os", "name") == "windows" or bool(taken & {VOLUME, CONFIG_VOLUME})


def _is_wanted(exporter: PrometheusJmxExporter, container: Mapping[str, Any]) -> bool:
    wanted, name = exporter.spec.containers, text_at(container, "name")
    return (not wanted.include or name in wanted.include) and name not in wanted.exclude


def _is_clear(container: Mapping[str, Any]) -> bool:
    """Return whether a container can be changed without overriding one of its settings."""
    mounts = {text_at(each, "mountPath") for each in maps_at(container, "volumeMounts")}
    if mounts & {DIRECTORY, CONFIG_DIRECTORY}:
        return False
    values = [text_at(each, "value") for each in maps_at(container, "env")]
    words = [*(container.get("command") or ()), *(container.get("args") or ()), *values]
    if any(_OTHER_AGENT.search(str(word)) for word in words):
        return False
    held = [each for each in maps_at(container, "env") if each.get("name") == OPTIONS]
    if held:
        # A value from a reference cannot be extended. Of several entries the last one wins, so
        # there must be exactly one.
        return len(held) == 1 and "valueFrom" not in held[0]
    # A ConfigMap or Secret may define the variable, and an entry in `env` would hide it.
    return not maps_at(container, "envFrom")


def _has_memory(
    exporter: PrometheusJmxExporter, spec: Mapping[str, Any], container: Mapping[str, Any]
) -> bool:
    """Return whether the memory limit leaves room; the agent looks at the usage later."""
    limit = read_limit(spec, container)
    return not limit or limit > parse_quantity(exporter.spec.min_free_memory)


def _set_options(container: Mapping[str, Any], path: str) -> list[Manifest]:
    for index, variable in enumerate(maps_at(container, "env")):
        if variable.get("name") == OPTIONS:
            value = f"{text_at(variable, 'value')} {_AGENT}".strip()
            return [{"op": "add", "path": f"{path}/env/{index}/value", "value": value}]
    return _append(container, path, "env", [{"name": OPTIONS, "value": _AGENT}])


def _append(
    parent: Mapping[str, Any], path: str, field: str, values: list[Manifest]
) -> list[Manifest]:
    if maps_at(parent, field):
        return [{"op": "add", "path": f"{path}/{field}/-", "value": value} for value in values]
    return [{"op": "add", "path": f"{path}/{field}", "value": values}]


def _annotate(pod: Mapping[str, Any], started: Started) -> list[Manifest]:
    return [annotate(text_map_at(pod, "metadata", "annotations"), STARTED, started.render())]


def _build_volumes(exporter: PrometheusJmxExporter) -> list[Manifest]:
    source = exporter.spec.config
    jars: Manifest = {"name": VOLUME, "emptyDir": {"sizeLimit": "32Mi"}}
    if source.preset is not None:
        return [jars]
    config_map = {
        "name": source.config_map_name,
        # The pod must start even if the ConfigMap is missing: only the exporter needs it.
        "optional": True,
        "items": [{"key": source.config_map_key, "path": _CONFIG_FILE}],
    }
    return [jars, {"name": CONFIG_VOLUME, "configMap": config_map}]


def _build_mounts(exporter: PrometheusJmxExporter) -> list[Manifest]:
    # Read-only: an emptyDir is writable for every user, and the JVMs execute the jars in it.
    jars: Manifest = {"name": VOLUME, "mountPath": DIRECTORY, "readOnly": True}
    if exporter.spec.config.preset is not None:
        return [jars]
    return [jars, {"name": CONFIG_VOLUME, "mountPath": CONFIG_DIRECTORY, "readOnly": True}]


def _build_init_container(
    exporter: PrometheusJmxExporter,
    started: Started,
    image: Image,
    pod_spec: Mapping[str, Any],
    model: Mapping[str, Any],
) -> Manifest:
    """Build the init container with resources and user of a container of the pod.

    So quotas, LimitRanges and policies that admit the pod still admit it, its quality of service
    stays the same, and it needs no more: init containers run before the other containers.
    """
    spec = exporter.spec
    preset = spec.config.preset
    start = {
        "id": started.exporter,
        "directory": DIRECTORY,
        "config": f"{DIRECTORY if preset else CONFIG_DIRECTORY}/{_CONFIG_FILE}",
        "configText": PRESETS[preset] if preset else "",
        "host": ANY_HOST,
        "mainClass": spec.main_class,
        "excludeMainClass": spec.exclude_main_class,
        "port": str(started.port),
        "lastPort": str(started.last_port),
        "answer": ANSWER_FILE,
        "path": started.path,
        "memoryBytes": str(int(parse_quantity(spec.min_free_memory))),
    }
    return {
        "name": VOLUME,
        "image": image.name,
        "imagePullPolicy": image.pull_policy,
        "command": ["/app/bin/python", "-P", "-m", "operators.jmxexporter.injector.prepare"],
        "env": [{"name": START_VARIABLE, "value": json.dumps(start)}],
        "resources": {
            part: {name: held[part][name] for name in ("cpu", "memory") if name in held[part]}
            for part in ("requests", "limits")
            if map_at(held := map_at(model, "resources"), part)
        },
        "securityContext": {
            "runAsUser": _find_identity("runAsUser", model, pod_spec),
            "runAsGroup": _find_identity("runAsGroup", model, pod_spec),
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": VOLUME, "mountPath": DIRECTORY}],
    }


def _find_identity(field: str, *specs: Mapping[str, Any]) -> int:
    """Return the first user or group that is set and not root."""
    held = (map_at(spec, "securityContext").get(field) for spec in specs)
    return next((each for each in held if isinstance(each, int) and each), UNKNOWN_USER)
