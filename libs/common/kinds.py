"""Kinds of Kubernetes objects, and how to name and address one object.

A `Kind` contains the result of discovery: group, version, kind and plural. It is a constant, so
that clients can build paths without a request to the API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

type Manifest = dict[str, Any]
"""A raw Kubernetes object, as decoded from JSON."""


class Key(NamedTuple):
    """Namespace and name of an object."""

    namespace: str
    """Namespace of the object; empty for cluster-scoped kinds."""
    name: str
    """Name of the object, unique in its namespace."""

    def __str__(self) -> str:
        """Render as `namespace/name`, or as `name` for cluster-scoped kinds."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Kind:
    """A version of a kind.

    Attributes:
        group: API group; empty for the core group.
        version: Served version, such as `v1alpha1`.
        kind: Name in manifests, such as `PodSet`.
        plural: Resource name in paths, such as `podsets`.
        namespaced: Whether objects live in namespaces.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @classmethod
    def of(cls, api_version: str, kind: str, plural: str = "", *, namespaced: bool = True) -> Self:
        """Return a kind that this module does not name: `Kind.of("batch/v1", "Job")`.

        Args:
            api_version: Value of `apiVersion` in manifests.
            kind: Name in manifests.
            plural: Resource name in paths; by default the plural by the rules of English.
            namespaced: Whether objects live in namespaces.
        """
        group, _, version = api_version.rpartition("/")
        return cls(group, version, kind, plural or pluralize(kind.lower()), namespaced)

    def __str__(self) -> str:
        """Render as `kind.group/version`, the form used in logs and errors."""
        return f"{self.kind}.{self.api_version}" if self.group else self.kind

    @property
    def api_version(self) -> str:
        """Value of `apiVersion` in manifests."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """Resource with its group, as used by RBAC and errors: `podsets.batch.example.com`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def base_path(self) -> str:
        """Path of the group and version on the API server."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Build the path of a collection, an object or a subresource.

        Args:
            namespace: Namespace; empty for all namespaces or for a cluster-scoped kind.
            name: Object name; empty for the collection.
            subresource: Subresource such as `status`; requires a name.
        """
        parts = [self.base_path]
        if self.namespaced and namespace:
            parts.append(f"namespaces/{namespace}")
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    def matches(self, manifest: Mapping[str, Any]) -> bool:
        """Return whether a manifest has this kind and group, in any version."""
        group = str(manifest.get("apiVersion", "")).rpartition("/")[0]
        return manifest.get("kind") == self.kind and group == self.group


def pluralize(word: str) -> str:
    """Return the plural of the name of a kind in lower case: backups, policies, classes."""
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "ch", "sh")) else f"{word}s"


def build_object(
    kind: Kind,
    name: str,
    namespace: str = "",
    /,
    *,
    metadata: Mapping[str, Any] | None = None,
    **parts: Any,
) -> Manifest:
    """Build a manifest.

    Args:
        kind: Kind of the object.
        name: Name of the object.
        namespace: Namespace of the object; omitted for cluster-scoped kinds.
        metadata: Further metadata, such as labels.
        **parts: Further top-level fields, such as `spec`.
    """
    place = {"namespace": namespace} if namespace and kind.namespaced else {}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, **place, **(metadata or {})},
        **parts,
    }


def key_of(manifest: Mapping[str, Any]) -> Key:
    """Return the key of an object that has a name."""
    metadata = manifest["metadata"]
    return Key(metadata.get("namespace") or "", metadata["name"])


def uid_of(manifest: Mapping[str, Any]) -> str:
    """Return the UID of an object, or an empty string if it has none yet."""
    return manifest.get("metadata", {}).get("uid") or ""


def identity_of(manifest: Mapping[str, Any]) -> str:
    """Return the UID of an object, or its key: objects of some aggregated APIs have no UID."""
    return uid_of(manifest) or str(key_of(manifest))


