"""A sample application as a process, for the tests of the injector."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from http.client import BadStatusLine
from pathlib import Path
from typing import Any, Final

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from operators.jmxexporter.injector.attach import Attachment
from operators.jmxexporter.injector.inject import AgentJars, run
from operators.jmxexporter.injector.messages import Action, JvmReport, Report, Request
from operators.jmxexporter.injector.processes import Process

KIT_VARIABLE: Final = "SLIPWAY_JVM"
"""Environment variable: directory of jars and runtimes that `python -m tools.jvm` builds."""
CONFIG: Final = "rules:\n- pattern: shop<type=Orders><>Count\n  name: shop_orders\n"
"""A configuration that exports the orders of the sample application."""


class Jvm:
    """A running sample application, with a directory that shows only its process as /proc."""

    may_end: bool
    """Whether the test itself ends the application."""

    def __init__(
        self,
        jars: Path,
        java: Path,
        options: Sequence[str],
        directory: Path,
        *,
        prefix: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Start the application.

        Args:
            jars: Directory of the jars.
            java: Home of the runtime.
            options: Options of the JVM.
            directory: Working directory, which is created.
            prefix: Command that starts the runtime.
            environ: Variables in addition to the environment of this process.
        """
        self.may_end = False
        self._kit = jars
        directory.mkdir()
        directory.chmod(0o755)
        self._output = directory / "output"
        command = [
            *prefix,
            str(java / "bin/java"),
            "-Xmx64m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *options,
            *("-cp", str(jars / "sample.jar"), "dev.slipway.jmx.sample.Shop", "0"),
        ]
        before = time.time()
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=directory,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environ or {})},
            )
        # In a short path, because names of sockets are limited to 107 bytes.
        self._proc = Path(tempfile.mkdtemp(prefix="proc-"))
        (self._proc / str(self.process.pid)).symlink_to(f"/proc/{self.process.pid}")
        self.port = 0
        # Process ids are reused: an earlier JVM may have left a socket that blocks this one.
        with contextlib.suppress(FileNotFoundError):
            if self.socket.lstat().st_mtime < before:
                self.socket.unlink()

    @property
    def socket(self) -> Path:
        """Return the path of its attach socket."""
        return Path(f"/tmp/.java_pid{self.process.pid}")  # noqa: S108 - HotSpot knows no other.

    @property
    def jars(self) -> AgentJars:
        """Return the jars for an injector that sees only this JVM."""
        return replace(AgentJars.of(self._kit), proc=self._proc)

    def await_serving(self) -> None:
        """Wait until the application serves its port."""

        def has_port() -> bool:
            assert self.process.poll() is None, self.read_output()
            found = re.search(r"serving on (\d+)", self.read_output())
            self.port = int(found[1]) if found else 0
            return bool(found)

        wait_until(has_port)

    def order(self) -> int:
        """Place an order, and return the number of orders."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            text = connection.makefile().read()
        return int(text.removeprefix("order "))

    def read_output(self) -> str:
        """Return the output of the application."""
        return self._output.read_text(errors="replace")

    def list_threads(self) -> list[str]:
        """Return the names of its threads, from a thread dump."""
        text = Attachment(Process(self.process.pid), 30).command("threaddump").text
        return [line.split('"')[1] for line in text.splitlines() if line.startswith('"')]

    def collect_garbage(self) -> None:
        """Run the garbage collector."""
        Attachment(Process(self.process.pid), 30).command("jcmd", "GC.run")

    def has_class(self, name: str) -> bool:
        """Return whether it has a class with this in its name, after a collection."""
        self.collect_garbage()
        found = Attachment(Process(self.process.pid), 30).command("jcmd", "VM.class_hierarchy")
        return name in found.text

    def inject(self, action: Action = Action.ENSURE, config: str = CONFIG, **rest: Any) -> Report:
        """Run an injector on it."""
        return run(build_request(action, config, **rest), config, self.jars)

    def inject_one(
        self, action: Action = Action.ENSURE, config: str = CONFIG, **rest: Any
    ) -> JvmReport:
        """Run an injector on it, and return its report on the JVM."""
        report = self.inject(action, config, **rest)
        assert len(report.jvms) == 1, report
        return report.jvms[0]

    def close(self) -> None:
        """Kill the application, and remove its socket."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.socket.unlink(missing_ok=True)
        shutil.rmtree(self._proc, ignore_errors=True)


def build_request(action: Action, config: str = CONFIG, **rest: Any) -> Request:
    """Build a request for a configuration."""
    digest = hashlib.sha256(config.encode()).hexdigest()
    defaults: dict[str, Any] = {"min_uptime_seconds": 0, "timeout_seconds": 60, "host": "127.0.0.1"}
    if "port" in rest:
        defaults["last_port"] = rest["port"]
    fields = {"id": f"{os.getpid():08x}-test", "config_hash": digest, **defaults, **rest}
    return Request(action=action, **fields)


def wait_until(probe: Callable[[], object], seconds: float = 240.0) -> None:
    """Wait until a probe returns a true value.

    Raises:
        AssertionError: The probe did not return one in time.
    """
    deadline = time.monotonic() + seconds
    while not probe():
        assert time.monotonic() < deadline, f"gave up after {seconds} s"
        time.sleep(0.01)


def scrape_metrics(port: int, path: str = "/metrics") -> dict[str, Metric]:
    """Scrape an endpoint as Prometheus does.

    Raises:
        OSError: Nothing serves the port. The kernel may connect a socket to itself then, if it
            gives it this port; the response is the request.
    """
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
            text = response.read().decode()
    except BadStatusLine as err:
        raise ConnectionRefusedError(port) from err
    return {family.name: family for family in text_string_to_metric_families(text)}
