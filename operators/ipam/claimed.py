"""The addresses of an IPClaim, for the kinds that pass them on; pure."""

from __future__ import annotations

from collections.abc import Mapping

from libs.common.reading import text_at


def find_addresses(claim: Mapping[str, object]) -> tuple[str, ...]:
    """Return the addresses of a claim, the first one first, as far as the ledger has its entries.

    An address in the status of a claim stays even if its entry is lost and another claim has the
    address.
    """
    return tuple(
        address
        for field, entry in (
            ("address", "allocationRef"),
            ("secondaryAddress", "secondaryAllocationRef"),
        )
        if (address := text_at(claim, "status", field)) and text_at(claim, "status", entry, "name")
    )
