"""Counts of requests, as the API server makes them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import aiohttp

from libs.common.config import ConnectionConfig

_LINE: Final = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})
_QUIET: Final = frozenset({"leases"})


def parse_writes(text: str) -> dict[str, float]:
    """Parse the metrics of an API server: writes that were carried out, by verb and resource.

    Events count like any other write; Leases do not, since they are renewed whatever happens.
    """
    counts: defaultdict[str, float] = defaultdict(float)
    for match in _LINE.finditer(text):
        labels = dict(_LABEL.findall(match[1]))
        verb, resource = labels.get("verb", ""), labels.get("resource", "")
        if verb in _WRITES and resource not in _QUIET and labels.get("code", "")[:1] == "2":
            counts[f"{verb} {resource}"] += float(match[2])
    return dict(counts)


async def count_writes(config: ConnectionConfig) -> dict[str, float]:
    """Ask an API server for its counts; arguments and result as `parse_writes`."""
    headers = {"Authorization": await config.authorization()}
    async with (
        aiohttp.ClientSession() as session,
        session.get(
            f"{config.server}/metrics", headers=headers, ssl=config.ssl_context() or True
        ) as response,
    ):
        return parse_writes(await response.text())


def subtract(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """Return what was added to counts, without those that are the same."""
    added = {name: number - before.get(name, 0.0) for name, number in after.items()}
    return {name: number for name, number in added.items() if number}
