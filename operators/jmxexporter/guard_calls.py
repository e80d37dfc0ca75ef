"""Calls of the operator to guards over the pod network, and the last reports of guards. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from libs.common.node_addresses import is_of_node

CERTIFICATE_END: Final = "certificateEnd"
"""When the certificate of an endpoint ends, among what its guard says."""
UNMATCHED: Final = "no rule matches a bean of the JVM"
"""Message about an endpoint that serves no metric of a rule."""
ATTEMPTS: Final = 3
"""Failed attempts to reach a guard before an injector is used instead."""
CHECK_PAUSE: Final = timedelta(minutes=2)
"""Pause between two questions to a guard that serves."""
_PAUSE: Final = timedelta(seconds=5)
_LONGEST_PAUSE: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class GuardKey:
    """The identity of one endpoint.

    Attributes:
        container_id: Id of the container at the runtime.
        pid: Process id of the JVM in its container; 0 for JVMs that were started with the guard.
        start: Start of the process in ticks since the boot; 0 for JVMs that were started with it.
    """

    container_id: str
    pid: int = 0
    start: int = 0


@dataclass(frozen=True, slots=True)
class GuardCall:
    """A call to the guard of one endpoint: a query, and a new configuration if one is needed.

    Attributes:
        key: Identity of the endpoint.
        ip: Address of the pod.
        ports: Ports at which it may serve; the first one that responds counts.
        id: Name of the endpoint, which the guard must confirm.
        encrypted: Whether it serves HTTPS.
        run: Name of the injector that created it; empty for JVMs that were started with the guard.
        wanted: Hash of the configuration that it should serve.
        config: The configuration to send; None to query only.
        seconds: How long the guard may try the configuration.
    """

    key: GuardKey
    ip: str
    ports: tuple[int, ...]
    id: str
    encrypted: bool
    run: str
    wanted: str
    config: str | None = None
    seconds: int = 20


@dataclass(frozen=True, slots=True)
class GuardState:
    """The last report of a guard.

    A process of the pod can forge it, so it must only influence decisions about that pod.

    Attributes:
        run: Name of the injector that created the endpoint; a later injector outdates the report.
        wanted: Hash of the configuration that it was called with.
        at: Time of the report.
        config_hash: Hash of the configuration that it serves; empty if unknown.
        port: Port that answered; 0 for none.
        reason: Why it refused the configuration; empty if it did not.
        message: Explanation of the reason, for people.
        scrape: Why its last scrape failed or was incomplete; empty if it was complete.
        failures: Consecutive attempts that found no guard.
        unmatched: Whether no rule matched a bean in its last scrape.
    """

    run: str
    wanted: str
    at: datetime
    config_hash: str = ""
    port: int = 0
    reason: str = ""
    message: str = ""
    scrape: str = ""
    failures: int = 0
    unmatched: bool = False

    @property
    def is_given_up(self) -> bool:
        """Whether an injector must bring the configuration, because calls failed."""
        return self.failures >= ATTEMPTS

    @property
    def next_at(self) -> datetime:
        """When the guard is asked again: its scrapes may fail later."""
        return self.retry_at if self.failures else self.at + CHECK_PAUSE

    @property
    def retry_at(self) -> datetime:
        """When the next attempt is due."""
        pause: timedelta = _PAUSE * 2 ** min(self.failures, 10)
        return self.at + min(_LONGEST_PAUSE, pause)


def is_pod_address(text: str) -> bool:
    """Return whether an address can be the address of a pod.

    Anyone who may write the status of a pod can forge its address. This check keeps the operator
    from calling its own pod, or a service of its node such as cloud metadata, instead of the pod.
    """
    try:
        return not is_of_node(ipaddress.ip_address(text))
    except ValueError:
        return False


def describe_scrape(answer: Mapping[str, str], now: datetime) -> str:
    """Describe why scrapes fail or miss metrics; empty for complete ones."""
    end = answer.get(CERTIFICATE_END)
    if end and datetime.fromisoformat(end) <= now:
        return f"its certificate ended at {end}; change spec.tls.secretName to a valid one"
    status, error = answer.get("lastScrapeStatus", "200"), answer.get("lastScrapeError", "")
    if status == "200":
        return f"metrics are missing (jmx_scrape_error is 1): {error}" if error else ""
    return f"the last scrape failed with status {status[:3]}: {error}"


def matches_nothing(answer: Mapping[str, str]) -> bool:
    """Return whether the rules of a guard match no bean, which is no error of a scrape."""
    return answer.get("lastScrapeFamilies") == "0"
