"""Test kit of the app: a worker in a thread, the app as a process, and a client."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pulsar

from libs.common.metrics import Metrics
from libs.common.telemetry import NO_TELEMETRY, Telemetry
from operators.pulsarconsumer.app.meters import Meters
from operators.pulsarconsumer.app.metrics import METRICS
from operators.pulsarconsumer.app.settings import PREFIX, load_settings
from operators.pulsarconsumer.app.source import Source
from operators.pulsarconsumer.app.streams import MessageStream
from operators.pulsarconsumer.app.worker import Worker
from slipway_handler import Message

SUBSCRIPTION: Final = "sub"
"""Name of the subscription in all tests; each test uses separate topics."""
_POLL_SECONDS: Final = 0.02


def fail_first_attempt(message: Message) -> None:
    """Fail in the first attempt, and succeed in later ones; a handler for the app as a process."""
    if message.attempt == 1:
        raise ValueError("the first attempt fails")


def new_topic() -> str:
    """Return the full name of an unused topic."""
    return f"persistent://public/default/t-{uuid.uuid4().hex[:10]}"


def build_environment(server: str, topic: str, /, **values: object) -> dict[str, str]:
    """Return environment variables of the app; `values` has their names in lower case."""
    chosen: dict[str, object] = {
        "server": server,
        "topic": topic,
        "subscription_name": SUBSCRIPTION,
        "initial_position": "Earliest",
        "operation_timeout_seconds": 10,
        **values,
    }
    return {f"{PREFIX}{name.upper()}": str(value) for name, value in chosen.items()}


def wait_until(probe: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Wait until a probe returns a true value; this blocks the thread.

    Raises:
        AssertionError: The probe did not return one in time.
    """
    deadline = time.monotonic() + seconds
    while not probe():
        if time.monotonic() > deadline:
            raise AssertionError(f"Gave up after {seconds} s waiting until {what}")
        time.sleep(_POLL_SECONDS)


class RunningWorker:
    """A worker in a thread of this process."""

    def __init__(
        self,
        environ: Mapping[str, str],
        handler: Callable[[Any], object],
        log: Path,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        """Start the worker, which writes the lines of messages to a file."""
        self.settings = load_settings(environ)
        self.metrics = Metrics(METRICS, framework=False, process=False)
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        stream = MessageStream(self._log)
        self.worker = Worker(self.settings, handler, stream, Meters(self.metrics), telemetry)
        self._thread = threading.Thread(target=self.worker.run, daemon=True)
        self._thread.start()

    @property
    def sources(self) -> tuple[Source, ...]:
        """The consumers, one per topic."""
        return self.worker.sources

    def value(self, name: str, **labels: str) -> float:
        """Return a metric, named without the common prefix; 0 if it does not exist."""
        return self.metrics.value(f"pulsar_consumer_{name}", **labels) or 0.0

    def handled(self, result: str) -> float:
        """Return how many messages ended with a result."""
        return self.value("messages_handled_total", result=result)

    def wait_ready(self) -> None:
        """Wait until the worker is subscribed."""
        wait_until(lambda: self.worker.check_ready() is None, "the worker is ready")

    def wait_ended(self, seconds: float = 60.0) -> None:
        """Wait until the worker has ended by itself."""
        wait_until(lambda: not self._thread.is_alive(), "the worker ends", seconds)

    def stop(self, seconds: float = 10.0) -> None:
        """Stop the worker, with a time-out for running handlers, and close the file."""
        self.worker.stop(time.monotonic() + seconds)
        self._thread.join(seconds + 10)
        assert not self._thread.is_alive()
        os.close(self._log)


@contextmanager
def running(
    environ: Mapping[str, str],
    handler: Callable[[Any], object],
    log: Path,
    telemetry: Telemetry = NO_TELEMETRY,
) -> Iterator[RunningWorker]:
    """Run a worker while the block runs."""
    worker = RunningWorker(environ, handler, log, telemetry)
    try:
        yield worker
    finally:
        worker.stop()


class AppProcess:
    """The app as a separate process, as in its container."""

    def __init__(self, environ: Mapping[str, str], folder: Path) -> None:
        """Start the app, with its output in files of a folder."""
        self.health_port, self.metrics_port = _free_port(), _free_port()
        # The handler of a test may be in a different folder.
        modules = [environ.get("PYTHONPATH", ""), *sys.path]
        ports = {"HEALTH_PORT": self.health_port, "METRICS_PORT": self.metrics_port}
        name = uuid.uuid4().hex[:6]
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "operators.pulsarconsumer.app"],
                env={
                    "PATH": os.environ.get("PATH", ""),
                    **{f"{PREFIX}{key}": str(port) for key, port in ports.items()},
                    **environ,
                    "PYTHONPATH": os.pathsep.join(path for path in modules if path),
                },
                stdout=out,
                stderr=err,
            )

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The lines of messages so far."""
        text = self._out.read_text()
        return [json.loads(line) for line in text.splitlines(keepends=True) if line[-1] == "\n"]

    @property
    def payloads(self) -> list[str]:
        """The payloads of these lines."""
        return [line["payload"] for line in self.lines]

    @property
    def errors(self) -> str:
        """The log of the app itself."""
        return self._err.read_text()

    def get(self, path: str, *, metrics: bool = False) -> tuple[int, str]:
        """Return the status and the text of a page; status 0 if there is no response."""
        port = self.metrics_port if metrics else self.health_port
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as err:
            with err:
                return err.code, err.read().decode()
        except OSError:
            return 0, ""

    def wait_ready(self, seconds: float = 30.0) -> None:
        """Wait until the app reports that it is ready."""
        wait_until(lambda: self.get("/readyz")[0] == 200, "the app is ready", seconds)

    def terminate(self, seconds: float = 20.0) -> int:
        """Send SIGTERM and return the exit status."""
        self.process.terminate()
        return self.process.wait(seconds)

    def kill(self) -> None:
        """Kill the app, so that it cannot finish anything."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def app(environ: Mapping[str, str], folder: Path) -> Iterator[AppProcess]:
    """Run the app while the block runs."""
    process = AppProcess(environ, folder)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.kill()


