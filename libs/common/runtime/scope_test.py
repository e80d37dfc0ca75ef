"""Scopes: one namespace that cannot be read is seen, retried, and delays no other."""

from __future__ import annotations

import asyncio

import pytest

from libs.common.client import Client
from libs.common.errors import Forbidden, ServerError
from libs.common.kinds import CONFIG_MAP, NODE, Key, build_object
from libs.common.metric_specs import SCOPE_UP
from libs.common.metrics import Metrics
from libs.common.runtime.cache import Cache
from libs.common.runtime.informer import Informer
from libs.common.runtime.listing import InformerListing
from libs.common.runtime.reflector import Reflector
from libs.common.runtime.sweep import Sweeper
from libs.common.testing.clock import FakeClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.waiting import advance_until, turns, until
from libs.common.testing.writing import fill_scope

REFUSED = Forbidden(403, "Forbidden", "no role")


def build_informer(*namespaces: str, clock: FakeClock | None = None) -> Informer:
    return Informer(
        CONFIG_MAP, namespaces=namespaces, source="reflector", clock=clock or FakeClock()
    )


def test_refused_scope_is_waited_for_some_seconds_and_then_left_out() -> None:
    clock = FakeClock()
    informer = build_informer("a", "b", clock=clock)
    informer.mark_synced("a")

    assert not informer.note_failure("b", REFUSED)
    assert not informer.synced
    clock.advance(5)
    assert informer.note_failure("b", REFUSED)
    assert informer.synced


def test_process_that_can_read_nothing_at_all_is_not_ready() -> None:
    clock = FakeClock()
    informer = build_informer("a", clock=clock)
    for _ in range(3):
        informer.note_failure("a", REFUSED)
        clock.advance(10)

    assert not informer.synced


def test_scope_that_was_read_is_not_given_up_for_an_error_of_the_server() -> None:
    clock = FakeClock()
    informer = build_informer("a", "b", clock=clock)
    informer.mark_synced("a")
    informer.mark_synced("b")
    for _ in range(3):
        assert not informer.note_failure("b", ServerError(500, "InternalError", "etcd"))
        clock.advance(60)


def test_scope_that_can_be_read_again_is_announced_once() -> None:
    clock, announced = FakeClock(), list[str]()
    informer = build_informer("a", "b", clock=clock)
    informer.add_scope_handler(announced.append)
    informer.mark_synced("a")
    informer.note_failure("b", REFUSED)
    clock.advance(5)
    informer.note_failure("b", REFUSED)

    informer.mark_synced("b")
    informer.mark_synced("b")

    assert announced == ["b"]


def test_namespaces_that_come_and_go_take_their_objects_along() -> None:
    informer, reported = build_informer("a", "b"), list[tuple[str, bool]]()
    for namespace in ("a", "b"):
        found = build_object(CONFIG_MAP, "x", namespace)
        found["metadata"] |= {"uid": namespace, "resourceVersion": "5"}
        fill_scope(informer, [found], 7, namespace)
    informer.add_handler(lambda change, _: reported.append((str(change.key), change.new is None)))

    informer.watch_namespaces(["b", "c"])

    assert informer.scopes == ("b", "c")
    assert reported == [("a/x", True)]
    late = build_object(CONFIG_MAP, "late", "a")
    late["metadata"] |= {"uid": "late", "resourceVersion": "9"}
    assert informer.put(late) is None, "an event that was on its way brings nothing back"


def test_unreadable_scope_is_told_by_gauge_remark_and_reason_and_by_no_dead_watch() -> None:
    clock, metrics, cache = FakeClock(), Metrics(), Cache()
    informer = build_informer("a", "b", clock=clock)
    cache.add(informer)
    nodes = Informer(NODE, source="reflector", clock=clock)
    nodes.mark_synced()
    cache.add(nodes)
    cache.export_scopes(metrics.gauge(SCOPE_UP))
    informer.mark_synced("a")
    informer.note_failure("b", REFUSED)
    clock.advance(2000)
    informer.note_failure("b", REFUSED)
    informer.mark_alive("a")
    nodes.mark_alive()

    values = {
        name: metrics.value("operator_cache_scope_up", watched_namespace=name) for name in "ab*"
    }
    assert values == {"a": 1, "b": 0, "*": 1}
    assert cache.check_synced() == "cannot read configmaps in b"
    assert cache.check_watches() is None
    assert informer.silence == 0
    assert "configmaps in b" in cache.find_blocked([CONFIG_MAP, NODE], "b")
    assert cache.find_blocked([CONFIG_MAP, NODE], "a") == ""
    assert cache.find_blocked([CONFIG_MAP], None)


def test_kind_that_is_not_served_gets_no_older() -> None:
    """Seven alerts in four operators fired at rest, one for each optional kind."""
    clock, metrics = FakeClock(), Metrics()
    informer = Informer(CONFIG_MAP, optional=True, clock=clock, metrics=metrics.cache("configmaps"))
    informer.mark_unserved()
    clock.advance(5000)

    age = "operator_watch_last_event_age_seconds"
    assert metrics.value(age, resource="configmaps") == 0
    informer.mark_alive()
    clock.advance(7)
    assert metrics.value(age, resource="configmaps") == 7


async def test_sweep_of_an_unreadable_namespace_delays_no_other(
    fake_api: FakeApi, fake_client: Client
) -> None:
    clock = FakeClock()
    names = tuple(f"n{number:02}" for number in range(20))
    informer = build_informer(*names, clock=clock)
    for name in names:
        fill_scope(informer, [], 1, name)
    fake_api.fail("list", status=403, times=None, where=lambda r: r.key.namespace == "n03")
    sweeper = Sweeper(fake_client, clock=clock, rng=lambda: 0.5)
    keeping = asyncio.create_task(sweeper.keep(informer))
    await turns()

    def count(name: str) -> int:
        lists = fake_api.requests.select("list", CONFIG_MAP)
        return sum(request.key.namespace == name for request in lists)

    others = [name for name in names if name != "n03"]
    await advance_until(
        clock, lambda: all(count(name) >= 2 for name in others) and count("n03") >= 3
    )

    assert [str(scope) for scope in informer.all_scopes if scope.blocked] == ["n03"]
    keeping.cancel()


