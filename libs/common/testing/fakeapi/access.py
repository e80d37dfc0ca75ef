"""RBAC: refuse what no rule allows, and record which rules the requests needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from libs.common.kinds import Key, Manifest
from libs.common.testing.fakeapi.requests import Request
from libs.common.testing.fakeapi.statuses import StatusError


@dataclass(frozen=True, slots=True)
class _Rule:
    namespace: str
    groups: frozenset[str]
    resources: frozenset[str]
    verbs: frozenset[str]
    names: frozenset[str]

    def allows(self, request: Request, verb: str) -> bool:
        if self.namespace and request.key.namespace != self.namespace:
            return False
        if self.names and request.key.name not in self.names:
            return False
        return (
            _in(verb, self.verbs)
            and _in(request.group, self.groups)
            and self._allows_resource(request)
        )

    def to_manifest(self) -> Manifest:
        fields = {
            "verbs": self.verbs,
            "apiGroups": self.groups,
            "resources": self.resources,
            "resourceNames": self.names,
        }
        return {name: sorted(values) for name, values in fields.items() if values}

    def _allows_resource(self, request: Request) -> bool:
        resource = resource_of(request)
        if _in(resource, self.resources):
            return True
        return bool(request.subresource) and f"*/{request.subresource}" in self.resources


def _in(value: str, allowed: frozenset[str]) -> bool:
    return "*" in allowed or value in allowed


def resource_of(request: Request) -> str:
    """Return the resource as rules name it: `pods`, `pods/status`."""
    return "/".join(part for part in (request.plural, request.subresource) if part)


class Access:
    """The rules that decide which requests are allowed; without rules, all are.

    Attributes:
        user: Who the client is, as named in refusals.
        serving: Whether a request of the client is being handled; tests write without permissions.
    """

    def __init__(self) -> None:
        """Allow everything."""
        self.user = "system:serviceaccount:default:operator"
        self.serving = False
        self._rules: list[_Rule] | None = None

    def allow(self, rules: Iterable[Any], *, namespace: str = "") -> None:
        """Allow what these rules say; from now on all else is refused with 403.

        Args:
            rules: `PolicyRule` manifests, or objects whose `to_manifest()` returns one.
            namespace: Namespace of the Role that holds them; empty for a ClusterRole.
        """
        if self._rules is None:
            self._rules = []
        self._rules.extend(_parse_rule(rule, namespace) for rule in rules)

    def permits(self, request: Request, verb: str = "") -> bool:
        """Return whether a request is allowed; discovery always is."""
        if self._rules is None or not request.plural:
            return True
        return any(rule.allows(request, verb or request.verb) for rule in self._rules)

    def list_rules(self, namespace: str) -> list[Manifest]:
        """Return the rules that count in a namespace, as manifests."""
        if self._rules is None:
            return [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        return [each.to_manifest() for each in self._rules if each.namespace in ("", namespace)]

    def grants(
        self, group: str, resource: str, verb: str, key: Key, *, without_name: bool = False
    ) -> bool:
        """Return whether a rule allows a verb on a resource.

        Args:
            group: API group.
            resource: Resource as rules name it, such as `pods/status`.
            verb: Verb.
            key: Namespace, empty for the whole cluster, and name of the object.
            without_name: Ignore rules that are restricted to names.
        """
        if self._rules is None:
            return True
        return any(
            rule.namespace in ("", key.namespace)
            and _in(verb, rule.verbs)
            and _in(group, rule.groups)
            and _in(resource, rule.resources)
            and (not rule.names or (key.name in rule.names and not without_name))
            for rule in self._rules
        )

    def check(self, request: Request, verb: str = "") -> None:
        """Refuse a request that no rule allows.

        Raises:
            StatusError: 403 in the words of the real authorizer.
        """
        if not self.permits(request, verb):
            raise self._refusal(request, verb or request.verb)

    def _refusal(self, request: Request, verb: str) -> StatusError:
        group, key = request.group, request.key
        qualified = f"{request.plural}.{group}" if group else request.plural
        where = f'in the namespace "{key.namespace}"' if key.namespace else "at the cluster scope"
        named = f'{qualified} "{key.name}"' if key.name else qualified
        details: Manifest = {"kind": request.plural}
        if key.name:
            details["name"] = key.name
        if group:
            details["group"] = group
        return StatusError(
            403,
            "Forbidden",
            f'{named} is forbidden: User "{self.user}" cannot {verb} resource '
            f'"{resource_of(request)}" in API group "{group}" {where}',
            details=details,
        )


def _parse_rule(rule: Any, namespace: str) -> _Rule:
    raw: Mapping[str, Any] = rule if isinstance(rule, Mapping) else rule.to_manifest()
    return _Rule(
        namespace,
        *(
            frozenset(raw.get(name) or ())
            for name in ("apiGroups", "resources", "verbs", "resourceNames")
        ),
    )
