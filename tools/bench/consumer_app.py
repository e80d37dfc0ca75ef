"""The consumer app beside a bare loop on the Pulsar client.

Both read the same messages of one broker on this machine, each by a subscription of its own and
in a process of its own. The broker shares the cores, so the figures are for comparing.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import orjson
import pulsar

from libs.common.testing.pulsar import Broker
from operators.pulsarconsumer.app.harness import (
    Peer,
    RunningWorker,
    build_environment,
    new_topic,
)
from tools.bench.processes import read_usage

_QUEUE: Final = 1000
_BATCH: Final = {"batch_max_messages": 100}
_SILENT: Final = {"log_sample_ratio": 0}
LOOPS: Final = ("bare loop", "bare loop, a line each")
"""What the app is compared with: with nothing in the log, and with a line for each message."""
CONTENDERS: Final[Mapping[str, tuple[str, Mapping[str, object]]]] = {
    "app, no log": (LOOPS[0], _SILENT),
    "app, no log, batches of 100": (LOOPS[0], {**_SILENT, **_BATCH}),
    "app": (LOOPS[1], {}),
    "app, batches of 100": (LOOPS[1], _BATCH),
}
"""Settings of the app beside the queue's size, and the loop that does the same."""


@dataclass(frozen=True, slots=True)
class AppCost:
    """Hold what a contender cost, as medians of its rounds.

    Attributes:
        name: Which one.
        loop: The loop that it is held against; itself for a loop.
        rate: Messages a second.
        ratio: Its rate beside that of the loop.
        cpu_us: Microseconds of CPU a message.
        memory_mib: Most resident memory.
    """

    name: str
    loop: str
    rate: float
    ratio: float
    cpu_us: float
    memory_mib: float


def measure_app(broker: Broker, messages: int, size: int, rounds: int) -> list[AppCost]:
    """Have all contenders consume the same messages, in turns."""
    topic = new_topic()
    names = (*LOOPS, *CONTENDERS)
    runs = [(name, f"s{turn}-{name}") for turn in range(rounds) for name in names]
    _produce(broker, topic, [subscription for _, subscription in runs], messages, size)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for name, subscription in runs:
        command = [sys.executable, "-m", "tools.bench.consumer_app"]
        command += [broker.service_url, topic, subscription, name, str(messages)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[name].append(json.loads(done.stdout.splitlines()[-1]))
    rates = {name: statistics.median(run["rate"] for run in runs) for name, runs in found.items()}
    loops = {name: CONTENDERS[name][0] if name in CONTENDERS else name for name in names}
    return [
        AppCost(
            name,
            loops[name],
            rates[name],
            rates[name] / rates[loops[name]],
            statistics.median(run["cpu_us"] for run in results),
            max(run["memory_mib"] for run in results),
        )
        for name, results in found.items()
    ]


def _produce(
    broker: Broker, topic: str, subscriptions: Sequence[str], messages: int, size: int
) -> None:
    peer = Peer(broker.service_url)
    for subscription in subscriptions:
        earliest = pulsar.InitialPosition.Earliest
        peer.client.subscribe(topic, subscription, initial_position=earliest).close()
    producer = peer.client.create_producer(topic, batching_enabled=True, block_if_queue_full=True)
    for number in range(messages):
        producer.send_async(b"x" * size, lambda *_: None, properties={"number": str(number)})
    producer.flush()
    peer.close()


def contend(
    server: str, topic: str, subscription: str, name: str, messages: int
) -> dict[str, float]:
    """Consume all messages and return the rate, the CPU time a message and the memory."""
    before = read_usage(os.getpid()).cpu_seconds
    if name in CONTENDERS:
        seconds = _consume(server, topic, subscription, CONTENDERS[name][1], messages)
    else:
        seconds = _loop(server, topic, subscription, messages, lines=name == LOOPS[1])
    usage = read_usage(os.getpid())
    return {
        "rate": messages / seconds,
        "cpu_us": (usage.cpu_seconds - before) / messages * 1e6,
        "memory_mib": usage.peak_mib,
    }


def _loop(server: str, topic: str, subscription: str, messages: int, *, lines: bool) -> float:
    client = Peer(server).client
    consumer = client.subscribe(
        topic,
        subscription,
        consumer_type=pulsar.ConsumerType.Shared,
        receiver_queue_size=_QUEUE,
    )
    consumer.acknowledge(consumer.receive())
    output = os.open(os.devnull, os.O_WRONLY)
    started = time.monotonic()
    for _ in range(messages - 1):
        message = consumer.receive(10_000)
        if lines:
            os.write(output, _render_line(message))
        else:
            message.data()
        consumer.acknowledge(message)
    seconds = time.monotonic() - started
    client.close()
    return seconds


def _render_line(message: pulsar.Message) -> bytes:
    """Return what the app logs of a message, as plainly as it can be written."""
    fields = {
        "ts": datetime.now(UTC).isoformat(),
        "level": "info",
        "logger": "message",
        "msg": "Received message",
        "topic": message.topic_name(),
        "message_id": str(message.message_id()),
        "key": message.partition_key(),
        "publish_time": message.publish_timestamp(),
        "attempt": message.redelivery_count() + 1,
        "properties": message.properties(),
        "payload": message.data().decode(),
    }
    return orjson.dumps(fields) + b"\n"


def _consume(
    server: str, topic: str, subscription: str, settings: Mapping[str, object], messages: int
) -> float:
    environ = build_environment(
        server,
        topic,
        **{"receiver_queue_size": _QUEUE, **settings, "subscription_name": subscription},
    )
    worker = RunningWorker(environ, lambda _: None, Path(os.devnull))
    while not worker.handled("acknowledged"):
        time.sleep(0.001)
    started = time.monotonic()
    while worker.handled("acknowledged") < messages:
        time.sleep(0.02)
    seconds = time.monotonic() - started
    worker.stop()
    return seconds


if __name__ == "__main__":
    _server, _topic, _subscription, _name, _messages = sys.argv[1:]
    print(json.dumps(contend(_server, _topic, _subscription, _name, int(_messages))))
