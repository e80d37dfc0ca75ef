"""Errors of the generator."""

from __future__ import annotations

from collections.abc import Sequence

from libs.common.errors import SlipwayError


class GenerateError(SlipwayError):
    """Nothing can be generated because sources are missing or contradictory."""

    def __init__(self, problems: Sequence[str]) -> None:
        """List every problem; each says where it is and how to fix it."""
        self.problems = tuple(problems)
        super().__init__("\n".join(f"* {problem}" for problem in self.problems))
