"""Short commands whose output is the result; long ones use `Progress.run`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.cluster.errors import CommandFailed, ToolError


def read(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    seconds: float = 60.0,
) -> str:
    """Return what a command prints on its standard output.

    Args:
        command: The program and its arguments.
        env: Variables in addition to the environment of this process.
        stdin: Text given to the command.
        seconds: How long it may take.

    Raises:
        CommandFailed: The command exited with an error.
        ToolError: The command is not installed, or took too long.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            env={**os.environ, **(env or {})},
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError as err:
        raise ToolError(f"{words[0]}: not installed") from err
    except subprocess.TimeoutExpired as err:
        raise ToolError(f"`{' '.join(words)[:200]}` took longer than {seconds:g} s") from err
    if done.returncode:
        raise CommandFailed(words, done.returncode, done.stderr or done.stdout)
    return done.stdout


def succeeds(
    command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, seconds: float = 20.0
) -> bool:
    """Return whether a command exits with 0 in time."""
    try:
        read(command, env=env, seconds=seconds)
    except ToolError:
        return False
    return True
