"""Start of a process: what must work before the operator is imported.

Importing an operator takes a second, and many on a node that is short of CPU. A process that is
the first of its container ignores each signal that it has no handler for: without one a SIGTERM of
the kubelet would be lost during that time, and the process would take the Lease after it had been
told to stop, until it is killed. So this module imports only the standard library.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(work: Callable[[], int]) -> NoReturn:
    """Run a process to its end; its imports belong into `work`.

    Until the work installs handlers of its own, SIGTERM and SIGINT end the process immediately:
    nothing was begun that would have to be brought to an end.
    """
    for number in _SIGNALS:
        signal.signal(number, _end)
    sys.exit(work())


def _end(number: int, _: FrameType | None) -> NoReturn:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = {
        "event": "Stopped before start-up was complete",
        "signal": signal.Signals(number).name,
        "level": "info",
        "timestamp": now,
    }
    # Not by a logger, nor by an exception: some module may be half imported, or catch it.
    os.write(2, f"{json.dumps(line)}\n".encode())
    os._exit(0)
