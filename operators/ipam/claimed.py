"""The addresses of an IPClaim, for the controllers of Services and IPAddressClaims. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from libs.common.reading import text_at


def find_addresses(claim: Mapping[str, object]) -> tuple[str, ...]:
    """Return the addresses of a claim that have an entry in the ledger, the first one first.

    An address in the status alone is not sufficient: it stays there even if its entry was lost and
    another claim has got the address.
    """
    return tuple(
        address
        for field, entry in (
            ("address", "allocationRef"),
            ("secondaryAddress", "secondaryAllocationRef"),
        )
        if (address := text_at(claim, "status", field)) and text_at(claim, "status", entry, "name")
    )
