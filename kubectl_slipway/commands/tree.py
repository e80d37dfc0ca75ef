"""`kubectl slipway tree`: an object, its children, and the objects to which it refers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from kubectl_slipway.cluster import Cluster
from kubectl_slipway.diagnosis.findings import Facts
from kubectl_slipway.errors import Exit
from kubectl_slipway.model import is_deleting, readiness, render_age, title
from kubectl_slipway.output import print_data, print_table, shorten


def run(cluster: Cluster, options: argparse.Namespace) -> Exit:
    """Print the tree of an object."""
    resource, name = cluster.parse_target(options.target, options.second)
    facts = cluster.gather(resource, cluster.get(resource, name))
    if options.output != "table":
        print_data(_describe(facts), options.output)
    else:
        header = ("NAME", "READY", "REASON", "SINCE", "MESSAGE")
        print_table(header, _render(facts, "", ""))
    return Exit.OK


def _describe(facts: Facts, field: str = "") -> dict[str, Any]:
    state = readiness(facts.manifest)
    found: dict[str, Any] = {
        "object": title(facts.manifest),
        "ready": state.status,
        "reason": state.reason,
        "message": state.message,
    }
    if field:
        found["field"] = field
    if facts.children:
        found["owns"] = [_describe(each) for each in _sort(facts)]
    if facts.references:
        found["refersTo"] = [
            (
                _describe(each.facts, each.field)
                if each.facts
                else {"object": f"{each.kind}/{each.name}", "ready": "Missing", "field": each.field}
            )
            for each in facts.references
        ]
    return found


def _render(facts: Facts, first: str, rest: str) -> Iterator[tuple[str, ...]]:
    state = readiness(facts.manifest)
    reason = "Deleting" if is_deleting(facts.manifest) else state.reason
    yield (
        first + title(facts.manifest),
        state.status or "-",
        reason,
        render_age(state.since, facts.now),
        "" if state.ok and not is_deleting(facts.manifest) else shorten(state.message, 80),
    )
    children, references = _sort(facts), list(facts.references)
    for index, child in enumerate(children):
        last = index == len(children) - 1 and not references
        yield from _render(child, rest + ("└─" if last else "├─"), rest + ("  " if last else "│ "))
    for index, reference in enumerate(references):
        last = index == len(references) - 1
        start = rest + ("└→" if last else "├→")
        if reference.facts is None:
            message = f"{reference.field} names it"
            yield (f"{start}{reference.kind}/{reference.name}", "-", "Missing", "", message)
        else:
            yield from _render(reference.facts, start, rest + ("  " if last else "│ "))


def _sort(facts: Facts) -> list[Facts]:
    return sorted(facts.children, key=lambda each: title(each.manifest))
