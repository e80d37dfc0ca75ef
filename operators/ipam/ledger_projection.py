"""The ledger as a projection of the cache, and the reasons why claims have no address.

All controllers of the process share this projection. The controller of pools decides, and the
controller of claims reports: the former stores the reasons here and wakes the affected claims. So
the status of a claim has only one writer, and is written only once if the claim is served
immediately.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from libs.common.conditions import parse_time
from libs.common.crd import ParseError
from libs.common.kinds import Key, Kind, Manifest, is_deleting, key_of, uid_of
from libs.common.reading import map_at, text_at
from libs.common.runtime import Change
from operators.ipam.addresses import parse_address
from operators.ipam.api.v1alpha1.allocations import IP_ALLOCATION
from operators.ipam.api.v1alpha1.claims import IP_CLAIM, Sticky
from operators.ipam.api.v1alpha1.pools import IP_POOL, IPPool
from operators.ipam.ledger import Entry, Ledger, Request, Slot
from operators.ipam.pool.reconcile import PendingReason, build_range


class LedgerProjection:
    """A projection that keeps the ledger in sync with the cache.

    Attributes:
        ledger: Ledger of allocated addresses and waiting claims.
    """

    kinds: ClassVar[tuple[Kind, ...]] = (IP_POOL, IP_ALLOCATION, IP_CLAIM)

    def __init__(self) -> None:
        """Start with an empty ledger."""
        self.ledger = Ledger()
        self._pending: dict[str, Mapping[str, PendingReason]] = {}
        self._parsed: dict[str, dict[str, tuple[Request, ...]]] = {}

    def changed(self, change: Change) -> None:
        """Process a change of a pool, an entry or a claim."""
        if change.kind == IP_POOL:
            self._pool_changed(change)
        elif change.kind == IP_ALLOCATION:
            self._entry_changed(change)
        else:
            self._claim_changed(change)

    def set_pending(self, pool: str, pending: Mapping[str, PendingReason]) -> list[Key]:
        """Store the reasons why claims of a pool have no address.

        Args:
            pool: Name of the pool.
            pending: Why claims have no address, by UID.

        Returns:
            Keys of the waiting claims whose reason has changed.
        """
        before = self._pending.get(pool, {})
        self._pending[pool] = pending
        waiting = self.ledger.open.get(pool, {})
        return [
            waiting[uid].claim
            for uid, pending_reason in pending.items()
            if uid in waiting and before.get(uid) != pending_reason
        ]

    def find_pending_reason(self, pool: str, claim_uid: str) -> PendingReason | None:
        """Return why a claim has no address from a pool; None if the pool has not decided yet."""
        return self._pending.get(pool, {}).get(claim_uid)

    def list_requests(self, claim: Manifest) -> Sequence[Request]:
        """Return the requests of a claim: one, or two for dual stack.

        At each change, four mappers and this projection need the same two versions of the claim, so
        the newest two are cached in parsed form.
        """
        known = self._parsed.get(uid_of(claim), {}).get(_version_of(claim))
        return list_requests(claim) if known is None else known

    def _parse(self, claim: Manifest, older: Manifest | None) -> Sequence[Request]:
        """Parse a new version of a claim, and keep only this and the previous version."""
        requests = tuple(list_requests(claim))
        kept = {_version_of(claim): requests}
        if older is not None:
            kept[_version_of(older)] = tuple(self.list_requests(older))
        self._parsed[uid_of(claim)] = kept
        return requests

    def _pool_changed(self, change: Change) -> None:
        name = change.key.name
        self.ledger.ranges.pop(name, None)
        if change.new is None:
            self._pending.pop(name, None)
            return
        try:
            self.ledger.ranges[name] = build_range(IPPool.parse(change.new).spec)
        except ParseError:
            # The reconcile of the pool reports the invalid spec; here, the pool has no addresses.
            # Its stored reasons are outdated. Removing them makes the claims report the same reason
            # again after the spec was fixed.
            self._pending.pop(name, None)

    def _entry_changed(self, change: Change) -> None:
        self.ledger.remove_entry(change.key.name)
        entry = None if change.new is None else parse_entry(change.new)
        if entry is not None:
            self.ledger.put_entry(entry)

    def _claim_changed(self, change: Change) -> None:
        old, new = change.old, change.new
        if old is not None:
            for request in self.list_requests(old):
                self.ledger.remove_request(request.pool, request.uid)
            if new is None or uid_of(new) != uid_of(old):
                self._parsed.pop(uid_of(old), None)
                old = None
        if new is None:
            return
        requests = self._parse(new, old)
        if not is_deleting(new):
            for request in requests:
                self.ledger.put_request(request)


def _version_of(manifest: Manifest) -> str:
    return text_at(manifest, "metadata", "resourceVersion")


def parse_entry(manifest: Manifest) -> Entry | None:
    """Parse an entry of the ledger; None if its address is invalid."""
    spec, metadata = map_at(manifest, "spec"), map_at(manifest, "metadata")
    address = text_at(spec, "address")
    try:
        number = parse_address(address)
    except ValueError:
        return None
    claim = map_at(spec, "claimRef")
    until = text_at(manifest, "status", "quarantinedUntil")
    return Entry(
        name=text_at(metadata, "name"),
        uid=uid_of(manifest),
        realm=text_at(spec, "realm"),
        address=address,
        number=number,
        pool=text_at(spec, "poolRef", "name"),
        claim=Key(text_at(claim, "namespace"), text_at(claim, "name")),
        claim_uid=text_at(claim, "uid"),
        released=bool(text_at(manifest, "status", "releasedAt")),
        until=parse_time(until) if until else None,
        deleting=is_deleting(manifest),
        pool_uid=text_at(spec, "poolRef", "uid"),
    )


def list_requests(claim: Manifest) -> list[Request]:
    """Parse the requests of a claim: one, or two for dual stack."""
    return list(_walk_requests(claim))


def _walk_requests(claim: Manifest) -> Iterator[Request]:
    spec, status = map_at(claim, "spec"), map_at(claim, "status")
    yield from _read_request(claim, spec, Slot.PRIMARY, text_at(status, "address"))
    second = map_at(spec, "secondary")
    yield from _read_request(claim, second, Slot.SECONDARY, text_at(status, "secondaryAddress"))


def _read_request(
    claim: Manifest, wanted: Mapping[str, Any], slot: Slot, held: str
) -> Iterator[Request]:
    pool = text_at(wanted, "poolRef", "name")
    if not pool:
        return
    spec = map_at(claim, "spec")
    priority = spec.get("priority")
    yield Request(
        claim=key_of(claim),
        uid=uid_of(claim),
        pool=pool,
        slot=slot,
        first_pool=text_at(spec, "poolRef", "name") if slot is Slot.SECONDARY else "",
        priority=priority if isinstance(priority, int) else 0,
        created=text_at(claim, "metadata", "creationTimestamp"),
        requested=text_at(wanted, "address"),
        held=held,
        sticky=text_at(spec, "sticky") != Sticky.NEVER,
    )
