"""Requests to a guard about the endpoint that it serves.

The metrics themselves may have many megabytes, which would count against the memory of the pod.
"""

from __future__ import annotations

import http.client
import re
import time
from dataclasses import dataclass
from typing import Final

CONTROL_PATH: Final = "/-/config"
"""Path at which a guard reports its configuration and its last scrape."""
_LIMIT: Final = 64 << 10
_TEXT_LIMIT: Final = 900
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_PAUSE: Final = 0.1
_OK: Final = 200


@dataclass(frozen=True, slots=True)
class Address:
    """The address of an endpoint."""

    host: str
    port: int
    encrypted: bool = False


def parse_answer(text: str) -> dict[str, str]:
    """Parse the response of a guard: a name and a value per line, cut to fit into a status."""
    lines = (line.partition("=") for line in text.splitlines())
    values = {name: value[:_TEXT_LIMIT] for name, mark, value in lines if mark}
    if not _HASH.fullmatch(values.get("configHash", "")):
        values.pop("configHash", None)
    return values


def scrape(address: Address, timeout: float) -> dict[str, str] | None:
    """Return what a guard says about itself; None if nothing responds, or anything else."""
    connection = _connect(address, timeout)
    try:
        connection.request("GET", CONTROL_PATH)
        response = connection.getresponse()
        body = response.read(_LIMIT)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    if response.status != _OK:
        return None
    found = parse_answer(body.decode(errors="replace"))
    return found if {"id", "configHash"} <= found.keys() else None


def _connect(address: Address, timeout: float) -> http.client.HTTPConnection:
    if not address.encrypted:
        return http.client.HTTPConnection(address.host, address.port, timeout=timeout)
    import ssl  # Imported only if needed, because it takes memory next to the application.

    context = ssl.create_default_context()
    # The connection does not leave the pod, and the certificate names a Service.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(address.host, address.port, timeout=timeout, context=context)


def await_scrape(address: Address, timeout: float) -> dict[str, str] | None:
    """Query an endpoint until it responds; None if it does not respond in time."""
    deadline = time.monotonic() + timeout
    while True:
        found = scrape(address, timeout)
        if found is not None or time.monotonic() > deadline:
            return found
        time.sleep(_PAUSE)
