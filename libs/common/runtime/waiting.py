"""Waiting for the first of several tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def wait_first(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait for the first of several tasks, and cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
