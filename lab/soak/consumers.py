"""Soak of consumers: a real broker, batches, poison, kills, and scaling to zero and back.

The operator and its autoscaler are the real ones. The API server is the fake one, and pods are
processes of the app with the environment that the operator rendered; a process that is killed is
started again in its pod, with the folder that is the pod's volume.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pulsar

from libs.common.crd import build_crd
from libs.common.kinds import DEPLOYMENT, Key, Manifest
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.pulsarconsumer.api.v1 import PulsarConsumer
from operators.pulsarconsumer.app.harness import AppProcess
from operators.pulsarconsumer.controller import OPERATOR
from operators.pulsarconsumer.samples import build_manifest
from operators.pulsarconsumer.testing.broker import Broker

MAX_ATTEMPTS: Final = 4
_KEYS: Final = 20
_POISON: Final = 0.05
_WAVE_SECONDS: Final = 70.0
"""Messages are sent for the first part of this time, and then consumers scale to zero."""
_SENDING_SECONDS: Final = 30.0
_RATE: Final = 10.0
"""Messages a second while they are sent; poison holds up its key or partition in ordered types."""
_KILL_SECONDS: Final = (8.0, 20.0)
_BROKER_SECONDS: Final = 240.0
_SETTLE_SECONDS: Final = 180.0
_RETRY: Final = {"maxAttempts": MAX_ATTEMPTS, "initialDelaySeconds": 1, "maxDelaySeconds": 1}
KINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "Shared": {"retry": {"strategy": "RetryTopic", **_RETRY}},
    "KeyShared": {"retry": {"strategy": "NegativeAck", **_RETRY}},
    "Failover": {"retry": {"strategy": "NegativeAck", **_RETRY}},
    "Exclusive": {"retry": {"strategy": "NegativeAck", **_RETRY}},
}
"""Fields of the spec of each PulsarConsumer, by its subscription type."""
_PARTITIONS: Final = {"Failover": 4}
"""Number of partitions by type: each partition has one active consumer of type Failover."""
_TAKEOVER_SECONDS: Final = 2.0
"""More than activeConsumerFailoverDelayTimeMillis of the broker."""
_SINGLE: Final = ("Exclusive",)
"""Types that never have two consumers at a time."""


@dataclass(frozen=True, slots=True)
class Call:
    """A line of the record: a call of the handler that began, or that succeeded."""

    what: str
    time: float
    pod: str
    number: int
    key: str
    message_id: str
    attempt: int


@dataclass(slots=True)
class SoakResult:
    """What a soak showed of one subscription type.

    Attributes:
        kind: The subscription type.
        sent: Messages that the broker stored, by the producer.
        figures: What was counted.
        problems: What must not be.
    """

    kind: str
    sent: int
    figures: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Pod:
    folder: Path
    process: AppProcess


class Pods:
    """A fake kubelet that runs the pods of a Deployment as processes."""

    def __init__(self, api: FakeApi, name: str, folder: Path) -> None:
        """Prepare; `run` runs."""
        self._api, self._key, self._folder = api, Key("default", name), folder
        self.record = folder / f"{name}.record"
        self.pods: list[_Pod] = []
        self.starts = self.most = self.zeros = 0
        self._numbers = iter(range(1_000_000))
        self._ending: set[asyncio.Task[int]] = set()

    async def run(self) -> None:
        """Keep as many processes as the Deployment asks for."""
        while True:
            deployment = self._api.find(DEPLOYMENT, self._key)
            if deployment is not None:
                await self._keep(deployment)
            await asyncio.sleep(0.2)

    async def _keep(self, deployment: Manifest) -> None:
        wanted = deployment["spec"]["replicas"]
        self.zeros += bool(self.pods) and not wanted
        environ = _environment(deployment)
        while len(self.pods) < wanted:
            folder = self._folder / f"{self._key.name}-{next(self._numbers)}"
            folder.mkdir()
            self.pods.append(_Pod(folder, self._start(environ, folder)))
        while len(self.pods) > wanted:
            pod = self.pods.pop()
            task = asyncio.create_task(asyncio.to_thread(pod.process.terminate, 60.0))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        for pod in self.pods:
            if pod.process.process.poll() is not None:
                pod.process = self._start(environ, pod.folder)
        self.most = max(self.most, len(self.pods))
        ready = [await asyncio.to_thread(pod.process.get, "/readyz") for pod in self.pods]
        shown = {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": len(self.pods),
            "updatedReplicas": len(self.pods),
            "readyReplicas": sum(code == 200 for code, _ in ready),
        }
        if deployment.get("status") != shown:
            self._api.patch_status(DEPLOYMENT, self._key, shown)

    def _start(self, environ: Mapping[str, str], folder: Path) -> AppProcess:
        self.starts += 1
        own = {
            "PULSAR_CONSUMER_JOURNAL_FOLDER": str(folder / "journal"),
            "SOAK_RECORD": str(self.record),
            "SOAK_POD": folder.name,
        }
        return AppProcess({**environ, **own}, folder)

    def kill_one(self, dice: random.Random) -> bool:
        """Kill a process without warning, and return whether there was one."""
        running = [pod for pod in self.pods if pod.process.process.poll() is None]
        if running:
            dice.choice(running).process.process.send_signal(signal.SIGKILL)
        return bool(running)

    def end(self) -> None:
        """Kill what still runs."""
        for pod in self.pods:
            if pod.process.process.poll() is None:
                pod.process.kill()


def _environment(deployment: Manifest) -> dict[str, str]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}


class Producer:
    """A producer of batches in waves, which records every message that the broker stored."""

    def __init__(self, broker: Broker, topic: str, seed: str) -> None:
        """Prepare; `run` sends in a thread."""
        self._broker, self._topic, self._dice = broker, topic, random.Random(seed)
        self.stored: dict[int, tuple[str, bool]] = {}
        """Key of each stored message and whether it is poison, by number."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Send nothing more, and wait until all is stored."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        client = pulsar.Client(
            self._broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        # Without a time-out the client sends again until it is stored, in order.
        producer = client.create_producer(
            self._topic,
            batching_enabled=True,
            # The broker keeps the order of keys only if each batch has one key.
            batching_type=pulsar.BatchingType.KeyBased,
            batching_max_publish_delay_ms=100,
            send_timeout_millis=0,
            block_if_queue_full=True,
        )
        began = time.monotonic()
        number = 0
        while not self._stop.is_set():
            if (time.monotonic() - began) % _WAVE_SECONDS > _SENDING_SECONDS:
                self._stop.wait(0.5)
                continue
            for _ in range(round(_RATE / 5)):
                self._send(producer, number)
                number += 1
            self._stop.wait(0.2)
        producer.flush()
        client.close()

    def _send(self, producer: pulsar.Producer, number: int) -> None:
        key, poison = f"k{self._dice.randrange(_KEYS)}", self._dice.random() < _POISON

        def done(result: pulsar.Result, _id: object) -> None:
            if result == pulsar.Result.Ok:
                self.stored[number] = (key, poison)

        body = json.dumps({"number": number, "poison": poison}).encode()
        producer.send_async(body, done, partition_key=key)


def read_record(path: Path) -> Iterator[Call]:
    """Return the calls in the record of a handler, in their order."""
    for line in path.read_text().splitlines():
        with suppress(ValueError):
            yield Call(*json.loads(line))


def evaluate(
    kind: str, stored: Mapping[int, tuple[str, bool]], calls: list[Call], dead: Counter[int]
) -> SoakResult:
    """Compare what was sent with what was handled and moved to the dead-letter topic."""
    result = SoakResult(kind, len(stored))
    good = {number for number, (_, poison) in stored.items() if not poison}
    poison = set(stored) - good
    ends: dict[int, list[Call]] = defaultdict(list)
    begins: dict[int, list[Call]] = defaultdict(list)
    for call in calls:
        (ends if call.what == "end" else begins)[call.number].append(call)
    lost = [number for number in good if number not in ends and number not in dead]
    if lost:
        result.problems.append(f"{len(lost)} messages were lost, such as {sorted(lost)[:5]}")
    unburied = [number for number in poison if number not in dead]
    if unburied:
        result.problems.append(f"{len(unburied)} poison messages are in no dead-letter topic")
    moved = [number for number in good if number in dead]
    again = [number for number in good if len(ends[number]) > 1]
    # A message that the producer has stored twice is two messages.
    calls_of = Counter(
        (call.number, call.message_id) for number in poison for call in begins[number]
    )
    tries = Counter(calls_of.values())
    disorder, late = _count_disorder(kind, calls)
    result.figures = {
        "handled": len([number for number in good if ends[number]]),
        "poison": len(poison),
        "handled more than once": len(again),
        "of these stored twice by the producer": sum(
            len({call.message_id for call in ends[number]}) > 1 for number in again
        ),
        "of these in two pods": sum(
            len({call.pod for call in ends[number]}) > 1 for number in again
        ),
        "good in the dead-letter topic": len(moved),
        "dead letters more than once": sum(count > 1 for count in dead.values()),
        "poison tried less often": sum(n for tried, n in tries.items() if tried < MAX_ATTEMPTS),
        "poison tried again": tries[MAX_ATTEMPTS + 1],
        "poison tried still more often": sum(
            n for tried, n in tries.items() if tried > MAX_ATTEMPTS + 1
        ),
        "poison tried in two pods": sum(
            len({call.pod for call in begins[number]}) > 1 for number in poison
        ),
        "most tries": max(tries, default=0),
        "out of order": disorder,
        "sent late by the broker": late,
        "seconds with two busy consumers": _count_shared_seconds(calls),
    }
    if kind not in _SINGLE and not result.figures["seconds with two busy consumers"]:
        result.problems.append("two consumers were never busy at the same time")
    if result.figures["poison tried still more often"]:
        result.problems.append(f"tries of poison: {dict(sorted(tries.items()))}")
    if result.figures["out of order"]:
        result.problems.append(f"{result.figures['out of order']} messages were out of order")
    return result


def _count_disorder(kind: str, calls: list[Call]) -> tuple[int, int]:
    """Count messages whose first call began after that call of a later message of their group.

    Later is what is stored behind it in the topic: a producer that batches by key stores the
    messages of one key before earlier ones of another.

    Returns:
        How many, without those that the broker sent late; and how many these are. With type
        Failover, it redelivers messages of the previous consumer a second after the next one became
        active, but may send a new message before.
    """
    newest: dict[str, tuple[int, ...]] = {}
    active: dict[str, tuple[str, float]] = {}
    seen: set[int] = set()
    wrong = late = 0
    for call in calls if kind != "Shared" else ():
        if call.what != "begin" or call.number in seen:
            continue
        seen.add(call.number)
        ledger, entry, partition, item = call.message_id.split(":")
        group = call.key if kind == "KeyShared" else partition
        position = (int(ledger), int(entry), int(item))
        pod, since = active.get(group, ("", 0.0))
        if position < newest.get(group, ()):
            is_late = kind == "Failover" and call.pod == pod
            is_late = is_late and call.time - since < _TAKEOVER_SECONDS
            late += is_late
            wrong += not is_late
        if call.pod != pod:
            active[group] = call.pod, call.time
        newest[group] = max(newest.get(group, ()), position)
    return wrong, late


def _count_shared_seconds(calls: list[Call]) -> int:
    """Count the seconds of the clock in which two or more pods began calls."""
    pods: dict[int, set[str]] = defaultdict(set)
    for call in calls:
        pods[int(call.time)].add(call.pod)
    return sum(len(each) > 1 for each in pods.values())


def read_dead(broker: Broker, topic: str, seconds: float = 5.0) -> Counter[int]:
    """Return how often each message is in a dead-letter topic."""
    client = pulsar.Client(
        broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    found: Counter[int] = Counter()
    try:
        reader = client.subscribe(topic, "soak", initial_position=pulsar.InitialPosition.Earliest)
        with suppress(pulsar.Timeout):
            while True:
                found[json.loads(reader.receive(round(seconds * 1000)).data())["number"]] += 1
    finally:
        client.close()
    return found


async def run_consumers(
    seconds: float, seed: str, kinds: Mapping[str, Any] = KINDS
) -> list[SoakResult]:
    """Run the soak and return what it showed of each subscription type."""
    dice = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="soak-consumers-"))
    with Broker() as broker:
        async with FakeApi() as api:
            api.register(build_crd(PulsarConsumer))
            async with OperatorHarness(
                OPERATOR, api.config, allow_loopback_brokers=True, poll_seconds=2
            ):
                results = await _soak(api, broker, folder, seconds, dice, kinds)
    if any(result.problems for result in results):
        sys.stderr.write(f"Records of the calls: {folder}\n")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return results


