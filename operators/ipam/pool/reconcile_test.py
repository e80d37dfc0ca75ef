"""Who gets which address: invariants that hold in every state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.kinds import Key
from operators.ipam.addresses import AddressSet, parse_address, render_address
from operators.ipam.api.v1alpha1.claims import ClaimReason
from operators.ipam.api.v1alpha1.pools import IPPoolSpec, Strategy
from operators.ipam.ledger import Entry, Ledger, Range, Request
from operators.ipam.naming import allocation_name
from operators.ipam.pool.reconcile import (
    PendingReason,
    PoolView,
    build_range,
    find_last,
    plan_pool,
    round_position,
)

BASE = parse_address("203.0.113.0")
POOL = "public"


def build_view(
    size: int = 4, strategy: Strategy = Strategy.LOWEST_FREE, last: int | None = None
) -> PoolView:
    addresses = AddressSet.of([(BASE, BASE + size - 1)])
    return PoolView(POOL, Range("public", v6=False, addresses=addresses), strategy, last)


def build_request(name: str, namespace: str = "default", **fields: object) -> Request:
    request = Request(Key(namespace, name), f"uid-{name}", POOL)
    return replace(request, **fields)  # type: ignore[arg-type]  # fields of a test


def build_entry(offset: int, claim: str = "other", *, released: bool = False) -> Entry:
    address = render_address(BASE + offset, v6=False)
    name = allocation_name("public", address)
    key = Key("default", claim)
    return Entry(
        name, f"e{offset}", "public", address, BASE + offset, POOL, key, f"uid-{claim}", released
    )


def build_ledger(entries: Sequence[Entry] = (), requests: Sequence[Request] = ()) -> Ledger:
    ledger = Ledger()
    for entry in entries:
        ledger.put_entry(entry)
    for request in requests:
        ledger.put_request(request)
    return ledger


def list_grants(pool: PoolView, ledger: Ledger) -> dict[str, str]:
    plan = plan_pool(pool, ledger)
    return {grant.request.claim.name: grant.address for grant in plan.grants}


# The order.


def test_priority_goes_before_age_and_age_before_uid() -> None:
    requests = [
        build_request("late", created="2026-01-02T00:00:00Z"),
        build_request("b-same", created="2026-01-01T00:00:00Z"),
        build_request("a-same", created="2026-01-01T00:00:00Z"),
        build_request("urgent", created="2026-01-03T00:00:00Z", priority=1),
    ]

    assert list_grants(build_view(), build_ledger((), requests)) == {
        "urgent": "203.0.113.0",
        "a-same": "203.0.113.1",
        "b-same": "203.0.113.2",
        "late": "203.0.113.3",
    }


def test_claims_that_wait_know_their_place() -> None:
    requests = [build_request(name) for name in ("a", "b", "c")]

    plan = plan_pool(build_view(1), build_ledger((), requests))

    assert [grant.request.claim.name for grant in plan.grants] == ["a"]
    assert {uid: pending_reason.position for uid, pending_reason in plan.pending.items()} == {
        "uid-b": 1,
        "uid-c": 2,
    }


def test_claim_that_cannot_be_served_blocks_nobody() -> None:
    """Upstream: metal3-io/ip-address-manager#988, one bad claim stopped all others."""
    requests = [
        build_request("taken", priority=9, requested="203.0.113.0"),
        build_request("outside", priority=8, requested="198.51.100.1"),
        build_request("six", priority=7, requested="2001:db8::1"),
        build_request("refused", priority=6),
        build_request("good"),
    ]
    ledger = build_ledger([build_entry(0)], requests)
    refused = {"uid-refused": PendingReason(ClaimReason.ALLOCATION_FAILED, "no")}

    plan = plan_pool(build_view(), ledger, refused)

    assert [grant.request.claim.name for grant in plan.grants] == ["good"]
    reasons = {uid: pending_reason.reason for uid, pending_reason in plan.pending.items()}
    assert reasons == {
        "uid-taken": ClaimReason.ADDRESS_TAKEN,
        "uid-outside": ClaimReason.ADDRESS_OUT_OF_RANGE,
        "uid-six": ClaimReason.ADDRESS_OUT_OF_RANGE,
        "uid-refused": ClaimReason.ALLOCATION_FAILED,
    }


