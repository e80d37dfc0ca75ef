"""The writer over HTTP: steps that are safe to repeat, and never twice the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from libs.common.client import Client
from libs.common.errors import (
    Conflict,
    Forbidden,
    ForeignObject,
    Invalid,
    MutatedByAdmission,
    NotFound,
    ServerError,
    UnknownOutcome,
)
from libs.common.kinds import (
    CONFIG_MAP,
    NAMESPACE,
    Key,
    Kind,
    Manifest,
    build_object,
    is_deleting,
    uid_of,
)
from libs.common.labels import INSTANCE, MANAGED_BY
from libs.common.ownership import controller_uid
from libs.common.plan import Apply, Create, Delete, Patch
from libs.common.runtime.informer import Informer
from libs.common.runtime.writer import look_up
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.waiting import until
from libs.common.testing.writing import KEY, OTHER, OWNER, Bench, build_map


@pytest.fixture
def bench(fake_api: FakeApi, fake_client: Client) -> Bench:
    return Bench(fake_api, fake_client)


def label(manifest: Manifest) -> Manifest:
    """Give a child the labels of an operator."""
    manifest["metadata"]["labels"] = {MANAGED_BY: "demo", INSTANCE: "w"}
    return manifest


# Create.


async def test_own_write_is_read_at_once(bench: Bench) -> None:
    outcome = await bench.take(Create(CONFIG_MAP, build_map(x="1")))

    assert outcome.ok
    assert outcome.changed == 1
    assert (bench.held() or {})["data"] == {"x": "1"}
    assert [origin for _, origin in bench.reported] == [bench.origin], "the pass knows it"


async def test_event_that_is_here_before_the_answer_is_not_told_to_the_pass(bench: Bench) -> None:
    """It would request another reconcile immediately, even if this one fails and must wait."""
    held = bench.api.hang("create", committed=True)
    take = asyncio.create_task(bench.take(Create(CONFIG_MAP, build_map())))
    await until(lambda: bench.api.find(CONFIG_MAP, KEY))
    bench.see()
    held.release()
    await take
    bench.api.patch(CONFIG_MAP, KEY, {"data": {"x": "of somebody else"}})
    bench.see()
    assert [origin for _, origin in bench.reported] == [bench.origin, None]


@pytest.mark.parametrize("taken_back", [True, False])
async def test_deletion_that_is_seen_before_its_answer_is_told_unless_it_takes_back_a_create(
    bench: Bench, taken_back: bool
) -> None:
    step: Create | Delete = Create(CONFIG_MAP, build_map(), objection=lambda _: "changed")
    if not taken_back:
        bench.api.create(build_map())
        bench.see()
        step = Delete.of(CONFIG_MAP, bench.api.get(CONFIG_MAP, KEY))
    held = bench.api.hang("delete", committed=True)
    take = asyncio.create_task(bench.take(step))
    await until(lambda: bench.held() and bench.api.find(CONFIG_MAP, KEY) is None)
    made = bench.held() or {}
    going = {**made["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    going["resourceVersion"] = str(int(going["resourceVersion"]) + 1)
    bench.informer.put({**made, "metadata": going})
    bench.informer.remove({**made, "metadata": going})
    held.release()
    await take
    told = bench.origin if taken_back else None
    assert [origin for _, origin in bench.reported[1:]] == [told] * 2


async def test_change_by_somebody_else_during_a_write_is_told_to_the_pass(bench: Bench) -> None:
    made = bench.api.create(build_map())
    bench.see()
    held = bench.api.hang("delete")
    take = asyncio.create_task(bench.take(Delete.of(CONFIG_MAP, made)))
    await until(lambda: len(bench.api.requests) == 1)
    bench.api.patch(CONFIG_MAP, KEY, {"data": {"x": "of somebody else"}})
    bench.see()
    assert bench.reported[-1][1] is None

    bench.informer.remove(bench.api.get(CONFIG_MAP, KEY))
    bench.api.vanish(CONFIG_MAP, KEY)
    bench.api.create(build_map())
    bench.see()
    assert bench.reported[-1][1] is None, "another object of that name"
    held.release()
    await take


async def test_name_that_is_taken_by_our_own_is_done(bench: Bench) -> None:
    bench.api.create(build_map(x="theirs"))

    outcome = await bench.take(Create(CONFIG_MAP, build_map(x="ours")))

    assert outcome.ok
    assert outcome.changed == 0
    assert (bench.held() or {})["data"] == {"x": "theirs"}, "the next look plans from what is"


@pytest.mark.parametrize("owner", [OTHER, None], ids=["other controller", "orphan"])
@pytest.mark.parametrize("step", [Create, Apply])
@pytest.mark.parametrize("cached", [True, False])
async def test_object_of_somebody_else_is_left_alone(
    bench: Bench, owner: Manifest | None, step: type[Create | Apply], cached: bool
) -> None:
    before = bench.api.create(build_map(owner=owner, x="theirs"))
    if cached:
        bench.see()

    outcome = await bench.take(step(CONFIG_MAP, build_map(x="ours")))

    assert isinstance(outcome.first_error(), ForeignObject)
    assert "default/a" in str(outcome.first_error())
    assert bench.api.get(CONFIG_MAP, KEY) == before


async def test_new_object_that_its_owner_objects_to_is_deleted_and_no_further_one_is_made(
    bench: Bench,
) -> None:
    def objects(answer: Manifest) -> str:
        return f"{answer['metadata']['name']} has the UID {uid_of(answer)}"

    steps = [Create(CONFIG_MAP, build_map(name), objection=objects) for name in "ab"]
    outcome = await bench.take(*steps)

    assert isinstance(outcome.first_error(), MutatedByAdmission)
    assert "default/a was deleted again: a has the UID" in str(outcome.first_error())
    assert not bench.api.objects(CONFIG_MAP)
    assert bench.held() is None
    assert outcome.skipped == tuple(steps[1:])
    assert {origin for _, origin in bench.reported} == {bench.origin}, "the pass knows it"


async def test_name_that_becomes_free_while_we_look_is_taken(bench: Bench) -> None:
    bench.api.fail("create", status=409, reason="AlreadyExists", times=1)

    outcome = await bench.take(Create(CONFIG_MAP, build_map(x="ours")))

    assert (outcome.ok, outcome.changed) == (True, 1)
    assert (bench.held() or {})["data"] == {"x": "ours"}


async def test_name_of_an_object_that_is_seen_to_go_is_taken_without_a_look(bench: Bench) -> None:
    made = bench.api.create(build_map(x="old"))
    metadata = {**made["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    bench.informer.put({**made, "metadata": metadata})
    bench.api.vanish(CONFIG_MAP, KEY)
    bench.api.fail("create", status=409, reason="AlreadyExists", times=1)

    outcome = await bench.take(Create(CONFIG_MAP, build_map(x="new")))

    assert (outcome.ok, outcome.changed) == (True, 1)
    assert not [each for each in bench.api.requests if each.verb == "get"]
    assert (bench.held() or {})["data"] == {"x": "new"}


async def test_name_that_is_neither_free_nor_taken_is_tried_again_later(bench: Bench) -> None:
    bench.api.fail("create", status=409, reason="AlreadyExists", times=None)

    outcome = await bench.take(Create(CONFIG_MAP, build_map()))

    assert isinstance(outcome.first_error(), NotFound)
    assert len([write for write in bench.api.writes() if write.verb == "create"]) == 3


async def test_what_counts_as_ours_can_be_said(bench: Bench) -> None:
    bench.api.create(build_map(owner=None))

    outcome = await bench.take(Create(CONFIG_MAP, build_map(), ours=lambda _: True))

    assert outcome.ok


# Slow start, batches.


async def test_used_up_quota_costs_one_request(bench: Bench) -> None:
    bench.api.fail("create", CONFIG_MAP, status=403, times=None, message="exceeded quota")
    steps = [Create(CONFIG_MAP, build_map(f"m{number}")) for number in range(500)]

    outcome = await bench.take(*steps)

    assert len(bench.api.writes()) == 1
    assert isinstance(outcome.first_error(), Forbidden)
    assert len(outcome.skipped) == 499


async def test_each_success_lets_two_more_go(bench: Bench) -> None:
    bench.api.fail(
        "create",
        status=403,
        times=None,
        where=lambda request: request.body["metadata"]["name"] != "m0",
    )
    steps = [Create(CONFIG_MAP, build_map(f"m{number}")) for number in range(20)]

    outcome = await bench.take(*steps)

    assert (len(outcome.done), len(outcome.failures), len(outcome.skipped)) == (1, 2, 17)


async def test_batches_stop_at_a_failure(bench: Bench) -> None:
    bench.api.fail("create", status=500, times=1)

    outcome = await bench.writer.execute(
        [
            [Create(CONFIG_MAP, build_map("a")), Create(CONFIG_MAP, build_map("b"))],
            [Create(CONFIG_MAP, build_map("c"))],
        ]
    )

    assert isinstance(outcome.first_error(), ServerError)
    assert [step.key.name for step in outcome.skipped] == ["b", "c"]
    assert len(bench.api.writes()) == 1


async def test_deletions_need_no_slow_start(bench: Bench) -> None:
    made = [bench.api.create(build_map(f"m{number}")) for number in range(8)]
    bench.api.fail("delete", status=500, times=None)

    outcome = await bench.take(*(Delete.of(CONFIG_MAP, each) for each in made))

    assert len(outcome.failures) == 8


# Delete.


async def test_delete_leaves_a_namesake_alone(bench: Bench) -> None:
    gone = bench.api.create(build_map())
    bench.api.vanish(CONFIG_MAP, KEY)
    namesake = bench.api.create(build_map())
    bench.see()

    outcome = await bench.take(Delete.of(CONFIG_MAP, gone))

    assert outcome.ok, "gone is gone"
    assert outcome.changed == 0
    assert uid_of(bench.api.get(CONFIG_MAP, KEY)) == uid_of(namesake)
    assert bench.held() is not None


async def test_deletion_is_seen_at_once(bench: Bench) -> None:
    made = bench.api.create(build_map())
    bench.see()

    assert (await bench.take(Delete.of(CONFIG_MAP, made))).changed == 1

    assert bench.held() is None
    assert (await bench.take(Delete.of(CONFIG_MAP, made))).changed == 0


async def test_object_with_a_finalizer_is_seen_terminating(bench: Bench) -> None:
    manifest = build_map()
    manifest["metadata"]["finalizers"] = ["example.com/wait"]
    made = bench.api.create(manifest)
    bench.see()

    await bench.take(Delete.of(CONFIG_MAP, made))

    assert (bench.held() or {})["metadata"]["deletionTimestamp"]


async def test_namespace_is_seen_terminating_until_it_is_empty(bench: Bench) -> None:
    """It has neither a grace period nor finalizers in its metadata, and is there all the same."""
    informer = Informer(NAMESPACE)
    bench.cache.add(informer)
    manifest = build_object(NAMESPACE, "made")
    await bench.take(Create(NAMESPACE, manifest))
    made = bench.api.get(NAMESPACE, Key("", "made"))

    await bench.take(Delete.of(NAMESPACE, made))

    held = informer.store.get(Key("", "made"))
    assert held is not None
    assert is_deleting(held)


async def test_conflict_that_is_not_about_the_uid_leaves_the_object_in_the_cache(
    bench: Bench,
) -> None:
    made = bench.api.create(build_map())
    bench.see()
    bench.api.fail("delete", status=409)

    outcome = await bench.take(Delete.of(CONFIG_MAP, made))

    assert isinstance(outcome.first_error(), Conflict)
    assert bench.held() is not None


# Patch.


async def test_patch_of_another_incarnation_is_a_conflict(bench: Bench) -> None:
    bench.api.create(build_map())
    add = {"op": "add", "path": "/data/x", "value": "1"}

    outcome = await bench.take(Patch(CONFIG_MAP, KEY, "another", [add]))

    assert isinstance(outcome.first_error(), Conflict)


async def test_patch_of_another_version_is_a_conflict(bench: Bench) -> None:
    made = bench.api.create(build_map(x="1"))
    bench.api.patch(CONFIG_MAP, KEY, {"data": {"x": "2"}})
    add = {"op": "add", "path": "/data/x", "value": "3"}
    version = made["metadata"]["resourceVersion"]

    outcome = await bench.take(Patch(CONFIG_MAP, KEY, uid_of(made), [add], version))

    assert isinstance(outcome.first_error(), Conflict)


async def test_patch_that_makes_the_object_invalid_is_no_conflict(bench: Bench) -> None:
    made = bench.api.create(build_map())
    label = {"op": "add", "path": "/metadata/labels", "value": {"a": "not a label!"}}

    outcome = await bench.take(Patch(CONFIG_MAP, KEY, uid_of(made), [label]))

    assert isinstance(outcome.first_error(), Invalid)


# Lost answers.


@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
async def test_write_without_answer_is_looked_up(bench: Bench, done: bool) -> None:
    bench.api.fail("create", lost_response=done, dropped=not done)

    outcome = await bench.take(Create(CONFIG_MAP, build_map()))

    assert isinstance(outcome.first_error(), UnknownOutcome)
    assert bench.unknown == {(CONFIG_MAP, KEY)}
    await look_up(bench.client, bench.cache, CONFIG_MAP, KEY)
    assert (bench.held() is not None) is done


async def test_pass_that_is_cut_short_leaves_its_write_to_be_looked_up(bench: Bench) -> None:
    bench.api.hang("create")
    task = asyncio.create_task(bench.take(Create(CONFIG_MAP, build_map())))
    await until(lambda: len(bench.api.requests) == 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert bench.unknown == {(CONFIG_MAP, KEY)}


async def test_object_that_is_gone_is_forgotten_by_a_look(bench: Bench) -> None:
    bench.api.create(build_map())
    bench.see()
    bench.api.vanish(CONFIG_MAP, KEY)

    await look_up(bench.client, bench.cache, CONFIG_MAP, KEY)

    assert bench.held() is None


async def test_object_that_comes_during_a_look_stays(bench: Bench) -> None:
    """The write arrives late: after the read found nothing, and before its response is read."""
    held = bench.api.hang("get", committed=True)
    look = asyncio.create_task(look_up(bench.client, bench.cache, CONFIG_MAP, KEY))
    await until(lambda: len(bench.api.requests) == 1)
    bench.api.create(build_map())
    bench.see()
    held.release()
    await look

    assert bench.held() is not None


@pytest.mark.parametrize("former", [OTHER, None], ids=["former UID", "no owner reference"])
@pytest.mark.parametrize("step", [Apply, partial(Create, inherits=True)], ids=["apply", "create"])
@pytest.mark.parametrize("cached", [True, False])
async def test_child_of_an_earlier_incarnation_of_the_owner_is_adopted(
    bench: Bench,
    former: Manifest | None,
    step: Callable[[Kind, Manifest], Create | Apply],
    cached: bool,
) -> None:
    """As after a restore from a backup, or after GitOps has recreated the owner."""
    before = bench.api.create(label(build_map(owner=former, x="kept")))
    if cached:
        bench.see()

    outcome = await bench.take(step(CONFIG_MAP, label(build_map(x="kept"))))

    after = bench.api.get(CONFIG_MAP, KEY)
    assert (outcome.ok, outcome.changed) == (True, 1)
    assert (uid_of(after), after["data"]) == (uid_of(before), {"x": "kept"})
    assert [each["uid"] for each in after["metadata"]["ownerReferences"]] == [uid_of(OWNER)]
    assert controller_uid(bench.held() or {}) == uid_of(OWNER)


async def test_create_of_an_object_without_data_adopts_nothing(bench: Bench) -> None:
    bench.api.create(label(build_map(owner=OTHER)))

    outcome = await bench.take(Create(CONFIG_MAP, label(build_map())))

    assert isinstance(outcome.first_error(), ForeignObject)
