"""Progress of long work on the terminal: steps, times, current activity, path of the log."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tools.cluster.cache import Cache
from tools.cluster.errors import CommandFailed

_HEARTBEAT: Final = 30.0
"""Seconds between lines about a running step, if there is no terminal."""
_NOTE_WIDTH: Final = 100

type Started = Callable[[subprocess.Popen[bytes]], None]
"""Take the process of a command that has just begun, such as to interrupt it later."""


def format_seconds(seconds: float) -> str:
    """Return a duration as people say it: `4.2 s`, `48 s`, `2 min 05 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


@dataclass(slots=True)
class _Step:
    title: str
    depth: int
    started: float
    finished: float | None = None
    failed: bool = False
    note: str = ""


class Progress:
    """A display of steps and their commands; one per command line."""

    def __init__(
        self,
        log: Path,
        console: Console | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """Write the output of commands to `log`, and steps to `console` (standard error)."""
        self.log_path = log
        log.parent.mkdir(parents=True, exist_ok=True)
        self._console = console or Console(stderr=True, highlight=False)
        self._plain = not self._console.is_terminal or bool(environ.get("CI"))
        self._clock = clock
        self._steps: list[_Step] = []
        self._live: Live | None = None

    @contextlib.contextmanager
    def step(self, title: str, hint: str = "") -> Iterator[None]:
        """Show one step while the block runs; `hint` says how long it may take."""
        step = _Step(title, sum(s.finished is None for s in self._steps), self._clock())
        self._steps.append(step)
        self._write_log(f"\n===== {title}\n")
        with self._showing(step, hint):
            try:
                yield
            except BaseException:
                step.failed = True
                raise
            finally:
                step.finished = self._clock()

    def note(self, text: str) -> None:
        """Say what the innermost running step is doing now."""
        running = [step for step in self._steps if step.finished is None]
        if running:
            running[-1].note = text.strip()[:_NOTE_WIDTH]

    @property
    def last_note(self) -> str:
        """What was said last of the step that began last; empty for nothing."""
        return self._steps[-1].note if self._steps else ""

    def say(self, text: str) -> None:
        """Print one line that stays, as it is."""
        console = self._live.console if self._live else self._console
        # It may be of a program: neither the thumb in 7:0:-1:99 nor the tag in [gw0] is meant.
        console.print(text, soft_wrap=True, emoji=False, markup=False)

    def run(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: IO[bytes] | None = None,
        started: Started | None = None,
    ) -> str:
        """Run a command, its output into the log and the running step, and return that output.

        `env` is set on top of the environment of this process; `started` is given the process.

        Raises:
            CommandFailed: The command exited with an error.
        """
        words = [str(word) for word in command]
        self._write_log(f"$ {' '.join(words)}\n")
        lines: list[str] = []
        with (
            self.log_path.open("ab", buffering=0) as log,
            subprocess.Popen(
                words,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                stdin=stdin or subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            if started is not None:
                started(process)
            assert process.stdout is not None  # It is a pipe.
            for raw in process.stdout:
                log.write(raw)
                lines.append(raw.decode(errors="replace"))
                self.note(lines[-1])
        output = "".join(lines)
        if process.returncode:
            raise CommandFailed(words, process.returncode, output, self.log_path)
        return output

    def _write_log(self, text: str) -> None:
        with self.log_path.open("a") as log:
            log.write(text)

    @contextlib.contextmanager
    def _showing(self, step: _Step, hint: str) -> Iterator[None]:
        if self._plain:
            with self._plain_lines(step, hint):
                yield
        elif self._live:
            yield
        else:
            try:
                with Live(
                    get_renderable=self._render, console=self._console, refresh_per_second=8
                ) as live:
                    self._live = live
                    try:
                        yield
                    finally:
                        live.refresh()
                        self._live = None
            finally:
                # Only after the display has ended, because it draws the steps again at its end.
                self._steps.clear()

    @contextlib.contextmanager
    def _plain_lines(self, step: _Step, hint: str) -> Iterator[None]:
        indent = "  " * step.depth
        self.say(f"{indent}==> {step.title}{f' ({hint})' if hint else ''}")
        ended = threading.Event()
        beat = threading.Thread(target=self._beat, args=(step, indent, ended), daemon=True)
        beat.start()
        try:
            yield
        finally:
            ended.set()
            beat.join()
            took = format_seconds((step.finished or self._clock()) - step.started)
            self.say(f"{indent}    {'failed' if step.failed else 'done'} after {took}")

    def _beat(self, step: _Step, indent: str, ended: threading.Event) -> None:
        while not ended.wait(_HEARTBEAT):
            took = format_seconds(self._clock() - step.started)
            self.say(f"{indent}    {took}: {step.note or 'working'}")

    def _render(self) -> RenderableType:
        table = Table.grid(padding=(0, 1))
        for step in self._steps:
            table.add_row(*self._row(step))
        if all(step.finished is not None for step in self._steps):
            return table
        return Group(table, Text(f"log: {self.log_path}", style="dim"))

    def _row(self, step: _Step) -> tuple[RenderableType, RenderableType, RenderableType]:
        took = format_seconds((step.finished or self._clock()) - step.started)
        title = Text("  " * step.depth + step.title)
        if step.finished is None:
            text = title.append(f"  {step.note}", style="dim")
            text.truncate(max(20, self._console.width - 16), overflow="ellipsis")
            return Spinner("dots"), text, took
        mark = Text("✗", style="red") if step.failed else Text("✓", style="green")
        return mark, title, took


def open_progress(name: str, cache: Cache | None = None) -> Progress:
    """Return the progress of one command line, with a log file of its own in the cache."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    log = (cache or Cache()).path("logs", f"{stamp}-{name}-{os.getpid()}.log")
    _prune_logs(log.parent)
    return Progress(log, Console(stderr=True, highlight=False, file=sys.stderr))


def _prune_logs(directory: Path, kept: int = 50) -> None:
    logs = sorted(directory.glob("*.log")) if directory.exists() else []
    for path in logs[:-kept]:
        path.unlink(missing_ok=True)
