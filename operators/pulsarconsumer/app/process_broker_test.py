"""The app as a process: crashes, restarts and the end lose nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from operators.pulsarconsumer.app.harness import (
    SUBSCRIPTION,
    Notes,
    Peer,
    app,
    build_environment,
    wait_until,
)
from operators.pulsarconsumer.testing.broker import Broker

HANDLERS = """
import asyncio, os, time

def note(word, message):
    with open(os.environ["NOTES"], "a") as file:
        file.write(f"{word} {message.data.decode()}\\n")

def slow(message):
    note("begin", message)
    while not os.path.exists(os.environ["NOTES"] + ".go"):
        time.sleep(0.01)
    note("end", message)

async def crowd(message):
    note("begin", message)
    while not os.path.exists(os.environ["NOTES"] + ".go"):
        await asyncio.sleep(0.01)
    note("end", message)

def quick(message):
    note("end", message)

def print_and_fail_once(message):
    print("not a line of the log")
    note("end", message)
"""


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path, HANDLERS)


def backlog(broker: Broker, topic: str) -> int:
    stats = broker.subscription(topic.rpartition("/")[2], SUBSCRIPTION)
    return int(stats.get("msgBacklog", -1))


def test_sample_producer_and_default_app_show_each_message_and_their_state(
    pulsar_broker: Broker, topic: str, tmp_path: Path
) -> None:
    environ = build_environment(pulsar_broker.service_url, topic)
    producing = {
        "PULSAR_SERVER": pulsar_broker.service_url,
        "PULSAR_TOPIC": topic,
        "PULSAR_MESSAGE": "hello",
        "PULSAR_COUNT": "2000",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    with app(environ, tmp_path) as process:
        process.wait_ready()
        command = [sys.executable, "-m", "operators.pulsarconsumer.app.producer"]
        sent = subprocess.run(
            command, env=producing, capture_output=True, text=True, timeout=600, check=True
        )
        wait_until(lambda: len(process.payloads) >= 2000, "all are shown")
        status, metrics = process.get("/metrics", metrics=True)
        alive = process.get("/healthz")[0]
        code = process.terminate()

    assert "Sent 2000 of 2000 messages" in sent.stdout
    assert process.payloads == [f"hello {number}" for number in range(2000)]
    assert (status, alive, code) == (200, 200, 0)
    assert "pulsar_consumer_connected 1.0" in metrics
    assert 'pulsar_consumer_messages_received_total{source="topic"} 2000.0' in metrics
    assert "controller_runtime" not in metrics
    wait_until(lambda: backlog(pulsar_broker, topic) == 0, "nothing is left")


def test_kill_while_handling_loses_nothing(
    pulsar_broker: Broker, peer: Peer, topic: str, notes: Notes, tmp_path: Path
) -> None:
    environ = notes.environ | build_environment(
        pulsar_broker.service_url,
        topic,
        handler="noted_handlers:slow",
        max_in_flight=4,
        log_sample_ratio=1,
    )
    sent = [f"m{number}" for number in range(20)]
    peer.send(topic, [text.encode() for text in sent])
    with app(environ, tmp_path) as process:
        wait_until(lambda: len(notes.of("begin")) == 4, "four are being handled")
        process.kill()

    assert notes.of("end") == []
    assert backlog(pulsar_broker, topic) == 20
    notes.go()
    with app(environ, tmp_path) as process:
        wait_until(lambda: set(notes.of("end")) == set(sent), "all are handled")
        process.terminate()

    assert sorted(notes.of("end")) == sorted(sent)
    wait_until(lambda: backlog(pulsar_broker, topic) == 0, "nothing is left")


def test_consumers_killed_while_consuming_lose_nothing_and_repeat_little(
    pulsar_broker: Broker, peer: Peer, topic: str, notes: Notes, tmp_path: Path
) -> None:
    rate, kills = 200, 3
    environ = notes.environ | build_environment(
        pulsar_broker.service_url,
        topic,
        handler="noted_handlers:quick",
        log_sample_ratio=1,
        rate_limit_per_second=rate,
        receiver_queue_size=20,
    )
    sent = [f"m{number}" for number in range(600)]
    peer.send(topic, [text.encode() for text in sent])
    with ExitStack() as stack:
        consumers = [stack.enter_context(app(environ, tmp_path)) for _ in range(2)]
        for turn in range(kills):
            wait_until(partial(notes.has, 150 * (turn + 1)), "they consume")
            consumers[turn].kill()
            consumers.append(stack.enter_context(app(environ, tmp_path)))
        wait_until(lambda: set(notes.of("end")) == set(sent), "all are handled")
        wait_until(lambda: backlog(pulsar_broker, topic) == 0, "all are acknowledged")

    # Handled by one that died, and not known to the broker as acknowledged: the client tells it ten
    # times a second.
    repeated = len(notes.of("end")) - len(sent)
    assert repeated <= kills * rate // 2


@pytest.mark.parametrize("handler", ["slow", "crowd"])
def test_sigterm_finishes_what_is_begun_and_leaves_the_rest(
    handler: str, pulsar_broker: Broker, peer: Peer, topic: str, notes: Notes, tmp_path: Path
) -> None:
    environ = notes.environ | build_environment(
        pulsar_broker.service_url,
        topic,
        handler=f"noted_handlers:{handler}",
        max_in_flight=2,
        log_sample_ratio=1,
    )
    peer.send(topic, [f"m{number}".encode() for number in range(10)])
    with app(environ, tmp_path) as process:
        wait_until(lambda: len(notes.of("begin")) == 2, "two are being handled")
        process.process.send_signal(signal.SIGTERM)
        wait_until(lambda: process.get("/readyz")[0] == 500, "it takes no more")
        assert process.get("/healthz")[0] == 200
        notes.go()
        assert process.process.wait(10) == 0

    begun = notes.of("begin")
    # One more may have been received, and waited for a lane, when the signal came.
    assert len(begun) <= 3
    assert sorted(notes.of("end")) == sorted(begun)
    wait_until(lambda: backlog(pulsar_broker, topic) == 10 - len(begun), "these alone are acked")


def test_consumers_that_end_in_turn_show_each_message_once(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    """Without a handler the line in the log is the work; it is acknowledged before the end."""
    environ = build_environment(pulsar_broker.service_url, topic, rate_limit_per_second=2000)
    producer = peer.client.create_producer(topic, block_if_queue_full=True)
    sent = [f"m{number}" for number in range(10_000)]
    for text in sent:
        producer.send_async(text.encode(), lambda *_: None)
    producer.flush()
    producer.close()
    shown: list[str] = []
    while len(shown) < len(sent):
        with app(environ, tmp_path) as process:
            # Neither that it begins nor that it has all is the same in each turn.
            wait_until(
                lambda: len(process.payloads) > 1000 or not backlog(pulsar_broker, topic),
                "it consumes",
            )
            assert process.terminate() == 0
        shown += process.payloads

    assert sorted(shown) == sorted(sent)
    assert backlog(pulsar_broker, topic) == 0


def test_broker_that_is_killed_and_comes_back_is_survived(
    pulsar_broker: Broker, topic: str, tmp_path: Path
) -> None:
    environ = build_environment(
        pulsar_broker.service_url, topic, receiver_queue_size=10, rate_limit_per_second=200
    )
    first, second = ([f"{name}{number}" for number in range(300)] for name in "ab")
    sender = Peer(pulsar_broker.service_url)
    sender.send(topic, [text.encode() for text in first])
    with app(environ, tmp_path) as process:
        wait_until(lambda: len(process.payloads) > 20, "it consumes")
        pulsar_broker.kill()
        wait_until(lambda: process.get("/readyz")[0] == 500, "it notices")
        assert process.get("/healthz")[0] == 200
        pulsar_broker.start()
        sender.send(topic, [text.encode() for text in second])
        wait_until(lambda: set(process.payloads) == {*first, *second}, "all are shown", 60)
        # Messages whose acknowledgment was lost come again, perhaps after the others were shown.
        wait_until(lambda: backlog(pulsar_broker, topic) == 0, "nothing is left")
        assert process.terminate() == 0
    sender.close()

    # What was not acknowledged when the broker went came again, and no more.
    assert len(process.payloads) < 600 + 150


def test_what_a_handler_prints_is_not_between_the_lines(
    pulsar_broker: Broker, peer: Peer, topic: str, notes: Notes, tmp_path: Path
) -> None:
    environ = notes.environ | build_environment(
        pulsar_broker.service_url,
        topic,
        handler="noted_handlers:print_and_fail_once",
        log_sample_ratio=1,
    )
    peer.send(topic, [b"x"])
    with app(environ, tmp_path) as process:
        wait_until(lambda: notes.of("end"), "it is handled")
        process.terminate()

    assert process.payloads == ["x"]
    assert "not a line of the log" in process.errors


BLOCKS = """
import os, pathlib, threading

