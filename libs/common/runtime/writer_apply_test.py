"""Server-side apply by the writer over HTTP: only what differs is sent, and others keep theirs."""

from __future__ import annotations

import pytest

from libs.common.client import Client
from libs.common.errors import Conflict, ForeignObject
from libs.common.kinds import CONFIG_MAP, DEPLOYMENT, Manifest, build_object
from libs.common.plan import Apply
from libs.common.runtime.informer import Informer
from libs.common.runtime.unchanged_applies import UnchangedApplies
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.writing import KEY, OTHER, Bench, build_map


@pytest.fixture
def bench(fake_api: FakeApi, fake_client: Client) -> Bench:
    return Bench(fake_api, fake_client)


async def test_what_an_apply_takes_for_ours_can_be_said(bench: Bench) -> None:
    """An object that must outlast a foreground deletion of its owner has no owner reference."""

    def marked(live: Manifest) -> bool:
        return bool(live["data"].get("mark") == "ours")

    wanted = build_map(owner=None, mark="ours", text="new")
    await bench.take(Apply(CONFIG_MAP, build_map(owner=None, mark="ours"), marked))
    ours = await bench.take(Apply(CONFIG_MAP, wanted, marked))
    bench.api.patch(CONFIG_MAP, KEY, {"data": {"mark": "theirs"}})
    bench.see()
    theirs = await bench.take(Apply(CONFIG_MAP, wanted, marked))

    assert ours.changed == 1
    assert isinstance(theirs.first_error(), ForeignObject)


async def test_name_that_became_free_without_a_word_is_taken(bench: Bench) -> None:
    """Found by the sweep: a watch by label never reports deletions that its selector excludes.

    The create had met the object, so it was in the cache, and every later apply took it from there.
    """
    bench.api.create(build_map(owner=OTHER, x="theirs"))
    met = await bench.take(Apply(CONFIG_MAP, build_map(x="ours")))
    bench.see()
    bench.api.delete(CONFIG_MAP, KEY)

    outcome = await bench.take(Apply(CONFIG_MAP, build_map(x="ours")))

    assert isinstance(met.first_error(), ForeignObject)
    assert (outcome.ok, outcome.changed) == (True, 1)
    assert bench.api.get(CONFIG_MAP, KEY)["data"] == {"x": "ours"}


async def test_apply_of_what_is_there_sends_nothing(bench: Bench) -> None:
    step = Apply(CONFIG_MAP, build_map(x="1"))
    await bench.take(step)
    mark = bench.api.mark()

    outcome = await bench.take(step)

    assert outcome.changed == 0
    assert bench.api.mark() == mark, "not even a read"


async def test_apply_of_what_is_there_but_not_cached_only_reads(bench: Bench) -> None:
    step = Apply(CONFIG_MAP, build_map(x="1"))
    await bench.take(step)
    bench.informer.store.clear()
    mark = bench.api.mark()

    await bench.take(step)

    assert [each.method for each in list(bench.api.requests)[mark:]] == ["GET"]


async def test_dropped_field_is_pruned_though_a_create_made_it(bench: Bench) -> None:
    """The server books a create as an Update, which applies never prune."""
    await bench.take(Apply(CONFIG_MAP, build_map(x="1", y="2")))

    outcome = await bench.take(Apply(CONFIG_MAP, build_map(x="1")))

    assert outcome.changed == 1
    assert bench.api.get(CONFIG_MAP, KEY)["data"] == {"x": "1"}
    await bench.take(Apply(CONFIG_MAP, build_map(z="3")))
    assert bench.api.get(CONFIG_MAP, KEY)["data"] == {"z": "3"}


async def test_fields_of_others_are_kept(bench: Bench) -> None:
    await bench.take(Apply(CONFIG_MAP, build_map(x="1")))
    bench.api.patch(CONFIG_MAP, KEY, {"data": {"theirs": "yes"}})

    await bench.take(Apply(CONFIG_MAP, build_map(x="2")))

    assert bench.api.get(CONFIG_MAP, KEY)["data"] == {"x": "2", "theirs": "yes"}


async def test_fields_that_others_updated_stay_theirs(bench: Bench) -> None:
    """Only what this operator updated becomes a part of its applies."""
    async with Client(bench.api.config, user_agent="a-user") as user:
        await user.create(CONFIG_MAP, build_map(theirs="yes"))
    async with Client(bench.api.config, user_agent=bench.origin.controller) as ours:
        await ours.patch(CONFIG_MAP, KEY, {"data": {"x": "1"}})

    outcome = await bench.take(Apply(CONFIG_MAP, build_map(x="2")))

    entries = bench.api.get(CONFIG_MAP, KEY)["metadata"]["managedFields"]
    assert outcome.changed == 1
    assert {(entry["manager"], entry["operation"]) for entry in entries} == {
        ("a-user", "Update"),
        (bench.origin.controller, "Apply"),
    }


