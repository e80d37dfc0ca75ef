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
from pathlib import Path
from typing import Final

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
CONTENDERS: Final[Mapping[str, Mapping[str, object] | None]] = {
    "bare loop": None,
    "app, no log": _SILENT,
    "app, no log, batches of 100": {**_SILENT, **_BATCH},
    "app": {},
}
"""What is compared: None is the loop, else settings of the app beside the queue's size."""


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
        print(json.dumps(contend(server, topic, subscription, CONTENDERS[name], options.messages)))
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
    runs = [(name, f"s{turn}-{name}") for turn in range(rounds) for name in CONTENDERS]
    for _, subscription in runs:
        earliest = pulsar.InitialPosition.Earliest
        peer.client.subscribe(topic, subscription, initial_position=earliest).close()
    producer = peer.client.create_producer(topic, batching_enabled=True, block_if_queue_full=True)
    for number in range(messages):
        producer.send_async(b"x" * size, lambda *_: None, properties={"number": str(number)})
    producer.flush()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for name, subscription in runs:
        command = [sys.executable, "-m", "tools.bench.pulsarconsumer", "--messages", str(messages)]
        command += ["--contend", broker.service_url, topic, subscription, name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[name].append(json.loads(done.stdout.splitlines()[-1]))
    peer.close()
    bare = statistics.median(run["rate"] for run in found["bare loop"])
    for name, results in found.items():
        rate = statistics.median(run["rate"] for run in results)
        cpu = statistics.median(run["cpu_us"] for run in results)
        memory = max(run["memory_mib"] for run in results)
        print(
            f"{name:28} {rate:9,.0f} messages/s  {rate / bare:5.2f} of the bare loop  "
            f"{cpu:5.1f} us CPU a message  {memory:4.0f} MiB"
        )


def contend(
    server: str,
    topic: str,
    subscription: str,
    settings: Mapping[str, object] | None,
    messages: int,
) -> dict[str, float]:
    """Consume all messages and return the rate, the CPU time a message and the memory."""
    before = read_usage(os.getpid()).cpu_seconds
    if settings is None:
        seconds = _loop(server, topic, subscription, messages)
    else:
        seconds = _consume(server, topic, subscription, settings, messages)
    usage = read_usage(os.getpid())
    return {
        "rate": messages / seconds,
        "cpu_us": (usage.cpu_seconds - before) / messages * 1e6,
        "memory_mib": usage.peak_mib,
    }


def _loop(server: str, topic: str, subscription: str, messages: int) -> float:
    client = Peer(server).client
    consumer = client.subscribe(
        topic,
        subscription,
        consumer_type=pulsar.ConsumerType.Shared,
        receiver_queue_size=_QUEUE,
    )
    consumer.acknowledge(consumer.receive())
    started = time.monotonic()
    for _ in range(messages - 1):
        message = consumer.receive(10_000)
        message.data()
        consumer.acknowledge(message)
    seconds = time.monotonic() - started
    client.close()
    return seconds


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
