"""Watches the calls of the handler that take long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from operators.pulsarconsumer.app.core.retry import Strategy
from operators.pulsarconsumer.app.core.slot import Slot
from operators.pulsarconsumer.app.journal import Journal
from operators.pulsarconsumer.app.lanes import Lanes
from operators.pulsarconsumer.app.processing import Processor
from operators.pulsarconsumer.app.settings import Settings
from operators.pulsarconsumer.app.source import Source

HOLDUP_SECONDS: Final = 0.05
"""Duration of a call after which another thread continues to receive from the topic."""
_LONG_CALL_SECONDS: Final = 0.2
"""Duration of a call after which it is recorded in the journal."""
_COPY_SECONDS: Final = 2.0
"""Minimum time for storing the copies of messages whose handler timed out."""


class CallWatch:
    """Watches the running calls; used by the supervising thread.

    A receiving thread that a long call blocks is replaced. A long call is recorded, in case it
    crashes the process. If a call exceeds its time-out, the app exits, because only that ends it.

    Args:
        settings: Settings of the app.
        lanes: The threads that call the handler.
        processor: Finishes messages whose call does not return.
        journal: Records long calls.
        replace: Starts another thread that receives from a source.
        end: Makes the app exit because of a failure.
    """

    def __init__(
        self,
        settings: Settings,
        lanes: Lanes[Any],
        processor: Processor,
        journal: Journal,
        *,
        replace: Callable[[Source], None],
        end: Callable[[str], None],
    ) -> None:
        """Initialize; `check` does the work."""
        self._settings = settings
        self._whole = settings.handler_batch
        self._lanes, self._processor, self._journal = lanes, processor, journal
        self._replace, self._end = replace, end
        self._giving_up: list[threading.Thread] = []

    def check(self, now: float) -> None:
        """Replace blocked threads, and record or end long calls; called often."""
        limit = self._settings.handler_timeout_seconds
        for slot in self._lanes.slots():
            unit: Any = slot.item
            began = slot.began
            if unit is None or not began or now - began < HOLDUP_SECONDS:
                continue
            if not _is_running(slot, unit, began):
                continue  # The call has ended in the meantime.
            source = self._lanes.detach(slot)
            if isinstance(source, Source):
                self._replace(source)
            if now - began < _LONG_CALL_SECONDS:
                continue
            if not self._whole:
                self._journal.begin(slot.thread, unit.identity)
                if slot.began != began:
                    self._journal.end(slot.thread)
                    continue
            if limit and now - began > limit:
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

    def _give_up(self, unit: Any, thread: int, seconds: float) -> None:
        """Finish the messages of a call that does not return; only a restart ends the call.

        A broker that does not respond may delay the copies, but must not delay the restart.
        """
        for message in unit if self._whole else (unit,):
            waits = self._processor.time_out(message, seconds)
            if waits and self._settings.retry_strategy is Strategy.RETRY_TOPIC:
                # No copy could be stored. The journal keeps the failed attempt across the restart.
                self._journal.begin(thread, message.identity)
            else:
                self._journal.end(thread)


def _is_running(slot: Slot[Any], unit: object, began: float) -> bool:
    return slot.item is unit and slot.began == began
