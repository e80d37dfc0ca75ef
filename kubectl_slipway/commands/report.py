"""`kubectl slipway report`: one archive for a bug report, without Secrets and credentials."""

from __future__ import annotations

import argparse
import json
import re
import zipfile
from pathlib import Path
from typing import Any

from kubectl_slipway import __version__
from kubectl_slipway.cluster import Cluster
from kubectl_slipway.commands.status import build_report
from kubectl_slipway.errors import ApiError, Exit, PluginError

_SECRET_KEY = re.compile(
    r"(?i)password|passwd|token|secret|private|credential|authorization",
)
_CLOUD_INIT = frozenset({"userData", "userDataBase64", "networkData", "networkDataBase64"})
_URL_LOGIN = re.compile(r"(://)[^/@\s]+@")
_LONG = re.compile(r"(?i)\b(bearer\s+|password=|token=)\S+")


def run(cluster: Cluster, options: argparse.Namespace) -> Exit:
    """Write the archive and print its contents."""
    files = collect(cluster)
    path = Path(options.file)
    try:
        with zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED) as archive:
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


def collect(cluster: Cluster) -> dict[str, str]:
    """Collect status, objects, operators, Events and logs, redacted; no Secret is read."""
    files = {
        "version.json": _render({"plugin": __version__, "server": cluster.api.get("/version")}),
        "status.json": _render(build_report(cluster)),
    }
    for resource, manifest in cluster.list_ours(None):
        meta = manifest["metadata"]
        folder = f"objects/{meta.get('namespace') or '_cluster'}"
        files[f"{folder}/{resource.plural}-{meta['name']}.json"] = _render(manifest)
    events = cluster.try_list("/apis/events.k8s.io/v1/events") or []
    kinds = {each.kind for each in cluster.catalog.ours}
    ours = [each for each in events if (each.get("regarding") or {}).get("kind") in kinds]
    files["events.json"] = _render(ours)
    for operator in cluster.operators or ():
        for pod in operator.pods:
            meta = pod["metadata"]
            files[f"operators/{meta['name']}.json"] = _render(pod)
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/log"
            try:
                lines = [redact_text(e) for e in cluster.api.text(path, {"tailLines": "2000"})]
            except ApiError as err:
                lines = [err.message]
            files[f"operators/{meta['name']}.log"] = "\n".join(lines) + "\n"
    return files


def redact(value: Any, key: str = "") -> Any:
    """Redact values that may be secret; keep the names of Secrets and of their keys."""
    if isinstance(value, dict):
        named = _SECRET_KEY.search(str(value.get("name", ""))) and "value" in value
        return {
            each: "REDACTED" if named and each == "value" else redact(inner, each)
            for each, inner in value.items()
            # The annotation of kubectl apply holds the whole object as text.
            if each not in ("managedFields", "kubectl.kubernetes.io/last-applied-configuration")
        }
    if isinstance(value, list):
        return [redact(each, key) for each in value]
    if isinstance(value, str):
        if key in _CLOUD_INIT or (_SECRET_KEY.search(key) and not key.endswith(("Name", "Ref"))):
            return "REDACTED"
        return redact_text(value)
    return value


def redact_text(text: str) -> str:
    """Redact credentials in URLs and tokens in a text."""
    return _LONG.sub(r"\1REDACTED", _URL_LOGIN.sub(r"\1REDACTED@", text))


def _render(value: Any) -> str:
    return json.dumps(redact(value), indent=1, ensure_ascii=False) + "\n"
