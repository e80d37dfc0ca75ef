"""What people read of a command that failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.cluster.errors import CommandFailed


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (
            "Installing it now.\nError: values do not fit:\n- replicas: not a number",
            "values do not fit:\n- replicas: not a number\nInstalling it now.",
        ),
        ("step 1\nno space left", "no space left\nstep 1"),
        ('Error from server (NotFound): pods "a" not found', 'pods "a" not found'),
        ("", ""),
    ],
)
def test_cause_is_first_and_the_command_last(output: str, message: str) -> None:
    text = str(CommandFailed(["helm", "upgrade"], 1, output, Path("/log")))

    ran = "`helm upgrade` exited with 1 (full output: /log)"
    assert text == "\n".join(part for part in (message, ran) if part)
