from __future__ import annotations

from pathlib import Path

import pytest

from libs.common import fastyaml
from libs.common.kinds import Manifest
from tools.generate.sample import FLEET, Boat
from tools.generate.sources import ROOT, load_operators
from tools.generate.state_metrics import FOLDER, build_resource, build_role, render_state_metrics

_FILES = render_state_metrics(load_operators(ROOT))


def find_metric(resource: Manifest, name: str) -> Manifest:
    """Return the one metric of a name."""
    (found,) = [metric for metric in resource["metrics"] if metric["name"] == name]
    return dict(found)


def test_kind_has_its_conditions_its_counts_and_its_replicas() -> None:
    resource = build_resource(Boat)

    assert resource["groupVersionKind"] == {
        "group": "sea.example.com",
        "version": "v1",
        "kind": "Boat",
    }
    assert resource["labelsFromPath"] == {
        "namespace": ["metadata", "namespace"],
        "name": ["metadata", "name"],
    }
    assert find_metric(resource, "status_aboard") == {
        "name": "status_aboard",
        "help": "aboard is the number of sailors on the boat.",
        "each": {"type": "Gauge", "gauge": {"path": ["status", "aboard"]}},
    }
    assert find_metric(resource, "spec_replicas")["each"]["gauge"] == {"path": ["spec", "crew"]}
    states = find_metric(resource, "status_condition")["each"]["stateSet"]
    assert states["labelsFromPath"] == {"condition": ["type"]}
    assert states["list"] == ["True", "False", "Unknown"]


def test_role_reads_the_kinds_and_nothing_else() -> None:
    rules = build_role([Boat])["rules"]

    assert {
        "apiGroups": ["sea.example.com"],
        "resources": ["boats"],
        "verbs": ["get", "list", "watch"],
    } in rules
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}


def test_every_kind_of_the_repository_is_there_once() -> None:
    config = fastyaml.load(_FILES[FOLDER / "custom-resource-state.yaml"])
    kinds = [each["groupVersionKind"]["kind"] for each in config["spec"]["resources"]]
    declared = {kind for operator in load_operators(ROOT) for _, kind in operator.kinds()}

    assert sorted(kinds) == sorted(declared)


@pytest.mark.parametrize("path", _FILES, ids=str)
def test_names_of_series_are_names_that_prometheus_takes(path: Path) -> None:
    document = fastyaml.load(_FILES[path])
    names = [
        f"{each['metricNamePrefix']}_{metric['name']}"
        for each in document.get("spec", {}).get("resources", ())
        for metric in each["metrics"]
    ]

    assert all(name.replace("_", "").isalnum() and name == name.lower() for name in names)
    assert len(names) == len(set(names))


def test_sample_operator_renders_both_files() -> None:
    assert sorted(path.name for path in render_state_metrics([FLEET])) == [
        "cluster-role.yaml",
        "custom-resource-state.yaml",
    ]
