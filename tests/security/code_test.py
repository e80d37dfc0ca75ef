"""Rows 24 and 25: what users write never runs, and processes reach nobody but whom they must."""

from __future__ import annotations

import pytest

from tests.security.code import ROOT, find_clients, find_dangers, list_modules

_REACHES = {
    "libs/common/runtime/kopf_sessions.py": "the API server of the configuration, for kopf",
    "libs/common/client.py": "the API server",
    "libs/common/transport.py": "the API server; follows no redirect",
    "libs/common/election/interfaces.py": "nobody: it asks for the name of the host",
    "libs/common/health.py": "nobody: it serves probes and metrics",
    "libs/common/listener.py": "nobody: it serves probes, metrics and reviews",
    "libs/common/webhooks/server.py": "nobody: it answers the API server",
    "libs/common/runtime/operator.py": "nobody: it looks for settings of a proxy",
    "operators/clusters/port_forward.py": (
        "the API server of a cluster that the operator created, verified with the authority of that"
        " cluster, and through it the etcd of that cluster"
    ),
    "operators/compute/images.py": "nobody: inet_aton reads every spelling of an address",
    "operators/clusters/workload.py": "nobody: it handles the errors of port_forward.py",
    "operators/jmxexporter/guards.py": (
        "the guards in pods that an exporter selects, at ports of its spec; follows no redirect"
    ),
    "operators/jmxexporter/injector/": "the JVM in its own pod, and a free port there",
    "operators/pulsarconsumer/app/": "the broker that it consumes from",
    "operators/pulsarconsumer/broker/": (
        "the admin API that a spec names and its OAuth2 issuer, never its own pod or node"
    ),
}
"""Modules or folders that can reach somebody, and whom; look at a new one before you add it."""


def test_no_process_starts_programs_or_runs_text() -> None:
    dangers = [
        danger
        for path in list_modules()
        for danger in find_dangers(path.read_text(), path.relative_to(ROOT).as_posix())
    ]

    assert dangers == []


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess",
        "from subprocess import run",
        "import os\nos.system(spec.name)",
        "eval(text)",
        "run(text, shell=True)",
        "get(url, verify=False)",
        "import yaml\nyaml.load(text)",
        "import asyncio\nasyncio.create_subprocess_shell(text)",
        "from jinja2 import Template",
        "yaml.safe_load(text)",
        "fastyaml.load_all(text)",
        "json.loads(text)",
        "Client(config, user_agent=name)",
        "async def read():\n    return await response.json()",
        "async def read():\n    return await held.body.read()",
        "from yaml import safe_load\nsafe_load(text)",
        "import yaml as y\ny.safe_load_all(text)",
        "from libs.common.fastyaml import load as parse\nparse(text)",
        "from libs.common import fastyaml\nfastyaml.load(text)",
        "from json import loads\nloads(text)",
        "from gzip import decompress\ndecompress(body)",
        "import urllib.request\nurllib.request.urlopen(url)",
        "from libs.common import client\nclient.Client(config)",
    ],
)
def test_planted_danger_is_found(source: str) -> None:
    assert find_dangers(source) != []


def test_danger_is_waived_by_a_reason_alone() -> None:
    assert find_dangers("import subprocess  # security: starts a fixed program") == []
    assert find_dangers("import subprocess  # noqa: S404") != []


def test_connections_of_each_module_are_listed() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): sorted(find_clients(path.read_text()))
        for path in list_modules()
    }
    known = tuple(_REACHES)
    unknown = {
        name: clients for name, clients in found.items() if clients and not name.startswith(known)
    }

    assert not unknown, f"Look at whom these can reach, and say it in _REACHES: {unknown}"


def test_planted_client_is_found() -> None:
    assert find_clients("from aiohttp import ClientSession") == {"aiohttp"}
    assert find_clients("import urllib.request") == {"urllib.request"}
    assert find_clients("import json") == set()
