"""Requests to a guard about the endpoint that it serves.

The metrics themselves may have many megabytes, which would count against the memory of the pod.
"""

from __future__ import annotations

import http.client
import time
from dataclasses import dataclass
from typing import Final

CONTROL_PATH: Final = "/-/config"
"""Path at which a guard reports its configuration and its last scrape."""
UPSTREAM_PATH: Final = "/metrics"
"""Path of the metrics of the upstream agent."""
_LIMIT: Final = 64 << 10
_PAUSE: Final = 0.1
_OK: Final = 200


@dataclass(frozen=True, slots=True)
class Scrape:
    """The report of an endpoint about itself.

    Attributes:
        id: Name of the endpoint; empty for the upstream agent.
        config_hash: Hash of the configuration that it serves; empty for the upstream agent.
        version: Version of the exporter; empty for the upstream agent.
    """

    id: str = ""
    config_hash: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of an endpoint.

    Attributes:
        host: IP address.
        port: Port.
        path: `CONTROL_PATH`, or `UPSTREAM_PATH`.
        encrypted: Whether it serves HTTPS.
    """

    host: str
    port: int
    path: str = CONTROL_PATH
    encrypted: bool = False


def parse_control(text: str) -> Scrape | None:
    """Parse the response at `CONTROL_PATH`; None if it is not from a guard."""
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if "id" not in values or "configHash" not in values:
        return None
    return Scrape(values["id"], values["configHash"], values.get("version", ""))


def scrape(address: Address, timeout: float) -> Scrape | None:
    """Query an endpoint once; None if nothing responds, or anything but an exporter."""
    connection = _connect(address, timeout)
    try:
        connection.request("GET", address.path)
        response = connection.getresponse()
        body = response.read(_LIMIT)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    if response.status != _OK:
        return None
    return (
        parse_control(body.decode(errors="replace")) if address.path == CONTROL_PATH else Scrape()
    )


def _connect(address: Address, timeout: float) -> http.client.HTTPConnection:
    if not address.encrypted:
        return http.client.HTTPConnection(address.host, address.port, timeout=timeout)
    import ssl  # Imported only if needed, because it takes memory next to the application.

    context = ssl.create_default_context()
    # The connection does not leave the pod, and the certificate names a Service.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(address.host, address.port, timeout=timeout, context=context)


def await_scrape(address: Address, timeout: float) -> Scrape | None:
    """Query an endpoint until it responds; None if it does not respond in time."""
    deadline = time.monotonic() + timeout
    while True:
        found = scrape(address, timeout)
        if found is not None or time.monotonic() > deadline:
            return found
        time.sleep(_PAUSE)
