"""An operator as a process: its command line, its signals, its probes, its release."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from libs.common.kinds import CONFIG_MAP, LEASE, Key, Manifest
from libs.common.metrics import Metrics
from libs.common.runtime import Operator, main
from libs.common.testing import widget_main
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.waiting import until
from libs.common.testing.widget import FINALIZER, OPERATOR, WIDGET, Settings, build_widget

KEY = Key("default", "w")
ROOT = Path(__file__).parents[3]
_ENVIRONMENT = ("PATH", "HOME", "LANG", "SSL_CERT_FILE", "VIRTUAL_ENV")


@asynccontextmanager
async def process(*arguments: str, **environment: str) -> AsyncIterator[Process]:
    """Run the widget operator as a process of its own; it ends with the block."""
    inherited = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        widget_main.__name__,
        *arguments,
        cwd=ROOT,
        env={**inherited, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def run(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Return the exit status and the output of a whole run."""
    async with process(*arguments, **environment) as child:
        out, err = await asyncio.wait_for(child.communicate(), 30)
        return child.returncode or 0, out.decode(), err.decode()


def flags(path: Path) -> list[str]:
    return [
        f"--kubeconfig={path}",
        "--source=reflector",
        "--metrics-bind-address=127.0.0.1:0",
        "--health-probe-bind-address=127.0.0.1:0",
        "--retry-period-seconds=0.1",
        "--renew-deadline-seconds=2",
        "--lease-duration-seconds=3",
    ]


# The command line.


def test_help_names_each_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(OPERATOR, ["--help"])

    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "--watch-namespaces" in text
    assert "WIDGET_WATCH_NAMESPACES" in text
    assert "widget release" in text and "widget check URL" in text


