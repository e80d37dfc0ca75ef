"""A runtime of Java 11 that lacks a module, as small runtimes do: it is left alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from libs.common.testing.ports import find_free_port
from operators.jmxexporter.injector.attach import Attachment
from operators.jmxexporter.injector.delivery import parse_properties, render_properties
from operators.jmxexporter.injector.messages import Reason, State
from operators.jmxexporter.injector.processes import Process
from operators.jmxexporter.jvms import Jvm, wait_until

type StartJvm = Callable[..., Jvm]
OLD = 11
"""Release of a runtime without an HTTP server, which is left out of many small runtimes."""


def test_runtime_that_tells_of_a_missing_module_is_not_touched(start_jvm: StartJvm) -> None:
    jvm = start_jvm(release=OLD)

    report = jvm.inject_one(port=find_free_port())

    assert (report.state, report.reason) == (State.REFUSED, Reason.MISSING_MODULES), report
    assert "jdk.httpserver" in report.message
    assert not Attachment(Process(jvm.process.pid), 1).has_socket()
    assert "Full thread dump" not in jvm.read_output()


def test_guard_in_java_11_refuses_for_itself(
    start_jvm: StartJvm, jvm_kit: Path, tmp_path: Path
) -> None:
    jvm = start_jvm(release=OLD)
    request, answer = tmp_path / "request.properties", tmp_path / "answer.properties"
    values = {"command": "ensure", "id": "shop", "answer": str(answer)}
    request.write_bytes(render_properties(values))

    Attachment(Process(jvm.process.pid), 20).load(str(jvm_kit / "agent.jar"), str(request))

    wait_until(answer.exists)
    assert parse_properties(answer.read_bytes())["reason"] == Reason.MISSING_MODULES
