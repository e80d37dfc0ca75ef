"""Errors of the tools: each says in one line what is wrong and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_OUTPUT_LINES: Final = 8
_CAUSE: Final = re.compile(r"^(?:error|fatal|ERROR|Error)(?: from server[^:]*)?: ")


class ToolError(Exception):
    """A step failed for a reason that the user can act on; the message is shown alone."""


class CommandFailed(ToolError):
    """A command that a step ran exited with an error."""

    def __init__(
        self, command: Sequence[str], code: int, output: str, log: Path | None = None
    ) -> None:
        """Build the message: the cause, the end of the output before it, and the command last."""
        lines = [line.rstrip() for line in output.strip().splitlines()[-_OUTPUT_LINES:]]
        found = [index for index, line in enumerate(lines) if _CAUSE.match(line)]
        # Programs state the cause in a line of this form, or in the last one.
        first = found[-1] if found else len(lines) - 1
        cause = [_CAUSE.sub("", line, count=1) for line in lines[first:]]
        where = f" (full output: {log})" if log else ""
        ran = f"`{' '.join(command)[:200]}` exited with {code}{where}"
        super().__init__("\n".join([*cause, *lines[: max(first, 0)], ran]))
        self.code = code
        self.output = output


class UsageError(ToolError):
    """The command line names something that does not exist or does not go together."""