@pytest.mark.parametrize(
    "arguments", [["--no-such-flag"], ["--max-concurrent-reconciles", "many"], ["surplus"]]
)
def test_bad_flag_is_one_line_and_status_two(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(OPERATOR, arguments)

    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_version_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERATOR_VERSION", "v9")
    assert Operator("x", (), settings=Settings).version == "v9"
    monkeypatch.delenv("OPERATOR_VERSION")
    assert Operator("x", (), settings=Settings).version == "dev"


def test_operator_without_settings_has_the_common_ones_under_its_prefix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = Operator("boats", ())
    monkeypatch.setenv("BOATS_LOG_LEVEL", "debug")
    monkeypatch.setenv("OPERATOR_LOG_LEVEL", "error")

    assert operator.settings().log_level == "debug"
    assert Operator("other", ()).settings().log_level == "info"


async def test_missing_kubeconfig_is_one_line_and_status_one() -> None:
    status, _, err = await run("--kubeconfig=/does/not/exist")

    assert status == 1
    assert "set --kubeconfig or KUBECONFIG" in err
    assert "Traceback" not in err


def test_operator_that_needs_all_namespaces_refuses_fewer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tenants = replace(OPERATOR, all_namespaces=True)

    assert main(tenants, ["--watch-namespaces=a"]) == 1
    assert "widget needs all namespaces: set --watch-namespaces='*'" in capsys.readouterr().err


def test_limit_of_open_files_is_raised() -> None:
    """Each watched kind has a connection in each selected namespace."""
    code = (
        "import resource; from libs.common.runtime.operator import raise_file_limit;"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE);"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard)); raise_file_limit();"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard > 64"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


async def test_address_that_is_taken_is_one_line_and_status_one(
    fake_api: FakeApi, tmp_path: Path
) -> None:
    path = await fake_api.kubeconfig(tmp_path / "config")
    taken = fake_api.url.removeprefix("http://")

    status, out, err = await run(*flags(path), f"--metrics-bind-address={taken}")

    assert status == 1
    assert "Traceback" not in out + err
    assert "address already in use" in out + err


# check.


@asynccontextmanager
async def probes(status: int) -> AsyncIterator[str]:
    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response(status=status, text="the reason")

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/readyz"
    await runner.cleanup()


async def test_check_asks_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with probes(200) as url:
        assert await asyncio.to_thread(main, OPERATOR, ["check", url]) == 0


@pytest.mark.parametrize(("answer", "status"), [(200, 0), (500, 1), (404, 1)])
async def test_check_ends_as_the_probe_answers(
    answer: int, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async with probes(answer) as url:
        assert await asyncio.to_thread(main, OPERATOR, ["check", url]) == status

    output = capsys.readouterr()
    assert url in output.out + output.err


@pytest.mark.parametrize(
    "arguments", [[], ["a", "b"], ["file:///etc/passwd"], ["http://127.0.0.1:1/healthz"]]
)
def test_check_of_nothing_fails(arguments: list[str]) -> None:
    assert main(OPERATOR, ["check", *arguments]) == 1


def test_version_is_that_of_the_build(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(replace(OPERATOR, version="1.4.2"), ["--version"]) == 0

    assert capsys.readouterr().out == "widget 1.4.2\n"


# A whole life.


async def test_sigterm_ends_a_working_process_in_time_with_status_zero(
    fake_api: FakeApi, tmp_path: Path
) -> None:
    fake_api.register(WIDGET)
    fake_api.create(build_widget())
    path = await fake_api.kubeconfig(tmp_path / "config")
    async with process(*flags(path)) as child:
        await until(lambda: len(fake_api.objects(CONFIG_MAP)) == 2, "it works", seconds=30)
        child.send_signal(signal.SIGTERM)

        out, err = await asyncio.wait_for(child.communicate(), 10)
        assert child.returncode == 0, (out + err).decode()
    lease = fake_api.get(LEASE, ("default", "widget"))
    assert not lease["spec"].get("holderIdentity"), "the next leader waits for nothing"


async def test_release_takes_the_lease_over_and_the_finalizers_off(
    fake_api: FakeApi, tmp_path: Path
) -> None:
    fake_api.register(WIDGET)
    fake_api.create(build_widget())
    path = await fake_api.kubeconfig(tmp_path / "config")
    async with process(*flags(path)) as leader:
        await until(lambda: len(fake_api.objects(CONFIG_MAP)) == 2, "it works", seconds=30)
        assert fake_api.get(WIDGET, KEY)["metadata"]["finalizers"] == [FINALIZER]

        status, out, err = await run("release", *flags(path))

        assert status == 0, out + err
        assert await asyncio.wait_for(leader.wait(), 10) == 1, "the leader lost its Lease"
    assert not fake_api.get(WIDGET, KEY)["metadata"].get("finalizers")
    assert fake_api.get(LEASE, ("default", "widget"))["spec"]["holderIdentity"] == "release"
    assert len(fake_api.objects(CONFIG_MAP)) == 2, "children stay"


# Traces.


async def test_pass_is_one_span_with_its_requests_below_it(fake_api: FakeApi) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from libs.common.tracing import Tracing

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    fake_api.register(WIDGET)
    fake_api.create(build_widget(count=1))
    settings = Settings(
        leader_elect=False,
        metrics_bind_address="0",
        health_probe_bind_address="127.0.0.1:0",
        source="reflector",
    )
    manager = OPERATOR.build_manager(settings, fake_api.config, telemetry=Tracing(provider))
    assert isinstance(manager.metrics, Metrics)
    stop = asyncio.Event()
    running = asyncio.create_task(manager.run(stop))
    await until(lambda: (fake_api.find(WIDGET, KEY) or {}).get("status", {}).get("made") == 1)
    await until(lambda: manager.runners[0].queue.idle)
    stop.set()
    assert await running

    spans = exporter.get_finished_spans()
    passes = {span.context.span_id: span for span in spans if span.name == "reconcile Widget"}
    requests = [span for span in spans if span.name != "reconcile Widget"]
    assert passes
    assert {span.name for span in requests} >= {"GET", "POST", "PATCH"}
    assert all(span.parent and span.parent.span_id in passes for span in requests)
    attributes: Manifest = dict(requests[0].attributes or {})
    assert attributes["server.address"] == "127.0.0.1"
    assert len(passes) == manager.runners[0].reconciles
