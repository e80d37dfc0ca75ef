"""Compare the consumer app with loops on the Pulsar client that do the same work.

All read the same messages of one broker on this machine, each by a subscription and in a process of
its own. The broker shares the cores, so the figures are for comparison only.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson
import pulsar

from lab.bench.processes import read_usage
from libs.common.logs import configure_logs
from operators.pulsarconsumer.app.harness import (
    SUBSCRIPTION,
    Peer,
    RunningWorker,
    build_environment,
    new_topic,
)
from operators.pulsarconsumer.app.settings import load_settings
from operators.pulsarconsumer.testing.broker import ASSETS_VARIABLE, Broker
from slipway_handler import Message
from tools.cluster.command_line import Parser
from tools.pulsar import ensure_pulsar

_ONE: Final = "--one"
"""Argument of a process that runs one candidate."""
_QUEUE: Final = 1000
_BURST: Final = 100
_RETRY_MESSAGES: Final = 5_000
_DELAY: Final = timedelta(hours=1)
"""Time before a copy in a retry topic is delivered."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A consumer implementation and its workload.

    Attributes:
        loop: The loop whose rate is compared with its rate; empty for a loop.
        work: What is done for a message: read, line, json or retry.
        settings: Settings of the app.
        most: Messages that it reads, if it does not read all.
    """

    loop: str
    work: str
    settings: Mapping[str, object] = field(default_factory=dict)
    most: int = sys.maxsize


_LOOP: Final = "loop"
_LINES: Final = "loop, a line each"
_JSON: Final = "loop, JSON"
_RETRIES: Final = "loop, a copy each"
_SILENT: Final = {"log_sample_ratio": 0}
_BATCH: Final = {"batch_max_messages": _BURST}
_WIDE: Final = {"max_in_flight": 8}
CANDIDATES: Final[Mapping[str, Candidate]] = {
    _LOOP: Candidate("", "read"),
    "app": Candidate(_LOOP, "read", settings=_SILENT),
    "app, maxInFlight 8": Candidate(_LOOP, "read", settings=_SILENT | _WIDE),
    "app, batches of 100": Candidate(_LOOP, "read", settings=_SILENT | _BATCH),
    "app, Failover": Candidate(
        _LOOP, "read", settings={**_SILENT, "subscription_type": "Failover"}
    ),
    _LINES: Candidate("", "line"),
    "app, a line each": Candidate(_LINES, "read"),
    _JSON: Candidate("", "json"),
    "app, schema JSON": Candidate(_JSON, "value", settings={**_SILENT, "schema_type": "JSON"}),
    _RETRIES: Candidate("", "retry", most=_RETRY_MESSAGES),
    "app, retry topic": Candidate(
        _RETRIES,
        "fail",
        settings={
            **_SILENT,
            "retry_strategy": "RetryTopic",
            "retry_initial_delay_seconds": round(_DELAY.total_seconds()),
            "retry_max_delay_seconds": round(_DELAY.total_seconds()),
            "log_level": "error",
        },
        most=_RETRY_MESSAGES,
    ),
}
"""What is measured, each after the loop that it is compared with."""


@dataclass(frozen=True, slots=True)
class AppCost:
    """The cost of a candidate, as medians of its rounds.

    Attributes:
        name: Which one.
        loop: The loop that it is compared with; itself for a loop.
        rate: Messages a second.
        ratio: Rate relative to the rate of the bare loop.
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
    """Have all candidates consume the same messages, in turns."""
    topic = new_topic()
    runs = [(name, f"s{turn}-{name}") for turn in range(rounds) for name in CANDIDATES]
    _produce(broker, topic, [subscription for _, subscription in runs], messages, size)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CANDIDATES}
    for name, subscription in runs:
        candidate = CANDIDATES[name]
        count = min(messages, candidate.most)
        command = [sys.executable, "-m", "lab.bench.pulsarconsumer", _ONE]
        command += [broker.service_url, topic, subscription, name, str(count)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        # The Pulsar client logs to the same stream, until the process is over.
        found[name].append(json.loads(next(filter(_is_result, done.stdout.splitlines()))))
    rates = {name: statistics.median(run["rate"] for run in runs) for name, runs in found.items()}
    loops = {name: candidate.loop or name for name, candidate in CANDIDATES.items()}
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
    """Send messages of JSON, in batches, which each of the subscriptions will read."""
    peer = Peer(broker.service_url)
    for subscription in subscriptions:
        earliest = pulsar.InitialPosition.Earliest
        peer.client.subscribe(topic, subscription, initial_position=earliest).close()
    producer = peer.client.create_producer(topic, batching_enabled=True, block_if_queue_full=True)
    body = orjson.dumps({"order": 4711, "items": [1, 2, 3], "text": ""})
    body = body[:-2] + b"x" * (size - len(body)) + body[-2:]
    for number in range(messages):
        producer.send_async(body, lambda *_: None, properties={"number": str(number)})
    producer.flush()
    peer.close()


def _is_result(line: str) -> bool:
    return line.startswith("{")


def contend(
    server: str, topic: str, subscription: str, name: str, messages: int
) -> dict[str, float]:
    """Consume all messages and return the rate, the CPU time a message and the memory."""
    candidate = CANDIDATES[name]
    before = read_usage(os.getpid()).cpu_seconds
    consume = _consume if candidate.loop else _loop
    seconds = consume(server, topic, subscription, candidate, messages)
    usage = read_usage(os.getpid())
    return {
        "rate": messages / seconds,
        "cpu_us": (usage.cpu_seconds - before) / messages * 1e6,
        "memory_mib": usage.peak_mib,
    }


def _loop(server: str, topic: str, subscription: str, candidate: Candidate, messages: int) -> float:
    client = Peer(server).client
    consumer = client.subscribe(
        topic,
        subscription,
        consumer_type=pulsar.ConsumerType.Shared,
        receiver_queue_size=_QUEUE,
        # The same bursts as the app takes.
        batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(_BURST, 10_485_760, 1),
    )
    work = _build_work(candidate.work, client, new_topic())

    first = consumer.receive()
    work(first)
    consumer.acknowledge(first)
    started = time.monotonic()
    left = messages - 1
    while left > 0:
        # Without a function for both: its call would count for the loop.
        for message in consumer.batch_receive()[:left]:
            work(message)
            consumer.acknowledge(message)
            left -= 1
    seconds = time.monotonic() - started
    client.close()
    return seconds


def _build_work(word: str, client: pulsar.Client, copies: str) -> Callable[[Any], object]:
    """Return what a loop does with a message."""
    if word == "line":
        output = os.open(os.devnull, os.O_WRONLY)
        return lambda message: os.write(output, _render_line(message))
    if word == "json":
        return lambda message: orjson.loads(message.data())
    if word == "retry":
        # Like the app, it is connected to the retry topic, where the copies wait for their time.
        consumer = client.subscribe(copies, SUBSCRIPTION, consumer_type=pulsar.ConsumerType.Shared)
        producer = client.create_producer(copies)
        return partial(_send_back, consumer, producer)
    return lambda message: message.data()


def _send_back(_: pulsar.Consumer, producer: pulsar.Producer, message: pulsar.Message) -> None:
    producer.send(message.data(), properties=message.properties(), deliver_after=_DELAY)


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


def _build_handler(
    work: str, messages: int, first: threading.Event, last: threading.Event
) -> Callable[[Message], None]:
    """Return a handler that does what the loop does, and says when it was called so often."""
    # Threads may share this counter without a lock, which the loop does not have either.
    count = itertools.count(1).__next__

    def handle(message: Message) -> None:
        _ = message.value if work == "value" else message.data
        number = count()
        if number == 1:
            first.set()
        if number == messages:
            last.set()
        if work == "fail":
            raise ValueError("for the retry topic")

    return handle


def _consume(
    server: str, topic: str, subscription: str, candidate: Candidate, messages: int
) -> float:
    environ = build_environment(
        server,
        topic,
        **{
            "receiver_queue_size": _QUEUE,
            **candidate.settings,
            "subscription_name": subscription,
            "retry_topic": new_topic(),
        },
    )
    first, last = threading.Event(), threading.Event()
    handler = _build_handler(candidate.work, messages, first, last)
    configure_logs(load_settings(environ).log_level)
    worker = RunningWorker(environ, handler, Path(os.devnull))
    first.wait()
    started = time.monotonic()
    last.wait()
    seconds = time.monotonic() - started
    worker.stop()
    return seconds


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = Parser(prog="./dev bench pulsarconsumer", description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000, help="number of messages")
    parser.add_argument("--bytes", type=int, default=200, help="size of a message")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each measurement")
    options = parser.parse_args(argv)
    os.environ[ASSETS_VARIABLE] = str(ensure_pulsar())
    with Broker() as broker:
        costs = measure_app(broker, options.messages, options.bytes, options.rounds)
    for cost in costs:
        print(
            f"{cost.name:24} {cost.rate:9,.0f} messages/s, {cost.ratio:.2f} of its loop, "
            f"{cost.cpu_us:5.1f} us of CPU per message, {cost.memory_mib:.0f} MiB"
        )
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == [_ONE]:
        _, _, _server, _topic, _subscription, _name, _messages = sys.argv
        print(json.dumps(contend(_server, _topic, _subscription, _name, int(_messages))))
    else:
        raise SystemExit(main())