def test_claim_that_the_pool_is_not_for_waits_without_a_place() -> None:
    refusal = PendingReason(ClaimReason.NAMESPACE_NOT_ALLOWED, "no")
    pool = replace(
        build_view(), evaluate=lambda each: refusal if each.claim.namespace == "bad" else None
    )
    requests = [build_request("a", "bad"), build_request("b", "good")]

    plan = plan_pool(pool, build_ledger((), requests))

    assert [grant.request.claim.name for grant in plan.grants] == ["b"]
    assert plan.pending["uid-a"].reason is ClaimReason.NAMESPACE_NOT_ALLOWED
    assert plan.pending["uid-a"].position is None


# The choice.


@pytest.mark.parametrize(
    ("strategy", "last", "expected"),
    [
        (Strategy.LOWEST_FREE, 2, 0),
        (Strategy.ROUND_ROBIN, None, 0),
        (Strategy.ROUND_ROBIN, 1, 2),
        (Strategy.ROUND_ROBIN, 3, 0),
    ],
)
def test_strategy_chooses_among_the_free(
    strategy: Strategy, last: int | None, expected: int
) -> None:
    pool = build_view(4, strategy, None if last is None else BASE + last)

    plan = plan_pool(pool, build_ledger((), [build_request("a")]))

    assert parse_address(plan.grants[0].address) == BASE + expected
    assert find_last(pool, plan.grants) == BASE + expected


def test_random_choice_is_the_same_after_a_crash() -> None:
    pool, ledger = build_view(200, Strategy.RANDOM), build_ledger((), [build_request("a")])

    assert list_grants(pool, ledger) == list_grants(pool, ledger)
    chosen = {
        list_grants(pool, build_ledger((), [build_request(f"c{i}")]))[f"c{i}"] for i in (1, 2)
    }
    assert len(chosen) == 2


def test_address_at_rest_is_for_the_claim_of_the_same_name_alone() -> None:
    rest = build_entry(0, "web", released=True)
    requests = [build_request("db"), build_request("web", uid="uid-web-2")]

    plan = plan_pool(build_view(1), build_ledger([rest], requests))

    assert [(grant.request.claim.name, grant.tombstone) for grant in plan.grants] == [("web", rest)]
    assert plan.pending["uid-db"].reason is ClaimReason.POOL_EXHAUSTED


def test_claim_that_is_not_sticky_leaves_the_address_at_rest() -> None:
    rest = build_entry(0, "web", released=True)
    request = build_request("web", uid="uid-web-2", sticky=False)

    assert list_grants(build_view(2), build_ledger([rest], [request])) == {"web": "203.0.113.1"}


def test_wish_for_an_address_at_rest_waits_unless_it_was_ones_own() -> None:
    rest = build_entry(0, "web", released=True)
    requests = [
        build_request("db", requested="203.0.113.0"),
        build_request("web", uid="uid-web-2", requested="203.0.113.0", sticky=False),
    ]

    plan = plan_pool(build_view(), build_ledger([rest], requests))

    assert [grant.request.claim.name for grant in plan.grants] == ["web"]
    assert plan.pending["uid-db"].reason is ClaimReason.ADDRESS_QUARANTINED


def test_claim_whose_entry_was_lost_gets_the_same_address_before_anybody_else() -> None:
    requests = [
        build_request("new", priority=1000),
        build_request("old", held="203.0.113.0"),
        build_request("robbed", held="203.0.113.1"),
    ]

    plan = plan_pool(build_view(), build_ledger([build_entry(1)], requests))

    assert {grant.request.claim.name: grant.address for grant in plan.grants} == {
        "old": "203.0.113.0",
        "new": "203.0.113.2",
    }
    assert plan.pending["uid-robbed"].reason is ClaimReason.ADDRESS_LOST


