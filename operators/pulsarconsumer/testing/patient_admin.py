"""A client of the admin API for tests against a real broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Self

from operators.pulsarconsumer.broker.errors import AdminBusy, AdminConflict
from operators.pulsarconsumer.broker.pulsar_admin import Json, PulsarAdmin
from operators.pulsarconsumer.testing.broker import BUSY_SECONDS, REPEATED, Broker


class PatientAdmin(PulsarAdmin):
    """A PulsarAdmin that repeats requests as the polls of the operator do.

    A broker on a busy machine sometimes refuses the first request for a new topic with status 500.
    The operator sends it again with its next poll, and so does this client, because a test polls
    only once.
    """

    @classmethod
    def connect(cls, broker: Broker) -> Self:
        """Build a client of a broker without authentication."""
        return cls(broker.admin_url, allow_loopback=True, timeout=20)

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
    ) -> Json:
        deadline = time.monotonic() + BUSY_SECONDS
        repeated = False
        while True:
            try:
                return await super()._send(method, path, query, body)
            except AdminBusy as err:
                if time.monotonic() > deadline:
                    raise
                REPEATED.append(f"{err}: {err.explanation}")
            except AdminConflict:
                if not repeated or method != "PUT":
                    raise
                return {}  # An attempt that reported an error had created it.
            repeated = True
            await asyncio.sleep(0.2)