def version_of(manifest: Mapping[str, Any]) -> int:
    """Return the resourceVersion as a number, or 0 if it is absent or not a number.

    Kubernetes compares resource versions of one resource as integers since KEP-5504; the
    consistency store of its own controllers relies on it. Aggregated APIs may return other texts,
    which can only be compared for equality.
    """
    return parse_version(version_text(manifest))


def version_text(manifest: Mapping[str, Any]) -> str:
    """Return the resourceVersion as it is, or an empty text if it is absent."""
    return manifest.get("metadata", {}).get("resourceVersion") or ""


def parse_version(text: str) -> int:
    """Return a resource version as a number, or 0 if it is not a number."""
    return int(text) if text.isascii() and text.isdecimal() else 0


def is_outdated(text: str, other: str) -> bool:
    """Return whether a resource version is not as new as another one of the same object.

    Versions that are no numbers have no order, so one that differs or is absent counts as outdated.
    """
    mine, theirs = parse_version(text), parse_version(other)
    return mine < theirs if mine and theirs else text != other or not text


def is_deleting(manifest: Mapping[str, Any]) -> bool:
    """Return whether the object is being deleted."""
    return bool(manifest.get("metadata", {}).get("deletionTimestamp"))


def describe(kind: Kind, key: Key) -> str:
    """Return the name of an object for messages: `PodSet default/web`."""
    return f"{kind.kind} {key}"


POD: Final = Kind("", "v1", "Pod", "pods")
NODE: Final = Kind("", "v1", "Node", "nodes", namespaced=False)
NAMESPACE: Final = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
SECRET: Final = Kind("", "v1", "Secret", "secrets")
CONFIG_MAP: Final = Kind("", "v1", "ConfigMap", "configmaps")
SERVICE: Final = Kind("", "v1", "Service", "services")
SERVICE_ACCOUNT: Final = Kind("", "v1", "ServiceAccount", "serviceaccounts")
PVC: Final = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
PV: Final = Kind("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False)
CORE_EVENT: Final = Kind("", "v1", "Event", "events")
EVENT: Final = Kind("events.k8s.io", "v1", "Event", "events")
LEASE: Final = Kind("coordination.k8s.io", "v1", "Lease", "leases")
DEPLOYMENT: Final = Kind("apps", "v1", "Deployment", "deployments")
CONTROLLER_REVISION: Final = Kind("apps", "v1", "ControllerRevision", "controllerrevisions")
REPLICA_SET: Final = Kind("apps", "v1", "ReplicaSet", "replicasets")
STORAGE_CLASS: Final = Kind.of("storage.k8s.io/v1", "StorageClass", namespaced=False)
CRD: Final = Kind.of("apiextensions.k8s.io/v1", "CustomResourceDefinition", namespaced=False)
NETWORK_POLICY: Final = Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
ENDPOINT_SLICE: Final = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
ENDPOINTS: Final = Kind("", "v1", "Endpoints", "endpoints")
"""Endpoints of a Service in the older form, for programs that do not read EndpointSlices."""
POD_DISRUPTION_BUDGET: Final = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
ROLE: Final = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles")
ROLE_BINDING: Final = Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
CLUSTER_ROLE: Final = Kind.of("rbac.authorization.k8s.io/v1", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDING: Final = Kind.of(
    "rbac.authorization.k8s.io/v1", "ClusterRoleBinding", namespaced=False
)
MUTATING_WEBHOOK_CONFIGURATION: Final = Kind.of(
    "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", namespaced=False
)
VALIDATING_WEBHOOK_CONFIGURATION: Final = Kind.of(
    "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", namespaced=False
)


def drop_nulls(value: Any) -> Any:
    """Return a JSON value without the fields that are null, at any depth."""
    if isinstance(value, dict):
        return {name: drop_nulls(child) for name, child in value.items() if child is not None}
    return [drop_nulls(item) for item in value] if isinstance(value, list) else value
