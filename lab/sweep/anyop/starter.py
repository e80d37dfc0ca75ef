"""Starter: runs the command of an operator, with a kubeconfig that leads through the proxy."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from lab.sweep.proxy import build_kubeconfig
from libs.common.testing.ports import find_free_port
from tools.cluster.errors import UsageError

_ROOT: Final = Path(__file__).resolve().parents[3]
_HIDDEN: Final = (
    *("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBEBUILDER_ASSETS", "GOGC"),
)


@dataclass(frozen=True, slots=True)
class Command:
    """The command that starts an operator.

    Attributes:
        words: Words of the command; they may contain `{namespace}`, `{port}` and `{kubeconfig}`.
        folder: Folder of the kubeconfigs and logs.
    """

    words: Sequence[str]
    folder: Path

    def log(self, namespace: str) -> Path:
        """Return the path of the log of a trial."""
        return self.folder / f"{namespace}.log"

    async def start(self, url: str, namespace: str, number: int) -> asyncio.subprocess.Process:
        """Start a process in a process group of its own.

        Raises:
            UsageError: There is no such program.
        """
        kubeconfig = self.folder / f"{namespace}.{number}.kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(build_kubeconfig(url, namespace, "none")))
        values = {"namespace": namespace, "kubeconfig": str(kubeconfig)}
        words = [self._fill(word, values) for word in self.words]
        environment = build_environment(os.environ, str(kubeconfig), namespace)
        with self.log(namespace).open("ab") as log:
            try:
                return await asyncio.create_subprocess_exec(
                    *words,
                    env=environment,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as err:
                raise UsageError(f"Cannot run {words[0]}: {err.strerror}") from err

    def read_log(self, namespace: str) -> str:
        """Return what the processes of a trial have logged."""
        path = self.log(namespace)
        return path.read_text(errors="replace") if path.exists() else ""

    def _fill(self, word: str, values: Mapping[str, str]) -> str:
        for name, value in values.items():
            word = word.replace(f"{{{name}}}", value)
        return word.replace("{port}", str(find_free_port())) if "{port}" in word else word


def build_environment(
    inherited: Mapping[str, str], kubeconfig: str, namespace: str
) -> dict[str, str]:
    """Build the environment of an operator, without anything of this checkout."""
    kept = {name: value for name, value in inherited.items() if name not in _HIDDEN}
    paths = [each for each in kept.pop("PYTHONPATH", "").split(os.pathsep) if each]
    if paths := [each for each in paths if Path(each).resolve() != _ROOT]:
        kept["PYTHONPATH"] = os.pathsep.join(paths)
    return kept | {
        "KUBECONFIG": kubeconfig,
        "POD_NAMESPACE": namespace,
        "WATCH_NAMESPACE": namespace,
    }


def kill(process: asyncio.subprocess.Process) -> None:
    """Kill a process and its children immediately, as a crash of the container does."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
