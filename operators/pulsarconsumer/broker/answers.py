"""Responses with a size limit."""

from __future__ import annotations

import aiohttp

from operators.pulsarconsumer.broker.errors import AdminTooLong


async def read_bounded(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Read a response up to a size limit.

    Raises:
        AdminTooLong: The response exceeds the limit.
    """
    parts, size = [], 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > limit:
            raise AdminTooLong(f"a response of more than {limit} bytes")
        parts.append(chunk)
    return b"".join(parts)
