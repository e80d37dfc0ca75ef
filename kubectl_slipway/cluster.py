"""Read the cluster: operators, objects, and all facts for a diagnosis."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from kubectl_slipway.api import Api
from kubectl_slipway.diagnosis.findings import Facts, Reference
from kubectl_slipway.diagnosis.general import event_time
from kubectl_slipway.discovery import Catalog, Resource, discover
from kubectl_slipway.errors import ApiError, Exit, PluginError
from kubectl_slipway.model import known_kinds, owner_uids, readiness
from kubectl_slipway.operators import NAME, SELECTOR, Operator, build_operators

Json = dict[str, Any]

_CHILD_KINDS = (
    ("", "Pod"),
    ("", "PersistentVolumeClaim"),
    ("", "Service"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("autoscaling", "HorizontalPodAutoscaler"),
    ("batch", "Job"),
    ("cdi.kubevirt.io", "DataVolume"),
    ("k8s.cni.cncf.io", "NetworkAttachmentDefinition"),
    ("keda.sh", "ScaledObject"),
    ("kubevirt.io", "VirtualMachine"),
    ("kubevirt.io", "VirtualMachineInstance"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("snapshot.storage.k8s.io", "VolumeSnapshot"),
)
"""Kinds that operators create; kinds of the operators themselves are added."""
_REFERENCES: dict[str, tuple[tuple[str, str], ...]] = {
    "Instance": (("spec.size", "InstanceSize"), ("spec.publicIP.claimName", "IPClaim")),
    "IPClaim": (("spec.secondary.poolRef.name", "IPPool"),),
    "Operation": (("spec.targetRef.name", "Instance"),),
}
"""Reference fields whose name does not contain the kind; `<kind>Ref` needs no entry."""
_VERBS = {"": ["list", "watch"]}
"""Permissions that every operator needs on its kinds."""
_DEPTH = 4


class Cluster:
    """One cluster, read on demand."""

    def __init__(self, api: Api) -> None:
        """Keep the connection."""
        self.api = api
        self.now = datetime.now(UTC)
        self.notes: list[str] = []
        self.refused: dict[str, str] = {}
        """Collections of operators and their objects that could not be read completely."""

    @property
    def namespace(self) -> str:
        """The namespace of the command."""
        return self.api.kubectl.namespace

    @cached_property
    def catalog(self) -> Catalog:
        """The kinds that the API server serves."""
        return discover(self.api)

    @cached_property
    def operators(self) -> list[Operator] | None:
        """The installed operators; None if Deployments cannot be read."""
        paths = {
            "deployments": ("/apis/apps/v1/deployments", SELECTOR),
            "pods": ("/api/v1/pods", SELECTOR),
            "leases": ("/apis/coordination.k8s.io/v1/leases", ""),
        }
        found = dict(
            zip(paths, self.api.parallel(lambda p: self.try_list(*p), paths.values()), strict=True)
        )
        if found["deployments"] is None:
            self.refuse(
                "deployments.apps", "Operators are not shown: you may not list Deployments."
            )
            return None
        return build_operators(found["deployments"], found["pods"] or (), found["leases"] or ())

    @cached_property
    def kind_operators(self) -> dict[str, str]:
        """The operator of each kind, by qualified plural, from the labels of the CRDs."""
        listed = self.try_list("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        by_label = {
            each["metadata"]["name"]: (each["metadata"].get("labels") or {}).get(NAME, "")
            for each in listed or ()
        }
        known = {
            f"{kind}.{each['group']}": each["operator"] for kind, each in known_kinds().items()
        }
        return {
            each.qualified: by_label.get(each.qualified)
            or known.get(f"{each.kind}.{each.group}", "")
            for each in self.catalog.ours
        }

    @cached_property
    def namespaces(self) -> dict[str, Json] | None:
        """Namespaces by name; None if they cannot be listed."""
        listed = self.try_list("/api/v1/namespaces")
        return None if listed is None else {each["metadata"]["name"]: each for each in listed}

    def refuse(self, what: str, note: str) -> None:
        """Record a collection that the user may not read, so that the result is incomplete."""
        self.refused[what] = note
        self.notes.append(note)

    def try_list(self, path: str, selector: str = "") -> list[Json] | None:
        """List a collection: nothing if it is not served, None if it is forbidden."""
        try:
            return self.api.list(path, selector)
        except ApiError as err:
            if err.status not in (403, 404, 405):
                raise
            return None if err.status == 403 else []

    def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        """Return an object.

        Raises:
            PluginError: It does not exist.
        """
        where = (namespace or self.namespace) if resource.namespaced else ""
        found = self.api.find(resource.path(where, name))
        if found is None:
            at = f" in namespace {where}" if where else ""
            raise PluginError(
                f"{resource.kind} {name} does not exist{at}.",
                f"kubectl get {resource.qualified}{' -A' if where else ''} lists what exists.",
                Exit.NOT_FOUND,
            )
        return found

    def parse_target(self, text: str, second: str = "") -> tuple[Resource, str]:
        """Parse `KIND/NAME` or `KIND NAME`.

        Raises:
            PluginError: The words have another form.
        """
        kind, slash, name = text.partition("/")
        if second and not slash:
            name = second
        if not kind or not name:
            raise PluginError(
                f"{text!r} is not an object.", "Write KIND/NAME, such as podset/web.", Exit.USAGE
            )
        return self.catalog.find(kind), name

    def require(self, group: str, kind: str, operator: str) -> Resource:
        """Return a kind of an operator.

        Raises:
            PluginError: The API server does not serve it, so the operator is not installed.
        """
        found = self.catalog.get(group, kind)
        if found is None:
            raise PluginError(
                f"The API server has no kind {kind}.{group}.",
                f"Install the {operator} operator: helm install {operator} helm/{operator}",
                Exit.NOT_FOUND,
            )
        return found

    def list_ours(self, namespace: str | None, selector: str = "") -> list[tuple[Resource, Json]]:
        """List the objects of all kinds of the operators; None means all namespaces."""

        def read(resource: Resource) -> list[tuple[Resource, Json]]:
            # Objects of the cluster belong to no namespace, and are listed with all of them.
            where = (namespace or "") if resource.namespaced else ""
            listed = self.try_list(resource.path(where), selector)
            if listed is None and resource.namespaced and not where:
                listed = self._list_readable(resource, selector)
            elif listed is None:
                self.refuse(resource.qualified, f"You may not list {resource.qualified}.")
            return [(resource, each) for each in listed or ()]

        # Read once, before threads ask for it.
        _ = self.namespaces
        return [each for part in self.api.parallel(read, self.catalog.ours) for each in part]

    def _list_readable(self, resource: Resource, selector: str) -> list[Json]:
        """List a kind in the namespaces that the user may read, and record the others."""
        names = sorted({*(self.namespaces or ()), self.namespace})
        found = {name: self.try_list(resource.path(name), selector) for name in names}
        readable = [name for name, listed in found.items() if listed is not None]
        shown = f"only namespace {', '.join(readable)}" if readable else "nothing"
        note = f"You may not list {resource.qualified} in all namespaces: {shown} is shown."
        self.refuse(resource.qualified, note)
        return [each for listed in found.values() for each in listed or ()]

    def operator_id(self, resource: Resource) -> str:
        """Return the operator of a kind; empty for kinds that have none."""
        return self.kind_operators.get(resource.qualified, "")

    def gather(self, resource: Resource, manifest: Json) -> Facts:
        """Read all facts about an object, its children and the objects to which it refers."""
        return Gatherer(self, manifest["metadata"].get("namespace") or "").gather(
            resource, manifest, 0
        )


class Gatherer:
    """Reads facts about the objects of one namespace; each collection is read once."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        """Start without any data."""
        self._cluster = cluster
        self._namespace = namespace
        self._denied: dict[str, tuple[str, ...]] = {}

    def list_descendants(self, uid: str) -> list[tuple[Resource, Json]]:
        """Return what an object owns, and what that owns in turn."""
        found = list(self._by_owner.get(uid, ()))
        return found + [
            below for _, each in found for below in self.list_descendants(each["metadata"]["uid"])
        ]

    @cached_property
    def _by_owner(self) -> dict[str, list[tuple[Resource, Json]]]:
        catalog = self._cluster.catalog
        kinds = [catalog.get(*each) for each in _CHILD_KINDS]
        wanted = [each for each in kinds if each is not None] + catalog.ours
        if not self._namespace:
            wanted = [each for each in wanted if not each.namespaced]

        denied: list[str] = []

        def read(resource: Resource) -> list[tuple[Resource, Json]]:
            where = self._namespace if resource.namespaced else ""
            listed = self._cluster.try_list(resource.path(where))
            if listed is None:
                denied.append(resource.qualified)
            return [(resource, each) for each in listed or ()]

        found: dict[str, list[tuple[Resource, Json]]] = defaultdict(list)
        for part in self._cluster.api.parallel(read, wanted):
            for resource, each in part:
                for uid in owner_uids(each):
                    found[uid].append((resource, each))
        if denied:
            self._cluster.notes.append(
                f"You may not list {', '.join(sorted(denied))}{self._where}: causes that only they "
                "show are missing."
            )
        return found

    @property
    def _where(self) -> str:
        return f" in namespace {self._namespace}" if self._namespace else ""

    @cached_property
    def _events(self) -> dict[str, list[Json]]:
        path = f"/apis/events.k8s.io/v1/namespaces/{self._namespace or 'default'}/events"
        found: dict[str, list[Json]] = defaultdict(list)
        listed = self._cluster.try_list(path)
        for each in sorted(listed or (), key=event_time):
            found[str((each.get("regarding") or {}).get("uid", ""))].append(each)
        if listed is None:
            self._cluster.notes.append(f"You may not list Events{self._where}: they are missing.")
        return found

    def gather(self, resource: Resource, manifest: Json, depth: int) -> Facts:
        """Read the facts about one object."""
        cluster, uid = self._cluster, manifest["metadata"].get("uid", "")
        id = cluster.operator_id(resource)
        operators = cluster.operators if id else None
        mine = None if operators is None else [each for each in operators if each.id == id]
        children = () if depth >= _DEPTH else self._by_owner.get(uid, ())
        namespaces = cluster.namespaces or {}
        return Facts(
            manifest=manifest,
            resource=resource,
            now=cluster.now,
            operator_id=id,
            operators=mine,
            namespace=namespaces.get(self._namespace),
            denied=self._find_denied(resource, mine or ()) if depth == 0 else (),
            events=self._events.get(uid, ()),
            children=[self.gather(kind, each, depth + 1) for kind, each in children],
            references=[] if depth >= _DEPTH else list(self._find_references(manifest, depth)),
        )

    def _find_references(self, manifest: Json, depth: int) -> Iterable[Reference]:
        for field, kind, name in find_references(manifest, self._cluster.catalog):
            resource = next((e for e in self._cluster.catalog.ours if e.kind == kind), None)
            if resource is None:
                continue
            where = self._namespace if resource.namespaced else ""
            try:
                found = self._cluster.api.find(resource.path(where, name))
            except ApiError:
                # An object that cannot be read may exist, so do not report it as missing.
                continue
            facts = None if found is None else self.gather(resource, found, depth + 1)
            if facts is None or not readiness(facts.manifest).ok:
                yield Reference(field, kind, name, facts)

    def _find_denied(self, resource: Resource, operators: Sequence[Operator]) -> tuple[str, ...]:
        labels: Mapping[str, str] = {}
        if self._cluster.namespaces and self._namespace in self._cluster.namespaces:
            labels = self._cluster.namespaces[self._namespace]["metadata"].get("labels") or {}
        watching = [each for each in operators if each.watches(self._namespace, labels)]
        if not watching:
            return ()
        verbs = (known_kinds().get(resource.kind) or {}).get("verbs") or _VERBS
        user = watching[0].service_account
        asked = [(user, verb, part) for part, listed in verbs.items() for verb in listed]
        results = self._cluster.api.parallel(lambda each: self._is_denied(resource, *each), asked)
        denied: dict[str, list[str]] = defaultdict(list)
        for (_, verb, part), refused in zip(asked, results, strict=True):
            if refused:
                denied[f"{resource.plural}/{part}" if part else resource.plural].append(verb)
        return tuple(f"{', '.join(listed)} {what}" for what, listed in denied.items())

    def _is_denied(self, resource: Resource, user: str, verb: str, subresource: str) -> bool:
        attributes = {
            "namespace": self._namespace if resource.namespaced else "",
            "verb": verb,
            "group": resource.group,
            "resource": resource.plural,
            "subresource": subresource,
        }
        namespace = user.split(":")[2]
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user,
                "groups": [*groups, "system:authenticated"],
                "resourceAttributes": attributes,
            },
        }
        try:
            path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
            allowed = self._cluster.api.create(path, review)["status"].get("allowed")
        except ApiError:
            # Only administrators may ask about others; for anyone else this check is left out.
            return False
        return not allowed


def find_references(manifest: Json, catalog: Catalog) -> list[tuple[str, str, str]]:
    """Find the objects that a spec names, as (field, kind, name)."""
    kinds = [each.kind for each in catalog.ours]
    found: list[tuple[str, str, str]] = []
    for field, kind in _REFERENCES.get(str(manifest.get("kind")), ()):
        value: Any = manifest
        for part in field.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, str) and value:
            found.append((field, kind, value))
    for key, value in (manifest.get("spec") or {}).items():
        word = key.removesuffix("Ref").lower()
        if not key.endswith("Ref") or not isinstance(value, dict) or not value.get("name"):
            continue
        exact = [each for each in kinds if each.lower() == word]
        similar = exact or [each for each in kinds if each.lower().endswith(word)]
        if len(similar) == 1 or exact:
            found.append((f"spec.{key}", similar[0], str(value["name"])))
    target = (manifest.get("spec") or {}).get("target")
    if isinstance(target, dict) and target.get("kind") in kinds and target.get("name"):
        found.append(("spec.target", target["kind"], target["name"]))
    return list(dict.fromkeys(found))
