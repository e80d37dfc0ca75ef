"""The way to the cluster: one `kubectl proxy` per command, so that kubectl logs in.

The proxy gets the global flags of the command. Exec plugins, OIDC, client certificates, HTTP
proxies, `--as` and the rules for several kubeconfigs are thus those of kubectl, and no credential
passes through this process. `kubectl get --raw` would need one login per request, and cannot patch.

Whoever reaches the proxy acts as the user. It listens on a Unix socket in a folder that only the
user can open, and ends with the command: on success, errors, Ctrl-C, SIGTERM and SIGHUP. (After
SIGKILL it stays, for this user alone.) Python has no Unix sockets on Windows. A TCP port would
serve every other user of that computer, so the plugin refuses to run there.
"""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from kubectl_slipway.errors import Exit, PluginError

_UNITS = {"h": 3600, "m": 60, "s": 1, "ms": 0.001, "": 1}
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_SOCKET = "kubectl-slipway-12345678/socket"
_LONGEST = 103
"""Most bytes of the path of a Unix socket on macOS; Linux allows 107."""


class Kubectl:
    """The kubectl of the user, with the global flags of one command.

    Args:
        flags: Global flags of kubectl, each as `--name=value`.
    """

    def __init__(self, flags: Sequence[str] = ()) -> None:
        """Keep the flags; `start` starts the proxy."""
        self.flags = tuple(flags)
        self._folder = ""
        self._proxy: subprocess.Popen[bytes] | None = None

    def flag(self, name: str) -> str:
        """Return the value of a flag, as kubectl does the last one; empty if it is not given."""
        given = [each.partition("=")[2] for each in self.flags if each.startswith(f"--{name}=")]
        return given[-1] if given else ""

    @cached_property
    def program(self) -> str:
        """Path of kubectl: KUBECTL, or the one on PATH.

        Raises:
            PluginError: There is none.
        """
        named = os.environ.get("KUBECTL") or "kubectl"
        if found := shutil.which(named):
            return found
        raise PluginError(
            f"Cannot find {named}, which connects kubectl slipway to the cluster.",
            "Install kubectl and put it on PATH, or set KUBECTL to its path.",
            Exit.UNREACHABLE,
        )

    @cached_property
    def timeout(self) -> float | None:
        """Seconds after which a request fails; None for never.

        kubectl does not apply `--request-timeout` to requests that its proxy forwards.
        """
        parts = re.findall(r"([\d.]+)(h|ms|m|s|)", self.flag("request-timeout"))
        return sum(float(number) * _UNITS[unit] for number, unit in parts) or None

    @cached_property
    def namespace(self) -> str:
        """Namespace of the flags, of the context or of the pod."""
        if named := self.flag("namespace"):
            return named
        path = "jsonpath={.contexts[0].context.namespace}"
        command = (self.program, "config", "view", *self.flags, "--minify", "--output", path)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout or "default"
        # There is no kubeconfig, which is no error in a pod.
        in_pod = _POD_NAMESPACE.read_text().strip() if _POD_NAMESPACE.exists() else "default"
        return os.environ.get("POD_NAMESPACE") or in_pod

    def start(self) -> None:
        """Start the proxy, and return when it serves.

        Raises:
            PluginError: kubectl is missing or has refused; it has printed why.
        """
        if not hasattr(socket, "AF_UNIX"):
            raise PluginError(
                "kubectl slipway does not run on Windows: it needs a Unix socket, because any user"
                " of the computer could use the port of a kubectl proxy with your permissions.",
                "Run it in the Windows Subsystem for Linux.",
                Exit.UNREACHABLE,
            )
        if threading.current_thread() is threading.main_thread():
            for each in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(each) is signal.SIG_DFL:
                    signal.signal(each, _end)
        path = os.path.join(tempfile.gettempdir(), _SOCKET)
        folder = "/tmp" if len(os.fsencode(path)) > _LONGEST else None  # noqa: S108
        # Only this user can open a folder that mkdtemp creates.
        self._folder = tempfile.mkdtemp(prefix="kubectl-slipway-", dir=folder)
        command = (self.program, "proxy", *self.flags, "--append-server-path")
        socket_flag = f"--unix-socket={self._folder}/socket"
        self._proxy = subprocess.Popen((*command, socket_flag), stdout=subprocess.PIPE)
        self._await_proxy()

    def _await_proxy(self) -> None:
        assert self._proxy is not None and self._proxy.stdout is not None
        while said := os.read(self._proxy.stdout.fileno(), 4096):
            if b"Starting to serve" in said:
                return
            # A question, such as the name of the user.
            sys.stderr.buffer.write(said)
            sys.stderr.flush()
        raise PluginError(
            f"{self.program} proxy ended with exit code {self._proxy.wait()} before it served.",
            "Its own message is above. Check --context and --kubeconfig; kubectl must be 1.32 or"
            " later.",
            Exit.UNREACHABLE,
        )

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection to the proxy, which opens with the first request."""
        return _Connection(f"{self._folder}/socket", self.timeout)

    def run(self, *words: str) -> int:
        """Run kubectl on the terminal of the user, and return its exit code."""
        return subprocess.run((self.program, *self.flags, *words), check=False).returncode

    def close(self) -> None:
        """End the proxy and remove its socket."""
        if self._proxy is not None:
            # It has nothing to finish.
            self._proxy.kill()
            self._proxy.communicate()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


class _Connection(http.client.HTTPConnection):
    """HTTP on a Unix socket."""

    def __init__(self, path: str, timeout: float | None) -> None:
        # The proxy serves this host alone, and no web page of another one.
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _end(number: int, _: object) -> NoReturn:
    """End as by an error, so that the proxy ends."""
    raise SystemExit(128 + number)