def block():
    pathlib.Path(os.environ["NOTES"]).write_text("blocks")
    threading.Event().wait()
"""
STARTS = {
    "import of the app": ("structlog.py", "block()"),
    "import of the handler": ("orders.py", "block()"),
    "open of the handler": (
        "orders.py",
        "class Handle:\n  def open(self): block()\n  def __call__(self, message): pass",
    ),
}
"""Modules that hold up the start, by what is held up."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", STARTS)
def test_signal_during_the_start_ends_the_app_in_order(
    moment: str, number: signal.Signals, tmp_path: Path
) -> None:
    name, code = STARTS[moment]
    (tmp_path / name).write_text(f"{BLOCKS}\n{code}\n")
    marker = tmp_path / "marker"
    environ = build_environment("pulsar://127.0.0.1:1", "t", handler="orders:Handle") | {
        "NOTES": str(marker),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)]),
    }
    with app(environ, tmp_path) as process:
        wait_until(marker.exists, "it is held up")
        process.process.send_signal(number)
        assert process.process.wait(60) == 0

    assert "Stopped before" in process.errors


def test_app_waits_for_a_broker_that_is_not_there(tmp_path: Path) -> None:
    environ = build_environment("pulsar://127.0.0.1:1", "t", operation_timeout_seconds=60)
    with app(environ, tmp_path) as process:
        wait_until(lambda: "Connection refused" in process.errors, "it tries")
        status, text = process.get("/readyz")
        alive = process.get("/healthz")[0]
        code = process.terminate(5)

    assert (status, alive, code) == (500, 200, 0)
    assert "not subscribed" in text


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"handler": "no_such_module:handle"}, "there is no module 'no_such_module'"),
        ({"schema_type": "Avro", "schema_file": "/none"}, "/none"),
        ({"max_in_flight": "many"}, "PULSAR_CONSUMER_MAX_IN_FLIGHT"),
    ],
)
def test_app_that_is_set_up_wrong_says_so_and_ends(
    values: dict[str, str], expected: str, tmp_path: Path
) -> None:
    with app(build_environment("pulsar://127.0.0.1:1", "t", **values), tmp_path) as process:
        assert process.process.wait(20) == 2

    assert expected in process.errors


def test_handler_of_the_example_books_retries_and_rejects(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    folder = Path(__file__).parents[1] / "examples" / "own_handler"
    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        handler="orders:handle",
        log_sample_ratio=1,
        schema_type="JSON",
        retry_strategy="RetryTopic",
        retry_max_attempts=2,
        dead_letter="Enabled",
    ) | {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}
    orders: list[object] = [{"id": "a"}, {"id": "a"}, {"id": "b", "stock": 0}, ["no order"]]
    peer.send(topic, [json.dumps(order).encode() for order in orders])
    with app(environ, tmp_path) as process:
        process.wait_ready()
        dead = peer.read(f"{topic}-{SUBSCRIPTION}-DLQ", 2)
        process.terminate()

    assert process.errors.count("Booked order a, try 1") == 1
    assert {message.properties()["DEAD_LETTER_REASON"] for message in dead} == {
        "Rejected",
        "AttemptsExhausted",
    }
    wait_until(lambda: backlog(pulsar_broker, topic) == 0, "nothing is left")
