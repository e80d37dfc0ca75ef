"""A look at the endpoint, as proof that it serves."""

from __future__ import annotations

import http.client
import re
import time
from dataclasses import dataclass
from typing import Final

_LIMIT: Final = 64 << 20
_PAUSE: Final = 0.1
_HASH: Final = re.compile(r'^jmx_guard_config_info\{hash="([0-9a-f]*)"\} 1', re.MULTILINE)
_VERSION: Final = re.compile(
    r'^jmx_exporter_build_info\{name="[^"]*",version="([^"]*)"\} 1', re.MULTILINE
)
_ERROR: Final = re.compile(r"^jmx_scrape_error (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Scrape:
    """Hold what the endpoint said of itself.

    Attributes:
        config_hash: Hash of the configuration that the guard serves; empty for upstream's agent.
        version: Version of the exporter.
        healthy: Whether the beans could be read.
    """

    config_hash: str
    version: str
    healthy: bool


def parse_scrape(text: str) -> Scrape | None:
    """Read metrics; None when they are not those of an exporter."""
    version = _VERSION.search(text)
    if version is None:
        return None
    found = _HASH.search(text)
    error = _ERROR.search(text)
    healthy = error is not None and float(error[1]) == 0
    return Scrape(found[1] if found else "", version[1], healthy)


def scrape(host: str, port: int, path: str, timeout: float) -> Scrape | None:
    """Scrape an endpoint once; None when there is none, or another one."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read(_LIMIT)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return parse_scrape(body.decode(errors="replace")) if response.status == 200 else None


def await_scrape(host: str, port: int, path: str, timeout: float) -> Scrape | None:
    """Scrape until somebody answers; None when nobody does in time."""
    deadline = time.monotonic() + timeout
    while True:
        found = scrape(host, port, path, timeout)
        if found is not None or time.monotonic() > deadline:
            return found
        time.sleep(_PAUSE)
