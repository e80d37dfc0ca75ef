"""Tests of the traces against a small OTLP receiver over HTTP."""

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp import web
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from libs.common.errors import TransientError
from libs.common.kinds import POD, Key
from libs.common.runtime import Context
from libs.common.telemetry import NO_TELEMETRY, Telemetry
from libs.common.telemetry_setup import build_telemetry
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.script import Script, running
from libs.common.testing.waiting import until
from libs.common.testing.widget import build_widget

CANARY = "canary-s3cr3t"


class Receiver:
    """An OTLP/HTTP receiver that keeps what it gets."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.url = ""
        self.hang = asyncio.Event()
        self.hang.set()

    async def receive(self, request: web.Request) -> web.Response:
        await self.hang.wait()
        message = ExportTraceServiceRequest()
        message.ParseFromString(await request.read())
        self.requests.append(message)
        return web.Response(
            body=ExportTraceServiceResponse().SerializeToString(),
            content_type="application/x-protobuf",
        )

    def spans(self) -> dict[str, Span]:
        return {
            span.name: span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        }


@pytest.fixture(autouse=True)
def exporters_end() -> Iterator[None]:
    """Wait for the threads that export spans: `close` leaves them to an export that hangs.

    A thread that retries draws random numbers, which makes property tests of other files fail that
    run in the same process.
    """
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("OtelBatch"):
            thread.join(30)
            assert not thread.is_alive()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/v1/traces", receiver.receive)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield receiver
    receiver.hang.set()
    await runner.cleanup()


def attributes(span: Span) -> dict[str, Any]:
    return {
        item.key: getattr(item.value, str(item.value.WhichOneof("value")))
        for item in span.attributes
    }


def record(telemetry: Telemetry) -> None:
    with (
        telemetry.reconcile_span("podset", POD, Key("default", "web"), "r1") as reconcile,
        telemetry.request_span("GET", "/api/v1/pods", "10.0.0.1", 443) as request,
    ):
        request.set_status(409)
        reconcile.set_result("requeue_after")


async def test_reconcile_and_its_request_are_exported_as_one_trace(receiver: Receiver) -> None:
    telemetry = build_telemetry(receiver.url, "podset", resource={"k8s.pod.name": "podset-0"})
    record(telemetry)
    await telemetry.close()

    reconcile, request = receiver.spans()["reconcile Pod"], receiver.spans()["GET"]
    assert attributes(reconcile) == {
        "controller": "podset",
        "k8s.object.kind": "Pod",
        "k8s.object.namespace": "default",
        "k8s.object.name": "web",
        "reconcile.id": "r1",
        "reconcile.result": "requeue_after",
    }
    assert attributes(request) == {
        "http.request.method": "GET",
        "url.path": "/api/v1/pods",
        "server.address": "10.0.0.1",
        "server.port": 443,
        "http.response.status_code": 409,
        "error.type": "409",
    }
    assert request.parent_span_id == reconcile.span_id
    assert request.status.code == Span().status.STATUS_CODE_ERROR
    resource = receiver.requests[0].resource_spans[0].resource
    names = {item.key: item.value.string_value for item in resource.attributes}
    assert (names["service.name"], names["k8s.pod.name"]) == ("podset", "podset-0")


async def test_pass_that_fails_is_an_error_in_its_trace(
    receiver: Receiver, fake_api: FakeApi
) -> None:
    async def fail(_: Context) -> None:
        raise TransientError(f"not yet: {CANARY}", retry_after=60)

    script = Script(fail)
    async with running(fake_api, script, otlp_endpoint=receiver.url):
        fake_api.create(build_widget())
        await until(lambda: script.count["w"])

    span = receiver.spans()["reconcile Widget"]
    assert attributes(span)["reconcile.result"] == "error"
    assert attributes(span)["error.type"] == "TransientError"
    assert span.status.code == Span().status.STATUS_CODE_ERROR
    assert CANARY not in str(receiver.requests)


async def test_secrets_do_not_get_into_spans(receiver: Receiver) -> None:
    telemetry = build_telemetry(receiver.url, "podset")

    def fail() -> None:
        with telemetry.reconcile_span("podset", POD, Key("default", "web"), "r1"):
            trace.get_current_span().set_attribute("token", CANARY)
            trace.get_current_span().add_event("login", {"password": CANARY})
            raise ValueError(CANARY)

    with pytest.raises(ValueError, match=CANARY):
        fail()
    await telemetry.close()

    span = receiver.spans()["reconcile Pod"]
    assert attributes(span)["error.type"] == "ValueError"
    assert span.status.code == span.status.STATUS_CODE_ERROR
    assert CANARY not in str(receiver.requests)


async def test_request_outside_a_reconcile_makes_no_span(receiver: Receiver) -> None:
    telemetry = build_telemetry(receiver.url, "podset")
    with telemetry.request_span("GET", "/apis/lease") as request:
        assert request.headers() == {}
    await telemetry.close()

    assert receiver.requests == []


async def test_request_carries_the_trace_to_the_server(receiver: Receiver) -> None:
    telemetry = build_telemetry(receiver.url, "podset")
    with (
        telemetry.reconcile_span("podset", POD, Key("default", "web"), "r1"),
        telemetry.request_span("GET", "/x") as request,
    ):
        headers = request.headers()
    await telemetry.close()

    trace_id = receiver.spans()["GET"].trace_id.hex()
    assert headers["traceparent"].split("-")[1] == trace_id


async def test_ratio_zero_records_nothing(receiver: Receiver) -> None:
    telemetry = build_telemetry(receiver.url, "podset", sample_ratio=0)
    record(telemetry)
    await telemetry.close()

    assert receiver.requests == []


async def test_unreachable_receiver_does_not_hurt() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    telemetry = build_telemetry(f"http://127.0.0.1:{port}", "podset")
    record(telemetry)
    await telemetry.close(timeout=0.2)


async def test_shutdown_is_bounded_while_the_receiver_hangs(receiver: Receiver) -> None:
    receiver.hang.clear()
    telemetry = build_telemetry(receiver.url, "podset")
    record(telemetry)
    started = time.monotonic()
    await telemetry.close(timeout=0.1)

    assert time.monotonic() - started < 2.0


async def test_without_endpoint_nothing_is_recorded() -> None:
    telemetry = build_telemetry("", "podset")
    record(telemetry)
    await telemetry.close()

    assert telemetry is NO_TELEMETRY
    assert not telemetry.enabled


def test_without_endpoint_opentelemetry_is_not_imported() -> None:
    code = (
        "import sys, libs.common.runtime, libs.common.telemetry_setup as t;"
        "t.build_telemetry('', 'x');"
        "sys.exit('opentelemetry' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_configuration_that_cannot_work_leaves_traces_off() -> None:
    assert build_telemetry("http://127.0.0.1:1", "podset", sample_ratio=2) is NO_TELEMETRY


async def test_handling_of_a_message_joins_its_trace_and_passes_it_on(receiver: Receiver) -> None:
    telemetry = build_telemetry(receiver.url, "app", allowed_attributes=["messaging.system"])
    carrier = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    attributes_given = {"messaging.system": "pulsar", "body": CANARY}
    with telemetry.message_span("process t", carrier, attributes_given) as span:
        span.set_error(ValueError(CANARY))
        following = span.properties()
    await telemetry.close()

    exported = receiver.spans()["process t"]
    assert exported.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
    assert exported.parent_span_id.hex() == "b7ad6b7169203331"
    assert exported.span_id.hex() in following["traceparent"]
    assert attributes(exported) == {"messaging.system": "pulsar", "error.type": "ValueError"}
    assert not any(CANARY in str(request) for request in receiver.requests)
