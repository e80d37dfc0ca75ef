"""The table of all attempts, for the tests and for the page."""

from __future__ import annotations

from typing import Final

from tests.attacks.api_attempts import API_ATTEMPTS
from tests.attacks.attempt import Attempt
from tests.attacks.guest_attempts import GUEST_ATTEMPTS
from tests.attacks.object_attempts import OBJECT_ATTEMPTS

ATTEMPTS: Final[tuple[Attempt, ...]] = (*API_ATTEMPTS, *OBJECT_ATTEMPTS, *GUEST_ATTEMPTS)


def render_attempts() -> str:
    """Render the table of the page."""
    head = (
        "| # | who | tries to | outcome | the same attempt succeeds for |\n|---|---|---|---|---|\n"
    )
    return head + "".join(
        f"| {number} | {each.who} | {each.what} | {each.outcome} | {each.control} |\n"
        for number, each in enumerate(ATTEMPTS, 1)
    )
