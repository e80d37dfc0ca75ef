"""Back-off: the delay after repeated failures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """An exponential back-off with jitter.

    Attributes:
        base: Seconds after the first failure.
        maximum: Maximum delay in seconds.
        jitter: Random share of the delay, 0 to 1.
    """

    base: float = 0.2
    maximum: float = 300.0
    jitter: float = 0.2

    def delay(self, failures: int, chance: float) -> float:
        """Return the seconds to wait after some failures in a row.

        Args:
            failures: Number of failures, at least 1.
            chance: Random number in [0, 1).
        """
        # The exponent is bounded so that a key that fails for days does not overflow a float.
        delay = min(self.base * 2.0 ** min(failures - 1, 60), self.maximum)
        return delay * (1.0 - self.jitter * chance)