def test_pool_that_serves_nobody_still_restores() -> None:
    refusal = PendingReason(ClaimReason.POOL_DRAINING, "draining")
    pool = replace(build_view(), refusal=refusal)
    requests = [build_request("old", held="203.0.113.0"), build_request("new")]

    plan = plan_pool(pool, build_ledger((), requests))

    assert [grant.request.claim.name for grant in plan.grants] == ["old"]
    assert plan.pending == {"uid-new": refusal}


# What holds whatever there is.

OFFSETS = st.integers(0, 11)
ADDRESSES = OFFSETS.map(lambda offset: render_address(BASE + offset, v6=False))


@st.composite
def build_initial_objects(draw: st.DrawFn) -> tuple[PoolView, Ledger]:
    names = st.sampled_from([f"c{i}" for i in range(8)])
    entries = [
        build_entry(offset, draw(names) + "-old", released=draw(st.booleans()))
        for offset in draw(st.sets(OFFSETS))
    ]
    requests = [
        build_request(
            name,
            uid=f"uid-{name}-{draw(st.integers(0, 1))}",
            claim=Key("default", name + draw(st.sampled_from(["", "-old"]))),
            priority=draw(st.integers(-1, 1)),
            created=draw(st.sampled_from(["1", "2"])),
            requested=draw(st.one_of(st.just(""), ADDRESSES)),
            held=draw(st.one_of(st.just(""), st.just(""), ADDRESSES)),
            sticky=draw(st.booleans()),
        )
        for name in sorted(draw(st.sets(names)))
    ]
    pool = build_view(
        draw(st.integers(1, 10)),
        draw(st.sampled_from(list(Strategy))),
        draw(st.one_of(st.none(), OFFSETS.map(lambda offset: BASE + offset))),
    )
    return pool, build_ledger(entries, requests)


@given(build_initial_objects())
def test_no_address_is_given_that_somebody_has(model: tuple[PoolView, Ledger]) -> None:
    pool, ledger = model
    plan = plan_pool(pool, ledger)

    given_ = [grant.address for grant in plan.grants]
    # Two claims with the same address in their status are the only case that a plan cannot decide:
    # the create of the second one is refused.
    free = [grant.address for grant in plan.grants if not grant.request.held]
    assert len(set(free)) == len(free)
    for grant in plan.grants:
        entry = ledger.find_at("public", grant.address)
        assert entry == grant.tombstone
        if entry is not None:
            assert entry.claim == grant.request.claim
            assert entry.released or entry.claim_uid != grant.request.uid
        if not grant.request.held:
            assert parse_address(grant.address) in pool.range.addresses
    assert len(given_) + len(plan.pending) == len(ledger.list_open(POOL))


@given(build_initial_objects())
def test_nobody_waits_while_an_address_is_free(model: tuple[PoolView, Ledger]) -> None:
    pool, ledger = model
    plan = plan_pool(pool, ledger)

    waiting = [
        uid for uid, pending_reason in plan.pending.items() if pending_reason.position is not None
    ]
    taken = {parse_address(grant.address) for grant in plan.grants}
    free = pool.range.addresses.size - ledger.count_used(pool.range)
    new = {
        number
        for number in taken
        if number in pool.range.addresses
        and ledger.find_at("public", render_address(number, v6=False)) is None
    }
    assert not waiting or free == len(new)


@given(build_initial_objects())
def test_queue_is_served_from_its_head(model: tuple[PoolView, Ledger]) -> None:
    """Of those for whom any address would do, nobody is served before one who ranks higher."""
    pool, ledger = model
    plan = plan_pool(pool, ledger)

    ranks = {request.uid: request.rank(None) for request in ledger.list_open(POOL)}
    served = [
        grant.request.rank(None)
        for grant in plan.grants
        if not (grant.request.held or grant.request.requested or grant.tombstone)
    ]
    waiting = [ranks[uid] for uid, each in plan.pending.items() if each.position is not None]
    assert served == sorted(served)
    assert waiting == sorted(waiting)
    if served and waiting:
        assert max(served) < min(waiting)


