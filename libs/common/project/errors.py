"""Errors of the generator."""

from __future__ import annotations

from collections.abc import Sequence

from libs.common.errors import SlipwayError


class GenerateError(SlipwayError):
    """Sources are missing or contradict each other; nothing can be generated from them."""

    def __init__(self, problems: Sequence[str]) -> None:
        """List every problem, each of which says where it is and what to do."""
        self.problems = tuple(problems)
        super().__init__("\n".join(f"* {problem}" for problem in self.problems))
