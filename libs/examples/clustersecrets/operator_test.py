"""Tests of the operator clustersecrets: the conformance suite, and what is special to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from libs.common.conditions import find_condition
from libs.common.crd import build_crd
from libs.common.kinds import NAMESPACE, SECRET, Key, Manifest, build_object
from libs.common.labels import MANAGED_BY
from libs.common.testing.conformance import OperatorConformance, Subject
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from libs.examples.clustersecrets.api import CLUSTER_SECRET, RESOURCES, ClusterSecret
from libs.examples.clustersecrets.controller import (
    ID,
    OPERATOR,
    POLL_SECONDS,
    build_secret,
    select_namespaces,
)

REGISTRY = Key("", "registry")
DATA = {"password": "c2VjcmV0"}
CHANGED = {"password": "Y2hhbmdlZA=="}


def build_cluster_secret(**spec: Any) -> Manifest:
    """Build the ClusterSecret that a user applies."""
    return build_object(CLUSTER_SECRET, REGISTRY.name, spec={"data": DATA, **spec})


def build_namespaces() -> list[Manifest]:
    """Build the namespaces of two teams."""
    return [build_object(NAMESPACE, name) for name in ("team-a", "team-b")]


class TestClusterSecretConformance(OperatorConformance):
    """Crashes, refusals, lost responses, stale caches and lost leadership change nothing."""

    subject = Subject(
        OPERATOR,
        crds=[build_crd(each) for each in RESOURCES],
        objects=lambda: [build_cluster_secret(matchNamespaces=["default", "team-"])],
        change={"spec": {"data": CHANGED, "avoidNamespaces": ["team-b"]}},
        initial_objects=build_namespaces,
        settings={"watch_namespaces": "*"},
    )


@asynccontextmanager
async def running(*objects: Manifest) -> AsyncIterator[tuple[FakeApi, OperatorHarness]]:
    """Run the operator in a cluster with the namespaces of two teams, and with further objects."""
    async with FakeApi() as api:
        api.register(build_crd(ClusterSecret))
        for manifest in (*build_namespaces(), *objects):
            api.create(manifest)
        async with OperatorHarness(OPERATOR, api.config, watch_namespaces="*") as harness:
            yield api, harness


def read_data(api: FakeApi, namespace: str) -> Manifest | None:
    """Return the data of the Secret in a namespace, or None."""
    secret = api.find(SECRET, Key(namespace, REGISTRY.name))
    return secret and secret.get("data")


def read_ready(api: FakeApi) -> tuple[str, str]:
    """Return reason and message of the condition Ready; empty before the first status."""
    ready = find_condition(api.get(CLUSTER_SECRET, REGISTRY), "Ready") or {}
    return ready.get("reason", ""), ready.get("message", "")


async def test_secret_that_somebody_edits_or_deletes_is_restored() -> None:
    async with running(build_cluster_secret()) as (api, harness):
        await harness.converged()
        api.patch(SECRET, Key("team-a", REGISTRY.name), {"data": CHANGED})
        api.delete(SECRET, Key("team-b", REGISTRY.name))
        await harness.converged()

        assert read_data(api, "team-a") == read_data(api, "team-b") == DATA


async def test_secret_whose_labels_somebody_removes_is_restored() -> None:
    async with running(build_cluster_secret()) as (api, harness):
        await harness.converged()
        key = Key("team-a", REGISTRY.name)
        labels = api.get(SECRET, key)["metadata"]["labels"]
        api.patch(SECRET, key, {"metadata": {"labels": None}, "data": CHANGED})
        await harness.eventually(lambda: read_data(api, "team-a") == DATA)

        assert api.get(SECRET, key)["metadata"]["labels"] == labels


async def test_secret_of_somebody_else_is_neither_changed_nor_deleted() -> None:
    theirs = build_object(SECRET, REGISTRY.name, "team-a", data=CHANGED)
    async with running(theirs, build_cluster_secret()) as (api, harness):
        await harness.eventually(lambda: read_ready(api)[0] == "Failed")
        assert "Secret team-a/registry" in read_ready(api)[1]
        assert read_data(api, "team-b") == DATA
        api.patch(CLUSTER_SECRET, REGISTRY, {"spec": {"data": {"password": "bmV3"}}})
        await harness.eventually(lambda: read_data(api, "team-b") == {"password": "bmV3"})
        api.delete(CLUSTER_SECRET, REGISTRY)
        await harness.eventually(lambda: read_data(api, "team-b") is None)

        assert read_data(api, "team-a") == CHANGED


async def test_refusal_in_one_namespace_does_not_stop_the_others() -> None:
    async with running() as (api, harness):
        api.fail(verb="create", status=403, namespace="default", times=None)
        await harness.client.create(CLUSTER_SECRET, build_cluster_secret())
        await harness.eventually(lambda: read_ready(api)[0] == "Failed")
        assert "Secret default/registry" in read_ready(api)[1]
        assert read_data(api, "team-a") == read_data(api, "team-b") == DATA
        api.faults.clear()
        await harness.eventually(lambda: read_ready(api)[0] == "Synced")

        assert read_data(api, "default") == DATA


async def test_new_namespace_gets_the_secret() -> None:
    async with running(build_cluster_secret()) as (api, harness):
        await harness.converged()
        api.create(build_object(NAMESPACE, "team-c"))
        await harness.converged()

        assert read_data(api, "team-c") == DATA


async def test_secrets_are_deleted_with_their_owner_while_the_operator_is_down() -> None:
    async with running(build_cluster_secret()) as (api, harness):
        await harness.converged()
        await harness.stop()
        api.delete(CLUSTER_SECRET, REGISTRY)

        await harness.eventually(lambda: not api.objects(SECRET))
        assert api.find(CLUSTER_SECRET, REGISTRY) is None


async def test_change_during_downtime_is_found() -> None:
    async with running(build_cluster_secret()) as (api, harness):
        await harness.converged()
        await harness.stop()
        api.patch(CLUSTER_SECRET, REGISTRY, {"spec": {"avoidNamespaces": ["team-b"]}})
        api.patch(SECRET, Key("team-a", REGISTRY.name), {"data": CHANGED})
        await harness.restart()
        await harness.converged()

        assert read_data(api, "team-a") == DATA
        assert read_data(api, "team-b") is None


async def test_entries_of_another_secret_are_copied_and_read_again() -> None:
    spec = {
        "data": None,
        "valueFrom": {"namespace": "vault", "name": "source", "keys": ["password"]},
    }
    async with running(build_cluster_secret(**spec)) as (api, harness):
        await harness.converged()
        reason, message = read_ready(api)
        assert reason == "SourceNotFound"
        assert "Secret vault/source does not exist" in message
        assert not harness.is_due_within(POLL_SECONDS / 2)
        assert harness.is_due_within(POLL_SECONDS)
        api.create(build_object(SECRET, "source", "vault", data={**DATA, "user": "YQ=="}))
        await harness.restart()
        await harness.converged()

        assert read_data(api, "team-a") == DATA
        assert harness.is_due_within(POLL_SECONDS)


async def test_key_that_the_source_does_not_have_keeps_the_secrets() -> None:
    async with running(build_cluster_secret()) as (api, harness):
        await harness.converged()
        api.create(build_object(SECRET, "source", "team-a", data=CHANGED))
        source = {"namespace": "team-a", "name": "source", "keys": ["user"]}
        api.patch(CLUSTER_SECRET, REGISTRY, {"spec": {"data": None, "valueFrom": source}})
        await harness.converged()

        reason, message = read_ready(api)
        assert reason == "SourceNotFound"
        assert "Secret team-a/source has no key user" in message
        assert read_data(api, "team-b") == DATA


async def test_invalid_pattern_is_named_and_the_secrets_stay() -> None:
    async with running(build_cluster_secret()) as (api, harness):
        await harness.converged()
        api.patch(CLUSTER_SECRET, REGISTRY, {"spec": {"matchNamespaces": ["team-("]}})
        await harness.converged()

        reason, message = read_ready(api)
        assert reason == "InvalidSpec"
        assert "spec.matchNamespaces" in message
        assert read_data(api, "team-a") == DATA


def test_secret_has_the_type_labels_and_annotations_of_the_spec() -> None:
    spec = {"labels": {"team": "a"}, "annotations": {"note": "text"}, "type": "example.com/type"}
    parent = ClusterSecret.parse(build_cluster_secret(**spec))

    secret = build_secret(parent, "team-a", DATA, {"uid": "u1"})

    assert secret["type"] == spec["type"]
    assert secret["metadata"]["labels"] == {"team": "a", MANAGED_BY: ID}
    assert secret["metadata"]["annotations"] == spec["annotations"]


def test_patterns_match_the_beginning_and_namespaces_being_deleted_are_left_out() -> None:
    going = build_object(
        NAMESPACE, "team-c", metadata={"deletionTimestamp": "2026-01-31T12:00:00Z"}
    )
    spec = ClusterSecret.parse(
        build_cluster_secret(matchNamespaces=["team"], avoidNamespaces=[".*-b$"])
    ).spec

    assert select_namespaces(spec, [*build_namespaces(), going]) == ["team-a"]