# Quotas and limits.


def test_namespace_gets_no_more_addresses_than_its_quota() -> None:
    ledger = build_ledger(
        [build_entry(0, "old")],
        [
            *(build_request(f"mine-{number}", created=f"2026-01-0{number}") for number in (1, 2)),
            build_request("theirs", "shop", created="2026-01-03"),
        ],
    )
    plan = plan_pool(replace(build_view(size=4), quota=2), ledger)

    assert {grant.request.claim.name for grant in plan.grants} == {"mine-1", "theirs"}
    pending_reason = plan.pending["uid-mine-2"]
    assert (pending_reason.reason, pending_reason.position) == (ClaimReason.QUOTA_EXCEEDED, None)
    assert "namespace default has all 2 addresses" in pending_reason.message


def test_namespace_at_its_quota_reuses_its_own_addresses_in_quarantine() -> None:
    """Otherwise it could quarantine the whole pool, although its quota allows two addresses."""
    resting = [build_entry(number, f"old-{number}", released=True) for number in (1, 2)]
    requests = [build_request(f"new-{number}") for number in (1, 2, 3)]
    requests.append(build_request("theirs", "shop"))

    plan = plan_pool(replace(build_view(), quota=2), build_ledger(resting, requests))

    assert {each.request.claim.name: each.address for each in plan.grants} == {
        "new-1": "203.0.113.1",
        "new-2": "203.0.113.2",
        "theirs": "203.0.113.0",
    }
    assert plan.pending["uid-new-3"].reason is ClaimReason.QUOTA_EXCEEDED


@pytest.mark.parametrize(
    "fields", [{"sticky": False}, {"requested": "203.0.113.0"}], ids=["sticky", "address"]
)
def test_claim_that_cannot_reuse_an_address_waits_for_the_quarantine(
    fields: dict[str, Any],
) -> None:
    resting = build_entry(1, "old", released=True)
    ledger = build_ledger([resting], [build_request("new", **fields)])

    plan = plan_pool(replace(build_view(), quota=1), ledger)

    assert plan.grants == ()
    assert "including addresses in quarantine" in plan.pending["uid-new"].message


def test_restored_claims_get_their_addresses_whatever_the_quota_is() -> None:
    entries = [replace(build_entry(each, f"c{each}"), claim_uid="before") for each in (1, 2)]
    ledger = build_ledger(entries, [build_request("c1"), build_request("c2")])

    assert list_grants(replace(build_view(), quota=1), ledger) == {
        "c1": "203.0.113.1",
        "c2": "203.0.113.2",
    }


def test_restored_pool_allocates_only_what_the_ledger_has() -> None:
    wait = PendingReason(ClaimReason.POOL_NOT_READY, "restored")
    view = replace(build_view(), restoring=wait)
    requests = [build_request("a", sticky=False), build_request("b")]
    requests.append(build_request("c", requested="203.0.113.3"))
    entry = replace(build_entry(2, "a"), claim_uid="before", pool_uid="earlier")

    plan = plan_pool(view, build_ledger([entry], requests))

    assert [(each.request.claim.name, each.address) for each in plan.grants] == [
        ("a", "203.0.113.2")
    ]
    assert plan.pending == {"uid-b": wait, "uid-c": wait}


def test_quota_never_takes_away_what_a_claim_has() -> None:
    requests = [build_request(f"c{number}", held=f"203.0.113.{number}") for number in range(2)]
    granted = list_grants(replace(build_view(), quota=1), build_ledger((), requests))

    assert granted == {"c0": "203.0.113.0", "c1": "203.0.113.1"}


def test_priority_beyond_the_limit_of_the_pool_does_not_count() -> None:
    requests = [
        build_request("first", created="2026-01-01T00:00:00Z"),
        build_request("pushy", created="2026-01-02T00:00:00Z", priority=1000),
    ]
    ledger = build_ledger((), requests)

    assert list_grants(build_view(size=1), ledger) == {"pushy": "203.0.113.0"}
    assert list_grants(replace(build_view(size=1), max_priority=0), ledger) == {
        "first": "203.0.113.0"
    }


