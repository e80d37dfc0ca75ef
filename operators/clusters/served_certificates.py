"""Reads the certificate that the API of a cluster serves, to warn before it expires."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

from libs.common.clock import Clock, SystemClock

_PAUSE: Final = 600.0
"""Minimum seconds between two handshakes with the same cluster."""
_MEMORY: Final = 12 * _PAUSE
"""Seconds for which a certificate counts after it was last served."""


@dataclass(slots=True)
class _Served:
    expires: datetime
    last_seen: float


class ServedCertificates:
    """The certificates that clusters serve.

    Each control plane node has its own certificate, and any node may respond. So of all recently
    served certificates, the one that expires first counts.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        """Start without certificates."""
        self._clock = clock or SystemClock()
        self._checked: dict[str, float] = {}
        self._served: dict[str, dict[str, _Served]] = {}

    async def look(self, url: str, host: str, tls: ssl.SSLContext) -> datetime | None:
        """Return the earliest expiry of the certificates of a cluster; None if unknown.

        Args:
            url: URL of the API.
            host: Name of the API, which identifies the cluster.
            tls: Verifies the certificate.
        """
        now = self._clock.monotonic()
        if now - self._checked.get(host, -_PAUSE) >= _PAUSE:
            # Errors are ignored here, because the request for the nodes fails with the same error
            # and reports it.
            with contextlib.suppress(OSError, ssl.SSLError):
                serial, expires = await _read_certificate(url, host, tls)
                self._served.setdefault(host, {})[serial] = _Served(expires, now)
                self._checked[host] = now
        served = self._served.get(host, {})
        for serial in [key for key, each in served.items() if now - each.last_seen > _MEMORY]:
            del served[serial]
        return min((each.expires for each in served.values()), default=None)

    def forget(self, host: str) -> None:
        """Forget a deleted cluster: a later cluster of the same name has other certificates."""
        self._checked.pop(host, None)
        self._served.pop(host, None)


async def _read_certificate(url: str, host: str, tls: ssl.SSLContext) -> tuple[str, datetime]:
    parts = urlsplit(url)
    _, writer = await asyncio.open_connection(
        parts.hostname, parts.port or 443, ssl=tls, server_hostname=host
    )
    try:
        certificate = writer.get_extra_info("peercert")
    finally:
        writer.close()
    expires = ssl.cert_time_to_seconds(certificate["notAfter"])
    return certificate["serialNumber"], datetime.fromtimestamp(expires, UTC)
