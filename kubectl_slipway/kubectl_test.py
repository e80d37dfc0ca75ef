"""How the plugin connects: the real kubectl, on a real API server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubectl_slipway.conftest import Answer
from kubectl_slipway.kubectl import Kubectl
from kubectl_slipway.states.conftest import PODSET, not_ready, podset
from libs.common.client import Client
from libs.common.kinds import ROLE, ROLE_BINDING, Key, build_object, uid_of
from libs.common.testing.apiserver import ControlPlane, find_assets
from libs.common.testing.serving import serve
from operators.podset.api import PodSet

_ROOT = Path(__file__).resolve().parents[1]
_COMMAND = [sys.executable, "-m", "kubectl_slipway"]


@dataclass
class Shell:
    """A shell with kubectl and a kubeconfig, which records each kubectl that runs."""

    folder: Path
    temporary: str

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.folder),
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(_ROOT),
            "KUBECTL": str(self.folder / "kubectl"),
            "KUBECONFIG": str(self.kubeconfig),
            "TMPDIR": self.temporary,
        }

    async def run(self, *argv: str, **environment: str) -> Answer:
        done = await asyncio.to_thread(
            subprocess.run,
            [*_COMMAND, *argv],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def change(self, part: str, **values: Any) -> None:
        """Change the user, the cluster or the context of the kubeconfig."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        config[f"{part}s"][0][part] = values
        self.kubeconfig.write_text(yaml.safe_dump(config))

    def write_kubectl(self, script: str) -> None:
        path = self.folder / "kubectl"
        path.write_text(f"#!/bin/sh\necho $$ >> {self.folder}/pids\n{script}\n")
        path.chmod(0o755)

    def find_rest(self) -> list[str]:
        """Return each process and file that commands have left."""
        pids = (self.folder / "pids").read_text().split()
        return [pid for pid in pids if is_running(int(pid))] + os.listdir(self.temporary)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def shell(tmp_path: Path, kube_apiserver: ControlPlane) -> Iterator[Shell]:
    (tmp_path / "pids").touch()
    # The path of a socket is short, and that of a test may be long.
    with tempfile.TemporaryDirectory(prefix="k") as temporary:
        shell = Shell(tmp_path, temporary)
        kube_apiserver.write_kubeconfig(shell.kubeconfig)
        shell.write_kubectl(f'exec {find_assets()}/kubectl "$@"')
        yield shell


@pytest.fixture
async def namespace(shell: Shell, kube_client: Client, kube_namespace: str) -> str:
    """Put a PodSet that is not ready into a namespace that the context names."""
    await serve(kube_client, PodSet)
    await kube_client.create(PODSET, podset(namespace=kube_namespace))
    status = {"status": not_ready("BackOff", "pods end")}
    await kube_client.patch(PODSET, Key(kube_namespace, "web"), status, subresource="status")
    shell.change("context", cluster="test", user="test", namespace=kube_namespace)
    return kube_namespace


async def allow(client: Client, user: str, namespace: str) -> None:
    """Let a user read and change the PodSets of a namespace."""
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [PODSET.group], "resources": [PODSET.plural], "verbs": ["*"]}]
    await client.create(ROLE, build_object(ROLE, user, namespace, rules=rules))
    binding: dict[str, Any] = {
        "roleRef": {"apiGroup": group, "kind": "Role", "name": user},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    await client.create(ROLE_BINDING, build_object(ROLE_BINDING, user, namespace, **binding))


async def test_a_command_reads_and_writes_and_leaves_nothing(
    shell: Shell, kube_client: Client, namespace: str
) -> None:
    found = await shell.run("problems", "-o", "json")
    paused = await shell.run("pause", "podset/web")
    elsewhere = await shell.run("why", "podset/web", "-n", "default")

    # Other tests leave objects without a namespace.
    assert "PodSet/web" in [each["object"] for each in found.data]
    assert (found.code, paused.code, elsewhere.code) == (1, 0, 3)
    live = await kube_client.get(PODSET, Key(namespace, "web"))
    assert live["metadata"]["annotations"]["slipway.dev/paused"] == "true"
    assert "does not exist in namespace default" in elsewhere.err
    assert shell.find_rest() == []


async def test_exec_plugin_of_the_kubeconfig_logs_in(shell: Shell, namespace: str) -> None:
    token = yaml.safe_load(shell.kubeconfig.read_text())["users"][0]["user"]["token"]
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token},
    }
    plugin = shell.folder / "login"
    plugin.write_text(f"#!/bin/sh\necho run >> {shell.folder}/logins\n")
    with plugin.open("a") as script:
        script.write(f"echo Visit the page >&2\ncat <<'END'\n{json.dumps(credential)}\nEND\n")
    plugin.chmod(0o755)
    login = {"apiVersion": credential["apiVersion"], "interactiveMode": "Never"}
    shell.change("user", exec={**login, "command": str(plugin)})
    found = await shell.run("problems", "-o", "json")
    shell.change("user", exec={**login, "command": "nosuch", "installHint": "Install cloudctl."})
    failed = await shell.run("problems")

    # Other tests leave objects without a namespace.
    assert "PodSet/web" in [each["object"] for each in found.data]
    assert "Visit the page" in found.err
    assert (shell.folder / "logins").read_text() == "run\n"
    assert failed.code == 5
    assert "executable nosuch not found" in failed.err
    assert "Install cloudctl." in failed.err


