"""Two leaders together, views as old as can be, and writes that arrive at any time.

Only the API server is simulated: a create of an existing name fails, a delete names a UID, and
`status.address` is final. The plans of the operator decide everything else, from the objects that a
leader saw last. Each write is decided at one time and arrives later or never, as after a crash
between any two writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from libs.common.kinds import Key
from operators.ipam.addresses import AddressSet, parse_address
from operators.ipam.allocation.reconcile import ClaimState, CurrentClaim, evaluate_hold
from operators.ipam.api.v1alpha1.pools import Strategy
from operators.ipam.claim.reconcile import find_holding
from operators.ipam.ledger import Entry, Ledger, Range, Request
from operators.ipam.naming import allocation_name
from operators.ipam.pool.reconcile import Assignment, PoolView, plan_pool

FIRST = parse_address("203.0.113.0")
RANGE = Range("public", v6=False, addresses=AddressSet.of([(FIRST, FIRST + 2)]))
POOLS = (
    PoolView("p", RANGE, Strategy.LOWEST_FREE),
    # Another choice from the same view: what one leader gives is seldom what the other would.
    PoolView("p", RANGE, Strategy.ROUND_ROBIN, last=FIRST),
)
NAMES = [f"c{number}" for number in range(4)]
LEADERS = st.integers(0, 1)


@dataclass(frozen=True)
class Claim:
    """A claim as the API server has it."""

    uid: str
    address: str = ""


@dataclass
class Model:
    """What the API server has."""

    claims: dict[str, Claim] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    count: int = 0

    def next_uid(self) -> str:
        self.count += 1
        return f"u{self.count:04}"

    def view(self) -> Ledger:
        """Return what a cache that is up to date computes."""
        ledger = Ledger()
        for entry in self.entries.values():
            ledger.put_entry(entry)
        for name, claim in self.claims.items():
            request = Request(Key("default", name), claim.uid, "p", held=claim.address)
            ledger.put_request(request)
        return ledger

    def create(self, grant: Assignment) -> None:
        name = allocation_name("public", grant.address)
        if name not in self.entries:
            request, number = grant.request, parse_address(grant.address)
            self.entries[name] = Entry(
                name,
                self.next_uid(),
                "public",
                grant.address,
                number,
                "p",
                request.claim,
                request.uid,
            )

    def tell(self, name: str, uid: str, address: str) -> None:
        claim = self.claims.get(name)
        if claim is not None and claim.uid == uid and claim.address in ("", address):
            self.claims[name] = replace(claim, address=address)

    def delete(self, entry: Entry) -> None:
        held = self.entries.get(entry.name)
        if held is not None and held.uid == entry.uid:
            del self.entries[entry.name]

    def holder(self, entry: Entry) -> CurrentClaim | None:
        claim = self.claims.get(entry.claim.name)
        return None if claim is None else CurrentClaim(claim.uid, {"p": claim.address})


class Leaders(RuleBasedStateMachine):
    """Claims come and go while two leaders serve them."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.views = [Ledger(), Ledger()]
        self.writes: list[Callable[[], None]] = []

    @initialize()
    def begin(self) -> None:
        for name in NAMES[:2]:
            self.claim(name)

    @rule(name=st.sampled_from(NAMES))
    def claim(self, name: str) -> None:
        self.model.claims.setdefault(name, Claim(self.model.next_uid()))

    @rule(name=st.sampled_from(NAMES))
    def unclaim(self, name: str) -> None:
        self.model.claims.pop(name, None)

    @rule(leader=LEADERS)
    def look(self, leader: int) -> None:
        self.views[leader] = self.model.view()

    @rule(leader=LEADERS)
    def serve(self, leader: int) -> None:
        for grant in plan_pool(POOLS[leader], self.views[leader]).grants:
            self.writes.append(partial(self.model.create, grant))

    @rule(leader=LEADERS)
    def show(self, leader: int) -> None:
        for name, claim in self.model.claims.items():
            entries = self.views[leader].entries_of("p", claim.uid)
            # The status that is looked at may be older than what an earlier write says.
            holding = find_holding("p", "", entries, None)
            if not holding.address:
                continue
            self.writes.append(partial(self.model.tell, name, claim.uid, holding.address))

    @rule(leader=LEADERS)
    def release(self, leader: int) -> None:
        for entry in self.views[leader].entries.values():
            hold = evaluate_hold("p", entry.address, entry.claim_uid, self.model.holder(entry))
            if hold is not ClaimState.HELD:
                self.writes.append(partial(self.model.delete, entry))

    @rule(places=st.lists(st.integers(0, 5), min_size=1, max_size=4))
    def arrive(self, places: list[int]) -> None:
        for place in places:
            if self.writes:
                self.writes.pop(place % len(self.writes))()

    @rule()
    def lose(self) -> None:
        self.writes.clear()

    @invariant()
    def no_address_is_given_twice(self) -> None:
        shown = [claim.address for claim in self.model.claims.values() if claim.address]
        assert len(set(shown)) == len(shown)

    @invariant()
    def what_a_claim_shows_is_its_own(self) -> None:
        for claim in self.model.claims.values():
            if claim.address:
                entry = self.model.entries[allocation_name("public", claim.address)]
                assert entry.claim_uid == claim.uid

    def teardown(self) -> None:
        """Once the faults stop, all is served that can be and nothing is leaked."""
        for _ in range(4):
            self.look(0)
            self.release(0)
            self.arrive_all()
            self.look(0)
            self.serve(0)
            self.arrive_all()
            self.look(0)
            self.show(0)
            self.arrive_all()
        claims = self.model.claims
        served = [claim for claim in claims.values() if claim.address]
        assert len(served) == min(3, len(claims))
        assert len(self.model.entries) == len(served)
        self.no_address_is_given_twice()

    def arrive_all(self) -> None:
        for write in self.writes:
            write()
        self.writes.clear()


TestLeaders = Leaders.TestCase
TestLeaders.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_leader_that_wakes_up_late_cannot_give_a_claim_its_released_address() -> None:
    """Each of two leaders created an entry; the entry that the status does not name is released."""
    state = Leaders()
    state.model.claims["c0"] = Claim("u0")
    state.look(0)
    state.look(1)
    state.serve(0)
    state.serve(1)
    lower, higher = state.writes
    state.writes = []
    higher()
    state.look(0)
    state.show(0)
    lower()
    state.look(1)
    state.show(1)
    shown, late = state.writes
    state.writes = []
    shown()
    state.look(0)
    state.release(0)
    state.arrive_all()
    late()

    state.no_address_is_given_twice()
    state.what_a_claim_shows_is_its_own()
    assert [each.address for each in state.model.entries.values()] == ["203.0.113.1"]
    assert state.model.claims["c0"].address == "203.0.113.1"
