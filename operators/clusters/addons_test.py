"""Addons: what is applied when, and what is wrong with manifests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.clusters.addons import (
    BadAddon,
    digest_of,
    evaluate_addons,
    plan_addons,
    read_manifests,
)
from operators.clusters.observed import Observed, Workload
from operators.clusters.samples import parse_cluster

CNI = {"cni.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: cni}\n"}
ASKED = [
    {"name": "network", "configMapRef": {"name": "cilium"}},
    {"name": "metrics", "configMapRef": {"name": "metrics"}},
]
CLUSTER = parse_cluster(addons=ASKED)
BOTH: Mapping[str, Mapping[str, str]] = {"cilium": CNI, "metrics": {}}


def observe(applied: Mapping[str, str], **maps: Mapping[str, str]) -> Observed:
    return Observed(workload=Workload(True, True, addons=applied), addons={**BOTH, **maps})


def evaluate(observed: Observed) -> tuple[str, str, str]:
    found = evaluate_addons(CLUSTER, observed)
    assert found is not None
    return found.status, found.reason, found.message


def test_addons_are_applied_in_the_order_of_the_spec() -> None:
    steps = plan_addons(CLUSTER, observe({}))

    assert [(step.name, step.data) for step in steps] == [("network", CNI), ("metrics", {})]
    assert evaluate(observe({}))[:2] == ("False", "Applying")


def test_addon_is_applied_once_for_each_content() -> None:
    applied = {"network": digest_of(CNI), "metrics": digest_of({})}

    assert plan_addons(CLUSTER, observe(applied)) == ()
    assert evaluate(observe(applied)) == ("True", "Available", "2 addons were applied")
    changed = observe(applied, cilium={"cni.yaml": "other"})
    assert [step.name for step in plan_addons(CLUSTER, changed)] == ["network"]


def test_nothing_is_applied_while_the_cluster_does_not_answer() -> None:
    silent = replace(observe({}), workload=Workload(asked=True, message="no response"))

    assert plan_addons(CLUSTER, silent) == ()
    assert evaluate(silent)[:2] == ("Unknown", "Unreachable")


def test_config_map_that_is_missing_holds_up_no_other_addon() -> None:
    observed = replace(observe({}), addons={"metrics": {}})

    assert [step.name for step in plan_addons(CLUSTER, observed)] == ["metrics"]
    status, reason, message = evaluate(observed)
    assert (status, reason) == ("False", "AddonMissing")
    assert "cilium" in message and "clusters.slipway.dev/addon=true" in message


def test_problem_of_an_addon_is_shown() -> None:
    observed = replace(observe({}), addon_problems={"network": "DaemonSet cni: forbidden"})

    expected = ("False", "AddonFailed", "addon network: DaemonSet cni: forbidden")
    assert evaluate(observed) == expected


def test_cluster_without_addons_has_no_condition_for_them() -> None:
    assert evaluate_addons(parse_cluster(), Observed()) is None


def test_content_is_told_apart_by_key_and_text() -> None:
    contents = [{}, {"a": "b"}, {"ab": ""}, {"a": "", "b": ""}, {"a": "b", "c": ""}, {"": "ab"}]

    assert len({digest_of(each) for each in contents}) == len(contents)
    assert digest_of({"a": "1", "b": "2"}) == digest_of({"b": "2", "a": "1"})


def test_definitions_and_namespaces_come_first_and_lists_are_taken_apart() -> None:
    data = {
        "a.yaml": """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: one}}
- {apiVersion: v1, kind: Namespace, metadata: {name: two}}
---
""",
        "b.yaml": """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: three}
