"""`kubectl slipway report`: one archive for a bug report, without Secrets and credentials."""

from __future__ import annotations

import argparse
import json
import os
import zipfile
from pathlib import Path
from typing import Any

from kubectl_slipway import __version__
from kubectl_slipway.cluster import Cluster, Gatherer
from kubectl_slipway.commands.status import build_report
from kubectl_slipway.discovery import Resource
from kubectl_slipway.errors import ApiError, Exit, PluginError
from kubectl_slipway.redaction import REDACTED, redact, redact_text

_OPAQUE = frozenset(
    {"userData", "userDataBase64", "networkData", "networkDataBase64", "volumeAttributes"}
)
"""Cloud-init documents, and what a CSI driver gets."""
_DROPPED = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})
_COMMANDS = frozenset({"args", "command"})
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_UNLIMITED = -1_000
"""Depth at which manifests begin, so that the library's limit for log lines does not apply."""


def run(cluster: Cluster, options: argparse.Namespace) -> Exit:
    """Write the archive and print its contents."""
    files = collect(cluster, cluster.api.kubectl.flag("namespace"))
    path = Path(options.file)
    try:
        # Only the own user may read it.
        with (
            os.fdopen(os.open(path, _CREATE, 0o600), "wb") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            for name, content in files.items():
                archive.writestr(name, content)
    except FileExistsError as err:
        raise PluginError(f"{path} exists already.", "Choose another --file.", Exit.USAGE) from err
    except OSError as err:
        raise PluginError(f"Cannot write {path}: {err.strerror}", "", Exit.USAGE) from err
    print(
        f"{path}: {len(files)} files. Read them before you send them:"
        " they contain names and labels."
    )
    return Exit.OK


def collect(cluster: Cluster, namespace: str = "") -> dict[str, str]:
    """Collect status, objects, operators, Events and logs, redacted; no Secret is read.

    Args:
        cluster: The cluster.
        namespace: Whose objects to collect; empty for all namespaces.
    """
    files = {
        "version.json": render({"plugin": __version__, "server": cluster.api.get("/version")}),
        "status.json": render(build_report(cluster, namespace or None)),
    }
    objects = cluster.list_ours(namespace or None)
    names = {each["metadata"].get("namespace") or "" for _, each in objects}
    owned = {name: Gatherer(cluster, name) for name in names}
    uids = set()
    for resource, manifest in objects:
        _add_object(files, "objects", resource, manifest)
        uids.add(manifest["metadata"]["uid"])
        below = owned[manifest["metadata"].get("namespace") or ""]
        for kind, child in below.list_descendants(manifest["metadata"]["uid"]):
            _add_object(files, "children", kind, child)
            uids.add(child["metadata"]["uid"])
    where = f"namespaces/{namespace}/" if namespace else ""
    events = cluster.try_list(f"/apis/events.k8s.io/v1/{where}events") or []
    ours = [each for each in events if (each.get("regarding") or {}).get("uid") in uids]
    files["events.json"] = render(ours)
    files["crds.json"] = render(_list_crds(cluster))
    if cluster.refused:
        files["unreadable.json"] = render(cluster.refused)
    for operator in cluster.operators or ():
        path = f"/apis/apps/v1/namespaces/{operator.namespace}/deployments/{operator.release}"
        name = f"operators/{operator.namespace}-{operator.release}.json"
        files[name] = render(cluster.api.find(path), f"{operator.id.upper()}_")
        for pod in operator.pods:
            meta = pod["metadata"]
            # The chart writes settings with this prefix; they contain no credentials by design.
            files[f"operators/{meta['name']}.json"] = render(pod, f"{operator.id.upper()}_")
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/log"
            try:
                lines = [redact_text(e) for e in cluster.api.text(path, {"tailLines": "2000"})]
            except ApiError as err:
                lines = [err.message]
            files[f"operators/{meta['name']}.log"] = "\n".join(lines) + "\n"
    return files


def _add_object(
    files: dict[str, str], folder: str, resource: Resource, manifest: dict[str, Any]
) -> None:
    meta = manifest["metadata"]
    place = f"{folder}/{meta.get('namespace') or '_cluster'}"
    files[f"{place}/{resource.plural}-{meta['name']}.json"] = render(manifest)


def _list_crds(cluster: Cluster) -> list[dict[str, Any]]:
    """Return which versions of the kinds are served and stored, and which chart installed them."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    wanted = {each.qualified for each in cluster.catalog.ours}
    return [
        {
            "name": each["metadata"]["name"],
            "labels": each["metadata"].get("labels"),
            "versions": [version["name"] for version in each["spec"]["versions"]],
            "storedVersions": (each.get("status") or {}).get("storedVersions"),
        }
        for each in cluster.try_list(path) or ()
        if each["metadata"]["name"] in wanted
    ]


def hide_literals(value: Any, kept: str = "") -> Any:
    """Replace what users write into pod templates, which may be secret under any name.

    These are values of environment variables and of headers of probes, arguments, commands,
    attributes of volumes and cloud-init documents.

    Args:
        value: A manifest or a part of one.
        kept: Prefix of environment variables whose values stay.
    """
    if isinstance(value, list):
        return [hide_literals(each, kept) for each in value]
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {}
    for key, inner in value.items():
        if key in _DROPPED:
            continue
        if key in _OPAQUE or (key in _COMMANDS and isinstance(inner, list)):
            result[key] = REDACTED
        elif key in ("env", "httpHeaders") and isinstance(inner, list):
            result[key] = [_hide_variable(each, kept) for each in inner]
        else:
            result[key] = hide_literals(inner, kept)
    return result


def _hide_variable(entry: Any, kept: str) -> Any:
    if not isinstance(entry, dict) or "value" not in entry:
        return entry
    is_setting = kept and str(entry.get("name", "")).startswith(kept)
    return entry if is_setting else {**entry, "value": REDACTED}


def render(value: Any, kept: str = "") -> str:
    """Render a file of the archive, without credentials."""
    try:
        shown = redact(hide_literals(value, kept), _UNLIMITED)
        return json.dumps(shown, indent=1, ensure_ascii=False) + "\n"
    except RecursionError:
        return '"nested too deeply to be shown"\n'
