"""`kubectl slipway vm`: create an Operation for an Instance, and follow its steps."""

from __future__ import annotations

import argparse
import time
from typing import Any

from kubectl_slipway.cluster import Cluster
from kubectl_slipway.discovery import Resource
from kubectl_slipway.errors import Exit, PluginError
from kubectl_slipway.model import parse_time, render_seconds

_GROUP = "compute.slipway.dev"
_FINAL = ("Succeeded", "Failed", "Cancelled")
_POLL_SECONDS = 1.0


def run(cluster: Cluster, options: argparse.Namespace) -> Exit:
    """Create the Operation; with --wait, print its steps until it ends."""
    instances = cluster.require(_GROUP, "Instance", "compute")
    operations = cluster.require(_GROUP, "Operation", "compute")
    instance = cluster.get(instances, options.name)
    manifest = build_operation(options, cluster.namespace, instance["metadata"]["uid"])
    created = cluster.api.create(operations.path(cluster.namespace), manifest)
    name = created["metadata"]["name"]
    print(f"{operations.qualified}/{name} created")
    if not options.wait:
        return Exit.OK
    try:
        return follow(cluster, operations, name, options.timeout)
    except KeyboardInterrupt:
        print(
            f"\nOperation {name} continues. To cancel it: "
            f"kubectl patch {operations.qualified} {name} "
            f'-n {cluster.namespace} --type=merge -p \'{{"spec":{{"cancel":true}}}}\''
        )
        raise


def build_operation(options: argparse.Namespace, namespace: str, uid: str) -> dict[str, Any]:
    """Build the Operation that the options describe."""
    words = options.type.split("-")
    type = "".join(word.capitalize() for word in words)
    field = words[0] + "".join(word.capitalize() for word in words[1:])
    spec: dict[str, Any] = {"type": type, "targetRef": {"name": options.name, "uid": uid}}
    details = _build_details(options)
    if details:
        spec[field] = details
    if options.fail_if_busy:
        spec["queue"] = "FailIfBusy"
    return {
        "apiVersion": f"{_GROUP}/v1alpha1",
        "kind": "Operation",
        "metadata": {"generateName": f"{options.name}-{options.type}-", "namespace": namespace},
        "spec": spec,
    }


def _build_details(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    image = getattr(options, "image", None)
    if image:
        found["image"] = {"registry" if image.startswith("docker://") else "url": image}
    if getattr(options, "duration", None):
        found["durationSeconds"] = options.duration
    if getattr(options, "size", None):
        found["size"] = options.size
    if getattr(options, "instancetype", None):
        found["instancetype"] = _parse_instancetype(options.instancetype)
    if getattr(options, "snapshot", None):
        found["snapshot"] = options.snapshot
    if getattr(options, "snapshot_name", None):
        found["name"] = options.snapshot_name
    selector = getattr(options, "node_selector", None)
    if selector:
        pairs = [each.partition("=") for each in selector]
        if not all(equal and key for key, equal, _ in pairs):
            raise PluginError("--node-selector requires KEY=VALUE.", "", Exit.USAGE)
        found["nodeSelector"] = {key: value for key, _, value in pairs}
    return found


def _parse_instancetype(text: str) -> dict[str, str]:
    """Parse an instancetype in the form of virtctl: its name, or `<kind>/<name>`."""
    kind, slash, name = text.rpartition("/")
    kinds = ("VirtualMachineClusterInstancetype", "VirtualMachineInstancetype")
    found = kinds[0] if not slash else {each.lower(): each for each in kinds}.get(kind.lower())
    if found is None or not name:
        raise PluginError(
            f"--instancetype requires NAME or virtualmachineinstancetype/NAME, not {text}.",
            "",
            Exit.USAGE,
        )
    return {"kind": found, "name": name}


def follow(cluster: Cluster, operations: Resource, name: str, timeout: float) -> Exit:
    """Print the steps of an Operation as they happen, until it has ended."""
    deadline = time.monotonic() + timeout
    shown: set[tuple[str, str]] = set()
    said = ""
    while True:
        operation = cluster.get(operations, name)
        status = operation.get("status") or {}
        for step in status.get("steps") or ():
            key = (step["name"], step["state"])
            if step["state"] != "Running" and key not in shown:
                shown.add(key)
                print(f"{'✓' if step['state'] == 'Done' else '✗'} {step['name']} {_duration(step)}")
        if status.get("phase") in _FINAL:
            return _finish(operation)
        message = status.get("message") or ""
        if message and message != said:
            said = message
            print(f"… {message}", flush=True)
        if time.monotonic() > deadline:
            raise PluginError(
                f"Operation {name} has not ended after {int(timeout)}s; it continues.",
                f"kubectl slipway why operation/{name}",
                Exit.TIMEOUT,
            )
        time.sleep(_POLL_SECONDS)


def _finish(operation: dict[str, Any]) -> Exit:
    status, spec = operation["status"], operation["spec"]
    target = f"Instance {spec['targetRef']['name']}"
    took = f" after {status['duration']}" if status.get("duration") else ""
    if status["phase"] == "Succeeded":
        print(f"{spec['type']} of {target} succeeded{took}")
        return Exit.OK
    reason, message = status.get("reason") or "", status.get("message") or ""
    print(f"{spec['type']} of {target} {status['phase'].lower()}{took}: {reason}: {message}")
    print(f"kubectl slipway why operation/{operation['metadata']['name']}")
    return Exit.PROBLEM


def _duration(step: dict[str, Any]) -> str:
    begun, ended = parse_time(step.get("startedAt") or ""), parse_time(step.get("finishedAt") or "")
    if begun is None or ended is None:
        return ""
    return render_seconds((ended - begun).total_seconds())
