"""What an administrator or a policy of the broker does to a subscription while consumers run."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from operators.pulsarconsumer.app import redelivery
from operators.pulsarconsumer.app.failures_broker_test import send_batch
from operators.pulsarconsumer.app.harness import (
    SUBSCRIPTION,
    Peer,
    RunningWorker,
    build_environment,
    running,
    wait_until,
)
from operators.pulsarconsumer.testing.broker import Broker, PulsarMissing
from slipway_handler import Message

_KINDS = ("Exclusive", "Failover", "KeyShared", "Shared")
_HOUR = 3600


class Poisoned:
    """A handler that fails for payloads that begin with p."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __call__(self, message: Message) -> None:
        payload = message.data.decode()
        self.calls.append(payload)
        if payload.startswith("p"):
            raise ValueError(payload)

    @property
    def times(self) -> Counter[str]:
        return Counter(self.calls)

    def had(self, payloads: Sequence[str], times: int) -> bool:
        """Return whether each payload was handled so many times."""
        return [self.times[each] for each in payloads] == [times] * len(payloads)


@pytest.fixture
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the broker confirm waiting messages after a second instead of a minute."""
    monkeypatch.setattr(redelivery, "ASK_SECONDS", 1.0)
    monkeypatch.setattr(redelivery, "ANSWER_SECONDS", 3.0)
    monkeypatch.setattr(redelivery, "REDELIVERY_SECONDS", 3.0)


@contextmanager
def consuming(
    broker: Broker, topic: str, handler: Poisoned, folder: Path, **values: object
) -> Iterator[RunningWorker]:
    environ = build_environment(broker.service_url, topic, **values)
    with running(environ, handler, folder / "log") as worker:
        worker.wait_ready()
        yield worker


def path_of(topic: str) -> str:
    return topic.replace("://", "/")


def reset(broker: Broker, topic: str) -> None:
    broker.request("POST", f"{path_of(topic)}/subscription/{SUBSCRIPTION}/resetcursor/0")


@pytest.mark.parametrize("kind", _KINDS)
def test_messages_are_handled_again_each_time_the_cursor_is_moved_back(
    kind: str, pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    """A message waits in memory all the time, and its attempts are not repeated."""
    handler = Poisoned()
    good = [f"g{number}" for number in range(20)]
    retry = {"retry_initial_delay_seconds": _HOUR, "retry_max_delay_seconds": _HOUR}
    ordered = {} if kind == "Shared" else {"max_in_flight": 2}
    with consuming(
        pulsar_broker, topic, handler, tmp_path, subscription_type=kind, **retry, **ordered
    ):
        peer.send(topic, [b"p0"], partition_key="poison")
        peer.send(topic, [each.encode() for each in good], partition_key="good")
        for times in (1, 2, 3):
            wait_until(partial(handler.had, good, times), f"each is handled {times} times")
            if times < 3:
                reset(pulsar_broker, topic)

    assert handler.times["p0"] == 1


def test_message_whose_copies_were_stored_is_handled_again_after_a_reset(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    handler = Poisoned()
    fast = {"retry_initial_delay_seconds": 0.1, "retry_max_attempts": 2, "dead_letter": "Enabled"}
    for strategy in ("NegativeAck", "RetryTopic"):
        name, calls = f"{topic}-{strategy}", len(handler.calls)
        peer.send(name, [b"p0"])
        values = {"retry_strategy": strategy, **fast}
        with consuming(pulsar_broker, name, handler, tmp_path, **values) as worker:
            wait_until(lambda: worker.handled("dead_lettered") == 1, "it is a dead letter")
            reset(pulsar_broker, name)
            wait_until(lambda: worker.handled("dead_lettered") == 2, "it is one again")
        assert len(handler.calls) == calls + 4


def skip_all(broker: Broker, topic: str) -> None:
    broker.request("POST", f"{path_of(topic)}/subscription/{SUBSCRIPTION}/skip_all")


def skip(broker: Broker, topic: str) -> None:
    broker.request("POST", f"{path_of(topic)}/subscription/{SUBSCRIPTION}/skip/2")


def expire(broker: Broker, topic: str) -> None:
    broker.request("POST", f"{path_of(topic)}/subscription/{SUBSCRIPTION}/expireMessages/1")


def unsubscribe(broker: Broker, topic: str) -> None:
    broker.request("DELETE", f"{path_of(topic)}/subscription/{SUBSCRIPTION}?force=true")


def truncate(broker: Broker, topic: str) -> None:
    broker.request("DELETE", f"{path_of(topic)}/truncate")


def delete(broker: Broker, topic: str) -> None:
    broker.request("DELETE", f"{path_of(topic)}?force=true")


@pytest.mark.usefixtures("short_times")
@pytest.mark.parametrize("action", [skip_all, skip, expire, unsubscribe, truncate, delete])
@pytest.mark.parametrize("kind", _KINDS)
def test_skipped_messages_do_not_wait_any_more(
    kind: str, action: object, pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    assert callable(action)
    handler = Poisoned()
    retry = {"retry_initial_delay_seconds": 0.2, "retry_max_delay_seconds": 0.2}
    values = {"subscription_type": kind, "initial_position": "Latest", **retry}
    with consuming(pulsar_broker, topic, handler, tmp_path, **values) as worker:
        peer.send(topic, [b"p0", b"m1"], partition_key="k")
        wait_until(lambda: handler.times["p0"] >= 2, "the poison is tried again")
        sent = time.monotonic()
        wait_until(lambda: time.monotonic() > sent + 2, "both are older than a second")
        action(pulsar_broker, topic)
        wait_until(lambda: worker.value("waiting_retries") == 0, "nothing waits")
        # The subscription may have to be created again.
        wait_until(lambda: worker.worker.check_ready() is None, "it is connected")
        wait_until(
            lambda: pulsar_broker.subscription(topic.rpartition("/")[2], SUBSCRIPTION), "it exists"
        )
        calls = handler.times["p0"]
        peer.send(topic, [b"new"], partition_key="k")
        wait_until(lambda: handler.times["new"] == 1, "later messages are handled")

    assert handler.times["p0"] == calls
    assert handler.times["m1"] == (1 if kind == "Shared" else 0)


@pytest.mark.usefixtures("short_times")
def test_skipped_message_blocks_no_partition_although_the_memory_is_full(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    handler = Poisoned()
    sent = ["p0", *(f"g{number}" for number in range(100))]
    retry = {"retry_initial_delay_seconds": 0.2, "retry_max_delay_seconds": 0.2}
    values = {"subscription_type": "Exclusive", "receiver_queue_size": 10, **retry}
    values |= {"held_messages": 10, "held_bytes": 10_000}
    with consuming(pulsar_broker, topic, handler, tmp_path, **values) as worker:
        peer.send(topic, [each.encode() for each in sent])
        wait_until(lambda: worker.value("waiting_retries") >= 10, "the memory is full")
        began = time.monotonic()
        wait_until(lambda: time.monotonic() > began + 10, "the broker was asked several times")
        skip_all(pulsar_broker, topic)
        peer.send(topic, [b"new"])
        wait_until(lambda: handler.times["new"] == 1, "later messages are handled")
        assert worker.value("waiting_retries") == 0


@pytest.mark.usefixtures("short_times")
def test_messages_beside_one_that_waits_are_not_handled_again_and_again(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    """A batch goes back to the broker with it, which then delivers the batch to any consumer."""
    handlers = [Poisoned(), Poisoned()]
    values = {"retry_initial_delay_seconds": 1.5, "retry_max_delay_seconds": 1.5}
    send_batch(peer, topic, ["g0", "p1", "g2"])
    with (
        consuming(pulsar_broker, topic, handlers[0], tmp_path, **values),
        consuming(pulsar_broker, topic, handlers[1], tmp_path, **values),
    ):
        wait_until(lambda: all(each.times["p1"] >= 2 for each in handlers), "it moves often", 300)
        # Not after the end of one of them: the broker then counts from zero.
        others = [(each.times["g0"], each.times["g2"]) for each in handlers]

    assert others == [(1, 1), (1, 1)]


@pytest.mark.usefixtures("short_times")
@pytest.mark.parametrize("kind", _KINDS)
def test_messages_that_wait_for_long_keep_their_attempts_and_their_order(
    kind: str, pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    attempts: list[int] = []
    others: list[str] = []

    def handle(message: Message) -> None:
        if message.data != b"p0":
            others.append(message.data.decode())
            return
        attempts.append(message.attempt)
        if len(attempts) < 4:
            raise ValueError

    retry = {"retry_initial_delay_seconds": 1.5, "retry_multiplier": 1, "subscription_type": kind}
    environ = build_environment(pulsar_broker.service_url, topic, **retry)
    with running(environ, handle, tmp_path / "log") as worker:
        peer.send(topic, [b"p0", b"m1", b"m2"], partition_key="k")
        wait_until(lambda: len(attempts) == 4 and len(others) == 2, "all are handled", 120)
        wait_until(lambda: worker.handled("acknowledged") == 3, "all are acknowledged")
        name = topic.rpartition("/")[2]
        wait_until(
            lambda: pulsar_broker.subscription(name, SUBSCRIPTION)["msgBacklog"] == 0, "none left"
        )

    assert attempts == [1, 2, 3, 4]
    assert others == ["m1", "m2"]


def test_consumers_that_share_a_retry_topic_handle_their_own_messages_only(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    """Two have the same subscription as well, so each copy is delivered to only one of them."""
    names = {"a": SUBSCRIPTION, "b": SUBSCRIPTION, "c": "other"}
    done: dict[str, list[str]] = {name: [] for name in names}
    workers = []
    try:
        for name, subscription in names.items():

            def handle(message: Message, name: str = name) -> None:
                if message.attempt == 1 and name == "a":
                    raise ValueError
                done[name].append(message.data.decode())

            environ = build_environment(
                pulsar_broker.service_url,
                f"{topic}-{name}",
                subscription_name=subscription,
                retry_strategy="RetryTopic",
                retry_topic=f"{topic}-shared",
                retry_initial_delay_seconds=0.1,
            )
            workers.append(RunningWorker(environ, handle, tmp_path / name))
            workers[-1].wait_ready()
            wait_until(lambda: workers[-1].sources[0].is_connected, "it reads copies")
        peer.send(f"{topic}-a", [b"%d" % number for number in range(20)])
        wait_until(lambda: len(done["a"]) == 20, "all are handled by their consumer", 180)
    finally:
        for worker in workers:
            worker.stop()

    assert sorted(map(int, done["a"])) == list(range(20))
    assert (done["b"], done["c"]) == ([], [])


def test_copies_in_the_retry_topic_of_an_earlier_release_are_handled(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    """Its default name did not depend on the pattern."""
    handled = threading.Event()
    name = topic.rpartition("-")[2]
    origin = {"REAL_TOPIC": f"{topic}-1", "REAL_SUBSCRIPTION": name, "RECONSUMETIMES": "2"}
    peer.send(f"persistent://public/default/{name}-RETRY", [b"before"], properties=origin)
    environ = build_environment(
        pulsar_broker.service_url,
        "",
        topic_pattern=f"{topic}-.*",
        subscription_name=name,
        retry_strategy="RetryTopic",
    )
    attempts: list[int] = []

    def handle(message: Message) -> None:
        attempts.append(message.attempt)
        handled.set()

    with running(environ, handle, tmp_path / "log"):
        assert handled.wait(60)

    assert attempts == [3]


@pytest.mark.parametrize(
    "policy",
    [{"active": False}, {"active": True, "tickTime": 100, "maxDeliveryDelayInMillis": 500}],
)
def test_delays_hold_where_the_namespace_limits_delayed_delivery(
    policy: dict[str, object], pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    namespace = topic.rpartition("-")[2]
    pulsar_broker.request("PUT", f"namespaces/public/{namespace}", {})
    body = {"tickTime": 100, "maxDeliveryDelayInMillis": 0, **policy}
    pulsar_broker.request("POST", f"namespaces/public/{namespace}/delayedDelivery", body)
    name = f"persistent://public/{namespace}/t"
    tried: list[float] = []
    others: list[bytes] = []

    def handle(message: Message) -> None:
        if message.data != b"poison":
            others.append(message.data)
            return
        tried.append(time.monotonic())
        raise ValueError

    environ = build_environment(
        pulsar_broker.service_url,
        name,
        retry_strategy="RetryTopic",
        retry_initial_delay_seconds=2,
        retry_multiplier=1,
        retry_max_attempts=3,
        dead_letter="Enabled",
    )
    with running(environ, handle, tmp_path / "log") as worker:
        peer.send(name, [b"poison", b"good1"])
        wait_until(lambda: others == [b"good1"], "another one is handled")
        wait_until(lambda: worker.handled("dead_lettered") == 1, "no attempt is left", 120)

    assert len(tried) == 3
    assert min(after - before for before, after in itertools.pairwise(tried)) > 1.7


@pytest.fixture
def indexing_broker() -> Iterator[Broker]:
    """Run a broker that acknowledges single messages of batches."""
    config = {
        "acknowledgmentAtBatchIndexLevelEnabled": "true",
        "maxUnackedMessagesPerConsumer": "1000",
    }
    try:
        broker = Broker(config=config)
    except PulsarMissing as err:
        pytest.skip(str(err))
    with broker:
        yield broker


def test_messages_that_wait_do_not_block_a_consumer_of_batches(
    indexing_broker: Broker, topic: str, tmp_path: Path
) -> None:
    """The broker counts each message of a batch that is not acknowledged."""
    name, peer = topic, Peer(indexing_broker.service_url)
    handler = Poisoned()
    values = {"retry_initial_delay_seconds": _HOUR, "retry_max_delay_seconds": _HOUR}
    with consuming(indexing_broker, name, handler, tmp_path, **values):
        producer = peer.client.create_producer(
            name, batching_enabled=True, batching_max_publish_delay_ms=1000
        )
        for batch in range(15):
            for number in range(100):
                payload = f"p{batch}" if number == 50 else f"g{batch}-{number}"
                producer.send_async(payload.encode(), lambda *_: None)
            producer.flush()
        producer.close()
        peer.send(name, [b"after"])
        wait_until(lambda: handler.times["after"] == 1, "messages after the batches are handled")
    peer.close()

    assert len(handler.times) == len(handler.calls) == 1501
