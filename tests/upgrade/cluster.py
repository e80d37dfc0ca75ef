"""An API server, and the processes that connect to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Self

from tools.cluster.kubectl import render_list

SECONDS: Final = 300.0
"""Time-out of each wait: a busy machine may need minutes to start an operator."""
_GRACE_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.3

type Manifest = dict[str, Any]


class Cluster:
    """An API server, and what tests do with it by kubectl."""

    def __init__(self, kubectl: Path, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        # A cache of its own: by default, servers with the same port would share one.
        cache = kubeconfig.with_name("kubectl-cache")
        self._command = [str(kubectl), f"--kubeconfig={kubeconfig}", f"--cache-dir={cache}"]

    def run(self, *arguments: str, stdin: str = "") -> str:
        done = self._try(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def _try(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._command, *arguments], input=stdin, capture_output=True, text=True, check=False
        )

    def apply(self, *manifests: Manifest) -> None:
        self.run("apply", "--filename", "-", stdin=render_list(manifests))

    def items(self, kinds: str, namespace: str = "default") -> list[Manifest]:
        text = self.run("get", kinds, "--output=json", f"--namespace={namespace}")
        found: list[Manifest] = json.loads(text)["items"]
        return found

    def install_crds(self, tree: Path, operator: str) -> None:
        """Create or replace the CRDs of a version, and wait until they are served."""
        crds = tree / "helm" / operator / "files" / "crds"
        self.run("apply", "--server-side", "--force-conflicts", f"--filename={crds}")
        names = (path.stem.split("_") for path in sorted(crds.glob("*.yaml")))
        self.wait_served([f"{plural}.{group}" for group, plural in names])

    def wait_served(self, kinds: Sequence[str]) -> None:
        """List kinds until that succeeds: CRDs are Established before they are served."""
        deadline = time.monotonic() + SECONDS
        while (done := self._try("get", ",".join(kinds))).returncode:
            assert time.monotonic() < deadline, done.stderr
            time.sleep(POLL_SECONDS)

    def set_status(self, kind: str, name: str, status: Manifest) -> None:
        patch = json.dumps({"status": status})
        self.run("patch", kind, name, "--subresource=status", "--type=merge", "--patch", patch)

    def uids(self, kinds: str, namespace: str = "default") -> dict[str, str]:
        """Return the UIDs of objects, and of pods into which injectors were added."""
        found = {}
        for item in self.items(kinds, namespace):
            name, uid = item["metadata"]["name"], item["metadata"]["uid"]
            found[f"{item['kind']}/{name}"] = uid
            for injector in item.get("spec", {}).get("ephemeralContainers", ()):
                found[f"Injector/{name}/{injector['name']}"] = uid
        return found


class Process:
    """A process that connects to the API server."""

    def __init__(
        self, tree: Path, module: str, name: str, cluster: Cluster, folder: Path, **settings: str
    ) -> None:
        prefix = module.rpartition(".")[2].upper()
        common = {"KUBECONFIG": str(cluster.kubeconfig), "METRICS_BIND_ADDRESS": "0"}
        named = {**common, "HEALTH_PROBE_BIND_ADDRESS": "0", **settings}
        environment = {
            **os.environ,
            **{f"{prefix}_{key}": value for key, value in named.items()},
            "POD_NAMESPACE": "default",
            "POD_NAME": name,
            "PYTHONPATH": str(tree),
        }
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module],
                cwd=tree,
                env=environment,
                stdout=output,
                stderr=output,
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def assert_running(self) -> None:
        assert self._process.poll() is None, f"it ended: {self.log[-3000:]}"

    def stop(self) -> None:
        """End it as a kubelet does: in order, so that it releases the Lease, or by force."""
        self._process.terminate()
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Load:
    """Create objects all the time, as a busy cluster does."""

    def __init__(self, cluster: Cluster, build: Callable[[str], Manifest], prefix: str) -> None:
        self.names: list[str] = []
        self._cluster, self._build, self._prefix = cluster, build, prefix
        self._ended = threading.Event()
        self._executor = ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        self._done = self._executor.submit(self._run)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._executor.shutdown()
        self._done.result()

    def _run(self) -> None:
        while not self._ended.wait(0.5):
            name = f"{self._prefix}-{len(self.names)}"
            self._cluster.apply(self._build(name))
            self.names.append(name)
