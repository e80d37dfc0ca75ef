"""Fixtures: the operator on a fake API, and JVMs that really run, each proven alive afterwards."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path

import aiohttp
import pytest

from libs.common.crd import build_crd
from libs.common.testing.clock import AdvancedClock
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.jmxexporter.api.v1alpha1 import PrometheusJmxExporter
from operators.jmxexporter.controller import OPERATOR
from operators.jmxexporter.guards import Guards
from operators.jmxexporter.jvms import KIT_VARIABLE, Jvm
from operators.jmxexporter.samples import build_config_map


@pytest.fixture(autouse=True)
def no_pod_network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pods of the fake API be nowhere: their addresses may be somebody's."""
    if "api" in request.fixturenames:

        async def refuse(*_: object, **__: object) -> None:
            raise aiohttp.ClientConnectionError("no pod is there")

        monkeypatch.setattr(Guards, "_request", refuse)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """Run a fake API server that has the configuration."""
    async with FakeApi() as api:
        api.register(build_crd(PrometheusJmxExporter))
        api.create(build_config_map())
        yield api


@pytest.fixture
def clock() -> AdvancedClock:
    """Make a clock that tests put ahead."""
    return AdvancedClock()


@pytest.fixture
async def harness(api: FakeApi, clock: AdvancedClock) -> AsyncIterator[OperatorHarness]:
    """Run the operator."""
    async with OperatorHarness(OPERATOR, api.config, clock=clock) as harness:
        yield harness


@pytest.fixture(scope="session")
def jvm_kit() -> Path:
    directory = os.environ.get(KIT_VARIABLE)
    if not directory:
        pytest.skip(f"no Java: {KIT_VARIABLE} names no kit (`python -m tools.jvm` makes one)")
    return Path(directory)


@pytest.fixture(
    params=[
        11,
        pytest.param(17, marks=pytest.mark.other_java),
        pytest.param(21, marks=pytest.mark.other_java),
        25,
    ]
)
def release(request: pytest.FixtureRequest, jvm_kit: Path) -> int:
    found: int = request.param
    if not (jvm_kit / "java" / str(found)).exists():
        pytest.skip(f"no Java {found} in the kit")
    return found


@pytest.fixture
def start_jvm(jvm_kit: Path, tmp_path: Path) -> Iterator[Callable[..., Jvm]]:
    """Start sample applications; each must be alive and serving when the test has passed."""
    started: list[Jvm] = []

    # The JDK that builds has all modules.
    full = next(path for path in sorted(jvm_kit.glob("java/*")) if (path / "bin/javac").exists())

    def start(
        *options: str,
        release: int = 0,
        jars: Path = jvm_kit,
        java: Path = full,
        prefix: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> Jvm:
        if release:
            java = jvm_kit / "java" / str(release)
        if not java.exists():
            pytest.skip(f"no Java {release} in the kit")
        directory = tmp_path / f"jvm-{len(started)}"
        jvm = Jvm(jars, java, options, directory, prefix=prefix, environ=environ)
        started.append(jvm)
        jvm.await_serving()
        return jvm

    yield start
    try:
        for jvm in started:
            if not jvm.may_end:
                assert jvm.order() > 0, f"the application was harmed: {jvm.read_output()}"
    finally:
        for jvm in started:
            jvm.close()
