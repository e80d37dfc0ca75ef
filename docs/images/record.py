"""Run commands in a terminal and draw what it shows at the end.

Run `python docs/images/record.py PICTURE COMMAND...`, for example
`python docs/images/record.py demo.svg './dev demo --detach'`.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import shlex
import struct
import sys
import termios
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

ROOT: Final = Path(__file__).resolve().parents[2]
_WIDTH, _HEIGHT = 108, 60
_CONTROL: Final = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\r|\n|\x1b\]8;[^\x1b]*\x1b\\")
_REMOTE: Final = re.compile(r",\s*url\(\"https://[^)]*\)[^,;]*")
_COLOR: Final = "m"
_UP: Final = "A"
_ERASE: Final = "K"


def run(command: list[str]) -> str:
    """Run a command in a pseudo-terminal and return all that it wrote."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", _HEIGHT, _WIDTH, 0, 0))
    output = bytearray()
    while True:
        try:
            part = os.read(terminal, 65_536)
        except OSError:  # The terminal is closed with its last process.
            break
        if not part:
            break
        output += part
        sys.stdout.buffer.write(part)
    os.waitpid(child, 0)
    return output.decode(errors="replace")


def render_screen(output: str) -> str:
    """Return the lines that a terminal shows at the end, with their colors.

    Only what rich writes is understood: colors, lines up, erased lines.
    """
    lines, row, start = [""], 0, 0
    for control in _CONTROL.finditer(output):
        lines[row] += output[start : control.start()]
        start = control.end()
        if control.group() == "\n":
            row += 1
            if row == len(lines):
                lines.append("")
        elif control.group(2) == _COLOR:
            lines[row] += control.group()
        elif control.group(2) == _UP:
            row = max(0, row - int(control.group(1) or 1))
        elif control.group(2) == _ERASE:
            lines[row] = ""
    lines[row] += output[start:]
    return "\n".join(lines).rstrip()


def main() -> None:
    """Record the commands of the command line."""
    os.chdir(ROOT)
    picture = Path(__file__).with_name(sys.argv[1])
    shown = [
        f"printf '\\033[1m$\\033[0m %s\\n' {shlex.quote(line)}\n{line}\n" for line in sys.argv[2:]
    ]
    screen = render_screen(run(["bash", "-c", "echo\n".join(shown)])).replace(str(Path.home()), "~")
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(screen))
    # Fonts from elsewhere are not loaded by who shows the picture, nor should they be.
    drawn = _REMOTE.sub("", console.export_svg(title="Slipway"))
    picture.write_text(re.sub(r"\n\s*", "", drawn) + "\n")  # Nobody reads a picture as text.
    sys.stdout.write(f"\nWrote {picture.relative_to(ROOT)}.\n")


if __name__ == "__main__":
    main()
