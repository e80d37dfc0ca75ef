"""Watches the calls of the handler that take long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from operators.pulsarconsumer.app.core.retry import Strategy
from operators.pulsarconsumer.app.journal import Journal
from operators.pulsarconsumer.app.memory import Unit
from operators.pulsarconsumer.app.pool import HandlerThreads
from operators.pulsarconsumer.app.processing import Processor
from operators.pulsarconsumer.app.settings import Settings

_LONG_CALL_SECONDS: Final = 0.2
"""Duration of a call after which it is recorded in the journal."""
_COPY_SECONDS: Final = 2.0
"""Minimum time for storing the copies of messages whose handler timed out."""


class CallWatch:
    """Watches the running calls; used by the supervising thread.

    A long call is recorded, in case it crashes the process. If a call exceeds its time-out, the app
    exits, because only that ends it.
    """

    def __init__(
        self,
        settings: Settings,
        threads: HandlerThreads,
        processor: Processor,
        journal: Journal,
        end: Callable[[str], None],
    ) -> None:
        """Initialize; `check` does the work."""
        self._settings = settings
        self._threads, self._processor, self._journal = threads, processor, journal
        self._end = end
        self._giving_up: list[threading.Thread] = []

    def check(self, now: float) -> None:
        """Record or end long calls; called often."""
        limit = self._settings.handler_timeout_seconds
        for slot in self._threads.slots():
            unit, began = slot.unit, slot.began
            if not unit or not began or now - began < _LONG_CALL_SECONDS:
                continue
            if not self._settings.handler_batch:
                self._journal.begin(slot.thread, unit[0].identity)
            if slot.began != began:
                self._journal.end(slot.thread)  # The call has ended in the meantime.
            elif limit and now - began > limit:
                giving_up = threading.Thread(
                    target=self._give_up, args=(unit, slot.thread, now - began), daemon=True
                )
                self._giving_up.append(giving_up)
                giving_up.start()
                self._end(f"the handler has not ended for {now - began:.0f} s")

    def join(self, seconds: float) -> None:
        """Wait until messages whose call timed out are finished."""
        for thread in self._giving_up:
            thread.join(max(_COPY_SECONDS, seconds))

    def _give_up(self, unit: Unit, thread: int, seconds: float) -> None:
        """Finish the messages of a call that does not return; only a restart ends the call.

        A broker that does not respond may delay the copies, but must not delay the restart.
        """
        for message in unit:
            is_settled = self._processor.time_out(message, seconds)
            if is_settled or self._settings.retry_strategy is not Strategy.RETRY_TOPIC:
                self._journal.end(thread)
            else:
                # No copy could be stored. The journal keeps the failed attempt across the restart.
                self._journal.begin(thread, message.identity)