async def test_field_that_somebody_changed_is_set_back(bench: Bench) -> None:
    step = Apply(CONFIG_MAP, build_map(x="1"))
    await bench.take(step)
    bench.api.patch(CONFIG_MAP, KEY, {"data": {"x": "theirs"}})
    bench.see()

    assert (await bench.take(step)).changed == 1
    assert bench.api.get(CONFIG_MAP, KEY)["data"] == {"x": "1"}


async def test_apply_that_the_server_takes_for_nothing_is_remembered(bench: Bench) -> None:
    """Somebody else's finalizer is in the list: the object never shows what was sent."""
    step = Apply(CONFIG_MAP, build_map())
    step.manifest["metadata"]["finalizers"] = ["example.com/ours"]
    await bench.take(step)
    both = ["example.com/ours", "example.com/theirs"]
    bench.api.patch(CONFIG_MAP, KEY, {"metadata": {"finalizers": both}})
    bench.see()
    await bench.take(step)  # Makes the fields of the create ours to apply.
    first = await bench.take(step)
    mark = bench.api.mark()

    second = await bench.take(step)

    assert first.ok
    assert first.changed == second.changed == 0
    assert bench.api.writes(mark) == []


async def test_item_that_admission_adds_costs_no_request_when_the_status_changes(
    bench: Bench,
) -> None:
    """A service mesh adds a sidecar container to a Deployment, whose pods come and go."""
    deployments = Informer(DEPLOYMENT)
    bench.cache.add(deployments)
    step = Apply(DEPLOYMENT, build_deployment("app"))
    await bench.take(step)
    sidecar = build_deployment("sidecar")
    del sidecar["metadata"]["ownerReferences"]
    await bench.client.apply(DEPLOYMENT, sidecar, field_manager="injector")

    async def see_and_take() -> int:
        deployments.put(bench.api.get(DEPLOYMENT, KEY))
        return (await bench.take(step)).changed

    await see_and_take()  # Makes the fields of the create ours to apply.
    await see_and_take()
    mark = bench.api.mark()
    for replicas in range(3):
        bench.api.patch_status(DEPLOYMENT, KEY, {"replicas": replicas})
        assert await see_and_take() == 0
    assert bench.api.requests.select(since=mark) == []

    image = {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "other"}
    await bench.client.patch(DEPLOYMENT, KEY, [image])
    assert await see_and_take() == 1, "a change of the spec is found and undone"


def build_deployment(container: str) -> Manifest:
    template = {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": container, "image": "image"}]},
    }
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    metadata = build_map()["metadata"]
    return build_object(DEPLOYMENT, "a", "default", metadata=metadata, spec=spec)


def test_memory_of_no_op_applies_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("libs.common.runtime.unchanged_applies._LIMIT", 2)
    desired = {"metadata": {"annotations": {"slipway.dev/applied-hash": "h"}}}
    live = [{"metadata": {"uid": f"u{number}", "resourceVersion": "1"}} for number in range(5)]
    unchanged = UnchangedApplies()
    for each in live:
        unchanged.add(each, desired)

    assert [unchanged.contains(each, desired) for each in live] == [False] * 3 + [True] * 2


async def test_apply_of_copied_values_does_not_undo_what_changed_since(bench: Bench) -> None:
    """A plan keeps the replicas of the cached Deployment, and somebody scales it meanwhile."""
    await bench.take(Apply(CONFIG_MAP, build_map(replicas="1")))
    planned = bench.api.get(CONFIG_MAP, KEY)["metadata"]["resourceVersion"]
    bench.api.patch(CONFIG_MAP, KEY, {"data": {"replicas": "7"}})
    wanted = build_map(replicas="1", text="new")

    refused = await bench.take(Apply(CONFIG_MAP, wanted, version=planned))
    assert isinstance(refused.first_error(), Conflict)
    assert bench.api.get(CONFIG_MAP, KEY)["data"] == {"replicas": "7"}

    current = bench.api.get(CONFIG_MAP, KEY)["metadata"]["resourceVersion"]
    done = await bench.take(Apply(CONFIG_MAP, build_map(replicas="7", text="new"), version=current))
    assert (done.ok, done.changed) == (True, 1)


async def test_apply_can_leave_fields_of_others_alone(bench: Bench) -> None:
    await bench.client.apply(CONFIG_MAP, build_map(x="theirs"), field_manager="other")
    bench.see()

    outcome = await bench.take(Apply(CONFIG_MAP, build_map(x="ours"), force=False))

    assert isinstance(outcome.first_error(), Conflict)
    assert bench.api.get(CONFIG_MAP, KEY)["data"] == {"x": "theirs"}
    assert (await bench.take(Apply(CONFIG_MAP, build_map(x="ours")))).changed == 1