# What a status says.


@pytest.mark.parametrize("held", ["8.8.8.8", "203.0.113.4", "2001:db8::1"])
def test_address_that_the_pool_does_not_have_is_not_restored_for_a_status(held: str) -> None:
    """A restore from a backup, or somebody with the right to write statuses, may bring any."""
    plan = plan_pool(build_view(size=4), build_ledger((), [build_request("a", held=held)]))

    assert plan.grants == ()
    assert plan.pending["uid-a"].reason is ClaimReason.ADDRESS_LOST
    assert f"{held} for this claim" in plan.pending["uid-a"].message


def test_status_with_an_ipv4_address_gets_nothing_of_an_ipv6_pool() -> None:
    """As numbers, 8.8.8.8 is ::808:808."""
    everything = AddressSet.of([(0, 2**128 - 1)])
    pool = PoolView(POOL, Range("public", v6=True, addresses=everything))

    assert list_grants(pool, build_ledger((), [build_request("a", held="8.8.8.8")])) == {}


def test_one_address_in_two_statuses_is_restored_once() -> None:
    requests = [build_request(name, held="203.0.113.1") for name in ("a", "b")]
    plan = plan_pool(build_view(), build_ledger((), requests))

    assert [grant.request.claim.name for grant in plan.grants] == ["a"]
    assert plan.pending["uid-b"].reason is ClaimReason.ADDRESS_LOST


def test_entry_that_an_earlier_claim_of_the_name_left_proves_its_address() -> None:
    entry = replace(build_entry(9, "a", released=True), claim_uid="before")
    plan = plan_pool(
        build_view(size=4), build_ledger([entry], [build_request("a", held="203.0.113.9")])
    )

    (grant,) = plan.grants
    assert (grant.address, grant.tombstone) == ("203.0.113.9", entry)


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("fields", [{}, {"held": "203.0.113.2"}, {"requested": "203.0.113.2"}])
def test_claim_gets_the_address_of_its_predecessor(released: bool, fields: dict[str, Any]) -> None:
    entry = replace(build_entry(2, "a", released=released), claim_uid="before")
    requests = [build_request("a", **fields), build_request("b")]

    plan = plan_pool(build_view(), build_ledger([entry], requests))
    assert {each.request.claim.name: each.address for each in plan.grants} == {
        "a": "203.0.113.2",
        "b": "203.0.113.0",
    }


def test_entry_of_a_predecessor_that_is_being_deleted_is_left_alone() -> None:
    entry = replace(build_entry(2, "a"), claim_uid="before")
    requests = [build_request("a"), build_request("b")]

    going = build_ledger([replace(entry, deleting=True)], requests)
    assert len(plan_pool(build_view(), going).grants) == 2, "an entry on its way out is no reason"


# Small things.


@pytest.mark.parametrize(
    ("position", "shown"), [(1, 1), (99, 99), (100, 100), (101, 110), (999, 1000), (1001, 1100)]
)
def test_place_is_exact_where_it_matters(position: int, shown: int) -> None:
    assert round_position(position) == shown


def test_pool_has_its_addresses_without_those_that_are_never_given() -> None:
    spec = IPPoolSpec.from_manifest(
        {
            "family": "IPv4",
            "addresses": ["203.0.113.0/29", "203.0.113.100-203.0.113.101"],
            "excluded": ["203.0.113.4/31"],
            "gateway": "203.0.113.1",
        }
    )

    found = build_range(spec).addresses

    numbers = [number for first, last in found.runs for number in range(first, last + 1)]
    assert [number - BASE for number in numbers] == [2, 3, 6, 100, 101]


def test_huge_pool_is_planned_at_once() -> None:
    spec = IPPoolSpec.from_manifest({"family": "IPv6", "addresses": ["2001:db8::/32"]})
    pool = PoolView(POOL, build_range(spec), Strategy.RANDOM)

    plan = plan_pool(pool, build_ledger((), [build_request("a")]))

    assert plan.grants[0].address.startswith("2001:db8:")
