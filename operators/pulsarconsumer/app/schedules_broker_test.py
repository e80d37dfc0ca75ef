"""The schedules of `memory_model_test.py` with the whole worker on a real broker.

SLIPWAY_SCHEDULES sets their number, SLIPWAY_FIRST_SCHEDULE the first of them. A broker that is
fenced or crashes is an unloaded topic here, because the schedules share a broker;
`redelivery_broker_test.py` kills it. The namespace retains all messages: otherwise, the broker
deletes finished messages with the ledger that an unload closes, a reset does not bring them back,
and its backlog never ends.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from random import Random
from typing import Any
from urllib.error import HTTPError

import pulsar
import pytest

from operators.pulsarconsumer.app import redelivery
from operators.pulsarconsumer.app.core.states import State
from operators.pulsarconsumer.app.harness import (
    SUBSCRIPTION,
    Peer,
    RunningWorker,
    build_environment,
    wait_until,
)
from operators.pulsarconsumer.app.memory_model_test import Schedule, count_schedules, draw
from operators.pulsarconsumer.testing.broker import Broker
from slipway_handler import Message, Pause, Reject, RetryLater

_AT_A_TIME = 8
_LONG = 600.0
_NAMESPACE = "public/retained"


class Call:
    """A call of the handler that waits for its result."""

    def __init__(self, number: int) -> None:
        self.number, self.result = number, "fail"
        self.is_over = threading.Event()


class World:
    """A topic, its consumer, and what each message is owed; see the model."""

    def __init__(self, broker: Broker, peer: Peer, schedule: Schedule, folder: Path) -> None:
        self.broker, self.schedule, self.folder = broker, schedule, folder
        self.topic = f"persistent://{_NAMESPACE}/t-{uuid.uuid4().hex[:10]}"
        self.peer = peer
        peer.send(self.topic, [])
        self.path = self.topic.replace("://", "/")
        self.subscription = f"{self.path}/subscription/{SUBSCRIPTION}"
        self.changed = threading.Condition(threading.RLock())
        self.faults: list[str] = []
        self.published = self.kills = 0
        self.calls: dict[int, Call] = {}
        self.abandoned: list[Call] = []
        self.done: Counter[int] = Counter()
        self.failed: Counter[int] = Counter()
        self.begun: set[int] = set()
        self.skipped: set[int] = set()
        self.gone: set[int] = set()
        """Messages that the broker has skipped once, or perhaps."""
        self.owed: dict[int, int] = {}
        self.stored = threading.Semaphore(0)
        self.is_ending = False
        self.worker = self.start()

    def start(self) -> RunningWorker:
        lanes = 4 if self.schedule.groups != 1 else 1
        environ = build_environment(
            self.broker.service_url,
            self.topic,
            subscription_type=self.schedule.kind,
            max_in_flight=lanes,
            retry_max_attempts=1000,
            dead_letter="Enabled",
            # Of a subscription to a topic that is being unloaded, which is then tried again.
            operation_timeout_seconds=10,
        )
        generation = self.kills
        worker = RunningWorker(
            environ, lambda message: self.handle(message, generation), self.folder / self.topic[-8:]
        )
        publishing = worker.worker._publishing
        send = publishing.send_copy

        def send_later(*arguments: Any) -> None:
            while not (self.is_ending or self.stored.acquire(timeout=0.1)):
                if worker.worker._stopping.is_set():
                    raise pulsar.AlreadyClosed("it was killed")
            send(*arguments)

        publishing.send_copy = send_later  # type: ignore[method-assign,assignment]
        return worker

    @property
    def memory(self) -> Any:
        return self.worker.worker._memory

    def group(self, number: int) -> int:
        return number % self.schedule.groups if self.schedule.groups else number

    # The handler.

    def handle(self, message: Message, generation: int) -> None:
        number = int(message.data)
        with self.changed:
            self.check(number, message.attempt, generation)
            call = self.calls[number] = Call(number)
            if self.is_ending:
                self.end_call(call, "fail" if number in self.skipped else "succeed")
            self.changed.notify_all()
        call.is_over.wait(_LONG)
        match call.result:
            case "abandon":
                raise RetryLater(_LONG)
            case "fail":
                raise RetryLater(0.1)
            case "copy":
                raise Reject("moved")
            case "pause":
                raise Pause(0.05)

    def check(self, number: int, attempt: int, generation: int) -> None:
        if generation == self.kills and number in self.calls:
            self.faults.append(f"{number} is handled twice at a time")
        # The failures of a message whose copy was not stored are forgotten, or are not.
        is_new = attempt == 1 and self.done[number]
        if not is_new and abs(attempt - self.failed[number] - 1) > 1 + self.kills:
            self.faults.append(f"{number} has attempt {attempt} after {self.failed[number]}")
        if number not in self.begun and self.schedule.groups:
            gone = self.gone | set(self.done)
            before = range(self.group(number), number, self.schedule.groups)
            if late := [each for each in before if each not in gone]:
                self.faults.append(f"{number} is handled before {late}")
        self.begun.add(number)

    def end_call(self, call: Call, result: str) -> None:
        with self.changed:
            del self.calls[call.number]
            if result == "fail":
                self.failed[call.number] += 1
            elif result in ("succeed", "copy"):
                if result == "succeed":
                    self.failed.pop(call.number, None)
                self.done[call.number] += 1
            call.result = result
            call.is_over.set()

    # The steps.

    def replay(self) -> list[str]:
        """Return the faults."""
        try:
            for name, number in self.schedule.steps:
                if name in ("succeed", "fail", "copy", "pause"):
                    self.answer(name, number)
                elif name == "work":
                    time.sleep(0.02 * min(number, 5))
                else:
                    getattr(self, name)()
            self.end()
        finally:
            self.is_ending = True
            for call in [*self.calls.values(), *self.abandoned]:
                call.result = "abandon"
                call.is_over.set()
            self.stop()
        late = {number: owed for number, owed in self.owed.items() if self.done[number] < owed}
        return [*self.faults, *([f"owed: {late}"] if late else [])]

    def stop(self) -> None:
        """Stop the worker without waiting for its calls."""
        self.worker.worker.stop(time.monotonic())
        self.worker.wait_ended(_LONG)

    def answer(self, result: str, number: int) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.calls, 1.0 if self.published else 0.0)
            if self.calls:
                chosen = sorted(self.calls)[number % len(self.calls)]
                self.end_call(self.calls[chosen], result)

    def publish(self) -> None:
        key = f"k{self.group(self.published)}" if self.schedule.groups else None
        # With a new producer: the broker may lose one that exists while the topic is unloaded.
        self.peer.send(self.topic, [b"%d" % self.published], partition_key=key)
        self.owed[self.published] = 1
        self.published += 1

    def store(self) -> None:
        self.stored.release()

    def skip(self) -> None:
        self.wait_connected()
        with self.changed:
            self.request("POST", f"{self.subscription}/skip_all")
            self.skipped = set(range(self.published))
            self.gone |= self.skipped
            self.owed.clear()

    def skip_one(self) -> None:
        self.wait_connected()
        with self.changed:
            for position in range(1, self.published + 1):
                number = self.peek(position)
                if number is None:
                    break
                is_finished = self.done[number] >= self.owed.get(number, 0)
                self.gone.add(number)
                self.owed.pop(number, None)
                if not is_finished:
                    break
                # Its acknowledgment may be on its way, so the next one may be skipped.
            self.request("POST", f"{self.subscription}/skip/1")

    def peek(self, position: int) -> int | None:
        """Return a message that the broker has not got an acknowledgment of, from 1."""
        try:
            found: int = self.request("GET", f"{self.subscription}/position/{position}")
        except HTTPError as err:
            if err.code != HTTPStatus.NOT_FOUND:
                raise
            return None
        return found

    def reset(self) -> None:
        self.wait_connected()
        wait_until(self.is_settled, "the results are known", _LONG)
        with self.changed:
            for number in set(range(self.published)) - self.held():
                self.owed[number] = self.done[number] + 1
            self.skipped.clear()
            self.request("POST", f"{self.subscription}/resetcursor/0")

    def unload(self) -> None:
        self.request("PUT", f"{self.path}/unload")

    fence = crash = unload

    def kill(self) -> None:
        """Replace the process without waiting for its calls; a copy may be on its way."""
        with self.changed:
            self.kills += 1
            self.abandoned += self.calls.values()
            self.calls.clear()
        self.stop()
        self.worker = self.start()

    def request(self, method: str, path: str) -> Any:
        return self.broker.request(method, path)

    def held(self, *states: State) -> set[int]:
        """Return the messages in memory, in any of some states if they are given."""
        messages = list(self.memory._messages.values())
        return {int(each.data) for each in messages if not states or each.state in states}

    def is_settled(self) -> bool:
        """Return whether no call has ended whose result is not known yet."""
        with self.changed:
            return self.held(State.IN_HANDLER) <= set(self.calls)

    def wait_connected(self) -> None:
        source = self.worker.sources[-1]
        watches = self.memory.redeliveries._watches

        def is_back() -> bool:
            watch = watches.get(source)
            return source.is_connected and (watch is None or watch.lost_at is None or watch.is_back)

        wait_until(is_back, "it is connected", _LONG)

    def end(self) -> None:
        """Let everything succeed but messages that were skipped."""
        with self.changed:
            self.is_ending = True
            for call in list(self.calls.values()):
                self.end_call(call, "fail" if call.number in self.skipped else "succeed")
        wait_until(self.is_empty, "nothing is left", _LONG)

    def is_empty(self) -> bool:
        found = self.request("GET", f"{self.path}/stats")["subscriptions"].get(SUBSCRIPTION, {})
        return found.get("msgBacklog", -1) == 0 and len(self.memory) == 0


@pytest.fixture
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {
        "ASK_SECONDS": 1.0,
        "BUSY_SECONDS": 1.0,
        "ANSWER_SECONDS": 2.0,
        "REDELIVERY_SECONDS": 2.0,
        # A busy machine may reconnect late.
        "CRASH_SECONDS": _LONG,
    }.items():
        monkeypatch.setattr(redelivery, name, seconds)


@pytest.mark.usefixtures("short_times")
def test_no_message_is_lost_and_none_is_handled_after_it_was_skipped(
    pulsar_broker: Broker, peer: Peer, tmp_path: Path
) -> None:
    first = int(os.environ.get("SLIPWAY_FIRST_SCHEDULE", "0"))
    retention = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    pulsar_broker.request("PUT", f"namespaces/{_NAMESPACE}", {"retention_policies": retention})

    def replay(seed: int) -> list[str]:
        world = World(pulsar_broker, peer, draw(Random(seed)), tmp_path)
        try:
            return world.replay()
        except AssertionError as err:
            return [*world.faults, str(err)]

    seeds = range(first, first + count_schedules(4))
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        results = dict(zip(seeds, pool.map(replay, seeds), strict=True))
    assert {seed: faults for seed, faults in results.items() if faults} == {}