""",
    }

    assert [each["metadata"]["name"] for each in read_manifests(data)] == ["two", "three", "one"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "cni.yaml is not valid YAML in line"),
        ("kind: ConfigMap", "document 1 needs apiVersion, kind, metadata.name"),
        ("- 1", "document 1 needs"),
        ("!!python/object:os.system {}", "not valid YAML"),
        ("{apiVersion: v1, kind: List, items: [3]}", "document 1 needs"),
    ],
)
def test_manifest_that_is_none_is_refused_by_its_place(text: str, words: str) -> None:
    with pytest.raises(BadAddon, match=words):
        read_manifests({"cni.yaml": text})


def test_yaml_that_unfolds_without_end_is_refused() -> None:
    """Ten lines of aliases are ten million values once they are written out."""
    lines = ["a0: &a0 [x]"]
    for number in range(1, 8):
        aliases = ", ".join([f"*a{number - 1}"] * 10)
        lines.append(f"a{number}: &a{number} [{aliases}]")

    with pytest.raises(BadAddon, match="more than"):
        read_manifests({"cni.yaml": "\n".join(lines)})


HEAD = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"


def test_values_of_all_keys_together_are_bounded() -> None:
    """One MiB of keys with many aliases each would keep a processor busy for two minutes."""
    aliases = f"a: &a [{'1,' * 100}]\nb: [{'*a,' * 100}]\n"

    assert len(read_manifests({f"{number}.yaml": HEAD + aliases for number in range(9)})) == 9
    with pytest.raises(BadAddon, match=r"keys up to 9\.yaml have more than 100000 values"):
        read_manifests({f"{number}.yaml": HEAD + aliases for number in range(10)})


def test_empty_documents_of_all_keys_together_are_bounded() -> None:
    with pytest.raises(BadAddon, match=r"keys up to 3\.yaml have more than 100000 values"):
        read_manifests({f"{number}.yaml": f"{HEAD}{'---\n' * 30_000}" for number in range(10)})


def test_scalars_are_read_as_kubectl_reads_them() -> None:
    text = f"{HEAD}data: {{date: 2024-01-01, bad: 2024-13-45, ports: 22:22, size: 0x10, open: yes}}"
    (manifest,) = read_manifests({"a.yaml": text})

    texts = {"date": "2024-01-01", "bad": "2024-13-45", "ports": "22:22"}
    assert manifest["data"] == {**texts, "size": 16, "open": True}


@pytest.mark.parametrize(
    "value",
    [
        "!!binary aGk=",
        "!!set {a}",
        "!!timestamp x",
        "!!timestamp 2024-01-01",
        "!!int x",
        "{!!binary aGk=: a}",
    ],
)
def test_value_that_json_does_not_have_is_refused(value: str) -> None:
    with pytest.raises(BadAddon, match=r"a\.yaml"):
        read_manifests({"a.yaml": f"{HEAD}data: {value}"})


@settings(max_examples=300)
@given(
    st.lists(
        st.sampled_from([*"{}[]:,-?!&*|>'\"%@`#\n \t0aé", "!!", "<<", "---\n", "2024-01-01", "~"]),
        max_size=12,
    )
)
def test_any_text_is_read_as_json_or_refused(parts: list[str]) -> None:
    try:
        found = read_manifests({"a.yaml": f"{HEAD}data: {''.join(parts)}"})
    except BadAddon:
        return
    json.dumps(found)


def test_yaml_that_is_nested_too_deeply_is_refused_by_its_key() -> None:
    """Libyaml composes by recursion in C: 30,000 brackets ended the process."""
    with pytest.raises(BadAddon, match=r"cni\.yaml: values are nested deeper than 100 levels"):
        read_manifests({"cni.yaml": f"{HEAD}data: {'[' * 500}{']' * 500}"})


def test_aliases_of_a_long_text_are_refused() -> None:
    lines = [f"  a: &a {'x' * 20_000}", *(f"  k{number}: *a" for number in range(10_000))]
    with pytest.raises(BadAddon, match=r"cni\.yaml: the text expands to more than"):
        read_manifests({"cni.yaml": "\n".join([f"{HEAD}data:", *lines])})
