"""Confirmation: a live read of the primary before a reconcile creates a child for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable


class PrimaryGone(Exception):
    """The primary was deleted since the reconcile began; there is nothing left to do."""


class PrimaryChanged(Exception):
    """The spec of the primary changed since the reconcile began.

    The next reconcile makes a new plan.
    """


type Confirm = Callable[[], Awaitable[None]]
"""Checks the primary, and raises PrimaryGone or PrimaryChanged if it must not get a child."""
