"""Further releases of Java, each with the little that may be otherwise there."""

from __future__ import annotations

import urllib.error
from collections.abc import Callable
from pathlib import Path

import pytest

from libs.common.testing.ports import find_free_port
from operators.jmxexporter.injector.attach import Attachment
from operators.jmxexporter.injector.delivery import parse_properties, render_properties
from operators.jmxexporter.injector.messages import Action, Reason, State
from operators.jmxexporter.injector.processes import Process
from operators.jmxexporter.jvms import CONFIG, Jvm, scrape_metrics, wait_until

type StartJvm = Callable[..., Jvm]
OLD = 11
"""Release of a runtime without an HTTP server, which is left out of many small runtimes."""


def test_java_21_is_served_changed_and_let_go(start_jvm: StartJvm) -> None:
    jvm, port = start_jvm(release=21), find_free_port()

    first = jvm.inject_one(port=port)
    again = jvm.inject_one(port=port)
    other = jvm.inject_one(config=CONFIG.replace("shop_orders", "shop_sales"), port=port)

    assert [each.state for each in (first, again, other)] == [State.SERVING] * 3, first
    assert [each.changed for each in (first, again, other)] == [True, False, True]
    assert "shop_sales" in scrape_metrics(port)
    assert jvm.inject_one(Action.STOP, port=port).state is State.STOPPED
    with pytest.raises(urllib.error.URLError):
        scrape_metrics(port)


def test_java_21_without_dynamic_agents_says_so_after_a_zero(
    start_jvm: StartJvm, tmp_path: Path
) -> None:
    options = tmp_path / "options"
    options.write_text("-XX:-EnableDynamicAgentLoading")
    jvm = start_jvm(f"@{options}", release=21)

    report = jvm.inject_one(port=find_free_port())

    assert (report.state, report.reason) == (State.FAILED, Reason.DYNAMIC_AGENTS_DISABLED), report


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