async def _soak(
    api: FakeApi,
    broker: Broker,
    folder: Path,
    seconds: float,
    dice: random.Random,
    kinds: Mapping[str, Mapping[str, Any]],
) -> list[SoakResult]:
    names = {kind: kind.lower() for kind in kinds}
    for kind, name in names.items():
        if count := _PARTITIONS.get(kind):
            broker.request("PUT", f"persistent/public/default/{name}/partitions", count)
        else:
            broker.request("PUT", f"persistent/public/default/{name}")
        api.create(_build(broker, kind, name, kinds[kind]))
    pods = {kind: Pods(api, name, folder) for kind, name in names.items()}
    tasks = [asyncio.create_task(each.run()) for each in pods.values()]
    producers = {kind: Producer(broker, name, name) for kind, name in names.items()}
    try:
        await _until(lambda: all(_is_subscribed(broker, name) for name in names.values()), 60)
        for producer in producers.values():
            producer.start()
        kills, restarts = await _disturb(broker, list(pods.values()), seconds, dice)
        for producer in producers.values():
            await asyncio.to_thread(producer.stop)
        await _until(
            lambda: all(_is_empty(broker, name) for name in names.values()), _SETTLE_SECONDS
        )
    finally:
        for task in tasks:
            task.cancel()
        for each in pods.values():
            each.end()
    results = []
    for kind, name in names.items():
        dead = await asyncio.to_thread(read_dead, broker, f"{name}-soak-DLQ")
        calls = list(read_record(pods[kind].record))
        result = evaluate(kind, producers[kind].stored, calls, dead)
        left = _backlog(broker, name)
        if left:
            result.problems.append(f"{left} entries are still in the backlog")
        result.figures |= {
            "consumers killed": kills[kind],
            "broker killed": restarts,
            "processes started": pods[kind].starts,
            "most at a time": pods[kind].most,
            "times at zero": pods[kind].zeros,
        }
        results.append(result)
    return results


