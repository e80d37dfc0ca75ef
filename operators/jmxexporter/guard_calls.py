"""What the operator asks guards over the network of the pods, and what they reported; pure."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

ATTEMPTS: Final = 3
"""Attempts to reach a guard before an injector takes its place."""
_PAUSE: Final = timedelta(seconds=5)
_LONGEST_PAUSE: Final = timedelta(minutes=5)
_TEXT_LIMIT: Final = 300
_HASH: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class GuardKey:
    """The identity of one endpoint.

    Attributes:
        container_id: Id of the container at the runtime.
        pid: Process id of the JVM as the container sees it; 0 for JVMs that began with the guard.
        start: Start of the process in ticks since the boot; 0 likewise.
    """

    container_id: str
    pid: int = 0
    start: int = 0


@dataclass(frozen=True, slots=True)
class GuardCall:
    """A question to the guard of one endpoint, and a configuration if it must be another one.

    Attributes:
        key: Which endpoint.
        ip: Address of the pod.
        ports: Ports if it may serve; the first one that answers counts.
        id: Name of the endpoint, which the guard must confirm.
        encrypted: Whether it serves HTTPS.
        run: Name of the injector that made it; empty for JVMs that began with the guard.
        wanted: Hash of the configuration that it should serve.
        config: The configuration to send; None to ask only.
    """

    key: GuardKey
    ip: str
    ports: tuple[int, ...]
    id: str
    encrypted: bool
    run: str
    wanted: str
    config: str | None = None


@dataclass(frozen=True, slots=True)
class GuardState:
    """What a guard reported last.

    A process of the pod can forge it, so it is believed about that pod only.

    Attributes:
        run: Name of the injector that had made the endpoint; a later one makes this outdated.
        wanted: Hash of the configuration that it was asked for.
        at: When.
        config_hash: Hash of the configuration that it serves; empty if unknown.
        port: Port that answered; 0 for none.
        reason: Why it refused the configuration; empty if it did not.
        message: The same for people.
        failures: Attempts in a row that found no guard.
    """

    run: str
    wanted: str
    at: datetime
    config_hash: str = ""
    port: int = 0
    reason: str = ""
    message: str = ""
    failures: int = 0

    @property
    def is_given_up(self) -> bool:
        """Whether another attempt would be in vain."""
        return self.failures >= ATTEMPTS

    @property
    def retry_at(self) -> datetime:
        """When the next attempt is due."""
        pause: timedelta = _PAUSE * 2 ** min(self.failures, 10)
        return self.at + min(_LONGEST_PAUSE, pause)


def is_pod_address(text: str) -> bool:
    """Return whether an address can be the address of a pod.

    The status of a pod can be forged by anyone who may write it: never is the operator's own pod,
    or a service of its node such as cloud metadata, asked instead.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (
        address.is_loopback
        or address.is_link_local
        or address.is_unspecified
        or address.is_multicast
    )


def parse_answer(text: str) -> dict[str, str]:
    """Read the response of a guard: a name and a value per line, cut to what fits into a status."""
    lines = (line.partition("=") for line in text.splitlines())
    values = {name: value[:_TEXT_LIMIT] for name, mark, value in lines if mark}
    if not _HASH.fullmatch(values.get("configHash", "")):
        values.pop("configHash", None)
    return values
