"""Signals that come before the operator is imported end the process, and the log says so."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web

from libs.common import startup
from libs.common.webhooks.certificates import Certificate, issue, load_certificate

# By its name: a build that infers dependencies from imports sees none in a text.
_IMPORT = f"import {startup.__name__} as startup"
_SIGNAL_WHILE_IMPORTING = _IMPORT + """
import os, signal, time

def main():
    try:
        os.kill(os.getpid(), signal.{name})
        time.sleep(60)
    except BaseException:
        return 3

startup.run(main)
"""
_MODULES = """
import sys
import libs.common.runtime, libs.common.config, libs.common.testing.widget
import libs.common.runtime.kopf_source
print(sorted(name for name in sys.modules if name.partition(".")[0] == "kubernetes"))
"""
_REQUEST = _IMPORT + """
import asyncio, sys

def main():
    import aiohttp

    async def get():
        async with aiohttp.ClientSession() as session:
            for _ in range(2):
                try:
                    async with session.get(sys.argv[1]) as response:
                        print(await response.text())
                except aiohttp.ClientConnectorCertificateError:
                    print("not trusted")
            async with session.get(sys.argv[1], ssl=False) as response:
                print(await response.text())

    asyncio.run(get())
    return 0

startup.run(main)
"""


def run(
    program: str, *arguments: str, authorities: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program, with authorities of the system if any are given."""
    trust = {"SSL_CERT_FILE": str(authorities)} if authorities else {}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | trust,
    )


@pytest.fixture
def certificate() -> Certificate:
    return issue(["localhost"], datetime.now(UTC))


@pytest.fixture
async def server(certificate: Certificate) -> AsyncIterator[str]:
    """Serve a page over TLS, and return its URL."""

    async def respond(_: web.BaseRequest) -> web.Response:
        return web.Response(text="served")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(context, certificate)
    runner = web.ServerRunner(web.Server(respond))
    await runner.setup()
    await web.TCPSite(runner, "localhost", 0, ssl_context=context).start()
    yield f"https://localhost:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_signal_during_the_imports_ends_the_process_in_order(name: str) -> None:
    ended = run(_SIGNAL_WHILE_IMPORTING.format(name=name))

    assert ended.returncode == 0
    line = json.loads(ended.stderr)
    assert line["event"] == "Stopped before start-up was complete"
    assert line["signal"] == name


def test_status_of_the_work_is_that_of_the_process() -> None:
    assert run(f"{_IMPORT}; startup.run(lambda: 7)").returncode == 7


def test_start_in_a_pod_loads_nothing_of_the_official_client() -> None:
    """It takes 20 MiB and a third of the time of the imports; only a kubeconfig needs it."""
    assert run(_MODULES).stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("trusted", "expected"),
    [
        (True, ["served", "served", "served"]),
        (False, ["not trusted", "not trusted", "served"]),
    ],
)
async def test_connections_without_a_context_trust_the_authorities_of_the_system(
    tmp_path: Path, certificate: Certificate, server: str, trusted: bool, expected: list[str]
) -> None:
    authority = certificate if trusted else issue(["localhost"], datetime.now(UTC))
    authorities = tmp_path / "authorities.pem"
    authorities.write_bytes(authority.certificate)

    ended = await asyncio.to_thread(run, _REQUEST, server, authorities=authorities)

    assert ended.stdout.splitlines() == expected, ended.stderr
