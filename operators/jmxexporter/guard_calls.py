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
_RENEWED_BEFORE: Final = timedelta(minutes=10)
"""How long before its end a certificate is replaced by the one that its Secret has by then."""
_REFUSED_SECONDS: Final = 180
"""How long all clients are refused before the login is brought again."""
_DIGITS: Final = 10
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
        ports: Ports at which it may serve; the first one that responds counts.
        id: Name of the endpoint, which the guard must confirm.
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
        config_hash: Hash of the configuration that it serves; empty if unknown.
        port: Port that answered; 0 for none.
        reason: Why it refused the configuration; empty if it did not.
        message: Explanation of the reason, for people.
        scrape: Why its last scrape failed or was incomplete; empty if it was complete.
        failures: Consecutive attempts that found no guard.
        unmatched: Whether no rule matched a bean in its last scrape.
        renew_at: From when an injector should bring certificate and login again; None for never.
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
    renew_at: datetime | None = None

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


def find_renewal(answer: Mapping[str, str], now: datetime) -> datetime | None:
    """Return from when the Secrets of an endpoint should be read again; None for never.

    Only injectors get their content. After an edit of the login, Prometheus uses the new one, and
    every JVM refuses it. A client without the login cannot cause more than one injector: the guard
    says whether one has run since it last accepted a client.
    """
    end = answer.get(CERTIFICATE_END)
    if end and (renewal := datetime.fromisoformat(end) - _RENEWED_BEFORE) <= now:
        return renewal
    is_refusing = _count_refused(answer) >= _REFUSED_SECONDS and answer.get("renewed") != "true"
    return now if is_refusing else None


def _count_refused(answer: Mapping[str, str]) -> int:
    text = answer.get("refusedSeconds", "")
    return int(text) if text.isdecimal() and len(text) < _DIGITS else 0


def describe_scrape(answer: Mapping[str, str], now: datetime) -> str:
    """Describe why scrapes fail or miss metrics; empty for complete ones."""
    end = answer.get(CERTIFICATE_END)
    if end and datetime.fromisoformat(end) <= now:
        return f"its certificate ended at {end}; change spec.tls.secretName to a valid one"
    if (seconds := _count_refused(answer)) >= _REFUSED_SECONDS:
        return (
            f"for {seconds} s all clients were refused: none has the login or certificate of the"
            " Secret; correct what Prometheus uses"
        )
    status, error = answer.get("lastScrapeStatus", "200"), answer.get("lastScrapeError", "")
    if status == "200":
        return f"metrics are missing (jmx_scrape_error is 1): {error}" if error else ""
    return f"the last scrape failed with status {status[:3]}: {error}"


def matches_nothing(answer: Mapping[str, str]) -> bool:
    """Return whether the rules of a guard match no bean, which is no error of a scrape."""
    return answer.get("lastScrapeFamilies") == "0"
