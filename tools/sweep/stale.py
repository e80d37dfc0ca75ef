"""Stale lists: a new process is shown what was there before the last write of the one before it.

The API server itself serves the past: a list at an exact resource version, and a watch from there
that catches up. A client that asks for the newest list has no right to be treated so; an operator
should do no harm even then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from tools.sweep.wire import Call, parse_json

if TYPE_CHECKING:
    from tools.sweep.proxy import Answer, Exchange
    from tools.sweep.session import Session

LATE_SECONDS: Final = 0.4
"""Seconds after which a watch catches up with a stale list."""


async def find_version(exchange: Exchange) -> int:
    """Return the newest resource version that there is."""
    answer = await exchange.proxy.act("GET", "/api/v1/namespaces?limit=1")
    return int(parse_json(answer.body)["metadata"]["resourceVersion"])


def is_due(session: Session, call: Call, exchange: Exchange) -> bool:
    """Tell whether a list is to show the past: the first of each resource of a new process."""
    return (
        session.stale_version > 0
        and call.verb == "list"
        and not call.system
        and exchange.process > session.fired_process
        and (exchange.process, call.resource) not in session.stale
    )


async def list_before(exchange: Exchange, call: Call) -> Answer:
    """List what was there before the write."""
    session = exchange.session
    session.stale.add((exchange.process, call.resource))
    query = {
        **exchange.request.query,
        "resourceVersion": str(session.stale_version),
        "resourceVersionMatch": "Exact",
    }
    path = f"{exchange.path}?{urlencode(query)}"
    return await exchange.proxy.act("GET", path)