async def test_catching_up_leaves_out_what_stays_unreadable(
    fake_api: FakeApi, fake_client: Client
) -> None:
    clock = FakeClock()
    informer = build_informer("a", "b", clock=clock)
    fill_scope(informer, [], 1, "a")
    fill_scope(informer, [], 1, "b")
    fake_api.fail("list", status=403, times=None, where=lambda r: r.key.namespace == "a")
    task = asyncio.create_task(Sweeper(fake_client, clock=clock).catch_up(informer))

    moved = await advance_until(clock, task.done)

    assert moved < 10
    assert [scope.blocked for scope in informer.all_scopes] == [True, False]


@pytest.mark.parametrize("failing", ["a", ""])
async def test_new_leader_gives_up_on_a_scope_that_fails_only_if_others_can_be_read(
    fake_api: FakeApi, fake_client: Client, failing: str
) -> None:
    """Such as a namespace with an object that cannot be converted; its watch may still work."""
    clock = FakeClock()
    informer = build_informer("a", "b", clock=clock)
    for name in ("a", "b"):
        fill_scope(informer, [], 1, name)
    fault = fake_api.fail(
        "list", status=500, times=None, where=lambda r: r.key.namespace.startswith(failing)
    )
    task = asyncio.create_task(Sweeper(fake_client, clock=clock).catch_up(informer))

    await advance_until(clock, lambda: task.done() or clock.monotonic() > 300)

    assert task.done() is bool(failing)
    assert [scope.blocked for scope in informer.all_scopes] == [bool(failing), False]
    fault.release()
    fake_api.faults.clear()
    await advance_until(clock, task.done)
    keeping = asyncio.create_task(Sweeper(fake_client, clock=clock).keep(informer))
    await advance_until(clock, lambda: not any(scope.blocked for scope in informer.all_scopes))
    keeping.cancel()


async def test_change_of_the_namespaces_is_noticed_by_a_waiter_that_has_not_run_yet() -> None:
    """A kopf starts with the namespaces of now, and is restarted only for a later change."""
    informer = build_informer("a")
    waiting = asyncio.create_task(informer.wait_scopes_changed())
    informer.watch_namespaces(["a", "b"])
    await turns()

    assert waiting.done()


async def test_page_that_was_on_its_way_restores_no_object_of_a_deselected_namespace() -> None:
    informer = build_informer("a", "b")
    found = build_object(CONFIG_MAP, "x", "a")
    found["metadata"] |= {"uid": "u", "resourceVersion": "5"}
    listing = InformerListing(informer, "a")
    informer.watch_namespaces(["b"])

    listing.take([found], 7)
    listing.finish(7)

    assert not informer.store


async def test_streams_end_at_different_times(fake_api: FakeApi, fake_client: Client) -> None:
    """Fifty streams that begin together must not all end together five minutes later."""
    informer = Informer(CONFIG_MAP, namespaces=[f"n{n}" for n in range(20)], source="reflector")
    stop = asyncio.Event()
    source = asyncio.create_task(Reflector(fake_client).run([informer], stop))
    await until(lambda: len(fake_api.requests.select("watch", CONFIG_MAP)) == 20)
    stop.set()
    await source

    asked = {int(r.query["timeoutSeconds"]) for r in fake_api.requests.select("watch", CONFIG_MAP)}
    assert len(asked) > 10
    assert all(300 <= seconds <= 600 for seconds in asked)


async def test_one_404_does_not_empty_the_cache_of_an_optional_kind(
    fake_api: FakeApi, fake_client: Client
) -> None:
    """API servers that have just started do not know all kinds."""
    reported: list[str] = []
    informer = Informer(CONFIG_MAP, source="reflector", optional=True)
    informer.add_handler(
        lambda change, _: reported.append(change.key.name) if not change.new else None
    )
    fake_api.create(build_object(CONFIG_MAP, "a", "default"))
    stop = asyncio.Event()
    source = asyncio.create_task(Reflector(fake_client).run([informer], stop))
    await until(lambda: informer.synced and fake_api.watches.count(CONFIG_MAP))
    fault = fake_api.fail("watch", CONFIG_MAP, status=404, times=1)
    fake_api.watches.close_all()
    await until(lambda: fault.hits and fake_api.watches.count(CONFIG_MAP))
    stop.set()
    await source

    assert (reported, informer.served, len(informer.store)) == ([], True, 1)


@pytest.mark.parametrize("namespace", ["default", "other"])
async def test_response_to_a_write_that_no_watch_will_follow_is_not_kept(
    fake_api: FakeApi, fake_client: Client, namespace: str
) -> None:
    informer = Informer(
        CONFIG_MAP, namespaces=("default",), label_selector="ours=yes", source="reflector"
    )
    labels = {} if namespace == "default" else {"ours": "yes"}
    if namespace == "other":
        fake_api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    made = build_object(CONFIG_MAP, "a", namespace, metadata={"labels": labels})

    informer.wrote(await fake_client.create(CONFIG_MAP, made))
    assert informer.store.get(Key(namespace, "a")) is None

    ours = build_object(CONFIG_MAP, "b", "default", metadata={"labels": {"ours": "yes"}})
    informer.wrote(await fake_client.create(CONFIG_MAP, ours))
    assert informer.store.get(Key("default", "b")) is not None