class Notes:
    """The lines that handlers of a process append to the file `$NOTES`."""

    def __init__(self, folder: Path, handlers: str) -> None:
        """Write the module `noted_handlers` to a folder.

        Args:
            folder: Folder for the module and the file.
            handlers: Source of the module.
        """
        self.path = folder / "notes"
        self.path.write_text("")
        (folder / "noted_handlers.py").write_text(handlers)
        self.environ = {"NOTES": str(self.path), "PYTHONPATH": str(folder)}

    @property
    def lines(self) -> list[str]:
        """All lines so far."""
        return self.path.read_text().splitlines()

    def of(self, word: str) -> list[str]:
        """Return the rest of each line that begins with a word."""
        return [line.removeprefix(f"{word} ") for line in self.lines if line.startswith(f"{word} ")]

    def has(self, count: int) -> bool:
        """Return whether at least `count` calls have ended."""
        return len(self.of("end")) >= count

    def go(self) -> None:
        """Let the handlers end, by creating the file `$NOTES.go` that they wait for."""
        self.path.with_name("notes.go").write_text("")


class Peer:
    """A client, independent of the app, that sends messages and reads topics."""

    def __init__(self, server: str, **options: object) -> None:
        """Create the client, which connects when it is first used."""
        level = pulsar.LoggerLevel.Error
        self.client = pulsar.Client(server, logger=pulsar.ConsoleLogger(level), **options)

    def send(self, topic: str, payloads: Sequence[bytes | None], **options: object) -> None:
        """Send messages, and return when the broker has stored all of them."""
        producer = self.client.create_producer(topic)
        for payload in payloads:
            producer.send(payload, **options)
        producer.close()

    def read(self, topic: str, count: int, **options: object) -> list[pulsar.Message]:
        """Return messages of a topic from its beginning, with a temporary subscription."""
        name = uuid.uuid4().hex
        reader = self.client.subscribe(
            topic, name, initial_position=pulsar.InitialPosition.Earliest, **options
        )
        try:
            return [reader.receive(10_000) for _ in range(count)]
        finally:
            reader.unsubscribe()

    def close(self) -> None:
        """Close the connection."""
        self.client.close()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
