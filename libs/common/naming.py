"""Names of children: deterministic, within Kubernetes' limits, never by chance.

A name that follows from the owner makes a create repeatable: a second writer, or the same one after
a crash, meets `AlreadyExists` where `generateName` would make a duplicate.
"""

from __future__ import annotations

import hashlib
from typing import Final

DNS_LABEL_LIMIT: Final = 63
"""Longest DNS label (RFC 1123), hence label values, Service and container names."""
DNS_SUBDOMAIN_LIMIT: Final = 253
"""Longest DNS subdomain, hence most object names."""
_HASH_LENGTH: Final = 8


def build_name(*parts: str, limit: int = DNS_LABEL_LIMIT) -> str:
    """Join parts by dashes into a name of at most `limit` characters.

    A name that would be too long is cut and ends in a hash of the whole, so that two long names
    with the same beginning stay apart.

    Raises:
        ValueError: The limit leaves no room for the hash.
    """
    if limit < _HASH_LENGTH + 2:
        raise ValueError(f"limit {limit}: a name needs at least {_HASH_LENGTH + 2} characters")
    name = "-".join(parts)
    if len(name) <= limit:
        return name
    kept = name[: limit - _HASH_LENGTH - 1].rstrip("-.")
    return f"{kept}-{short_hash(name)}"


def short_hash(*parts: str, length: int = _HASH_LENGTH) -> str:
    """Return the first hex digits of a hash over the parts, the same on every machine."""
    # The separator cannot occur in Kubernetes names, so ("a", "bc") and ("ab", "c") differ.
    digest = hashlib.sha256("\0".join(parts).encode())
    return digest.hexdigest()[:length]


def label_value(text: str) -> str:
    """Cut a text to what a label value may hold, with a hash where it was cut."""
    return build_name(text, limit=DNS_LABEL_LIMIT)