def _build(broker: Broker, kind: str, name: str, spec: Mapping[str, Any]) -> Manifest:
    return build_manifest(
        name,
        serverAddress=broker.service_url,
        adminAddress=broker.admin_url,
        topic=name,
        subscriptionName="soak",
        replicas=None,
        subscription={"type": kind, "initialPosition": "Earliest"},
        handler="lab.soak.consumers_handler:handle",
        deadLetter={},
        autoscaling={
            "maxReplicas": 1 if kind in _SINGLE else 2,
            "pollSeconds": 2,
            "cooldownSeconds": 10,
            # So few that there are two consumers in each wave.
            "targets": {"backlogPerReplica": 10},
            "behavior": {"scaleDown": {"stabilizationSeconds": 5}},
        },
        **spec,
    )


async def _disturb(
    broker: Broker, pods: list[Pods], seconds: float, dice: random.Random
) -> tuple[Counter[str], int]:
    """Kill consumers and the broker at random times; return how often."""
    kills: Counter[str] = Counter()
    restarts = 0
    ends = time.monotonic() + seconds
    broker_at = time.monotonic() + dice.uniform(0.5, 1) * _BROKER_SECONDS
    while (now := time.monotonic()) < ends:
        if now > broker_at and ends - now > 60:
            await asyncio.to_thread(broker.kill)
            await asyncio.sleep(dice.uniform(0, 5))
            await asyncio.to_thread(_start_again, broker)
            restarts += 1
            broker_at = time.monotonic() + dice.uniform(0.5, 1) * _BROKER_SECONDS
        each = dice.choice(pods)
        kind = next(kind for kind in KINDS if kind.lower() == each.record.stem)
        kills[kind] += each.kill_one(dice)
        await asyncio.sleep(dice.uniform(*_KILL_SECONDS))
    return kills, restarts


