"""Schemas and encryption, with a real broker that keeps schemas."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pulsar.schema import AvroSchema

from operators.pulsarconsumer.app.core import headers
from operators.pulsarconsumer.app.harness import (
    SUBSCRIPTION,
    Peer,
    build_environment,
    running,
    wait_until,
)
from operators.pulsarconsumer.testing.broker import Broker
from slipway_handler import Message, Reject

OLD: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}],
}
NEW: dict[str, Any] = {
    **OLD,
    "fields": [*OLD["fields"], {"name": "note", "type": "string", "default": "none"}],
}


class Values:
    """A handler that keeps what it was given, and fails so many times at first."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.seen: list[object] = []

    def __call__(self, message: Message) -> None:
        self.seen.append(message.value)
        if len(self.seen) <= self.failures:
            raise ValueError("not yet")


@pytest.mark.parametrize("mismatch", ["DeadLetter", "Skip"])
def test_payload_that_is_no_json_does_not_reach_the_handler(
    mismatch: str, pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    values = Values()
    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        schema_type="JSON",
        schema_on_mismatch=mismatch,
        dead_letter="Enabled",
    )
    peer.send(topic, [b'{"id": 1}', b"no json: hunter2", b"[2]"])
    result = "dead_lettered" if mismatch == "DeadLetter" else "skipped"
    with running(environ, values, tmp_path / "log") as worker:
        wait_until(lambda: worker.handled("acknowledged") == 2, "the good ones are handled")
        wait_until(lambda: worker.handled(result) == 1, "the other one is finished")

    assert values.seen == [{"id": 1}, [2]]
    if mismatch == "DeadLetter":
        (dead,) = peer.read(f"{topic}-{SUBSCRIPTION}-DLQ", 1)
        assert dead.properties()[headers.REASON] == "SchemaMismatch"
        assert "hunter2" not in dead.properties()[headers.EXCEPTION]


def test_app_ends_at_a_wrong_payload_where_that_is_asked_for(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    environ = build_environment(
        pulsar_broker.service_url, topic, schema_type="String", schema_on_mismatch="Fail"
    )
    peer.send(topic, [b"\xff", b"after"])
    values = Values()
    with running(environ, values, tmp_path / "log") as worker:
        worker.wait_ended()

    assert "is not String" in worker.worker.failure
    assert values.seen == []
    stats = pulsar_broker.subscription(topic.rpartition("/")[2], SUBSCRIPTION)
    assert stats["msgBacklog"] == 2


def test_avro_of_an_older_producer_is_read_also_when_it_comes_back(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    definition = tmp_path / "schema.json"
    definition.write_text(json.dumps(NEW))
    producer = peer.client.create_producer(topic, schema=AvroSchema(None, schema_definition=OLD))
    producer.send({"id": 7})
    producer.close()
    values = Values(failures=2)
    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        schema_type="Avro",
        schema_file=definition,
        retry_strategy="RetryTopic",
        retry_initial_delay_seconds=0.1,
    )
    with running(environ, values, tmp_path / "log") as worker:
        wait_until(partial(worker.handled, "acknowledged"), "it is handled")

    assert values.seen == [{"id": 7, "note": "none"}] * 3


def test_protobuf_of_a_topic_with_a_schema_is_parsed_by_the_handler(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    """The handler knows the generated class; the app, without a schema, passes bytes on."""
    generated = pytest.importorskip("google.protobuf.timestamp_pb2").Timestamp
    sent = generated(seconds=7)
    schema = pulsar.schema.ProtobufNativeSchema(generated)
    producer = peer.client.create_producer(topic, schema=schema)
    producer.send(sent)
    producer.close()
    seen: list[object] = []

    def handle(message: Message) -> None:
        seen.append(generated.FromString(message.data))
        if len(seen) == 1:
            raise ValueError("not yet")

    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        retry_strategy="RetryTopic",
        retry_initial_delay_seconds=0.1,
    )
    with running(environ, handle, tmp_path / "log") as worker:
        wait_until(partial(worker.handled, "acknowledged"), "it is handled")

    assert seen == [sent, sent]


def test_schema_that_does_not_fit_the_topic_is_refused_by_the_broker(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    other = {**OLD, "fields": [{"name": "id", "type": "string"}]}
    producer = peer.client.create_producer(topic, schema=AvroSchema(None, schema_definition=OLD))
    producer.close()
    definition = tmp_path / "schema.json"
    definition.write_text(json.dumps(other))
    environ = build_environment(
        pulsar_broker.service_url, topic, schema_type="Avro", schema_file=definition
    )
    with running(environ, Values(), tmp_path / "log") as worker:
        wait_until(
            lambda: "IncompatibleSchema" in (worker.worker.check_ready() or ""), "it is refused"
        )


def test_encrypted_message_is_read_and_its_copy_is_encrypted(
    pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    for words in (
        f"genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out {private}",
        f"pkey -in {private} -pubout -out {public}",
    ):
        subprocess.run(["openssl", *words.split()], check=True, capture_output=True)
    reader = pulsar.CryptoKeyReader(str(public), str(private))
    producer = peer.client.create_producer(topic, encryption_key="k", crypto_key_reader=reader)
    producer.send(b"for your eyes")
    producer.close()
    seen: list[bytes] = []

    def reject(message: Message) -> None:
        seen.append(message.data)
        raise Reject("no")

    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        dead_letter="Enabled",
        encryption_private_key_file=private,
        encryption_public_key_file=public,
    )
    with running(environ, reject, tmp_path / "log") as worker:
        wait_until(partial(worker.handled, "dead_lettered"), "it is put aside")

    assert seen == [b"for your eyes"]
    dead = f"{topic}-{SUBSCRIPTION}-DLQ"
    (readable,) = peer.read(dead, 1, crypto_key_reader=reader)
    consume = pulsar.ConsumerCryptoFailureAction.CONSUME
    (closed,) = peer.read(dead, 1, crypto_failure_action=consume)
    assert readable.data() == b"for your eyes"
    assert b"eyes" not in closed.data()


@pytest.mark.parametrize("payload", [None, b""])
def test_tombstone_reaches_the_handler_and_stays_one_in_its_copy(
    payload: bytes | None, pulsar_broker: Broker, peer: Peer, topic: str, tmp_path: Path
) -> None:
    def reject(message: Message) -> None:
        values.append(message.value)
        if message.value is None:
            raise Reject("no value")

    values: list[object] = []
    environ = build_environment(
        pulsar_broker.service_url,
        topic,
        subscription_type="Exclusive",
        schema_type="JSON",
        dead_letter="Enabled",
    )
    peer.send(topic, [b'{"a": 1}', payload, b'{"a": 2}'], partition_key="k")
    with running(environ, reject, tmp_path / "log") as worker:
        wait_until(lambda: worker.handled("acknowledged") == 2, "the others are handled")
        assert worker.handled("dead_lettered") == 1

    assert values == [{"a": 1}, None, {"a": 2}]
    (dead,) = peer.read(f"{topic}-{SUBSCRIPTION}-DLQ", 1)
    assert dead.properties()[headers.REASON] == "Rejected"
    assert dead._message.has_null_value() is (payload is None)
