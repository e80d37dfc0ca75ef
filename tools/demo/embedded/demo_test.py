"""The demo on this machine works with the tools that people bring, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kubernetes
import pytest

from tools.cluster.demo_state import State
from tools.cluster.errors import ToolError
from tools.demo.embedded.demo import Host
from tools.dev.operators import ROOT

pytestmark = pytest.mark.apiserver
_EXAMPLES = ROOT / "operators" / "podset" / "examples"
_SECONDS = 120.0


@dataclass
class Demo:
    """A running demo of podset."""

    state: State
    host: Host

    def kubectl(self, *arguments: str, stdin: str | None = None, code: int = 0) -> str:
        """Run kubectl and return its whole output."""
        return self.run(str(self.binary), *arguments, stdin=stdin, code=code)

    @property
    def binary(self) -> Path:
        return Path(os.environ["KUBEBUILDER_ASSETS"]) / "kubectl"

    def run(self, *command: str, stdin: str | None = None, code: int | None = 0) -> str:
        """Run a program on the demo and return its whole output; None accepts any exit code."""
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            cwd=ROOT,
            env={
                **os.environ,
                "KUBECONFIG": str(self.state.kubeconfig),
                "HOME": str(self.state.folder),
                "KUBECTL": str(self.binary),
                "PYTHONPATH": str(ROOT),
            },
        )
        output = done.stdout + done.stderr
        assert code in (None, done.returncode), f"{' '.join(command)}: {done.returncode}\n{output}"
        return output

    def get(self, *arguments: str) -> Any:
        """Return what `kubectl get` finds."""
        return json.loads(self.kubectl("get", *arguments, "--output=json"))


def start(folder: Path) -> Demo:
    state = State(folder)
    host = Host(state, ["podset", "--port", "0"])
    host.wait_ready()
    return Demo(state, host)


def until(probe: Callable[[], object]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not probe():
        assert time.monotonic() < deadline, "gave up waiting"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Run the demo of podset with two of its examples."""
    running = start(tmp_path_factory.mktemp("demo"))
    try:
        for name in ("podset-sample", "podset-rolling-update"):
            running.kubectl("apply", "--filename", str(_EXAMPLES / f"{name}.yaml"))
        running.kubectl("wait", "--for=condition=Ready", "podset", "--all", "--timeout=120s")
        yield running
    finally:
        running.host.stop()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("get podsets", "AllAvailable"),
        ("get podsets -o wide", "REVISION"),
        ("get podset podset-sample -o yaml", "kind: PodSet"),
        ("get pods -o wide", "simulated-1"),
        ("get pods -l app=absent", "No resources found"),
        ("get pods --field-selector=status.phase=Running", "podset-sample-pod-0"),
        ("get pods --sort-by=.metadata.name", "podset-sample-pod-2"),
        ("get all -A", "deployment.apps/podset"),
        ("get nodes", "Ready"),
        ("get events --sort-by=.lastTimestamp", "PodsCreated"),
        ("events", "podset-sample"),
        ("describe podset podset-sample", "PodsCreated"),
        ("describe pod podset-sample-pod-0", "simulated-1"),
        ("describe node simulated-1", "simulated"),
        ("explain podset.spec.replicas", "replicas <integer>"),
        ("explain pod.spec.containers", "<[]Container>"),
        ("api-resources", "podsets"),
        ("api-versions", "batch.tutorial.kubebuilder.io/v1"),
        ("version", "Server Version"),
        ("cluster-info", "is running at"),
        ("auth whoami", "Username"),
        ("auth can-i create podsets", "yes"),
        ("auth can-i --list", "*.*"),
        (f"apply -f {_EXAMPLES / 'podset-sample.yaml'}", "podset-sample"),
        (f"diff -f {_EXAMPLES / 'podset-sample.yaml'}", ""),
        ("label podset podset-sample tried=yes", "labeled"),
        ("annotate podset podset-sample tried=yes", "annotated"),
        ("create configmap tried --from-literal=a=b", "created"),
        ("create deployment web --image=web:1 --replicas=2", "created"),
        ("rollout status deployment/web --timeout=120s", "successfully rolled out"),
        ("set image deployment/web web=web:2", "image updated"),
        ("rollout status deployment web --timeout=120s", "successfully rolled out"),
        ("delete deployment web --cascade=foreground", "deleted"),
        ("run one --image=busybox", "created"),
        ("wait --for=condition=Ready pod/one --timeout=120s", "condition met"),
        ("delete pod one", "deleted"),
        ("create namespace team", "created"),
        ("delete namespace team", "deleted"),
    ],
)
def test_kubectl_works(demo: Demo, command: str, expected: str) -> None:
    assert expected in demo.kubectl(*command.split())


