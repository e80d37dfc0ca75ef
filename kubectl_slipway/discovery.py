"""The kinds that the API server serves, and their names for users."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kubectl_slipway.api import Api
from kubectl_slipway.errors import ApiError, Exit, PluginError
from kubectl_slipway.model import known_kinds

CATEGORY = "slipway"
"""Category of all kinds of the operators."""

_AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,"
    "application/json"
)


@dataclass(frozen=True)
class Resource:
    """One kind in the preferred version of its group."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """Value of `apiVersion` in manifests."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """Plural and group, as `kubectl get` takes it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Build the path of a collection, an object or a subresource."""
        parts = [f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"]
        if self.namespaced and namespace:
            parts.append(f"namespaces/{namespace}")
        parts += [each for each in (self.plural, name, subresource) if each]
        return "/".join(parts)


class Catalog:
    """The kinds that an API server serves."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        """Keep the kinds; lookups prefer kinds of the operators."""
        self.resources = sorted(resources, key=lambda each: CATEGORY not in each.categories)

    @property
    def ours(self) -> list[Resource]:
        """Kinds of the operators."""
        return [each for each in self.resources if CATEGORY in each.categories]

    def get(self, group: str, kind: str) -> Resource | None:
        """Return a kind by group and name, or None."""
        return next((e for e in self.resources if (e.group, e.kind) == (group, kind)), None)

    def of(self, manifest: dict[str, Any]) -> Resource | None:
        """Return the kind of an object, or None."""
        group = str(manifest.get("apiVersion", "")).rpartition("/")[0]
        return self.get(group, str(manifest.get("kind", "")))

    def find(self, word: str) -> Resource:
        """Return a kind by any of its names: kind, plural, short name, plural.group.

        Raises:
            PluginError: No kind has the name.
        """
        wanted = word.lower()
        for each in self.resources:
            names = {each.kind.lower(), each.plural, each.qualified, *each.short_names}
            if wanted in names:
                return each
        known = ", ".join(sorted(each.kind for each in self.ours)) or "none: no CRD is installed"
        raise PluginError(
            f"The API server has no kind {word!r}.",
            _name_chart(wanted) or f"Kinds of the operators: {known}.",
            Exit.NOT_FOUND,
        )


def _name_chart(word: str) -> str:
    """Return which chart installs a kind that the server lacks; nothing for unknown kinds."""
    for kind, each in known_kinds().items():
        if word in {kind.lower(), f"{kind.lower()}s", f"{kind.lower()}s.{each['group']}"}:
            return (
                f"Its CRD is not installed: helm install {each['operator']} "
                f"oci://REGISTRY/charts/{each['operator']} -n NAMESPACE"
            )
    return ""


def discover(api: Api) -> Catalog:
    """Ask the API server for its kinds: two requests, or one per group on old servers."""
    documents = api.parallel(lambda path: api.get(path, accept=_AGGREGATED), ("/api", "/apis"))
    found: list[Resource] = []
    for document in documents:
        if document.get("kind") == "APIGroupDiscoveryList":
            found += _read_aggregated(document)
        else:
            found += _ask_groups(api, document)
    return Catalog(found)


def _read_aggregated(document: dict[str, Any]) -> list[Resource]:
    found: dict[tuple[str, str], Resource] = {}
    for group in document["items"]:
        name = (group.get("metadata") or {}).get("name") or ""
        for version in group.get("versions") or ():
            for each in version.get("resources") or ():
                kind = (each.get("responseKind") or {}).get("kind") or ""
                resource = Resource(
                    name,
                    version["version"],
                    kind,
                    each["resource"],
                    each.get("scope") == "Namespaced",
                    tuple(each.get("shortNames") or ()),
                    tuple(each.get("categories") or ()),
                )
                found.setdefault((name, each["resource"]), resource)
    return list(found.values())


def _ask_groups(api: Api, document: dict[str, Any]) -> list[Resource]:
    if document.get("kind") == "APIVersions":
        paths = [("", "v1", "/api/v1")]
    else:
        paths = []
        for group in document.get("groups") or ():
            version = group["preferredVersion"]["version"]
            paths.append((group["name"], version, f"/apis/{group['name']}/{version}"))
    return [each for part in api.parallel(lambda p: _read_group(api, *p), paths) for each in part]


def _read_group(api: Api, group: str, version: str, path: str) -> Sequence[Resource]:
    try:
        document = api.get(path)
    except ApiError:
        # An aggregated API that does not respond must not stop the others.
        return ()
    return [
        Resource(
            group,
            version,
            each["kind"],
            each["name"],
            each.get("namespaced", False),
            tuple(each.get("shortNames") or ()),
            tuple(each.get("categories") or ()),
        )
        for each in document.get("resources") or ()
        if "/" not in each["name"]
    ]
