"""Errors of the tools: each says in one line what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class ToolError(Exception):
    """A step failed for a reason that the user can act on; the message is shown alone."""


class CommandFailed(ToolError):
    """A command that a step ran exited with an error."""

    def __init__(
        self, command: Sequence[str], code: int, output: str, log: Path | None = None
    ) -> None:
        """Build the message from the command, its exit code and the end of its output."""
        tail = "\n".join(line for line in output.strip().splitlines()[-8:])
        where = f" (full output: {log})" if log else ""
        super().__init__(f"`{' '.join(command)[:200]}` exited with {code}{where}\n{tail}".strip())
        self.code = code
        self.output = output


class UsageError(ToolError):
    """The command line names something that does not exist or does not go together."""
