"""`kubectl slipway why`: the causes why an object is not ready, and their fixes."""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import asdict

from kubectl_slipway.cluster import Cluster
from kubectl_slipway.diagnosis.findings import Finding
from kubectl_slipway.diagnosis.why import explain
from kubectl_slipway.errors import Exit
from kubectl_slipway.model import Readiness, conditions, readiness, render_age, title
from kubectl_slipway.output import print_data

_WIDTH = 100


def run(cluster: Cluster, options: argparse.Namespace) -> Exit:
    """Print the findings about an object, root causes first."""
    resource, name = cluster.parse_target(options.target, options.second)
    manifest = cluster.get(resource, name)
    findings = explain(cluster.gather(resource, manifest))
    state = readiness(manifest)
    if options.output != "table":
        data = {
            "object": title(manifest),
            "namespace": manifest["metadata"].get("namespace") or "",
            "ready": state.status,
            "reason": state.reason,
            "conditions": [asdict(each) for each in conditions(manifest)],
            "findings": [asdict(each) for each in findings],
        }
        print_data(data, options.output)
    else:
        print(_render_state(title(manifest), state, render_age(state.since, cluster.now)))
        listed = ", ".join(
            f"{each.type}={each.status} {each.reason}".strip() for each in conditions(manifest)
        )
        if listed:
            print(textwrap.fill(f"Conditions: {listed}", _WIDTH, subsequent_indent=" " * 12))
        for number, each in enumerate(findings, 1):
            _print_finding(number, each)
        if not findings:
            print("Nothing is wrong." if state.ok else "The object does not say why.")
    errors = [each for each in findings if each.severity == "Error"]
    return Exit.PROBLEM if errors or not state.ok else Exit.OK


def _render_state(name: str, state: Readiness, age: str) -> str:
    word = {"True": "Ready", "False": "not Ready", "": "present"}.get(
        state.status, "in an unknown state"
    )
    because = f": {state.reason}" if state.reason else ""
    return f"{name} is {word}{because}{f' (for {age})' if age else ''}"


def _print_finding(number: int, found: Finding) -> None:
    print(
        f"\n{number}. {found.subject}: {found.code}"
        + (" (warning)" if found.severity != "Error" else "")
    )
    print(textwrap.fill(found.cause, _WIDTH, initial_indent="   ", subsequent_indent="   "))
    if found.remedy:
        print(
            textwrap.fill(
                found.remedy,
                _WIDTH,
                initial_indent="   Fix: ",
                subsequent_indent="        ",
                break_on_hyphens=False,
            )
        )
