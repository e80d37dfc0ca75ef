"""JVMs that begin with the exporter: served from the start on, and not harmed by it either."""

from __future__ import annotations

import json
import socket
import urllib.error
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from libs.common.testing.ports import find_free_port
from operators.jmxexporter.injector.attach import Attachment
from operators.jmxexporter.injector.delivery import parse_properties
from operators.jmxexporter.injector.messages import KIT_VARIABLE, START_VARIABLE
from operators.jmxexporter.injector.prepare import main
from operators.jmxexporter.injector.processes import Process
from operators.jmxexporter.jvms import CONFIG, Jvm, scrape_metrics, wait_until

type StartJvm = Callable[..., Jvm]


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """Return the directory that an init container fills."""
    directory = tmp_path / "prepared"
    directory.mkdir()
    return directory


def prepare(
    directory: Path, jars: Path, port: int, last_port: int = 0, **rest: str
) -> Mapping[str, str]:
    """Fill the directory as an init container does, and return variables of the container."""
    start = {
        "id": "shop",
        "directory": str(directory),
        "config": str(directory / "config.yaml"),
        "port": str(port),
        "lastPort": str(last_port or port),
        "answer": str(directory / "answer.properties"),
        "path": "/metrics",
        "host": "127.0.0.1",
        "delayMillis": "200",
        "pollMillis": "100",
        **rest,
    }
    assert main({START_VARIABLE: json.dumps(start), KIT_VARIABLE: str(jars)}) == 0
    agent = f"-javaagent:{directory}/agent.jar={directory}/start.properties"
    return {"JAVA_TOOL_OPTIONS": agent}


def is_served(port: int, name: str) -> bool:
    try:
        return name in scrape_metrics(port)
    except (urllib.error.URLError, ConnectionError):
        return False


def write_config(folder: Path, text: str) -> None:
    """Replace the file in one step, as the kubelet does: an empty file is a configuration too."""
    new = folder / "config.yaml.new"
    new.write_text(text)
    new.replace(folder / "config.yaml")


def test_jvm_that_cannot_be_attached_to_serves_from_its_start(
    start_jvm: StartJvm, jvm_kit: Path, prepared: Path, release: int
) -> None:
    port = find_free_port()
    variables = prepare(prepared, jvm_kit, port)
    write_config(prepared, CONFIG)

    jvm = start_jvm("-XX:+DisableAttachMechanism", release=release, environ=variables)

    wait_until(lambda: is_served(port, "shop_orders"))
    assert scrape_metrics(port)["jmx_scrape_error"].samples[0].value == 0
    assert not Attachment(Process(jvm.process.pid), 1).has_socket()
    lines = [line for line in jvm.read_output().splitlines() if "Picked up" not in line]
    assert len(lines) == 1, "nothing but the application prints"


def test_configuration_is_followed_and_a_bad_one_left_out(
    start_jvm: StartJvm, jvm_kit: Path, prepared: Path, release: int
) -> None:
    port = find_free_port()
    variables = prepare(prepared, jvm_kit, port)
    start_jvm(release=release, environ=variables)

    # The ConfigMap may come after the pod.
    write_config(prepared, CONFIG)
    wait_until(lambda: is_served(port, "shop_orders"))

    write_config(prepared, "rules:\n- pattern: '(['\n")
    answer = prepared / "answer.properties"
    # The guard serves before it writes its answer.
    wait_until(answer.is_file)
    wait_until(lambda: parse_properties(answer.read_bytes()).get("reason") == "ConfigInvalid")
    wait_until(lambda: is_served(port, "shop_orders"))

    write_config(prepared, CONFIG.replace("shop_orders", "shop_sales"))
    wait_until(lambda: is_served(port, "shop_sales"))


def test_launcher_that_the_filters_leave_out_takes_no_port(
    start_jvm: StartJvm, jvm_kit: Path, prepared: Path, release: int
) -> None:
    first = find_free_port()
    filters: dict[str, Any] = {"mainClass": r"sample\.", "excludeMainClass": "Other$"}
    variables = prepare(prepared, jvm_kit, first, configText=CONFIG, **filters)
    start_jvm(release=release, environ=variables)
    # The wanted endpoint serves; by then the other endpoint has had as much time.
    wait_until(lambda: is_served(first, "shop_orders"), 60)

    other = prepared.parent / "other"
    other.mkdir()
    port = find_free_port()
    launcher = prepare(other, jvm_kit, port, configText=CONFIG, excludeMainClass=r"Shop$")
    jvm = start_jvm(release=release, environ=launcher)

    wait_until(lambda: "jmx-guard-startup" not in jvm.list_threads(), 60)
    assert not is_served(port, "shop_orders")


def test_second_jvm_of_a_container_takes_the_next_port(
    start_jvm: StartJvm, jvm_kit: Path, prepared: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        variables = prepare(prepared, jvm_kit, taken, taken + 20)
        write_config(prepared, CONFIG)

        start_jvm(environ=variables)

        wait_until(
            lambda: any(is_served(port, "shop_orders") for port in range(taken + 1, taken + 21))
        )


@pytest.mark.parametrize("content", [b"", b"engine=/nowhere\nconfig=/nowhere\n", b"\\uZZZZ"])
def test_broken_request_harms_nobody(
    start_jvm: StartJvm, jvm_kit: Path, prepared: Path, content: bytes
) -> None:
    variables = prepare(prepared, jvm_kit, find_free_port())
    (prepared / "start.properties").write_bytes(content)

    jvm = start_jvm(environ=variables)

    assert jvm.order() > 0


def test_end_of_the_application_is_not_held_up(
    start_jvm: StartJvm, jvm_kit: Path, prepared: Path
) -> None:
    port = find_free_port()
    variables = prepare(prepared, jvm_kit, port)
    write_config(prepared, CONFIG)
    jvm = start_jvm(environ=variables)
    wait_until(lambda: is_served(port, "shop_orders"))
    jvm.may_end = True

    jvm.process.terminate()

    assert jvm.process.wait(10) == 143


def test_bean_that_hangs_takes_few_threads_and_is_tried_until_it_answers(
    start_jvm: StartJvm, jvm_kit: Path, prepared: Path, tmp_path: Path
) -> None:
    """Each attempt loses a thread, and with it the memory of an engine."""
    port, hang = find_free_port(), tmp_path / "hang"
    hang.touch()
    variables = prepare(prepared, jvm_kit, port)
    write_config(prepared, CONFIG)
    with (prepared / "start.properties").open("a") as settings:
        settings.write("retryMillis=50\nlimitMillis=300\n")
    jvm = start_jvm(f"-Dshop.hang={hang}", environ=variables)
    answer = prepared / "answer.properties"

    wait_until(lambda: answer.is_file() and b"earlier attempts" in answer.read_bytes())
    refused = answer.stat().st_mtime_ns
    wait_until(lambda: answer.stat().st_mtime_ns != refused)
    assert jvm.list_threads().count("jmx-guard-late") == 3

    hang.unlink()
    wait_until(lambda: is_served(port, "shop_orders"))
