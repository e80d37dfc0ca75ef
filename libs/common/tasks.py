"""Runs work side by side, and never leaves a part of it running behind the caller's back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, overload

type _Work[T] = Coroutine[Any, Any, T]


@overload
async def run_together[A, B](a: _Work[A], b: _Work[B], /) -> tuple[A, B]: ...
@overload
async def run_together[A, B, C, D, E](
    a: _Work[A], b: _Work[B], c: _Work[C], d: _Work[D], e: _Work[E], /
) -> tuple[A, B, C, D, E]: ...
@overload
async def run_together[T](*work: _Work[T]) -> tuple[T, ...]: ...
async def run_together(*work: _Work[Any]) -> tuple[Any, ...]:
    """Run coroutines concurrently, and return their results in order.

    At the first error, and if the caller is cancelled, the others are cancelled. This function
    returns only after all of them have ended. `asyncio.gather` returns immediately, so that the
    others would use what the caller closes next.

    Raises:
        Exception: The first error. Unlike a TaskGroup, this does not wrap it in an ExceptionGroup,
            so that callers handle it as if they had awaited the coroutine themselves.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return tuple(task.result() for task in tasks)


async def wait_first(*waits: _Work[object]) -> None:
    """Wait for the first of several coroutines, and cancel the others.

    Raises:
        Exception: The first one failed.
    """
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
