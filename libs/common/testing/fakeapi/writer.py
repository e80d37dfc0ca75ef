"""Create, update, patch and apply, with all that the API server does around a write.

Every method is synchronous: between reading and storing nothing else runs, as in a transaction.
"""

from __future__ import annotations

import random
import uuid
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from libs.common.kinds import Key, Manifest
from libs.common.testing.fakeapi import strategies
from libs.common.testing.fakeapi.configs import check_config, strip_config
from libs.common.testing.fakeapi.decode import Target, WriteOptions, check_valid, decode
from libs.common.testing.fakeapi.defaults import admit
from libs.common.testing.fakeapi.extensions import Admission, Review
from libs.common.testing.fakeapi.identity import (
    KEPT_BY_UPDATE,
    carry_over,
    changes_generation,
    check_finalizers,
    check_identity,
    check_names,
    check_preconditions,
    is_finished,
)
from libs.common.testing.fakeapi.managers import ManagerId, Managers, is_same
from libs.common.testing.fakeapi.registry import Registry, Table
from libs.common.testing.fakeapi.statuses import (
    already_exists,
    bad_request,
    conflict,
    internal,
    invalid,
    namespace_terminating,
    not_found,
    unversioned,
)
from libs.common.testing.fakeapi.store import Record, Store
from libs.common.testing.fakeapi.validation import apply_defaults
from libs.common.testing.fakeapi.views import to_core_event, to_event_v1

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
NAMESPACES = ("", "namespaces")
_NOT_ENFORCED = {"limitranges", "resourcequotas", "validatingadmissionpolicies"}
_CLAIMS: Table = ("", "persistentvolumeclaims")
_CLASSES: Table = ("storage.k8s.io", "storageclasses")


@dataclass(slots=True)
class WriterSettings:
    """The options of the writer that tests may change.

    Attributes:
        require_namespaces: Whether creating in a namespace that does not exist answers 404.
        track_managers: Whether updates are recorded in `managedFields`; off for fast preloading.
        check_rules: Whether CEL rules are checked; off to store what an older CRD allowed.
    """

    require_namespaces: bool = False
    track_managers: bool = True
    check_rules: bool = True