def _start_again(broker: Broker) -> None:
    # An outgoing connection of another process may use a port of the broker by now.
    for left in range(4, -1, -1):
        try:
            broker.start()
        except TimeoutError:
            broker.kill()
            if not left:
                raise
        else:
            return


async def _until(probe: Any, seconds: float) -> None:
    """Wait until a probe of the broker is true, or the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(OSError):
            if await asyncio.to_thread(probe):
                return
        await asyncio.sleep(1)


def _list_topics(name: str) -> list[str]:
    """List the topics of which a PulsarConsumer consumes messages, each partition by itself."""
    count = next((count for kind, count in _PARTITIONS.items() if kind.lower() == name), 0)
    return [f"{name}-partition-{number}" for number in range(count)] or [name]


def _is_subscribed(broker: Broker, name: str) -> bool:
    return all(broker.subscription(topic, "soak") for topic in _list_topics(name))


def _backlog(broker: Broker, name: str) -> int:
    total = 0
    for topic in (*_list_topics(name), f"{name}-soak-RETRY"):
        with suppress(OSError):  # Not every one has a retry topic.
            total += int(broker.subscription(topic, "soak").get("msgBacklog", 0))
    return total


def _is_empty(broker: Broker, name: str) -> bool:
    return _backlog(broker, name) == 0


def describe(results: list[SoakResult]) -> list[str]:
    """Return lines that show what a soak showed."""
    lines = []
    for result in results:
        shown = ", ".join(f"{name} {count}" for name, count in result.figures.items())
        lines.append(f"{result.kind}: sent {result.sent}, {shown}")
        lines += [f"{result.kind}: PROBLEM: {problem}" for problem in result.problems]
    return lines
