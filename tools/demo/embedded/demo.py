"""`./dev demo` on this machine: start the host, show objects turning Ready, then follow events."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

from rich.console import Console

from tools.cluster.binaries import find_kubectl, find_real_assets
from tools.cluster.demo_state import State, demo_state
from tools.cluster.errors import ToolError
from tools.cluster.kubectl import Kubectl
from tools.cluster.progress import format_seconds, open_progress
from tools.demo.examples import Example, find_all_examples
from tools.demo.run import watch_examples
from tools.dev.operators import ROOT
from tools.dev.options import Target

_START_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.05
_STOP_SECONDS: Final = 60.0
_COLUMNS: Final = (
    "jsonpath={.lastTimestamp}{.eventTime}{'\\t'}{.involvedObject.kind}/{.involvedObject.name}"
    "{'\\t'}{.reason}{'\\t'}{.message}{'\\n'}"
)
_LIMITED: Final = {
    "jmxexporter": "jmxexporter: no JVM runs here, so its objects find no pods (--kind runs JVMs)",
    "pulsarconsumer": "pulsarconsumer: no Pulsar broker runs here, so its objects do not become"
    " Ready (--kind runs a broker)",
}
"""What operators cannot show without real containers."""
_NEVER_READY: Final = frozenset({"pulsarconsumer"})


class Host:
    """The host of the demo as a process.

    Args:
        state: Where it keeps its files.
        arguments: Its arguments.
    """

    def __init__(self, state: State, arguments: Sequence[str]) -> None:
        """Start the process; it ends when this process does."""
        self._state = state
        state.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state.ready.unlink(missing_ok=True)
        with state.log("host").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tools.demo.embedded.host", str(state.folder), *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )

    def wait_ready(self) -> str:
        """Wait until everything has started; returns what the API server is.

        Raises:
            ToolError: It ended, or did not become ready.
        """
        deadline = time.monotonic() + _START_SECONDS
        while not self._state.ready.exists():
            self.check()
            if time.monotonic() > deadline:
                raise ToolError(f"The demo did not start; its log: {self._state.log('host')}")
            time.sleep(_POLL_SECONDS)
        return self._state.ready.read_text()

    def check(self) -> None:
        """Raise an error with the end of the log if the host has ended."""
        if self._process.poll() is not None:
            lines = self._state.log("host").read_text(errors="replace").splitlines()
            raise ToolError("\n".join(["The demo has ended:", *lines[-5:]]))

    def detach(self) -> None:
        """Let the host go on without this process."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"detach\n")
        self._process.stdin.close()

    def stop(self) -> None:
        """End the host and everything that it runs."""
        if self._process.poll() is None:
            self._process.terminate()
        self.wait()

    def wait(self) -> None:
        """Wait until the host has ended."""
        self._process.wait(_STOP_SECONDS)
        if self._process.stdin is not None:
            self._process.stdin.close()


def run_embedded_demo(
    operators: Sequence[str],
    *,
    namespace: str,
    detach: bool = False,
    real: bool = False,
    cloud: bool = False,
) -> None:
    """Run operators on this machine and show their examples becoming Ready.

    Args:
        operators: Operators to run.
        namespace: Namespace of the examples.
        detach: Whether to return when all is Ready, and leave the demo running.
        real: Whether to run kube-apiserver and etcd instead of the built-in API server.
        cloud: Whether to show the chapters of the cloud demo instead of examples.

    Raises:
        ToolError: A step failed, or the objects were not Ready in time.
    """
    started = time.monotonic()
    progress, console = open_progress("demo"), Console(highlight=False)
    examples = [] if cloud else find_all_examples(operators)
    state = demo_state()
    if state.find_pid():
        raise ToolError("A demo runs already: run `./dev down` to end it")
    arguments = [*operators, *(["--cloud"] if cloud else [])]
    if real:
        arguments += ["--assets", str(find_real_assets())]
    host = Host(state, arguments)
    try:
        kubectl = Kubectl(find_kubectl(progress=progress), state.kubeconfig)
        server = host.wait_ready()
        _print_banner(console, server, operators, state)
        if namespace != "default":
            kubectl.read("create", "namespace", namespace)
        if cloud:
            _show_cloud(kubectl, namespace, console)
        else:
            _show_examples(examples, kubectl, namespace, console)
        console.print(f"\nAll Ready after {format_seconds(time.monotonic() - started)}.")
        for operator in operators:
            if operator in _LIMITED:
                console.print(f"  {_LIMITED[operator]}", markup=False, soft_wrap=True)
        console.print(_render_hints(operators, cloud=cloud), markup=False, soft_wrap=True)
        if detach:
            host.detach()
            console.print("The demo runs in the background; `./dev down` ends it.")
            return
        _follow(host, kubectl, console)
    except KeyboardInterrupt:
        console.print("\nEnding the demo.")
    except BaseException:
        host.stop()
        raise
    host.stop()