class Writer:
    """The part of the server that performs writes on a store."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        now: Callable[[], datetime],
        seed: int = 0,
        settings: WriterSettings | None = None,
    ) -> None:
        """Keep the collaborators; the seed decides UIDs and generated names."""
        self.store = store
        self.registry = registry
        self.settings = settings or WriterSettings()
        self.now = now
        self.admission: list[Admission] = []
        self._random = random.Random(seed)

    def timestamp(self) -> str:
        """Return the time as metadata carries it."""
        return self.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def create(self, target: Target, body: Any, options: WriteOptions) -> Record:
        """Create an object.

        Raises:
            StatusError: The name is taken (409), the object is not valid (422 or 400), or its
                namespace is missing (404) or being deleted (403).
        """
        obj = decode(target, body, options)
        if target.resource.table[1] in _NOT_ENFORCED:
            text = f"FakeApi stores {target.resource.table[1]}, but does not enforce them"
            warnings.warn(text, stacklevel=2)
        self._place(target, obj)
        if obj["metadata"].get("resourceVersion"):
            raise internal("resourceVersion should not be set on objects to be created")
        managed = obj["metadata"].pop("managedFields", None)
        return self._insert(
            target,
            obj,
            options,
            Managers(managed or ()),
            ManagerId(options.manager, "Update", target.api_version),
        )

    def update(self, target: Target, body: Any, options: WriteOptions) -> tuple[Record, bool]:
        """Replace an object or a subresource; return whether it was created instead.

        Raises:
            StatusError: Absent (404), changed since (409), or not valid (400, 422).
        """
        current = self.store.get(target.resource.table, target.key)
        if current is None:
            if strategies.creates_on_update(target.resource) and not target.subresource:
                return self.create(replace(target), body, options), True
            raise not_found(target.resource, target.key.name)
        obj = decode(target, body, options)
        check_identity(target, obj)
        if strategies.requires_version(target.resource) and not obj["metadata"].get(
            "resourceVersion"
        ):
            raise unversioned(target.resource, target.key.name)
        return self._replace(target, current, obj, options), False

    def patch(
        self, target: Target, change: Callable[[Manifest], Any], options: WriteOptions
    ) -> Record:
        """Change an object by a function from its present form to the wanted one.

        Raises:
            StatusError: As `update`.
        """
        current = self.store.get(target.resource.table, target.key)
        if current is None:
            raise not_found(target.resource, target.key.name)
        options = replace(options, patching=True)
        obj = decode(target, change(self.present(target, current)), options)
        check_identity(target, obj)
        return self._replace(target, current, obj, options)

    def present(self, target: Target, record: Record) -> Manifest:
        """Return the object in the version that the request speaks; not to be changed."""
        if record.obj["apiVersion"] == target.api_version:
            return record.obj
        if target.resource.group == "events.k8s.io":
            return to_event_v1(record.obj)
        return {**record.obj, "apiVersion": target.api_version}

    def apply(
        self,
        target: Target,
        config: Any,
        options: WriteOptions,
        *,
        authorize_create: Callable[[], None] = lambda: None,
    ) -> tuple[Record, bool]:
        """Apply a configuration (server-side apply); return whether it created the object.

        Raises:
            StatusError: Field conflicts (409), not valid (422), malformed (400).
        """
        check_config(target, config)
        manager = ManagerId(options.manager, "Apply", target.api_version, target.subresource)
        current = self.store.get(target.resource.table, target.key)
        if current is None:
            if target.subresource:
                raise not_found(target.resource, target.key.name)
            authorize_create()
        ignored = strategies.ignored_fields(target.resource, target.version, target.subresource)
        config = strip_config(target, config, ignored[0])
        if current is None:
            return self._apply_new(target, config, options, manager), True
        wanted = config["metadata"].get("resourceVersion")
        if wanted and wanted != current.obj["metadata"]["resourceVersion"]:
            raise conflict(target.resource, target.key.name)
        live = self.present(target, current)
        managers = self._managers_of(live, target)
        merged = managers.apply(
            live,
            config,
            target.version.schema,
            manager,
            force=options.force,
            now=self.timestamp(),
        )
        obj = decode(target, merged, replace(options, validation="Ignore"))
        options = replace(options, patching=True)
        return self._replace(target, current, obj, options, managers), False

    def _apply_new(
        self, target: Target, config: Manifest, options: WriteOptions, manager: ManagerId
    ) -> Record:
        if config["metadata"].get("uid"):
            raise conflict(
                target.resource, target.key.name, "uid mismatch: the object does not exist"
            )
        managers = Managers()
        merged = managers.apply(
            {}, config, target.version.schema, manager, force=True, now=self.timestamp()
        )
        obj = decode(target, merged, replace(options, validation="Ignore"))
        self._place(target, obj)
        return self._insert(target, obj, options, managers, None)

    def _managers_of(self, live: Manifest, target: Target) -> Managers:
        entries = live["metadata"].get("managedFields") or ()
        managers = Managers(entries)
        if not managers:
            # Whatever nobody is recorded for belongs to an unknown earlier writer.
            earlier = ManagerId("before-first-apply", "Update", target.api_version)
            managers.update({}, live, target.version.schema, earlier, now=self.timestamp())
        return managers

    def review(self, target: Target, new: Manifest, old: Manifest | None = None) -> None:
        """Ask the admission webhooks about a write.

        Raises:
            StatusError: One of them refuses it.
        """
        name = target.key.name or (new.get("metadata") or {}).get("name", "")
        review = Review(
            "CREATE" if old is None else "UPDATE",
            target.resource.of_kind(target.version.name),
            Key(target.key.namespace, name),
            target.subresource,
            new,
            old,
        )
        for admission in self.admission:
            admission(review)

    # -- create -------------------------------------------------------------------------------

    def _place(self, target: Target, obj: Manifest) -> None:
        metadata = obj["metadata"]
        if target.resource.namespaced:
            if (metadata.get("namespace") or target.key.namespace) != target.key.namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the "
                    "request"
                )
            metadata["namespace"] = target.key.namespace
            self._check_namespace(target, metadata.get("name", ""))
        else:
            metadata.pop("namespace", None)
        if target.key.name:
            check_names(target, metadata)
        if not metadata.get("name") and metadata.get("generateName"):
            suffix = "".join(self._random.choices(_SUFFIX_ALPHABET, k=5))
            metadata["name"] = metadata["generateName"][:58] + suffix

    def _check_namespace(self, target: Target, name: str) -> None:
        namespace = target.key.namespace
        record = self.store.get(NAMESPACES, Key("", namespace))
        if record is None:
            if self.settings.require_namespaces:
                found = self.registry.find("", "v1", "namespaces")
                assert found is not None
                raise not_found(found[0], namespace)
        elif record.obj["metadata"].get("deletionTimestamp"):
            raise namespace_terminating(target.resource, name, namespace)

    def _insert(
        self,
        target: Target,
        obj: Manifest,
        options: WriteOptions,
        managers: Managers,
        manager: ManagerId | None,
    ) -> Record:
        resource, metadata = target.resource, obj["metadata"]
        for name in (*KEPT_BY_UPDATE[:5], "selfLink", "resourceVersion"):
            metadata.pop(name, None)
        metadata["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        metadata["creationTimestamp"] = self.timestamp()
        if strategies.counts_generations(resource):
            metadata["generation"] = 1
        if "status" in target.version.subresources and not strategies.keeps_status(resource):
            obj.pop("status", None)
        check_valid(target, obj, rules=self.settings.check_rules)
        self.review(target, obj)
        initial = _build_initial_status(target, obj)
        key = Key(metadata.get("namespace", ""), metadata["name"])
        if self.store.get(resource.table, key) is not None:
            raise already_exists(resource, key.name)
        if manager is not None and self.settings.track_managers:
            owned = obj
            if strategies.keeps_status(resource):
                owned = {name: value for name, value in obj.items() if name != "status"}
            managers.update({}, owned, target.version.schema, manager, now=self.timestamp())
        if resource.table == _CLAIMS:
            self._choose_class(obj)
        if managers:
            metadata["managedFields"] = managers.encode()
        if initial is not None:
            obj["status"] = initial
        admit(resource, obj)
        return self._store(target, key, obj, options)

    # -- update -------------------------------------------------------------------------------

    def _replace(
        self,
        target: Target,
        current: Record,
        obj: Manifest,
        options: WriteOptions,
        managers: Managers | None = None,
    ) -> Record:
        old = self.present(target, current)
        resource = target.resource
        check_preconditions(target, old["metadata"], obj["metadata"], patching=options.patching)
        sent = obj["metadata"].pop("managedFields", None)
        carry_over(target, old["metadata"], obj["metadata"])
        if target.subresource == "status":
            obj = strategies.merge_status_write(resource, old, obj)
        elif "status" in target.version.subresources:
            if target.subresource == "ephemeralcontainers":
                obj = strategies.merge_ephemeral_write(old, obj)
            obj.pop("status", None)
            if "status" in old:
                obj["status"] = old["status"]
        check_valid(target, obj, old, rules=self.settings.check_rules)
        causes = check_finalizers(old, obj) + strategies.find_immutable_changes(
            resource, target.subresource, old, obj
        )
        if causes:
            raise invalid(resource, target.key.name, causes)
        self.review(target, obj, old)
        obj["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if changes_generation(target, old, obj):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        self._own(target, old, obj, options, managers, sent)
        if is_same(old, obj):
            return current
        return self._store(target, target.key, obj, options, current)

    def _own(
        self,
        target: Target,
        old: Manifest,
        obj: Manifest,
        options: WriteOptions,
        managers: Managers | None,
        sent: list[Manifest] | None,
    ) -> None:
        metadata = obj["metadata"]
        before = old["metadata"].get("managedFields") or []
        if managers is None:
            if sent == [{}]:
                metadata.pop("managedFields", None)
                return
            managers = Managers(sent or before)
            # Two quirks of the real server: a write through /scale is recorded only where somebody
            # owned the replicas before, and without a time.
            scaled = target.subresource == "scale"
            if managers and self.settings.track_managers:
                managers.update(
                    old,
                    obj,
                    target.version.schema,
                    ManagerId(options.manager, "Update", target.api_version, target.subresource),
                    now="" if scaled else self.timestamp(),
                    owned_only=scaled,
                    ignored=strategies.ignored_fields(
                        target.resource, target.version, target.subresource
                    ),
                )
        encoded = managers.encode()
        if encoded:
            metadata["managedFields"] = encoded
        else:
            metadata.pop("managedFields", None)

    def _choose_class(self, claim: Manifest) -> None:
        """Give a claim that names no class the newest default class, as admission does."""
        spec = claim.get("spec") or {}
        classes = [record.obj for record in self.store.table(_CLASSES).values()]
        marked = [each for each in classes if _is_default_class(each)]
        if spec.get("storageClassName") is None and marked:
            newest = max(marked, key=lambda each: str(each["metadata"]["creationTimestamp"]))
            spec["storageClassName"] = newest["metadata"]["name"]

    def _store(
        self,
        target: Target,
        key: Key,
        obj: Manifest,
        options: WriteOptions,
        current: Record | None = None,
    ) -> Record:
        if target.resource.group == "events.k8s.io":
            obj = to_core_event(obj)
        else:
            obj["apiVersion"] = target.resource.api_version(target.resource.storage)
        if options.dry_run:
            return Record(obj, current.version if current else 0)
        if current is not None and is_finished(obj):
            # The real server does not store the emptied finalizers: it deletes immediately, and the
            # DELETED event shows the object as it was before.
            self.store.delete(target.resource.table, key)
            return Record(obj, current.version)
        return self.store.put(target.resource.table, key, obj)


def _is_default_class(storage_class: Manifest) -> bool:
    notes = storage_class["metadata"].get("annotations") or {}
    return bool(notes.get("storageclass.kubernetes.io/is-default-class") == "true")


def _build_initial_status(target: Target, obj: Manifest) -> Any:
    """Build the status of a new object; None for no status."""
    if not target.resource.custom:
        return strategies.build_initial_status(target.resource, obj)
    # A create drops the status; the default of the schema comes back with the first read.
    return obj.get("status") or apply_defaults({}, target.version.schema).get("status")
