"""Permissions of an operator, derived from the declarations of its controllers.

A controller reads its primary and every kind that it watches, and it writes the status of its
primary. Writes of other objects are declared with the watch:

```python
Controller("backup", primary=BACKUP, reconcile=reconcile).owns(JOB, writes=("create", "delete"))
```

Further permissions, such as for a subresource or for a kind that is read without a cache, are
passed to `Operator` as `permissions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from libs.common.rbac import PolicyRule, children, grant, own
from libs.common.runtime.controller import Controller, Watch


def derive_rules(
    controllers: Iterable[Controller], permissions: Iterable[PolicyRule] = ()
) -> tuple[PolicyRule, ...]:
    """Return the rules that controllers need, without the common rules of all operators.

    Args:
        controllers: The controllers of an operator.
        permissions: Permissions that the operator needs in addition.
    """
    rules = [rule for controller in controllers for rule in _derive(controller)]
    distinct = list(dict.fromkeys((*rules, *permissions)))
    return tuple(rule for rule in distinct if not _is_covered(rule, distinct))


def _is_covered(rule: PolicyRule, rules: Iterable[PolicyRule]) -> bool:
    """Return whether another rule grants more on the same resources, so readers need only that."""
    return any(
        set(rule.verbs) < set(other.verbs)
        for other in rules
        if (other.api_groups, other.resources, other.resource_names)
        == (rule.api_groups, rule.resources, rule.resource_names)
    )


def _derive(controller: Controller) -> Iterator[PolicyRule]:
    rules = own(
        controller.primary,
        finalizer=bool(controller.finalizer),
        owner=controller.blocks_deletion and any(watch.owned for watch in controller.watched),
    )
    if controller.status_subresource:
        yield from rules
    else:
        yield from (rule for rule in rules if not rule.resources[0].endswith("/status"))
        yield grant(controller.primary, "patch", why="report the observed state")
    for watches in _group(controller):
        kind = watches[0].kind
        writes = dict.fromkeys(verb for watch in watches for verb in watch.writes)
        why = next((watch.why for watch in watches if watch.why), "")
        if kind != controller.primary or writes:
            yield from children(kind, *writes, why=why or _explain(bool(writes)))


def _group(controller: Controller) -> Iterator[list[Watch]]:
    """Yield the watches of each kind; a kind can have several watches."""
    found: dict[object, list[Watch]] = {}
    for watch in controller.watched:
        found.setdefault(watch.kind, []).append(watch)
    yield from found.values()


def _explain(writes: bool) -> str:
    return "manage child objects" if writes else "read what the primary depends on"
