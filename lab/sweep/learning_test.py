"""Tests of what is learned from undisturbed runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lab.sweep.learning import Knowledge, find_differences, learn_names, learn_places
from lab.sweep.outcome import Outcome
from lab.sweep.planning import Plan
from lab.sweep.recorder import NamespaceRecord
from lab.sweep.triggers import Trigger
from libs.common.kinds import CONFIG_MAP, Manifest, build_object

KINDS = (CONFIG_MAP,)


def build_run(namespace: str, *names: str) -> Outcome:
    record = NamespaceRecord()
    for name in names:
        record.note("ADDED", CONFIG_MAP, build_map(name, namespace))
    return Outcome(Plan("a", "b"), namespace, history=record.history)


def build_map(name: str, namespace: str, **parts: Any) -> Manifest:
    return build_object(CONFIG_MAP, name, namespace, metadata={"uid": f"uid-{name}"}, **parts)


@pytest.mark.parametrize(
    ("first", "second", "name", "blurred"),
    [
        ("web-token-0a1b2c3d", "web-token-99aabbcc", "web-token-11223344", "web-token-*"),
        ("web-6f4b-x7k2p", "web-77aa-9zz2q", "web-1234-abcde", "web-*-*"),
        # Another length, or a name that the template only begins with, is another name.
        ("web-token-0a1b2c3d", "web-token-99aabbcc", "web-token-spare", "web-token-spare"),
        # Nothing in common, or short words that differ, are no random parts.
        ("0a1b2c3d", "99aabbcc", "11223344", "11223344"),
        ("web-one", "web-two", "web-six", "web-six"),
        ("x-sweep-1", "x-sweep-2", "web", "web"),
    ],
)
def test_random_parts_of_names_are_learned(
    first: str, second: str, name: str, blurred: str
) -> None:
    knowledge = learn_names([build_run("sweep-1", first), build_run("sweep-2", second)])

    assert knowledge.blur(name) == blurred


def test_states_of_two_runs_are_equal_apart_from_names_times_and_json_in_texts() -> None:
    def build(namespace: str, name: str, stamp: str, address: str) -> Any:
        record = NamespaceRecord()
        noted = json.dumps({"spec": {"clusterIP": address}, "at": stamp, "name": name})
        manifest = build_map(name, namespace, data={"at": stamp, "owner": f"{namespace}/{name}"})
        manifest["metadata"]["annotations"] = {"last-handled": noted, "text": "{no json"}
        record.note("ADDED", CONFIG_MAP, manifest)
        return knowledge.build_state(record, KINDS, namespace)

    names = ("web-0a1b2c3d", "web-99aabbcc")
    knowledge = learn_names(
        [build_run(f"sweep-{number}", name) for number, name in enumerate(names)]
    )
    first = build("sweep-1", names[0], "2026-01-31T12:00:00Z", "10.0.0.1")
    second = build("sweep-2", names[1], "2026-01-31T12:00:09.123456+00:00", "10.0.0.2")

    assert first == second
    assert list(first) == ["configmaps web-*"]


def test_object_more_than_expected_is_a_difference() -> None:
    knowledge = Knowledge()
    wanted = {"configmaps web-*": {"data": {"a": "1"}}}
    found = {**wanted, "configmaps web-* #1": {"data": {"a": "2"}}}

    assert [str(each) for each in knowledge.compare(wanted, found)] == [
        'configmaps web-*: (absent) -> {"data": {"a": "2"}}'
    ]


def test_field_in_which_undisturbed_runs_disagree_is_not_compared() -> None:
    first = {"create": {"pods web": {"status": {"phase": "Ready", "ip": "1"}}}}
    second = {"create": {"pods web": {"status": {"phase": "Pending", "ip": "1"}}}}
    knowledge = learn_places(Knowledge(), [first, second])

    assert list(knowledge.varying) == ["pods web.status.phase"]
    assert not knowledge.compare(first["create"], second["create"])
    other = {"pods web": {"status": {"phase": "Ready", "ip": "2"}}}
    assert [each.place for each in knowledge.compare(first["create"], other)] == [
        "pods web.status.ip"
    ]


def test_differences_name_the_field_in_lists_too() -> None:
    wanted = {"pods web": {"spec": {"containers": [{"image": "a"}], "ports": [1]}}}
    found = {"pods web": {"spec": {"containers": [{"image": "b"}], "ports": [1, 2]}}}

    assert [each.place for each in find_differences(wanted, found)] == [
        "pods web.spec.containers.image",
        "pods web.spec.ports",
    ]


def test_moments_with_random_names_are_counted_together() -> None:
    knowledge = learn_names([build_run("x-1", "web-0a1b2c3d"), build_run("x-2", "web-99aabbcc")])
    moments = [
        Trigger("write", "create", "create", "configmaps", name)
        for name in ("web-12345678", "web-87654321")
    ]

    assert [(each.name, each.occurrence) for each in knowledge.rename(moments)] == [
        ("web-*", 1),
        ("web-*", 2),
    ]


def test_state_has_what_is_there_by_name() -> None:
    record = NamespaceRecord()
    record.note("ADDED", CONFIG_MAP, build_map("s-1-web", "s-1"))

    assert list(Knowledge().build_state(record, KINDS, "s-1")) == ["configmaps <namespace>-web"]
    record.note("DELETED", CONFIG_MAP, build_map("s-1-web", "s-1"))
    assert Knowledge().build_state(record, KINDS, "s-1") == {}