def test_server_side_apply_names_the_conflict(demo: Demo) -> None:
    manifest = json.dumps(
        {
            "apiVersion": "batch.tutorial.kubebuilder.io/v1",
            "kind": "PodSet",
            "metadata": {"name": "podset-sample"},
            "spec": {"replicas": 4},
        }
    )
    apply = ("apply", "--server-side", "--field-manager=other", "--filename=-")

    assert ".spec.replicas" in demo.kubectl(*apply, stdin=manifest, code=1)


def test_wrong_manifest_is_refused(demo: Demo) -> None:
    patch = ("patch", "podset/podset-sample", "--type=merge")

    assert "should be greater" in demo.kubectl(*patch, '-p={"spec":{"replicas":-1}}', code=1)
    assert "no container runs" in demo.kubectl("logs", "podset-sample-pod-0", code=1)


def test_suggestions_of_the_demo_show_what_they_say(demo: Demo) -> None:
    uid = demo.get("pod", "podset-sample-pod-0")["metadata"]["uid"]
    demo.kubectl("delete", "pod", "podset-sample-pod-0")
    demo.kubectl("scale", "podset", "podset-sample", "--replicas=5")
    until(lambda: demo.get("podset", "podset-sample")["status"].get("readyReplicas") == 5)
    assert all(pod["metadata"]["uid"] != uid for pod in demo.get("pods")["items"])

    container = {"name": "app", "image": "demo.invalid/app"}
    change = {"spec": {"template": {"spec": {"containers": [container]}}}}
    broken = "podset/podset-rolling-update"
    demo.kubectl("patch", broken, "--type=merge", f"-p={json.dumps(change)}")

    def why() -> bool:
        output = demo.run(sys.executable, "-m", "kubectl_slipway", "why", broken, code=None)
        return "demo.invalid/app" in output

    until(why)
    assert "podset" in demo.run(sys.executable, "-m", "kubectl_slipway", "status")


def test_official_client_works(demo: Demo) -> None:
    connect: Any = kubernetes.config.new_client_from_config
    client = connect(str(demo.state.kubeconfig))
    with client:
        custom = kubernetes.client.CustomObjectsApi(client)
        place = ("batch.tutorial.kubebuilder.io", "v1", "default", "podsets")
        found: Any = custom.list_namespaced_custom_object(*place)
        pods = kubernetes.client.CoreV1Api(client).list_namespaced_pod("default")

    assert "podset-sample" in [each["metadata"]["name"] for each in found["items"]]
    assert pods.items


@pytest.mark.skipif("SLIPWAY_HELM" not in os.environ, reason="SLIPWAY_HELM: no helm is built")
def test_helm_installs_upgrades_and_removes_a_chart(demo: Demo, tmp_path: Path) -> None:
    helm, chart = os.environ["SLIPWAY_HELM"], tmp_path / "web"
    demo.run(helm, "create", str(chart))
    shutil.rmtree(chart / "templates" / "tests")

    assert "kind: Deployment" in demo.run(helm, "template", "web", str(chart))
    assert "deployed" in demo.run(helm, "install", "web", str(chart))
    demo.run(helm, "upgrade", "web", str(chart), "--set", "replicaCount=2")
    assert demo.get("deployment", "web")["spec"]["replicas"] == 2
    assert "web" in demo.run(helm, "list")
    assert "uninstalled" in demo.run(helm, "uninstall", "web")


def test_second_demo_is_refused(demo: Demo) -> None:
    with pytest.raises(ToolError, match="runs already"):
        demo.state.claim()


def _processes(folder: Path) -> list[str]:
    """Return the processes whose environment names a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = path.read_bytes()
            command = path.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in environment + command:
            found.append(command.replace(b"\0", b" ").decode())
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="/proc: needs Linux")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_demo_leaves_no_process_however_it_ends(tmp_path: Path, number: int) -> None:
    demo = start(tmp_path)
    pid = demo.state.find_pid()
    assert pid is not None
    assert any("operators.podset" in each for each in _processes(tmp_path))

    os.kill(pid, number)

    demo.host.wait()
    until(lambda: not _processes(tmp_path))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="/proc: needs Linux")
def test_demo_ends_with_whoever_started_it_unless_detached(tmp_path: Path) -> None:
    code = (
        "import sys, os\n"
        "from pathlib import Path\n"
        "from tools.demo.embedded.demo import Host\n"
        "from tools.cluster.demo_state import State\n"
        "host = Host(State(Path(sys.argv[1])), ['podset', '--port', '0'])\n"
        "host.wait_ready()\n"
        "if len(sys.argv) > 2: host.detach()\n"
        "os._exit(0)\n"
    )
    for words in (["--detach"], []):
        command = [sys.executable, "-c", code, str(tmp_path), *words]
        subprocess.run(command, check=True, cwd=ROOT, timeout=_SECONDS)
        if words:
            assert State(tmp_path).stop()
        until(lambda: not _processes(tmp_path))
