"""Compare the consumer app with a bare loop on the Pulsar client: `./dev bench pulsarconsumer`.

Both read the same messages of one broker on this machine, each by a subscription of its own and
in a process of its own. The broker shares the cores, so the figures are for comparing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import orjson
import pulsar

from libs.common.testing.pulsar import ASSETS_VARIABLE, Broker
from operators.pulsarconsumer.app.harness import (
    Peer,
    RunningWorker,
    build_environment,
    new_topic,
)
from tools.bench.processes import read_usage
from tools.pulsar import ensure_pulsar

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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark, or one contender in a process of its own."""
    parser = argparse.ArgumentParser(prog="./dev bench pulsarconsumer", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--bytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--contend", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.contend:
        server, topic, subscription, name = options.contend
        print(json.dumps(contend(server, topic, subscription, name, options.messages)))
        return 0
    os.environ[ASSETS_VARIABLE] = str(ensure_pulsar())
    with Broker() as broker:
        print(f"{options.messages} messages of {options.bytes} bytes, {options.rounds} rounds")
        measure(broker, options.messages, options.bytes, options.rounds)
    return 0


def measure(broker: Broker, messages: int, size: int, rounds: int) -> None:
    """Print the median rate of each contender, in turns, and its memory."""
    topic = new_topic()
    peer = Peer(broker.service_url)
    names = (*LOOPS, *CONTENDERS)
    runs = [(name, f"s{turn}-{name}") for turn in range(rounds) for name in names]
    for _, subscription in runs:
        earliest = pulsar.InitialPosition.Earliest
        peer.client.subscribe(topic, subscription, initial_position=earliest).close()
    producer = peer.client.create_producer(topic, batching_enabled=True, block_if_queue_full=True)
    for number in range(messages):
        producer.send_async(b"x" * size, lambda *_: None, properties={"number": str(number)})
    producer.flush()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for name, subscription in runs:
        command = [sys.executable, "-m", "tools.bench.pulsarconsumer", "--messages", str(messages)]
        command += ["--contend", broker.service_url, topic, subscription, name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[name].append(json.loads(done.stdout.splitlines()[-1]))
    peer.close()
    rates = {name: statistics.median(run["rate"] for run in runs) for name, runs in found.items()}
    for name, results in found.items():
        loop = CONTENDERS[name][0] if name in CONTENDERS else name
        cpu = statistics.median(run["cpu_us"] for run in results)
        memory = max(run["memory_mib"] for run in results)
        print(
            f"{name:28} {rates[name]:9,.0f} messages/s  {rates[name] / rates[loop]:5.2f} of "
            f"{loop:23} {cpu:5.1f} us CPU a message  {memory:4.0f} MiB"
        )


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
    raise SystemExit(main())
