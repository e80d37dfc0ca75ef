"""Subscribes to topics, and replaces the client that they share if the broker refuses."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

import structlog

from operators.pulsarconsumer.app.connection import Connection
from operators.pulsarconsumer.app.meters import Meters
from operators.pulsarconsumer.app.source import SUBSCRIBE_ERRORS, Source, describe

_FIRST_RETRY_SECONDS: Final = 0.5
LAST_RETRY_SECONDS: Final = 15.0
"""Maximum time between two attempts to subscribe."""
_OPTIONAL_RETRY_SECONDS: Final = 600.0
_PAUSE_SECONDS: Final = 0.1

log = structlog.get_logger("subscriber")


class Subscriber:
    """Subscribes sources with a shared client until the app stops; thread-safe."""

    def __init__(
        self,
        connection: Connection,
        sources: Sequence[Source],
        meters: Meters,
        stopping: threading.Event,
    ) -> None:
        """Initialize; nothing is subscribed yet."""
        self._connection = connection
        self._sources = sources
        self._meters = meters
        self._stopping = stopping
        self._renewal = threading.Condition()
        self._renewal_due = False
        self._opening = 0

    def subscribe(self, source: Source) -> bool:
        """Subscribe, with retries; return False if the app stops first."""
        delay = _FIRST_RETRY_SECONDS
        while not self._stopping.is_set():
            try:
                self._subscribe_once(source)
            except SUBSCRIBE_ERRORS as err:
                if source.is_optional:
                    log.info("Cannot look for a topic", topic=source.name, error=describe(err))
                    self._stopping.wait(_OPTIONAL_RETRY_SECONDS)
                    continue
                self._meters.fail("subscribe")
                source.close(f"not subscribed: {describe(err)}")
                log.warning(
                    "Cannot subscribe",
                    topic=source.name,
                    error=describe(err),
                    retry_seconds=delay,
                )
                self._stopping.wait(delay)
                delay = min(2 * delay, LAST_RETRY_SECONDS)
                continue
            return True
        return False

    def _subscribe_once(self, source: Source) -> None:
        """Subscribe once; raises the same errors as `Source.open`.

        After a refusal, the client is replaced because its credentials may be outdated, unless a
        topic uses the client. Replacing it would interrupt other topics that are subscribing, so
        the next attempt waits for them. Without the wait, attempts could overlap indefinitely.
        """
        with self._renewal:
            while self._renewal_due and not self._stopping.is_set():
                is_used = any(each.is_open for each in self._sources)
                if self._opening and not is_used:
                    self._renewal.wait(_PAUSE_SECONDS)
                    continue
                self._renewal_due = False
                if not is_used:
                    self._connection.renew()
            self._opening += 1
        try:
            source.open()
        except SUBSCRIBE_ERRORS:
            self._renewal_due = self._renewal_due or not source.is_optional
            raise
        finally:
            with self._renewal:
                self._opening -= 1
                self._renewal.notify_all()
