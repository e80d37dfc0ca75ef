"""Discovery: which groups, versions and resources are served."""

from __future__ import annotations

from libs.common.kinds import Manifest
from libs.common.testing.fakeapi.registry import VERBS, Registry, Resource, Version

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
_SUBRESOURCE_VERBS = ("get", "patch", "update")


def render_discovery(registry: Registry, path: str) -> Manifest | None:
    """Return the discovery document at a path, or None when there is none."""
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["version"]:
            return dict(VERSION)
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": _groups(registry)}
        case ["api", version]:
            return _resources(registry, "", version)
        case ["apis", group]:
            found = [g for g in _groups(registry) if g["name"] == group]
            return {"kind": "APIGroup", "apiVersion": "v1", **found[0]} if found else None
        case ["apis", group, version]:
            return _resources(registry, group, version)
    return None


def _groups(registry: Registry) -> list[Manifest]:
    versions: dict[str, dict[str, None]] = {}
    for resource in registry:
        if resource.group:
            known = versions.setdefault(resource.group, {})
            known.update(dict.fromkeys(sorted(resource.versions, key=_priority)))
    groups = []
    for group, names in versions.items():
        entries = [
            {"groupVersion": f"{group}/{name}", "version": name}
            for name in sorted(names, key=_priority)
        ]
        groups.append({"name": group, "versions": entries, "preferredVersion": entries[0]})
    return groups


def _priority(version: str) -> tuple[int, int]:
    """Order versions as discovery does: stable ones first, the newest of them first."""
    digits = version[1:].replace("alpha", " ").replace("beta", " ").split()
    number = int(digits[0]) if digits and digits[0].isdigit() else 0
    rank = 2 if "alpha" in version else 1 if "beta" in version else 0
    return rank, -number


def _resources(registry: Registry, group: str, version: str) -> Manifest | None:
    entries: list[Manifest] = []
    for resource in registry:
        found = resource.versions.get(version)
        if resource.group == group and found is not None:
            entries.append(_entry(resource))
            entries.extend(_subresource(resource, found, name) for name in found.subresources)
    if not entries:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": entries,
    }


def _entry(resource: Resource) -> Manifest:
    entry: Manifest = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs or VERBS),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    return entry


def _subresource(resource: Resource, version: Version, name: str) -> Manifest:
    declared = {} if resource.custom else version.subresources[name]
    entry: Manifest = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": declared.get("kind", resource.kind),
        "verbs": declared.get("verbs", list(_SUBRESOURCE_VERBS)),
    }
    entry.update({key: declared[key] for key in ("group", "version") if key in declared})
    if name == "scale":
        entry.update(group="autoscaling", version="v1", kind="Scale")
    return entry
