"""The topic in which consumers share the numbers of failed attempts.

With retries in place, a message waits in the memory of a consumer. If another consumer receives it
in the meantime, because a pod or the broker failed, the attempts so far would be unknown. So each
failed attempt is published, and each consumer reads all of them. Nothing depends on it: if the
topic cannot be used, each consumer counts its own attempts.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Final

import pulsar
import structlog

from operators.pulsarconsumer.app.connection import Connection, attempt
from operators.pulsarconsumer.app.core.attempts import AttemptRecord, AttemptTable, parse_record
from operators.pulsarconsumer.app.meters import Meters
from operators.pulsarconsumer.app.received import Received
from operators.pulsarconsumer.app.settings import Settings, SubscriptionType
from operators.pulsarconsumer.app.source import SUBSCRIBE_ERRORS, describe

_READ_MILLISECONDS: Final = 100
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 30.0
_BROKEN_SECONDS: Final = 30.0
"""Time without connection after which the reader is replaced."""
TRIM_SECONDS: Final = 60.0
"""Minimum time between two removals of records."""
_KEEP_SECONDS: Final = 86_400.0
"""Minimum time for which the attempts at a message are kept that is never finished."""
_RECORDED: Final = 1000
"""Maximum number of messages in one record."""
_UNSENT: Final = 20_000
"""Maximum number of messages whose attempts are not stored yet."""
_STORE_SECONDS: Final = 10.0
"""Maximum time for which the next attempt waits until the last one is stored."""
_CATCH_UP_SECONDS: Final = 5.0
_CAUGHT_UP_SECONDS: Final = 1.0
"""Time for which a consumer that has read all records need not check again."""

log = structlog.get_logger("attempts")


class AttemptLog:
    """The failed attempts of all consumers of a subscription; thread-safe.

    Attributes:
        table: The attempts, as far as they are known.
    """

    def __init__(
        self,
        settings: Settings,
        connection: Connection,
        meters: Meters,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Initialize with a clock in seconds since 1970; `start` connects."""
        self._settings, self._connection, self._meters = settings, connection, meters
        self._clock, self._started_at = clock, clock()
        self.topic = settings.attempts_topic_name
        longest = 2 * settings.retry_max_delay_seconds
        self.table = AttemptTable(max(_KEEP_SECONDS, longest))
        self._consumer = uuid.uuid4().hex[:12]
        # Guards the following fields, and is notified when they change.
        self._changed = threading.Condition()
        self._unsent: dict[str, tuple[int, float]] = {}
        self._acknowledged: dict[str, None] = {}
        self._dead: dict[str, None] = {}
        self._sending: dict[str, tuple[int, float]] = {}
        self._requested = 0.0
        self._caught_up = -_CAUGHT_UP_SECONDS
        self._is_usable: bool | None = None  # None before the next result.
        self._is_refused = False
        self._stopping = threading.Event()
        self._trim_at = 0.0
        self.threads: list[threading.Thread] = []
        """Threads that end after `stop`."""
        self._repeats = settings.subscription_type in (
            SubscriptionType.SHARED,
            SubscriptionType.KEY_SHARED,
        )

    @property
    def has_repeats(self) -> bool:
        """Whether records can be read, and the broker reports repeated deliveries."""
        return self._repeats and bool(self._is_usable)

    def start(self) -> None:
        """Start to read and to publish, if attempts are shared at all."""
        if not self.topic:
            return
        for work, name in ((self._write, "attempts-write"), (self._read, "attempts-read")):
            thread = threading.Thread(target=work, name=name, daemon=True)
            self.threads.append(thread)
            thread.start()

    def stop(self, seconds: float) -> None:
        """Publish what is left, at most for some time, and stop."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._is_usable and self._has_unsent and time.monotonic() < deadline:
                self._changed.wait(0.05)
            self._stopping.set()
            self._changed.notify_all()

    # The attempts.

    def add(self, identity: str) -> None:
        """Count a failed attempt of this consumer."""
        if not self.topic:
            return
        count = self.table.add(self._consumer, identity)
        with self._changed:
            self._unsent.pop(identity, None)
            self._unsent[identity] = (count, time.monotonic())
            while len(self._unsent) > _UNSENT:
                self._unsent.pop(next(iter(self._unsent)))
            self._changed.notify_all()

    def finish(self, identity: str, *, dead_lettered: bool) -> None:
        """Record that a message is acknowledged, or was moved to the dead-letter topic."""
        if not self.topic or not (dead_lettered or self.table.is_known(identity)):
            return
        if dead_lettered:
            self.table.note_dead_letter(identity, self._clock())
        else:
            self.table.finish(identity)
        with self._changed:
            self._unsent.pop(identity, None)
            finished = self._dead if dead_lettered else self._acknowledged
            finished[identity] = None
            while len(finished) > _UNSENT:
                finished.pop(next(iter(finished)))
            self._changed.notify_all()

    def is_early(self, message: Received) -> bool:
        """Return whether the next attempt must wait, because the last one is not stored yet.

        While the consumer has no connection, another one may receive the message. So the attempt
        waits even if the topic cannot be used now.
        """
        if not self._unsent and not self._sending:
            return False
        identity = message.identity
        found = self._unsent.get(identity) or self._sending.get(identity)
        if found is None:
            return False
        if not message.source.is_connected:
            return True
        _, since = found
        return bool(self._is_usable) and time.monotonic() - since < _STORE_SECONDS

    def catch_up(self, seconds: float = _CATCH_UP_SECONDS) -> None:
        """Wait until all records that are stored now have been read, at most for some time.

        If the topic cannot be used, this waits for one more attempt to use it.
        """
        if not self.topic:
            return
        now = time.monotonic()
        if now - self._caught_up < _CAUGHT_UP_SECONDS:
            return
        with self._changed:
            self._requested = now
            if self._is_usable is False:
                self._is_usable = None
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._caught_up >= now or self._is_usable is False or self._is_stopped(),
                seconds,
            )

    # Threads.

    def _is_stopped(self) -> bool:
        return self._stopping.is_set()

    @property
    def _has_unsent(self) -> bool:
        return bool(self._unsent or self._acknowledged or self._dead or self._sending)

    def _read(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not self._is_stopped():
            try:
                reader = self._open()
            except SUBSCRIBE_ERRORS as err:
                self._refuse(err)
                with self._changed:
                    # `catch_up` ends the pause.
                    self._changed.wait_for(
                        lambda: self._is_usable is None or self._is_stopped(), pause
                    )
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                continue
            pause = _FIRST_PAUSE_SECONDS
            try:
                self._follow(reader)
            except pulsar.PulsarException as err:
                if not self._is_stopped():
                    log.info("Reading attempts again", topic=self.topic, error=describe(err))
            finally:
                attempt(reader.close)

    def _open(self) -> pulsar.Reader:
        self.table.restart()
        # Creates the subscription, without which the broker would drop the records.
        self._connection.provide(self.topic)
        return self._connection.client().create_reader(
            self.topic,
            pulsar.MessageId.earliest,
            crypto_key_reader=self._connection.build_key_reader(),
        )

    def _follow(self, reader: pulsar.Reader) -> None:
        """Read records until the app stops or the reader is broken."""
        connected_at = time.monotonic()
        self._trim_at = connected_at + TRIM_SECONDS * random.uniform(0.5, 1.5)
        self._requested = connected_at
        while not self._is_stopped():
            try:
                self._apply(reader.read_next(_READ_MILLISECONDS))
                continue
            except pulsar.Timeout:
                now = time.monotonic()
            if reader.is_connected():
                connected_at = now
            elif now - connected_at > _BROKEN_SECONDS:
                return
            else:
                continue
            if self._requested > self._caught_up:
                self._check(reader)
            if now > self._trim_at:
                self._trim_at = now + TRIM_SECONDS
                self._trim()

    def _check(self, reader: pulsar.Reader) -> None:
        """Find out whether all records have been read."""
        requested = self._requested
        with suppress(pulsar.Timeout):
            if reader.has_message_available():
                return
            with self._changed:
                if self._is_usable is not True:
                    log.info("Sharing attempts with other consumers", topic=self.topic)
                self._is_usable, self._is_refused = True, False
                self._caught_up = requested
                self._changed.notify_all()

    def _apply(self, message: pulsar.Message) -> None:
        record = parse_record(message.data())
        if record is None:
            record = AttemptRecord("")  # It is removed with the others.
        published = message.publish_timestamp() / 1000
        self.table.apply(
            record,
            message.topic_name(),
            message.message_id(),
            published,
            is_new=published >= self._started_at,
        )

    def _trim(self) -> None:
        """Acknowledge the records that are not needed, so that the broker deletes them."""
        for topic, position in self.table.pop_unneeded(self._clock()).items():
            try:
                self._connection.acknowledge_until(topic, position)
            except SUBSCRIBE_ERRORS as err:
                # Another consumer may be doing the same.
                log.debug("Cannot remove attempts", topic=topic, error=describe(err))

    def _write(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._has_unsent or self._is_stopped())
                if self._is_stopped():
                    return
                record, taken = self._take()
            try:
                self._connection.publish_record(self.topic, record.render())
            except SUBSCRIBE_ERRORS as err:
                self._put_back(record, taken)
                if self._is_stopped():
                    return
                self._refuse(err)
                self._stopping.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            else:
                pause = _FIRST_PAUSE_SECONDS
                with self._changed:
                    self._sending = {}
                    self._changed.notify_all()

    def _take(self) -> tuple[AttemptRecord, dict[str, tuple[int, float]]]:
        taken = dict(islice(self._unsent.items(), _RECORDED))
        acknowledged = tuple(islice(self._acknowledged, _RECORDED))
        dead = tuple(islice(self._dead, _RECORDED))
        for held, identities in (
            (self._unsent, taken),
            (self._acknowledged, acknowledged),
            (self._dead, dead),
        ):
            for identity in identities:
                del held[identity]
        self._sending = taken
        attempts = {identity: count for identity, (count, _) in taken.items()}
        return AttemptRecord(self._consumer, attempts, acknowledged, dead), taken

    def _put_back(self, record: AttemptRecord, taken: dict[str, tuple[int, float]]) -> None:
        with self._changed:
            self._sending = {}
            for identity, unsent in taken.items():
                if identity not in self._acknowledged and identity not in self._dead:
                    self._unsent.setdefault(identity, unsent)
            self._acknowledged = dict.fromkeys((*record.acknowledged, *self._acknowledged))
            self._dead = dict.fromkeys((*record.dead_lettered, *self._dead))

    def _refuse(self, err: Exception) -> None:
        """Count attempts per consumer from now on, and tell so once."""
        if self._is_stopped():
            return
        self._meters.fail("attempts")
        with self._changed:
            if not self._is_refused:
                log.warning(
                    "Cannot share attempts, so each consumer counts its own",
                    topic=self.topic,
                    error=describe(err),
                )
            self._is_usable, self._is_refused = False, True
            self._changed.notify_all()