async def test_command_acts_as_the_user_that_the_flags_name(
    shell: Shell, kube_client: Client, namespace: str
) -> None:
    await allow(kube_client, "alice", namespace)
    alice = ("--as", "alice", "--as-group=system:authenticated")
    here = await shell.run(*alice, "why", "podset/web")
    everywhere = await shell.run("problems", "-A", "-o", "json", *alice)
    key = Key(namespace, "web")
    await kube_client.delete(PODSET, key, uid=uid_of(await kube_client.get(PODSET, key)))
    partial = await shell.run("problems", "-A", *alice)
    stranger = await shell.run("why", "podset/web", "--as=mallory")

    assert here.code == 1
    assert "BackOff" in here.out
    assert "Operators are not shown: you may not list Deployments." in here.err
    assert [each["object"] for each in everywhere.data] == ["PodSet/web"]
    assert f"only namespace {namespace} is shown" in everywhere.err
    # Nothing that alice may read is broken, but that proves nothing about the rest.
    assert partial.code == 4
    assert "kinds could not be read completely" in partial.out
    assert stranger.code == 4
    assert 'User "mallory" cannot get' in stranger.err


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
async def test_proxy_ends_with_an_interrupted_command(
    shell: Shell, namespace: str, number: signal.Signals, code: int
) -> None:
    process = subprocess.Popen(
        [*_COMMAND, "problems", "--watch"], env=shell.environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    first = await asyncio.to_thread(process.stdout.readline)
    running = shell.find_rest()
    process.send_signal(number)
    await asyncio.to_thread(process.communicate)

    assert "NAMESPACE" in first
    # The proxy, and the folder of its socket.
    assert len(running) == 2
    assert process.returncode == code
    assert shell.find_rest() == []


async def test_long_folder_for_temporary_files_is_no_obstacle(
    shell: Shell, namespace: str, tmp_path: Path
) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()

    result = await shell.run("status", TMPDIR=str(folder))

    assert (result.err, list(folder.iterdir())) == ("", [])
    assert "1 PodSet" in result.out


async def test_proxy_ends_if_nobody_reads_the_output(shell: Shell, namespace: str) -> None:
    read, write = os.pipe()
    os.close(read)
    process = subprocess.Popen(
        [*_COMMAND, "problems"], env=shell.environment, stdout=write, stderr=subprocess.PIPE
    )
    os.close(write)
    _, err = await asyncio.to_thread(process.communicate)

    assert (process.returncode, err) == (0, b"")
    assert shell.find_rest() == []


async def test_failure_of_kubectl_is_shown(shell: Shell) -> None:
    context = await shell.run("status", "--context", "nosuch")
    missing = await shell.run("status", KUBECTL="/nosuch/kubectl")
    unfinished = await shell.run("status", "--context")
    shell.write_kubectl("echo 'Error: unknown flag: --append-server-path' >&2; exit 1")
    old = await shell.run("status")

    assert (context.code, missing.code, unfinished.code, old.code) == (5, 5, 2, 5)
    assert 'context "nosuch" does not exist' in context.err
    assert "Check --context and --kubeconfig" in context.err
    assert "Cannot find /nosuch/kubectl" in missing.err
    assert "--context needs a value." in unfinished.err
    assert "unknown flag: --append-server-path" in old.err
    assert "kubectl must be 1.32 or later" in old.err
    assert shell.find_rest() == []


@contextmanager
def serve_http(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            """Do not log requests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


async def test_server_that_is_not_there_or_does_not_respond_is_named(shell: Shell) -> None:
    ended = threading.Event()
    shell.change("cluster", server="http://127.0.0.1:9")
    refused = await shell.run("status")
    with serve_http(lambda _: print(ended.wait())) as url:
        silent = await shell.run("status", f"--server={url}", "--request-timeout=100ms")
        ended.set()

    assert (refused.code, silent.code) == (5, 5)
    assert "The API server does not respond: dial tcp 127.0.0.1:9" in refused.err
    assert "The API server does not respond: timed out" in silent.err
    assert shell.find_rest() == []


async def test_path_of_the_server_is_kept(shell: Shell) -> None:
    asked: list[str] = []

    def refuse(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        handler.send_error(403)

    with serve_http(refuse) as url:
        result = await shell.run("status", "--server", f"{url}/k8s/clusters/c-1")

    assert result.code == 4
    assert asked
    assert all(path.startswith("/k8s/clusters/c-1/api") for path in asked)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", None), ("0", None), ("5", 5), ("500ms", 0.5), ("1m30s", 90), ("1.5h", 5400)],
)
def test_duration_is_read_as_kubectl_does(text: str, seconds: float | None) -> None:
    assert Kubectl([f"--request-timeout={text}"]).timeout == seconds
