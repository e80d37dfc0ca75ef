"""Requests to an endpoint, to verify that it serves."""

from __future__ import annotations

import http.client
import re
import time
from dataclasses import dataclass
from typing import Final

CONTROL_PATH: Final = "/-/config"
"""Path at which a guard reports the hash of its configuration."""
_LIMIT: Final = 64 << 20
_PAUSE: Final = 0.1
_HASH: Final = re.compile(r'^jmx_guard_config_info\{hash="([0-9a-f]*)"\} 1', re.MULTILINE)
_VERSION: Final = re.compile(
    r'^jmx_exporter_build_info\{name="[^"]*",version="([^"]*)"\} 1', re.MULTILINE
)
_ERROR: Final = re.compile(r"^jmx_scrape_error (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Scrape:
    """The metrics of the endpoint about itself.

    Attributes:
        config_hash: Hash of the configuration that the guard serves; empty for the upstream agent.
        version: Version of the exporter.
        healthy: Whether the beans could be read.
    """

    config_hash: str
    version: str
    healthy: bool


@dataclass(frozen=True, slots=True)
class Address:
    """The address of an endpoint.

    Attributes:
        host: IP address.
        port: Port.
        path: Path of the metrics, or `CONTROL_PATH`.
        encrypted: Whether it serves HTTPS.
    """

    host: str
    port: int
    path: str
    encrypted: bool


def parse_scrape(text: str) -> Scrape | None:
    """Parse metrics; None if they are not from an exporter."""
    version = _VERSION.search(text)
    if version is None:
        return None
    found = _HASH.search(text)
    error = _ERROR.search(text)
    healthy = error is not None and float(error[1]) == 0
    return Scrape(found[1] if found else "", version[1], healthy)


def parse_control(text: str) -> Scrape | None:
    """Parse the response at `CONTROL_PATH`; None if it is not from a guard."""
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if "id" not in values or "configHash" not in values:
        return None
    return Scrape(values["configHash"], values.get("version", ""), healthy=True)


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
    parse = parse_control if address.path == CONTROL_PATH else parse_scrape
    return parse(body.decode(errors="replace")) if response.status == 200 else None


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
