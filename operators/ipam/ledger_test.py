"""The ledger in memory, compared with one that is computed from all objects."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from libs.common.kinds import Key
from operators.ipam.addresses import AddressSet
from operators.ipam.ledger import Entry, Ledger, Range, Request

NAMES = st.sampled_from(["a", "b", "c"])
POOLS = st.sampled_from(["p", "q"])
NUMBERS = st.integers(0, 5)


def build_entry(number: int, pool: str, claim: str, *, released: bool) -> Entry:
    name = f"public-ip4-0-0-0-{number}"
    key = Key("default", claim)
    return Entry(name, "u", "public", f"0.0.0.{number}", number, pool, key, f"u-{claim}", released)


ENTRIES = st.builds(build_entry, NUMBERS, POOLS, NAMES, released=st.booleans())
REQUESTS = st.builds(
    lambda name, pool: Request(Key("default", name), f"u-{name}", pool), NAMES, POOLS
)
CHANGES = st.one_of(
    ENTRIES,
    REQUESTS,
    NUMBERS.map(lambda number: f"public-ip4-0-0-0-{number}"),
    st.tuples(POOLS, NAMES.map(lambda name: f"u-{name}")),
)


@given(st.lists(CHANGES, max_size=40))
def test_ledger_after_any_changes_is_that_of_what_is_left(changes: list[object]) -> None:
    ledger = Ledger()
    entries: dict[str, Entry] = {}
    requests: dict[tuple[str, str], Request] = {}
    for change in changes:
        match change:
            case Entry():
                ledger.put_entry(change)
                entries[change.name] = change
            case Request():
                ledger.put_request(change)
                requests[change.pool, change.uid] = change
            case str():
                ledger.remove_entry(change)
                entries.pop(change, None)
            case (str(pool), str(uid)):
                ledger.remove_request(pool, uid)
                requests.pop((pool, uid), None)
            case _:
                raise AssertionError(change)

    assert ledger.entries == entries
    assert ledger.copy_used(("public", False)) == sorted(each.number for each in entries.values())
    inside = AddressSet.of([(1, 3)])
    for pool in ("p", "q"):
        mine = [each for each in entries.values() if each.pool == pool]
        live = [each for each in mine if not each.released]
        assert ledger.count_allocated(pool) == len(live)
        assert ledger.count_outside(pool, inside) == sum(each.number not in inside for each in live)
        assert {each.name for each in ledger.list_resting(pool)} == {
            each.name for each in mine if each.released
        }
        served = {each.claim_uid for each in live}
        assert {each.uid for each in ledger.list_open(pool)} == {
            uid for (where, uid) in requests if where == pool and uid not in served
        }
        for claim in ("a", "b", "c"):
            held = sorted(each.number for each in live if each.claim_uid == f"u-{claim}")
            assert [each.number for each in ledger.entries_of(pool, f"u-{claim}")] == held
            rests = [each.number for each in mine if each.released and each.claim.name == claim]
            found = ledger.find_tombstone(pool, Key("default", claim))
            assert (found.number if found else None) == min(rests, default=None)


def test_pools_that_share_addresses_know_each_other() -> None:
    ledger = Ledger()
    for name, realm, last in (("a", "public", 5), ("b", "public", 9), ("c", "inner", 9)):
        ledger.ranges[name] = Range(realm, v6=False, addresses=AddressSet.of([(0, last)]))
    ledger.ranges["d"] = Range("public", v6=False, addresses=AddressSet.of([(6, 9)]))

    assert ledger.list_sharers("a") == ["b"]
    assert ledger.list_sharers("b") == ["a", "d"]
    entry = build_entry(4, "gone", "x", released=False)
    assert ledger.list_pools_with(entry) == {"a", "b", "gone"}