def _print_banner(console: Console, server: str, operators: Sequence[str], state: State) -> None:
    count = len(operators)
    console.print("[bold]Slipway demo on this machine[/bold], without root and containers.")
    console.print("  Real:       the operators, their objects and events")
    console.print("  Simulated:  nodes, containers, disks")
    console.print(f"  API server: {server}; it keeps nothing after the demo", soft_wrap=True)
    named = ", ".join(operators)
    processes = "1 process" if count == 1 else f"{count} processes"
    console.print(f"  Operators:  {named} ({processes}; logs in {state.folder})\n", soft_wrap=True)


def _show_examples(
    examples: Sequence[Example], kubectl: Kubectl, namespace: str, console: Console
) -> None:
    for example in examples:
        console.print(f"[bold]{example.operator}[/bold]: {example.shows}")
        kubectl.read("apply", "--namespace", namespace, "--filename", example.path)
    expected = [each for each in examples if each.operator not in _NEVER_READY]
    if expected:
        watch_examples(expected, kubectl, namespace, console)


def _show_cloud(kubectl: Kubectl, namespace: str, console: Console) -> None:
    from tools.demo.cloud import CloudDemo

    CloudDemo(Target(kubectl, None), namespace, console).run()


def _render_hints(operators: Sequence[str], *, cloud: bool) -> str:
    kubectl = "kubectl" if shutil.which("kubectl") else "./dev kubectl"
    lines = [('export KUBECONFIG="$(./dev kubeconfig)"', "for kubectl, helm and your own client")]
    if "podset" in operators:
        container = '{"name":"app","image":"demo.invalid/app"}'
        change = f'{{"spec":{{"template":{{"spec":{{"containers":[{container}]}}}}}}}}'
        broken = "podset podset-rolling-update"
        lines += [
            (f"{kubectl} scale podset podset-sample --replicas=5", "two more pods"),
            (f"{kubectl} delete pod podset-sample-pod-0", "a new pod takes its place"),
            (f"{kubectl} patch {broken} --type=merge -p '{change}'", "break it: no such image"),
            ("./dev kubectl slipway why podset/podset-rolling-update", "ask why"),
        ]
    if not cloud:
        lines.append(("./dev demo --kind", "the same with containers, on a kind cluster"))
    lines.append(("./dev down", "end the demo, as Ctrl-C does"))
    return "\n".join(["Try in a second terminal:", *(f"  {one}  # {why}" for one, why in lines)])


def _follow(host: Host, kubectl: Kubectl, console: Console) -> None:
    """Print the events of the operators until the user interrupts, or the demo ends."""
    console.print("\nEvents of the operators (Ctrl-C ends the demo):")
    command = kubectl.command(
        "get", "events", "--all-namespaces", "--watch-only", "--output", _COLUMNS
    )
    events = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert events.stdout is not None
        for line in events.stdout:
            moment, *rest = line.rstrip("\n").split("\t")
            shown = "  ".join([moment[11:19], *rest])
            console.print(shown, markup=False, soft_wrap=True)
        host.check()
    finally:
        events.kill()
        events.wait()
