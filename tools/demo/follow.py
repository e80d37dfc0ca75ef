"""Show what `kubectl get` shows, for as long as it changes, and wait until something holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from tools.cluster.errors import CommandFailed, ToolError
from tools.cluster.kubectl import Kubectl

_POLL_SECONDS: Final = 0.7

type Probe = Callable[[], bool]
"""Returns whether the step is done."""


class Follower:
    """Follow objects of one namespace.

    Args:
        kubectl: Asks the cluster.
        namespace: Where the objects are.
        console: Console for the output: a live table on a terminal, else one line for each change.
    """

    def __init__(self, kubectl: Kubectl, namespace: str, console: Console) -> None:
        """Keep the arguments."""
        self._kubectl = kubectl
        self._namespace = namespace
        self._console = console

    def say(self, text: str) -> None:
        """Begin a chapter."""
        self._console.print(f"\n[bold cyan]{text}[/bold cyan]")

    def show(self, *what: str) -> None:
        """Show objects once."""
        self._console.print(f"[dim]$ kubectl get {' '.join(what)}[/dim]")
        self._console.print(Text(self._table(what)), soft_wrap=True)

    def follow(self, what: tuple[str, ...], probe: Probe, *, seconds: float) -> None:
        """Show objects until something holds.

        Args:
            what: Arguments of `kubectl get`.
            probe: Returns whether the condition is met.
            seconds: How long that may take.

        Raises:
            ToolError: It did not hold in time.
        """
        self._console.print(f"[dim]$ kubectl get {' '.join(what)} --watch[/dim]")
        deadline = time.monotonic() + seconds
        shown: set[str] = set()
        with Live(console=self._console, refresh_per_second=4, transient=False) as live:
            while True:
                done = probe()
                table = self._table(what)
                if self._console.is_terminal:
                    live.update(Text(table))
                else:
                    self._print_new(table, shown)
                if done:
                    return
                if time.monotonic() > deadline:
                    raise ToolError(f"Not done after {seconds:g} s:\n{table}")
                time.sleep(_POLL_SECONDS)

    def _table(self, what: tuple[str, ...]) -> str:
        try:
            text = self._kubectl.read("get", *what, "--namespace", self._namespace)
        except CommandFailed as err:
            # Such as an object that is gone by now, named among others.
            return str(err).strip().splitlines()[0]
        return text.rstrip()

    def _print_new(self, table: str, shown: set[str]) -> None:
        for line in table.splitlines():
            # Without the age, which is another each time.
            key = " ".join(line.split()[:-1])
            if key not in shown:
                shown.add(key)
                self._console.print(Text(line), soft_wrap=True)
