"""The injector and the guard on real JVMs: metrics come, and no application is harmed.

The fixture `start_jvm` uses each application again after its test.
"""

from __future__ import annotations

import concurrent.futures
import secrets
import shutil
import socket
import subprocess
import urllib.error
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from libs.common.testing.ports import find_free_port
from operators.jmxexporter.injector.attach import AttachError, Attachment
from operators.jmxexporter.injector.inject import Job
from operators.jmxexporter.injector.messages import Action, State
from operators.jmxexporter.injector.processes import Process
from operators.jmxexporter.jvms import CONFIG, Jvm, scrape_metrics, wait_until
from operators.jmxexporter.reasons import Reason

type Start = Callable[..., Jvm]
BAD = (
    "rules:\n- pattern: '(['\n",
    "rules: [",
    "jmxUrl: service:jmx:rmi:///jndi/rmi://other/jmxrmi",
    "httpServer: {authentication: {}}",
    "[" * 10_000,
    "rules: {}",
)
"""Configurations that an endpoint refuses."""
OTHER = "rules:\n- pattern: shop<type=Orders><>Count\n  name: shop_sales\n"
STUCK_ENGINE = """
package dev.slipway.jmx.engine;

import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Function;

public final class Engine implements Function<Map<String, String>, Map<String, String>> {
  private HttpServer server;

  @Override
  public Map<String, String> apply(Map<String, String> call) {
    if (!call.get("command").equals("stop")) {
      return start(call);
    }
    if (Files.exists(Paths.get(System.getProperty("stuck")))) {
      throw new IllegalStateException("stuck");
    }
    server.stop(0);
    return new HashMap<>();
  }

  private Map<String, String> start(Map<String, String> call) {
    byte[] page = ("id=" + call.get("id") + "\\nconfigHash=" + call.get("configHash")).getBytes();
    try {
      int port = Integer.parseInt(call.get("port"));
      server = HttpServer.create(new InetSocketAddress(call.get("host"), port), 0);
    } catch (java.io.IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
    server.createContext("/", exchange -> {
      exchange.sendResponseHeaders(200, page.length);
      exchange.getResponseBody().write(page);
      exchange.close();
    });
    server.start();
    Map<String, String> answer = new HashMap<>();
    answer.put("changed", "true");
    return answer;
  }
}
"""
"""An engine that serves, and cannot be stopped while the file exists that a property names."""


@pytest.fixture(scope="session")
def stuck_kit(jvm_kit: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a kit whose engine cannot always be stopped."""
    kit = tmp_path_factory.mktemp("stuck")
    shutil.copy(jvm_kit / "agent.jar", kit)
    source, classes = kit / "Engine.java", kit / "classes"
    source.write_text(STUCK_ENGINE)
    compiler = next(jvm_kit.glob("java/*/bin/javac"))
    subprocess.run([compiler, "--release", "8", "-d", classes, source], check=True)
    with zipfile.ZipFile(kit / "engine.jar", "w") as jar:
        for path in classes.rglob("*.class"):
            jar.write(path, path.relative_to(classes))
    return kit


def test_metrics_of_a_running_jvm_are_served(start_jvm: Start, release: int) -> None:
    jvm, port = start_jvm(release=release), find_free_port()
    orders = jvm.order()

    report = jvm.inject_one(port=port)

    assert (report.state, report.port, report.changed) == (State.SERVING, port, True), report
    assert report.main == "dev.slipway.jmx.sample.Shop"
    metrics = scrape_metrics(port)
    assert metrics["shop_orders"].samples[0].value == orders
    assert metrics["jmx_scrape_error"].samples[0].value == 0
    assert "jvm_memory_used_bytes" in metrics


def test_second_injection_changes_nothing(start_jvm: Start, release: int) -> None:
    jvm, port = start_jvm(release=release), find_free_port()
    jvm.inject_one(port=port, last_port=port + 9)

    report = jvm.inject_one(port=port, last_port=port + 9)

    assert (report.state, report.port, report.changed) == (State.SERVING, port, False), report


def test_log_of_the_application_stays_as_it_was(start_jvm: Start, release: int) -> None:
    """The upstream collector changes the format of the root logger's handlers."""
    jvm = start_jvm(release=release)

    jvm.inject_one(port=find_free_port())

    classes = Attachment(Process(jvm.process.pid), 10).command("jcmd", "VM.class_hierarchy").text
    assert "slipway.jmx.engine.Engine" in classes, "the test looks at the wrong thing"
    assert "LoggerFormatter" not in classes
    printed = jvm.read_output().splitlines()[1:]
    # Java 21 and later warn of each agent that is loaded; nothing else is printed.
    assert [line for line in printed if not line.startswith("WARNING: ")] == []


def test_two_injectors_at_once_make_one_endpoint(start_jvm: Start) -> None:
    jvm, port = start_jvm(), find_free_port()

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(jvm.inject_one, port=port) for _ in range(2)]
        reports = [future.result() for future in runs]

    assert [report.state for report in reports] == [State.SERVING] * 2, reports
    assert sum(report.changed for report in reports) == 1


