"""Names of children: deterministic, and within the limits of Kubernetes.

A name that is derived from the owner makes a create repeatable: a second writer, or the same writer
after a crash, gets `AlreadyExists`, whereas `generateName` would create a duplicate.
"""

from __future__ import annotations

import hashlib
from typing import Final

DNS_LABEL_LIMIT: Final = 63
"""Maximum length of a DNS label (RFC 1123), and so of label values, Service names and container
names."""
DNS_SUBDOMAIN_LIMIT: Final = 253
"""Maximum length of a DNS subdomain, and so of most object names."""
_HASH_LENGTH: Final = 8


def build_name(*parts: str, limit: int = DNS_LABEL_LIMIT) -> str:
    """Join parts by dashes into a name of at most `limit` characters.

    A name that would be too long is truncated and ends with a hash of the full name, so that two
    long names with the same beginning remain different.

    Raises:
        ValueError: The limit is too small for the hash.
    """
    if limit < _HASH_LENGTH + 2:
        raise ValueError(f"limit {limit}: a name needs at least {_HASH_LENGTH + 2} characters")
    name = "-".join(parts)
    if len(name) <= limit:
        return name
    kept = name[: limit - _HASH_LENGTH - 1].rstrip("-.")
    return f"{kept}-{short_hash(name)}"


def short_hash(*parts: str, length: int = _HASH_LENGTH) -> str:
    """Return the first hex digits of a hash of the parts, which is the same on every machine."""
    # The separator cannot occur in Kubernetes names, so ("a", "bc") and ("ab", "c") differ.
    digest = hashlib.sha256("\0".join(parts).encode())
    return digest.hexdigest()[:length]


def label_value(text: str) -> str:
    """Truncate a text to a valid label value, with a hash if it was truncated."""
    return build_name(text, limit=DNS_LABEL_LIMIT)
