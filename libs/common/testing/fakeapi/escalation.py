"""Privilege escalation: RBAC lets nobody grant permissions that they do not have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from libs.common.kinds import Key, Manifest
from libs.common.testing.fakeapi.access import Access
from libs.common.testing.fakeapi.extensions import Review
from libs.common.testing.fakeapi.registry import Registry
from libs.common.testing.fakeapi.statuses import StatusError
from libs.common.testing.fakeapi.store import Store

_GROUP: Final = "rbac.authorization.k8s.io"
_ROLES: Final = {"Role": "roles", "ClusterRole": "clusterroles"}
_BINDINGS: Final = ("RoleBinding", "ClusterRoleBinding")

type Right = tuple[str, str, str, str]
"""Group, resource, verb and name of an object; an empty name stands for all objects."""


@dataclass(frozen=True, slots=True)
class Escalation:
    """Checks roles and bindings that a client writes against its own permissions.

    Roles that are not in the store, such as the built-in role `edit`, have unknown rules, so only
    the verb `bind` allows binding them.
    """

    access: Access
    store: Store
    registry: Registry

    def __call__(self, review: Review) -> None:
        """Refuse a write that would grant more than its author has.

        Raises:
            StatusError: 403, as the API server answers.
        """
        if review.kind.group != _GROUP or not self.access.serving:
            return
        namespace = review.key.namespace
        if review.kind.kind in _ROLES:
            resource = _ROLES[review.kind.kind]
            if not self.access.grants(_GROUP, resource, "escalate", review.key):
                self._check(review, review.new.get("rules") or (), namespace)
        elif review.kind.kind in _BINDINGS:
            reference = review.new.get("roleRef") or {}
            role = Key(namespace if reference.get("kind") == "Role" else "", reference["name"])
            resource = _ROLES[reference["kind"]]
            if self.access.grants(_GROUP, resource, "bind", Key(namespace, role.name)):
                return
            found = self._find_role(resource, role)
            self._check(review, None if found is None else found.get("rules") or (), namespace)

    def _find_role(self, resource: str, key: Key) -> Manifest | None:
        served = self.registry.find(_GROUP, "v1", resource)
        record = None if served is None else self.store.table(served[0].table).get(key)
        return None if record is None else record.obj

    def _check(
        self, review: Review, rules: Iterable[Mapping[str, Any]] | None, namespace: str
    ) -> None:
        missing = ["unknown rules"] if rules is None else []
        for group, resource, verb, name in _list_rights(rules or ()):
            key = Key(namespace, name)
            if not self.access.grants(group, resource, verb, key, without_name=not name):
                missing.append(
                    f'{{APIGroups:["{group}"], Resources:["{resource}"], Verbs:["{verb}"]}}'
                )
        if missing:
            name = f'{review.kind.plural}.{_GROUP} "{review.key.name}"'
            raise StatusError(
                403,
                "Forbidden",
                f'{name} is forbidden: user "{self.access.user}" is attempting to grant RBAC '
                f"permissions not currently held:\n" + "\n".join(missing),
            )


def _list_rights(rules: Iterable[Mapping[str, Any]]) -> Iterator[Right]:
    for rule in rules:
        yield from product(
            rule.get("apiGroups") or (),
            rule.get("resources") or (),
            rule["verbs"],
            rule.get("resourceNames") or ("",),
        )