def test_injector_that_is_overtaken_reports_the_endpoint_of_the_other(
    start_jvm: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    jvm, port = start_jvm(), find_free_port()
    look = Job._find_served

    def overtake(job: Job) -> int | None:
        monkeypatch.setattr(Job, "_find_served", look)
        before = look(job)
        assert jvm.inject_one(port=port).state is State.SERVING
        return before

    monkeypatch.setattr(Job, "_find_served", overtake)

    report = jvm.inject_one(port=port)

    assert (report.state, report.port, report.changed) == (State.SERVING, port, False), report


def test_other_configuration_is_put_in_without_a_gap(start_jvm: Start, release: int) -> None:
    jvm, port = start_jvm(release=release), find_free_port()
    jvm.inject_one(port=port)

    report = jvm.inject_one(config=OTHER, port=port)

    assert (report.state, report.port, report.changed) == (State.SERVING, port, True), report
    metrics = scrape_metrics(port)
    assert "shop_sales" in metrics and "shop_orders" not in metrics
    assert metrics["jmx_guard_config_reloads"].samples[0].value == 1


def test_bad_configuration_is_refused_and_the_one_before_stays(
    start_jvm: Start, release: int
) -> None:
    jvm, port = start_jvm(release=release), find_free_port()
    for config in BAD:
        first = jvm.inject_one(config=config, port=port)
        assert (first.state, first.reason) == (State.FAILED, Reason.CONFIG_INVALID), first
    served = jvm.inject_one(port=port)

    for config in BAD:
        second = jvm.inject_one(config=config, port=port)

        assert (second.state, second.reason) == (State.FAILED, Reason.CONFIG_INVALID), second
        assert (second.port, second.config_hash) == (port, served.config_hash)
        assert "shop_orders" in scrape_metrics(port)


def test_stop_frees_the_port_and_leaves_no_class_behind(start_jvm: Start, release: int) -> None:
    jvm, port, name = start_jvm(release=release), find_free_port(), secrets.token_hex(4)
    assert jvm.inject_one(port=port, id=name).state is State.SERVING
    (place,) = Path("/tmp").glob(f"slipway-jmx-{name}-*")
    assert list(place.iterdir())

    report = jvm.inject_one(Action.STOP, port=port, id=name)

    assert (report.state, report.changed) == (State.STOPPED, True), report
    assert list(place.iterdir()) == [], "nothing stays on the disk of the container"
    with pytest.raises(urllib.error.URLError):
        scrape_metrics(port)
    wait_until(lambda: not jvm.has_class("slipway.jmx.engine"))
    again = jvm.inject_one(port=port)
    assert (again.state, again.changed) == (State.SERVING, True), again


def test_stop_of_what_was_never_started_is_no_attach(start_jvm: Start) -> None:
    jvm = start_jvm()

    report = jvm.inject_one(Action.STOP)

    assert (report.state, report.changed) == (State.STOPPED, False)
    assert not Attachment(Process(jvm.process.pid), 1).has_socket()


def test_endpoint_moves_when_other_ports_are_asked_for(start_jvm: Start) -> None:
    jvm, port, other = start_jvm(), find_free_port(), find_free_port()
    jvm.inject_one(port=port)

    report = jvm.inject_one(port=other, last_port=other)

    assert (report.state, report.port) == (State.SERVING, other), report
    with pytest.raises(urllib.error.URLError):
        scrape_metrics(port)


def start_stuck(start_jvm: Start, kit: Path, stuck: Path, release: int) -> tuple[Jvm, int]:
    """Start an application with an endpoint that cannot be stopped while a file exists."""
    stuck.touch()
    jvm, port = start_jvm(f"-Dstuck={stuck}", release=release), find_free_port()
    usual, jvm._kit = jvm._kit, kit
    report = jvm.inject_one(port=port)
    assert (report.state, report.port) == (State.SERVING, port), report
    jvm._kit = usual
    return jvm, port


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("release", [17, 21, 25])
def test_endpoint_moves_even_if_the_old_one_cannot_be_stopped(
    start_jvm: Start, stuck_kit: Path, tmp_path: Path, release: int
) -> None:
    jvm, _ = start_stuck(start_jvm, stuck_kit, tmp_path / "stuck", release)
    other = find_free_port()

    report = jvm.inject_one(port=other)

    assert (report.state, report.port, report.changed) == (State.SERVING, other, True), report
    assert "shop_orders" in scrape_metrics(other)
    stopped = jvm.inject_one(Action.STOP)
    assert (stopped.state, stopped.changed) == (State.STOPPED, True), stopped
    assert not is_open(other)


@pytest.mark.parametrize("release", [17, 21, 25])
def test_endpoint_that_cannot_be_stopped_is_not_forgotten(
    start_jvm: Start, stuck_kit: Path, tmp_path: Path, release: int
) -> None:
    """A stop that is repeated must not report an endpoint as stopped that still serves."""
    jvm, port = start_stuck(start_jvm, stuck_kit, tmp_path / "stuck", release)

    first = jvm.inject_one(Action.STOP)
    assert (first.state, first.reason) == (State.FAILED, Reason.AGENT_ERROR), first
    assert "stuck" in first.message and is_open(port)
    (tmp_path / "stuck").unlink()
    second = jvm.inject_one(Action.STOP)

    assert (second.state, second.changed) == (State.STOPPED, True), second
    assert not is_open(port)


@pytest.mark.parametrize("release", [17, 21, 25])
def test_engine_whose_port_is_kept_by_the_one_before_leaves_that_one(
    start_jvm: Start, stuck_kit: Path, tmp_path: Path, release: int
) -> None:
    jvm, port = start_stuck(start_jvm, stuck_kit, tmp_path / "stuck", release)

    report = jvm.inject_one(port=port)

    assert (report.state, report.reason) == (State.FAILED, Reason.PORT_IN_USE), report
    (tmp_path / "stuck").unlink()
    replaced = jvm.inject_one(port=port)
    assert (replaced.state, replaced.changed) == (State.SERVING, True), replaced
    assert "shop_orders" in scrape_metrics(port)


def test_newer_engine_takes_the_place_of_the_older(
    start_jvm: Start, jvm_kit: Path, tmp_path: Path
) -> None:
    jvm, port = start_jvm(), find_free_port()
    jvm.inject_one(port=port)
    newer = tmp_path / "kit"
    newer.mkdir()
    shutil.copy(jvm_kit / "agent.jar", newer)
    # A zip file may be followed by a comment, so these are other bytes of the same classes.
    (newer / "engine.jar").write_bytes((jvm_kit / "engine.jar").read_bytes() + b"\0" * 7)
    jvm._kit = newer

    report = jvm.inject_one(port=port)

    assert (report.state, report.port, report.changed) == (State.SERVING, port, True), report


def test_broken_engine_leaves_the_one_before(
    start_jvm: Start, jvm_kit: Path, tmp_path: Path, release: int
) -> None:
    jvm, port = start_jvm(release=release), find_free_port()
    jvm.inject_one(port=port)
    broken = tmp_path / "kit"
    broken.mkdir()
    shutil.copy(jvm_kit / "agent.jar", broken)
    (broken / "engine.jar").write_bytes(b"no jar")
    jvm._kit = broken

    report = jvm.inject_one(port=port)

    assert (report.state, report.reason) == (State.FAILED, Reason.AGENT_ERROR), report
    assert "shop_orders" in scrape_metrics(port)


def test_taken_port_is_seen_before_the_jvm_is_touched(start_jvm: Start) -> None:
    jvm = start_jvm()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        report = jvm.inject_one(port=port)

    assert (report.state, report.reason) == (State.REFUSED, Reason.PORT_IN_USE), report
    assert not Attachment(Process(jvm.process.pid), 1).has_socket()


def test_port_taken_in_the_last_moment_harms_nobody(
    start_jvm: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    jvm = start_jvm()
    monkeypatch.setattr(
        "operators.jmxexporter.injector.inject.find_port", lambda host, ports: ports[0]
    )
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        report = jvm.inject_one(port=port)

    assert (report.state, report.reason) == (State.FAILED, Reason.PORT_IN_USE), report


@pytest.mark.parametrize("action", [Action.ENSURE, Action.STOP])
def test_guard_that_answered_too_late_is_no_stranger(
    start_jvm: Start, action: Action, release: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a crowded node a guard needs longer than anybody waits for it."""
    jvm, port, wait = start_jvm(release=release), find_free_port(), Job._await_answer

    def give_up(job: Job, path: Path) -> dict[str, str]:
        wait(job, path)
        raise AttachError(Reason.TIMEOUT, "the agent was loaded and gave no answer")

    with monkeypatch.context() as patch:
        patch.setattr(Job, "_await_answer", give_up)
        late = jvm.inject_one(port=port)

    report = jvm.inject_one(action, port=port)

    assert (late.state, late.reason) == (State.FAILED, Reason.TIMEOUT), late
    if action is Action.ENSURE:
        assert (report.state, report.port, report.changed) == (State.SERVING, port, False), report
    else:
        assert (report.state, report.changed) == (State.STOPPED, True), report


def test_guard_that_only_says_that_it_is_late_serves(
    start_jvm: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    jvm, port, wait = start_jvm(), find_free_port(), Job._await_answer

    def say_late(job: Job, path: Path) -> dict[str, str]:
        wait(job, path)
        return {"outcome": "error", "reason": Reason.TIMEOUT, "message": "no answer within 25 s"}

    monkeypatch.setattr(Job, "_await_answer", say_late)

    report = jvm.inject_one(port=port)

    assert (report.state, report.port) == (State.SERVING, port), report


def test_next_port_is_taken_where_one_is_busy(start_jvm: Start) -> None:
    jvm = start_jvm()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        report = jvm.inject_one(port=port, last_port=port + 20)

    assert report.state is State.SERVING and port < report.port <= port + 20, report


def test_end_of_the_application_is_not_held_up(start_jvm: Start, release: int) -> None:
    jvm, port = start_jvm(release=release), find_free_port()
    jvm.inject_one(port=port)
    jvm.may_end = True

    jvm.process.terminate()

    assert jvm.process.wait(10) == 143


@pytest.mark.parametrize(
    "name", ["jmx_prometheus_javaagent-1.0.1.jar", "slipway-jmx-1-0/upstream-1.jar"]
)
def test_jvm_into_which_others_have_loaded_an_exporter_is_left_alone(
    start_jvm: Start, jvm_kit: Path, tmp_path: Path, name: str
) -> None:
    jvm, other, config = start_jvm(), tmp_path / name, tmp_path / "config"
    other.parent.mkdir(exist_ok=True)
    shutil.copy(jvm_kit / "reference.jar", other)
    config.write_text(CONFIG)
    Attachment(Process(jvm.process.pid), 60).load(str(other), str(config))

    report = jvm.inject_one(port=find_free_port())

    assert (report.state, report.reason) == (State.REFUSED, Reason.ALREADY_INSTRUMENTED), report
    assert name in report.message


def test_jvm_whose_exporter_is_in_a_file_of_options_is_left_alone(
    start_jvm: Start, jvm_kit: Path, tmp_path: Path
) -> None:
    other, options = tmp_path / "jmx_prometheus_javaagent.jar", tmp_path / "options"
    # Any agent will do: the name tells.
    shutil.copy(jvm_kit / "agent.jar", other)
    options.write_text(f"-javaagent:{other}=/missing")
    jvm = start_jvm(f"@{options}")

    report = jvm.inject_one(port=find_free_port())

    assert (report.state, report.reason) == (State.REFUSED, Reason.ALREADY_INSTRUMENTED), report


def test_endpoint_can_be_changed_and_ended_although_others_load_an_exporter(
    start_jvm: Start, jvm_kit: Path, tmp_path: Path
) -> None:
    jvm, port, config = start_jvm(), find_free_port(), tmp_path / "config"
    jvm.inject_one(port=port)
    other = tmp_path / "jmx_prometheus_javaagent.jar"
    shutil.copy(jvm_kit / "reference.jar", other)
    config.write_text(CONFIG)
    Attachment(Process(jvm.process.pid), 60).load(str(other), str(config))

    changed = jvm.inject_one(config=CONFIG.replace("shop_orders", "orders"), port=port)
    stopped = jvm.inject_one(Action.STOP)

    assert (changed.state, stopped.state) == (State.SERVING, State.STOPPED)


def test_endpoint_of_an_exporter_that_no_longer_exists_makes_room(start_jvm: Start) -> None:
    jvm, port = start_jvm(), find_free_port()
    assert jvm.inject_one(port=port, id="11111111-former").state is State.SERVING
    assert jvm.inject_one(port=port, id="22222222-new").reason == Reason.PORT_IN_USE

    report = jvm.inject_one(port=port, id="22222222-new", former=("11111111-former", "33333333-x"))

    assert (report.state, report.port) == (State.SERVING, port), report
    assert jvm.inject_one(Action.STOP, id="11111111-former").changed is False


def test_check_touches_nothing(start_jvm: Start) -> None:
    jvm, port = start_jvm(), find_free_port()

    report = jvm.inject_one(Action.CHECK, port=port)

    assert (report.state, report.port) == (State.WOULD_INJECT, port)
    assert not Attachment(Process(jvm.process.pid), 1).has_socket()


def test_configuration_that_changed_on_its_way_is_not_used(start_jvm: Start) -> None:
    report = start_jvm().inject(config=CONFIG, config_hash="0" * 64)

    assert (report.reason, report.jvms) == (Reason.CONFIG_CHANGED, ())
